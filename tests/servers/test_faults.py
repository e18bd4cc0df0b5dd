"""The table of faults over stdio: what a caller sees of each, what is untouched by it, and that it passes.

A server that dies, floods or lies in other ways is met in `tests/sources/mcp/test_source.py` too, where the question is
what the source does next.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import faulty
from tests.servers.launching import events, faulty_server, received
from tests.servers.table import HASTY, PATIENT, Told, bench, call, entry_of, failed, refused, unavailable, why_not
from tests.waiting import until

from toolcrib.catalog import intake
from toolcrib.catalog.state import SourceStatus
from toolcrib.core.errors import StaleExpansion
from toolcrib.sources.mcp import Patience
from toolcrib.sources.mcp.messages import Lines, Overlong, request_answered
from toolcrib.sources.mcp.refusals import MAX_MESSAGE_BYTES

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])

NO_MESSAGE = failed("`bench` answered with what is no message of the protocol.")
TOO_LONG = failed("`bench` answered with more than 32 MiB, which was not read.")
NO_ANSWER = unavailable("`bench` did not answer within 0.5 s.")
GONE = unavailable("`bench` went away before it answered.")

AT_START = {
    "exits at start": (["exit-at-start"], unavailable("it exited", retryable=True)),
    "never answers initialize": (["silent"], unavailable("did not answer within 0.5 s", retryable=True)),
    "starts too slowly": (["slow-start=60"], unavailable("did not answer within 0.5 s", retryable=True)),
    "never lists its tools": (["silent-list"], unavailable("did not list its tools within 0.5 s", retryable=True)),
}
"""Faults that keep a server from being listed."""

IN_A_CALL: dict[str, Told | str] = {
    "silence": NO_ANSWER,
    "die": GONE,
    "torn": GONE,
    "orphan": GONE,
    "unended": "plain",
    "split": "plain",
    "drip": "plain",
    "endless-drip": NO_ANSWER,
    "twice": "plain",
    "progress-after": "plain",
    "flood": "plain",
    "wrong-version": NO_MESSAGE,
    "no-version": NO_MESSAGE,
    "no-outcome": NO_MESSAGE,
    "result-list": NO_MESSAGE,
    "result-null": NO_MESSAGE,
    "error-text": NO_MESSAGE,
    "both": failed("`bench` refused to run `raw`: Both at once"),
    "null-error": "plain",
    "method-number": NO_ANSWER,
    "array": "plain",
    "empty-array": NO_ANSWER,
    "wrong-id": NO_ANSWER,
    "no-id": NO_ANSWER,
    "null-id": NO_ANSWER,
    "text-id": "plain",
    "float-id": "plain",
    "id-last": "plain",
    "no-json": NO_ANSWER,
    "half": NO_ANSWER,
    "deep": NO_ANSWER,
    "not-utf-8": "pl\ufffdin",
    "half-a-pair": "pl?in",
    "byte-order-mark": "plain",
    "not-a-number": "plain",
    "closed-code": failed("`bench` refused to run `raw`: The bench is closed"),
    "timeout-code": failed("`bench` refused to run `raw`: The bench is slow"),
    "long": TOO_LONG,
    "long-id-last": TOO_LONG,
    "long-garbage": "plain",
}
"""What a call gives that is answered in this way: an error, or the text of a result."""

DEADLY = frozenset({"die", "torn", "orphan", "unended"})
"""Those that end the server; it is started again for the next call."""


@ERAS
@pytest.mark.parametrize("fault", AT_START)
async def test_a_server_that_cannot_be_listed_is_told_of_and_used_once_it_is_well(
    fault: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.05)
    (flag := tmp_path / "sick").touch()
    words, told = AT_START[fault]
    log = tmp_path / "seen.jsonl"
    server = faulty_server(*words, "--era", era, "--while", str(flag), "--log", str(log))
    async with bench(server, Patience(start_s=0.5, list_s=0.5, call_s=30), ready=False) as crib:
        assert entry_of(crib).status is SourceStatus.FAILED
        told.of(why_not(crib))
        assert crib.list().unavailable == ("bench",)
        flag.unlink()
        await until(lambda: "bench.echo" in crib.view().tools, "the server is listed once it is well")
        assert (await call(crib, "bench.echo", text="well")).text == "well"


@ERAS
@pytest.mark.parametrize("fault", IN_A_CALL)
async def test_an_odd_answer_is_told_to_its_caller_alone_and_the_next_call_goes_through(
    fault: str, era: str, tmp_path: Path
) -> None:
    expected = IN_A_CALL[fault]
    log = tmp_path / "seen.jsonl"
    server = faulty_server("raw", "--era", era, "--log", str(log))
    patience = HASTY if expected is NO_ANSWER else PATIENT
    async with bench(server, patience) as crib:
        others: list[Any] = []

        async def hold_on() -> None:
            """Another call of the same server, which is under way all the while."""
            slow = crib.expand_tool("bench.slow").handle
            others.append(await crib.call_tool(slow, {"steps": 1, "step_s": 0.2}))

        async with anyio.create_task_group() as calls:
            if fault not in DEADLY:
                calls.start_soon(hold_on)
            if isinstance(expected, Told):
                expected.of(await refused(crib, "bench.raw", how=fault))
            else:
                assert (await call(crib, "bench.raw", how=fault)).text == expected
        assert [other.text for other in others] == ([] if fault in DEADLY else ["done after 1 steps"])
        if fault == "unended":
            await until(lambda: not _alive(log), "the server has ended")
        assert (await call(crib, "bench.echo", text="next")).text == "next"
        assert len(events(log, "start")) == (2 if fault in DEADLY else 1)
    assert not any(psutil.pid_exists(child["pid"]) for child in events(log, "child"))


def _alive(log: Path) -> bool:
    return any(psutil.pid_exists(started["pid"]) for started in events(log, "start"))
