"""A program that is killed at any moment continues from its last saved state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.loop.playing import WAYS, Way

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is forked for each moment")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_killed_program_sends_the_same_next_request_and_repeats_no_finished_call(way: Way, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agent.loop.interrupted", str(way), str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(ended.stdout)
    whole, parts = told["whole"], told["parts"]

    assert whole["output"] == {"total": 3}
    assert sorted(whole["ran"]) == ["a", "b", "extra c"]
    for number, part in enumerate(parts, start=1):
        before, after = part["before"], part["after"]
        assert before["ended"] == -signal.SIGKILL
        assert after["output"] == whole["output"]
        assert after["saved"] == whole["saved"], f"after event {number}"
        # A request that was running when the process was killed is sent again.
        assert [*dict.fromkeys(after["sent"])] == whole["sent"], f"after event {number}"
        again = after["ran"][len(before["ran"]) :]
        assert not [text for text in again if f"did {text}" in before["finished"]], f"after event {number}"
        assert {*after["ran"]} == {*whole["ran"]}
    assert any(part["before"]["open"] for part in parts), "in the middle of a batch"
    assert len({part["before"]["turns"] for part in parts}) == 5, "between any two turns"
