"""What the owner of a gateway reads in its log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.catalogs import tool
from tests.servers.launching import faulty_entry, replace_config, write_config
from tests.surfaces.http.asking import TOKENS
from tests.surfaces.http.here import served_here
from tests.waiting import until

from toolcrib import Toolcrib
from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.base import Listing
from toolcrib.testing.scripted import ScriptedSource

pytestmark = pytest.mark.anyio


async def test_the_log_says_in_one_line_what_a_changed_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.crib.POLL_S", 0.01)
    caplog.set_level(logging.INFO, "toolcrib.crib")

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if "was taken over" in record.getMessage()]

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
        f"{here.config} was taken over: servers added: three; removed: two",
        f"{here.config} was taken over: servers changed: one",
        f"{here.config} was taken over: servers removed: three; policy changed; who may ask changed",
        f"{here.config} was taken over: no server, policy or token changed",
    ]


async def test_a_fault_of_ours_stands_in_the_log_and_not_in_the_answer(
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
    """Says each time why it cannot be listed."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("broken", [tool("broken.tool")])
        self.reasons = [*reasons]

    async def list_tools(self) -> Listing:
        raise SourceUnavailable(self.reasons.pop(0))


async def test_a_server_that_fails_in_the_same_way_again_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolcrib.catalog.intake.FIRST_RETRY_S", 0.0)
    crib, source = (
        Toolcrib(),
        Failing(*["no such program"] * 3, "`broken` exited", "`broken` exited"),
    )
    crib.add_source(source)
    async with served_here(tmp_path, crib):
        await until(lambda: not source.reasons, "it was tried as often")
    warned = [record.getMessage() for record in caplog.records if record.name == "toolcrib.catalog.intake"]
    assert warned[:2] == ["`broken`: no such program", "`broken` exited"]
