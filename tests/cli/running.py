"""The command as a person runs it, and what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from toolcrib.cli import main

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed, and with which code it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object that it printed, on one line, and nothing else."""
        line, end, rest = self.out.partition("\n")
        assert (end, rest) == ("\n", "")
        assert line.startswith("{")
        return json.loads(line)


def toolcrib(*words: object, given: str | None = None) -> Ended:
    """Run `toolcrib` with `words`, `given` on its standard input: in this process, which spares its imports."""
    result = CliRunner().invoke(main, [str(word) for word in words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def toolcrib_process(*words: object, given: str | None = None, cwd: Path | None = None) -> Ended:
    """The same in a process of its own, for what only that shows."""
    ended = subprocess.run(
        [TOOLCRIB, *map(str, words)],
        input=given or "",
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
        env={**os.environ, "NO_COLOR": "1"},
        cwd=cwd,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)
