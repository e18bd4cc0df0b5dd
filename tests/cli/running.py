"""The command as a person runs it, in a process of its own, and what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


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


def toolcrib(*words: object, given: str | None = None, cwd: Path | None = None) -> Ended:
    """Run `toolcrib` with `words`, `given` on its standard input; it must end on its own."""
    ended = subprocess.run(
        [TOOLCRIB, *map(str, words)],
        input=given or "",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
        cwd=cwd,
        env=ENVIRONMENT,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)
