"""A process that the zygote forks behaves like a process that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.zygote import TOOLCRIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="without Linux, everything is started as usual")

SERVE = (TOOLCRIB, "serve", "--no-cache", "--no-audit")


def gateway(folder: Path) -> subprocess.Popen[bytes]:
    (folder / "mcp.json").write_text("{}")
    return subprocess.Popen([*SERVE, "mcp.json"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def is_forked(process: subprocess.Popen[bytes]) -> bool:
    return "tests.zygote" in psutil.Process(process.pid).cmdline()


def test_a_forked_gateway_is_a_child_of_the_test_that_can_be_killed(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        assert is_forked(process)
        assert psutil.Process(process.pid).ppid() == os.getpid()
        process.kill()
        assert process.wait(30) == -signal.SIGKILL


def test_a_forked_gateway_has_the_given_streams_and_folder(tmp_path: Path) -> None:
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    with gateway(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(ping + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_forked_process_has_the_given_environment_and_returns_its_exit_code(tmp_path: Path) -> None:
    environ = {**os.environ, "TOOLCRIB_CONFIG": str(tmp_path / "absent.json")}

    ended = subprocess.run([TOOLCRIB, "list", "--json"], env=environ, capture_output=True, check=False, text=True)

    assert "absent.json" in json.loads(ended.stdout)["error"]["message"]
    assert ended.returncode == 2


@pytest.mark.true_start
def test_a_test_with_the_true_start_mark_starts_real_processes(tmp_path: Path) -> None:
    with gateway(tmp_path) as process:
        assert not is_forked(process)
        process.kill()
