"""Tests for the log that the owner of a gateway reads."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path

import anyio
import pytest
from tests.catalogs import tool
from tests.servers.launching import Json, faulty_entry, replace_config, write_config
from tests.surfaces.http.asking import TOKENS
from tests.surfaces.http.here import served_here
from tests.until import until

from toolcrib import Toolcrib
from toolcrib.config.gateway_settings import ToolcribSettings
from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.base import Listing
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio


async def test_the_log_summarizes_a_configuration_change_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    caplog.set_level(logging.INFO, "toolcrib.crib.following")

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith("applied ")]

    async with served_here(tmp_path, one=faulty_entry(), two=faulty_entry()) as here:
        write_config(here.config, one=faulty_entry(), three=faulty_entry())
        await until(lambda: len(told()) == 1, "the first change")
        write_config(here.config, one=faulty_entry("--log", str(tmp_path / "log")), three=faulty_entry())
        await until(lambda: len(told()) == 2, "the second change")
        ours = {"policy": {"otherwise": "allow"}, "auth": {"tokens": TOKENS}}
        write_config(here.config, toolcrib=ours, one=faulty_entry("--log", str(tmp_path / "log")))
        await until(lambda: len(told()) == 3, "the third change")
        replace_config(here.config, here.config.read_text() + "\n")
        await until(lambda: len(told()) == 4, "the fourth change")
    assert told() == [
        f"applied {here.config}: servers added: three; removed: two",
        f"applied {here.config}: servers changed: one",
        f"applied {here.config}: servers removed: three; policy changed; authentication changed",
        f"applied {here.config}: no changes",
    ]


CHANGES: dict[str, tuple[Json, str]] = {
    "start_timeout_s": ({"start_timeout_s": 50}, "limits changed"),
    "list_timeout_s": ({"list_timeout_s": 20}, "limits changed"),
    "call_timeout_s": ({"call_timeout_s": 200}, "limits changed"),
    "idle_timeout_s": ({"idle_timeout_s": 3000}, "limits changed"),
    "max_concurrent_calls": ({"max_concurrent_calls": 3}, "limits changed"),
    "max_queued_calls": ({"max_queued_calls": 3}, "limits changed"),
    "calls_per_minute": ({"calls_per_minute": 10}, "limits changed"),
    "burst_calls": ({"burst_calls": 10}, "limits changed"),
    "lookups_per_minute": ({"lookups_per_minute": 8000}, "limits changed"),
    "max_isolated_principals": ({"max_isolated_principals": 7}, "limits changed"),
    "max_text_bytes": ({"max_text_bytes": 5000}, "limits changed"),
    "max_binary_bytes": ({"max_binary_bytes": 5000}, "limits changed"),
    "categories": ({"categories": {"Sums": {"summary": "Reckon"}}}, "categories changed"),
    "tools": ({"tools": {"one.echo": {"tags": ["text"]}}}, "tools changed"),
    "plugins": ({"plugins": False}, "plugins changed"),
    "capabilities": ({"capabilities": {"docker": {"program": "docker"}}}, "capabilities changed"),
    "declared": (
        {"declared": {"ops": {"tools": {"now": {"description": "Tell the time.", "command": ["date"]}}}}},
        "declared tools changed",
    ),
    "bundles": ({"bundles": {"few": {"optional": ["one.echo"]}}}, "bundles changed"),
    "policy": ({"policy": {"otherwise": "allow"}}, "policy changed"),
    "auth": ({"auth": {"tokens": TOKENS}}, "authentication changed"),
    "audit": ({"audit": False}, "audit (applied at the next start) changed"),
    "pins": ({"pins": {"otherwise": "warn"}}, "pins changed"),
    "search": ({"search": {"refuse": False}}, "search changed"),
    "sources": ({"sources": {"one": {"title": "First"}}}, "servers changed: one"),
}
"""Maps each setting to a changed value and to the words in the log."""


@pytest.mark.parametrize("setting", [field.name for field in fields(ToolcribSettings)])
async def test_the_log_names_every_setting_that_changed(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    caplog.set_level(logging.INFO, "toolcrib.crib.following")
    settings, named = CHANGES[setting]
    config = write_config(tmp_path / "mcp.json", one={"command": "x"})
    crib = Toolcrib()
    read = crib.add_config(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, read)
        await anyio.wait_all_tasks_blocked()
        write_config(config, toolcrib=settings, one={"command": "x"})
        await until(lambda: "applied " in caplog.text, "the change")
        tasks.cancel_scope.cancel()
    assert named in caplog.text.rpartition(f"applied {config}: ")[2]


async def test_an_internal_error_is_logged_and_hidden_from_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("what nobody may read")

    crib = Toolcrib()
    monkeypatch.setattr(crib, "perform", fail)
    async with served_here(tmp_path, crib) as here:
        told = await here.ask("list")
    assert told.status_code == 500
    assert "what nobody may read" not in told.text
    assert "POST /v1/list failed" in [record.getMessage() for record in caplog.records if "toolcrib" in record.name]


class Failing(ScriptedSource):
    """A source whose listings fail with the given reasons."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("broken", [tool("broken.tool")])
        self.reasons = [*reasons]

    async def list_tools(self) -> Listing:
        raise SourceUnavailable(self.reasons.pop(0))


async def test_a_repeated_server_failure_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.catalog.intake.FIRST_RETRY_S", 0.0)
    crib, source = (
        Toolcrib(),
        Failing(*["no such program"] * 3, "`broken` exited", "`broken` exited"),
    )
    crib.add_source(source)
    async with served_here(tmp_path, crib):
        await until(lambda: not source.reasons, "every listing attempt has failed")
    warned = [record.getMessage() for record in caplog.records if record.name == "toolcrib.catalog.intake"]
    assert warned[:2] == ["`broken`: no such program", "`broken` exited"]
