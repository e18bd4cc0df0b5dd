"""The demo, as `make demo` runs it, with published servers from the package index."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

LATE_S = 11
"""More than a gateway lets its first requests wait for servers."""


@pytest.mark.skipif(not (BIN / "uvx").exists() and not shutil.which("uvx"), reason="uvx is not installed")
def test_the_demo_completes_every_task_and_counts_the_cost_with_servers_that_start_late(tmp_path: Path) -> None:
    search = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    late = tmp_path / "uvx"
    late.write_text(f'#!/bin/sh\nsleep {LATE_S}\nexec {shutil.which("uvx", path=search)} "$@"\n')
    late.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{search}"}
    done = subprocess.run(
        [sys.executable, "-m", "toolcrib", "demo", "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert len(report["servers"]) >= 5
    assert report["tool_count"] >= 100
    assert {"git", "sqlite"} <= report["servers"].keys()
    assert all(step["worked"] and step["result"] for step in report["steps"])
    cost = report["cost"]
    assert cost["toolcrib"]["bytes"] == cost["toolcrib"]["operations"] + cost["toolcrib"]["answers"]
    assert cost["up_front"]["bytes"] > 2 * cost["toolcrib"]["bytes"]
