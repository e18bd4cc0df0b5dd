"""Runs the command as a person does, and returns its result."""

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
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The single JSON object that was printed, on one line."""
        line, end, rest = self.out.partition("\n")
        assert (end, rest) == ("\n", "")
        assert line.startswith("{")
        return json.loads(line)


def toolcrib(*words: object, given: str | None = None) -> Ended:
    """Run `toolcrib` with `words` and `given` on its standard input, in this process, which is faster."""
    result = CliRunner().invoke(main, [str(word) for word in words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def toolcrib_process(*words: object, given: str | None = None, cwd: Path | None = None) -> Ended:
    """Run `toolcrib` in its own process, for tests that depend on that."""
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
