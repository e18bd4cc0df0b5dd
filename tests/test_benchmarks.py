"""Every benchmark runs at a minimal size and prints one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

SMALL = {
    "calling.py": ["--calls", "2"],
    "disclosure.py": ["--tasks", "1"],
    "drift.py": ["--tools", "20"],
    "grammars.py": ["--real", "5", "--bench", "5", "--instances", "1"],
    "hostile.py": ["--seconds", "0.2", "--only", "sessions"],
    "main_path.py": [],
    "memory.py": ["--calls", "40", "--samples", "2"],
    "real_servers.py": ["--only", "time", "--offline"],
    "registering.py": ["--tools", "200", "--many", "50"],
    "search.py": ["--tools", "200"],
    "starting.py": ["--runs", "1"],
    "throughput.py": ["--rounds", "1", "--seconds", "0.1", "--tools", "20"],
    "tokens.py": [],
}

SHARED = {"catalog.py", "costly.py", "learning.py", "load.py", "rankers.py", "refusal.py", "servers.py"}
"""Modules that the benchmarks share."""

ELSEWHERE = {"browsing.py", "calibration.py", "export_minilm.py", "retrieval.py"}
"""Benchmarks that need public data sets outside of this repository, or gigabytes of third-party programs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_one_json_object(name: str) -> None:
    command = [sys.executable, str(BENCHMARKS / name), *SMALL[name]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert isinstance(json.loads(ended.stdout), dict)


def test_every_benchmark_is_listed_in_this_file() -> None:
    assert {path.name for path in BENCHMARKS.glob("*.py")} == {*SMALL, *SHARED, *ELSEWHERE}
