"""The command line that starts this Toolcrib from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolcrib.cli.clients.gateway_command import own_command, shared_command

SCRIPT = Path(sys.executable).with_name("toolcrib")


def test_the_own_command_is_the_path_it_was_called_by(tmp_path: Path) -> None:
    (link := tmp_path / "toolcrib").symlink_to(SCRIPT)
    assert own_command(str(link), sys.prefix, {}) == (str(link),)


def test_a_relative_path_to_the_program_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toolcrib").symlink_to(SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert own_command("./toolcrib", sys.prefix, {}) == (str(tmp_path / "toolcrib"),)


def test_running_as_a_module_gives_the_program_next_to_the_interpreter() -> None:
    command = own_command("/x/toolcrib/__main__.py", sys.prefix, {})
    assert command == (str(SCRIPT),)
    assert b"serve" in subprocess.run([*command, "--help"], capture_output=True, check=True).stdout


def test_the_shared_command_is_toolcrib_or_uvx_for_a_published_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shared_command(sys.prefix) == ("toolcrib",)
    cache = "/home/ada/.cache/uv/archive-v0/hnDo8e1H"
    monkeypatch.setattr(
        "toolcrib.cli.clients.gateway_command._requirement", lambda: "toolcrib @ file:///home/ada/toolcrib"
    )
    assert shared_command(cache) == ("toolcrib",)
    monkeypatch.setattr("toolcrib.cli.clients.gateway_command._requirement", lambda: "toolcrib==0.1")
    assert shared_command(cache) == ("uvx", "--from", "toolcrib==0.1", "toolcrib")


def test_a_program_in_the_uv_cache_is_started_through_uv_from_its_requirement(tmp_path: Path) -> None:
    prefix = "/home/ada/.cache/uv/archive-v0/hnDo8e1H"
    command = own_command(f"{prefix}/bin/toolcrib", prefix, {"UV": "/opt/uv"})
    assert command[:4] == ("/opt/uv", "tool", "run", "--from")
    assert command[4].startswith(("toolcrib @ ", "toolcrib=="))
    assert command[5:] == ("toolcrib",)
