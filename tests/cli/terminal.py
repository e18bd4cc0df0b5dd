"""Runs the command as a person types it: in its own process, with a terminal for questions."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cli.running import TOOLCRIB, Ended
from tests.until import DEADLINE_S

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


Answers = Sequence[tuple[str, str | Callable[[], str]]]
"""Each expected question with its answer, or with a function that makes the answer."""


def typed(*words: object, answers: Answers, environ: dict[str, str], folder: Path, columns: int = 80) -> Ended:
    """Run `toolcrib` and type each answer once its question is on the screen; standard error is on the screen too.

    Raises:
        AssertionError: a question was not asked.
    """
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [TOOLCRIB, *map(str, words)],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=folder,
        env={**environ, "COLUMNS": str(columns), "TERM": "xterm"},
        start_new_session=True,  # a question for a secret must not go to the terminal that runs the tests
    )
    os.close(inner)
    seen, deadline = "", time.monotonic() + DEADLINE_S
    waiting = [*answers]
    try:
        while True:
            ready, _, _ = select.select([outer], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"waited {DEADLINE_S:g} s in vain for {waiting[:1]} after: {seen}"
            try:
                read = os.read(outer, 65_536)
            except OSError:  # Linux reports the closed other end like this
                read = b""
            if not read:
                break
            seen += _ESCAPE.sub("", read.decode("utf-8", "replace")).replace("\r\n", "\n")
            if waiting and waiting[0][0] in seen:
                answer = waiting.pop(0)[1]
                os.write(outer, (answer if isinstance(answer, str) else answer()).encode())
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
        os.close(outer)
    assert not waiting, f"was not asked {waiting}: {seen}"
    return Ended(process.returncode, seen, "")
