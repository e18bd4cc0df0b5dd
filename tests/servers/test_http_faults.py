"""The table of faults over HTTP: the error of each fault in a call and at the first contact, and the recovery."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import ErrorData
from tests.servers import faulty
from tests.servers.faulty_http import FAULTS, KEY, RELEASE, RETRY_AFTER_S, RETRY_DATE_S
from tests.servers.launching import events, http_server
from tests.servers.table import (
    HASTY,
    PATIENT,
    ExpectedError,
    as_params,
    bench,
    call,
    concurrent_call,
    entry_of,
    failed,
    listing_error,
    refused,
    unavailable,
    until_it_works,
)
from tests.until import DEADLINE_S, until

from toolcrib.catalog import intake
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.core.errors import ErrorCode, SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.sources.mcp import HttpServer, Patience, breaker, connection, http_transport
from toolcrib.sources.mcp.asking import RequestHandlers
from toolcrib.sources.mcp.connection import connect
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.server_output import LastWords

pytestmark = pytest.mark.anyio

NO_MESSAGE = failed("`bench` answered with something that is not an MCP message.")
OTHER_ID = failed("`bench` answered with the id of a different request.")
TOO_LONG = failed("`bench` answered with more than 32 MiB, which Toolcrib did not read.")
NO_ANSWER = unavailable("`bench` did not answer within 0.5 s.")
BROKE_OFF = unavailable("`bench` closed the connection before it answered.")


def status(told: str, *, retryable: bool = False, retry_after_s: float | None = None) -> ExpectedError:
    details = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    again = "" if retry_after_s is None else f"; retry in {retry_after_s:g} s"
    return unavailable(f"`bench` answered HTTP {told}{again}.", retryable=retryable, **details)


def redirects(code: int) -> ExpectedError:
    return unavailable(f"`bench` redirects to a different address (HTTP {code}), which Toolcrib does not follow.")


IN_A_CALL: dict[str, ExpectedError | str] = {
    "400": status("400 Bad Request"),
    "400-error": failed("`bench` refused to run `raw`: The vice is taken"),
    "401": status("401 Unauthorized"),
    "401-error": status("401 Unauthorized"),
    "403": status("403 Forbidden"),
    "405": status("405 Method Not Allowed"),
    "429": status("429 Too Many Requests", retryable=True),
    "429-seconds": status("429 Too Many Requests", retryable=True, retry_after_s=RETRY_AFTER_S),
    "429-error": status("429 Too Many Requests", retryable=True, retry_after_s=RETRY_AFTER_S),
    "429-date": status("429 Too Many Requests", retryable=True, retry_after_s=RETRY_DATE_S),
    "429-nonsense": status("429 Too Many Requests", retryable=True),
    "429-for-ever": status("429 Too Many Requests", retryable=True, retry_after_s=86_400),
    "500": status("500 Internal Server Error"),
    "500-error": failed("`bench` refused to run `raw`: The vice is taken"),
    "500-long": status("500 Internal Server Error"),
    "502": status("502 Bad Gateway"),
    "503": status("503 Service Unavailable"),
    "503-seconds": status("503 Service Unavailable", retryable=True, retry_after_s=RETRY_AFTER_S),
    "599": status("599"),
    "301-redirect": redirects(301),
    "302-redirect": redirects(302),
    "303-redirect": redirects(303),
    "307-redirect": redirects(307),
    "308-redirect": redirects(308),
    "redirect-here": "plain",
    "redirect-around": unavailable("`bench` redirects too many times."),
    "redirect-with-a-name": unavailable("`bench` redirects to a different address"),
    "page": unavailable("`bench` answered with `text/html` instead of an MCP message (HTTP 200)."),
    "no-type": unavailable("`bench` answered with nothing instead of an MCP message (HTTP 200)."),
    "accepted": unavailable("`bench` answered with nothing instead of an MCP message (HTTP 202)."),
    "nothing": unavailable("`bench` answered with nothing instead of an MCP message (HTTP 204)."),
    "empty": NO_MESSAGE,
    "torn": BROKE_OFF,
    "torn-chunks": BROKE_OFF,
    "close": BROKE_OFF,
    "reset": BROKE_OFF,
    "reset-inside": BROKE_OFF,
    "no-http": BROKE_OFF,
    "sse-ends": BROKE_OFF,
    "sse-ends-with-id": BROKE_OFF,
    "sse-torn": BROKE_OFF,
    "sse-garbage": NO_MESSAGE,
    "sse-noise": "plain",
    "sse-long": TOO_LONG,
    "sse-endless": NO_ANSWER,
    "long-body": TOO_LONG,
    "bomb": TOO_LONG,
    "packed": "plain",
    "badly-packed": failed("`bench` answered with a body that cannot be decompressed."),
    "drip": "plain",
    "endless-drip": NO_ANSWER,
    "silence": NO_ANSWER,
    "wrong-version": NO_MESSAGE,
    "no-version": NO_MESSAGE,
    "no-outcome": NO_MESSAGE,
    "result-list": NO_MESSAGE,
    "result-null": NO_MESSAGE,
    "error-text": NO_MESSAGE,
    "both": failed("`bench` refused to run `raw`: Both at once"),
    "null-error": "plain",
    "method-number": NO_MESSAGE,
    "array": "plain",
    "empty-array": NO_MESSAGE,
    "wrong-id": OTHER_ID,
    "no-id": NO_MESSAGE,
    "null-id": failed("`bench` refused to run `raw`: Could not read that"),
    "text-id": "plain",
    "float-id": "plain",
    "id-last": "plain",
    "no-json": NO_MESSAGE,
    "half": NO_MESSAGE,
    "deep": NO_MESSAGE,
    "not-utf-8": "pl\ufffdin",
    "half-a-pair": "pl?in",
    "byte-order-mark": "plain",
    "not-a-number": "plain",
    "closed-code": failed("`bench` refused to run `raw`: The bench is closed"),
    "timeout-code": failed("`bench` refused to run `raw`: The bench is slow"),
    "deep-garbage": NO_MESSAGE,
}
"""Maps a fault to the expected error of a call, or to the text of its result."""

AT_FIRST_CONTACT: dict[str, ExpectedError | None] = {
    "404": unavailable(": it answered HTTP 404 Not Found."),
    "400-error": unavailable("`bench` could not start or connect.", retryable=True),
    "500-error": unavailable("`bench` could not start or connect.", retryable=True),
    "sse-endless": unavailable("`bench` did not complete the MCP handshake within 0.5 s.", retryable=True),
    "endless-drip": unavailable("`bench` did not complete the MCP handshake within 0.5 s.", retryable=True),
    "silence": unavailable("`bench` did not complete the MCP handshake within 0.5 s.", retryable=True),
}
"""Faults whose error at the first contact differs from the one in a call. None means that the server works."""

OF_ONE_ERA = frozenset({"redirected", "502-to-discovery"})
"""Faults that other tests use."""

AS_A_STREAM: dict[str, ExpectedError | str] = {
    "method-number": NO_MESSAGE,
    "array": NO_MESSAGE,
    "wrong-id": "plain",
    "float-id": NO_MESSAGE,
    "not-utf-8": "pl\ufffdin",
    "half-a-pair": NO_MESSAGE,
    "byte-order-mark": NO_MESSAGE,
}
"""Faults with a different result in a stream, because the SDK reads streams."""


@dataclass(frozen=True)
class Address:
    """The address of a server with faults, and of a second server to which the first redirects."""

    url: str
    elsewhere: str
    seen_elsewhere: Path
    seen: Path
    flag: Path
    """The faults are active only while this file exists, if the server was started with it."""

    @property
    def good(self) -> HttpServer:
        return HttpServer(f"{self.elsewhere}/modern/sse/none")

    def events(self, fault: str = "none") -> HttpServer:
        return HttpServer(f"{self.url}/events/{fault}", {"Authorization": KEY}, transport="sse")

    async def release(self) -> None:
        async with httpx2.AsyncClient() as client:
            await client.get(f"{self.url}{RELEASE}")

    def of(self, era: str, mode: str = "json", fault: str = "none") -> HttpServer:
        return HttpServer(f"{self.url}/{era}/{mode}/{fault}", {"Authorization": KEY})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[Address]:
    log = tmp_path_factory.mktemp("elsewhere") / "seen.jsonl"
    with http_server("--log", str(log), module="faulty_http") as elsewhere:
        with http_server("--elsewhere", elsewhere, module="faulty_http") as url:
            yield Address(url, elsewhere, log, log, log)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory, address: Address) -> Generator[Address]:
    """A server whose faults are active only while the file `flag` exists."""
    flag = (folder := tmp_path_factory.mktemp("sick")) / "flag"
    words = ["--elsewhere", address.elsewhere, "--while", str(flag), "--log", str(log := folder / "seen.jsonl")]
    with http_server(*words, module="faulty_http") as url:
        yield replace(address, url=url, seen=log, flag=flag)


def at_first_contact(fault: str) -> ExpectedError | None:
    """Returns the expected error if every answer has this fault: the error of a call, worded for the start.

    Nothing has run, so a retry is possible, unless only the owner can fix the fault.
    """
    if fault in AT_FIRST_CONTACT:
        return AT_FIRST_CONTACT[fault]
    told = IN_A_CALL[fault]
    if isinstance(told, str):
        return None
    told = replace(told, code=ErrorCode.SOURCE_UNAVAILABLE, message=told.message.replace("`bench`", ": it"))
    return replace(told, retryable=not LASTING.search(told.message))


LASTING = re.compile("HTTP 4(00|01|03|04|05)|redirects to a different")


BY_EVENTS: dict[str, ExpectedError | str] = {
    "401": status("401 Unauthorized"),
    "429-seconds": status("429 Too Many Requests", retryable=True, retry_after_s=RETRY_AFTER_S),
    "500": status("500 Internal Server Error"),
    "400-error": failed("`bench` refused to run `raw`: The vice is taken"),
    "307-redirect": redirects(307),
    "close": BROKE_OFF,
    "reset": BROKE_OFF,
    "silence": NO_ANSWER,
    "wrong-version": NO_MESSAGE,
    "wrong-id": NO_ANSWER,
    "half-a-pair": "pl?in",
    "array": "plain",
    "no-json": NO_ANSWER,
    "long": unavailable("`bench` stopped before it answered."),
}
"""Maps a fault to the result of a call over the transport of 2024-11-05."""

BEFORE_EVENTS = {
    "401": unavailable(": it answered HTTP 401 Unauthorized."),
    "503-seconds": unavailable("it answered HTTP 503", retryable=True, retry_after_s=RETRY_AFTER_S),
    "307-redirect": unavailable(": it redirects to "),
    "page": unavailable("it answered with `text/html` instead of an MCP message", retryable=True),
    "close": unavailable("could not start or connect", retryable=True),
    "silence": unavailable("`bench` did not complete the MCP handshake within 0.5 s.", retryable=True),
    "ends": unavailable("it ended its event stream before it named an endpoint", retryable=True),
    "speaks-elsewhere": unavailable("it named an endpoint at a different origin"),
}
"""Maps a fault to the error of the request for the event stream."""


def rows(*modes: str) -> list[tuple[str, str, str]]:
    """Returns rows of fault, era and mode, with alternating eras."""
    streamed = [fault for fault in IN_A_CALL if fault in faulty.ODD_ANSWERS]
    return [
        (fault, "legacy" if (number + at) % 2 else "modern", mode)
        for at, mode in enumerate(modes)
        for number, fault in enumerate(IN_A_CALL if mode == "json" else streamed)
    ]


@pytest.mark.parametrize(("fault", "era", "mode"), as_params(rows("json", "sse")))
async def test_an_http_fault_affects_only_its_own_call(
    fault: str, era: str, mode: str, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = IN_A_CALL[fault] if mode == "json" else AS_A_STREAM.get(fault, IN_A_CALL[fault])
    patience = HASTY if expected == NO_ANSWER else PATIENT
    async with bench(address.of(era, mode), patience, good=address.good) as crib:
        if expected == NO_ANSWER:  # so no other call has to wait
            NO_ANSWER.check(await refused(crib, "bench.raw", how=fault))
        else:
            async with concurrent_call(crib, address.release) as other:
                if isinstance(expected, ExpectedError):
                    expected.check(await refused(crib, "bench.raw", how=fault))
                else:
                    assert (await call(crib, "bench.raw", how=fault)).text == expected
            assert other == ["done after 1 steps"]
        if fault != "429-for-ever":
            await until_it_works(crib)


@pytest.mark.parametrize(
    ("fault", "era"),
    as_params(
        (fault, "legacy" if number % 2 else "modern") for number, fault in enumerate(FAULTS) if fault not in OF_ONE_ERA
    ),
)
async def test_a_fault_at_first_contact_is_reported_until_the_server_recovers(
    fault: str, era: str, sick: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.05)
    sick.flag.touch()
    told = at_first_contact(fault)
    patience = PATIENT if told is None or "0.5 s" not in told.message else Patience(0.5, list_s=30, call_s=30)
    async with bench(sick.of(era, fault=fault), patience, good=sick.good, ready=told is None) as crib:
        if told is not None:
            assert entry_of(crib).status is SourceStatus.FAILED
            assert told.message in listing_error(crib).message
            async with McpSource("bench", sick.of(era, fault=fault), patience=patience) as source:
                with pytest.raises(SourceUnavailable) as caught:
                    await source.list_tools()
            told.check(caught.value)
        sick.flag.unlink()
        if fault != "429-for-ever":
            await until(lambda: "bench.echo" in crib.view().tools, "the server is listed after its recovery")
            await until_it_works(crib)


@pytest.mark.parametrize("fault", BY_EVENTS)
async def test_a_fault_over_the_sse_transport_affects_only_its_own_call(fault: str, address: Address) -> None:
    expected = BY_EVENTS[fault]
    patience = HASTY if expected == NO_ANSWER else PATIENT
    async with bench(address.events(), patience, good=address.good) as crib:
        if isinstance(expected, ExpectedError):
            expected.check(await refused(crib, "bench.raw", how=fault))
        else:
            assert (await call(crib, "bench.raw", how=fault)).text == expected
        await until_it_works(crib)


@pytest.mark.parametrize("fault", BEFORE_EVENTS)
async def test_a_failed_event_stream_is_reported_until_the_server_recovers(
    fault: str, sick: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.0)
    sick.flag.touch()
    patience = Patience(0.5, list_s=30, call_s=30) if fault == "silence" else PATIENT
    async with McpSource("bench", sick.events(fault), patience=patience) as source:
        with pytest.raises(SourceUnavailable) as caught:
            await source.list_tools()
        BEFORE_EVENTS[fault].check(caught.value)
        sick.flag.unlink()
        with anyio.fail_after(DEADLINE_S):
            await until_listed(source)


async def until_listed(source: McpSource) -> None:
    try:
        assert (await source.list_tools()).tools
    except SourceUnavailable as error:
        await anyio.sleep(error.retry_after_s or 0.01)
        await until_listed(source)


@pytest.mark.parametrize("fault", ["301-redirect", "302-redirect", "303-redirect", "307-redirect", "308-redirect"])
async def test_requests_are_not_sent_to_a_redirect_at_a_different_origin(fault: str, address: Address) -> None:
    """Neither a message nor a key is sent. The servers have different ports, so they are different origins."""
    before = len(events(address.seen_elsewhere, "request"))
    async with McpSource("bench", address.of("legacy", fault=fault)) as source:
        with pytest.raises(SourceUnavailable, match="redirects to") as caught:
            await source.list_tools()
    assert "legacy" not in str(caught.value.to_wire())  # parts of an address may be secret
    assert f"{address.elsewhere}/legacy/" in caught.value.diagnosis
    assert "s3cret" not in caught.value.diagnosis
    async with McpSource("bench", address.events(fault)) as source:
        with pytest.raises(SourceUnavailable, match="redirects to"):
            await source.list_tools()
    async with McpSource("bench", address.of("modern")) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        with pytest.raises(SourceUnavailable, match="redirects to"):
            await source.call_tool(tools["raw"], {"how": fault}, CallContext())
    assert events(address.seen_elsewhere, "request")[before:] == []


async def test_a_redirect_within_the_origin_is_followed_with_credentials(sick: Address) -> None:
    sick.flag.touch()
    async with McpSource("bench", sick.of("modern", fault="redirect-here")) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        assert (await source.call_tool(tools["echo"], {"text": "through"}, CallContext())).text == "through"
    seen = [entry for entry in events(sick.seen, "request") if entry["path"].endswith("/redirected")]
    assert seen
    assert all(entry["with_key"] for entry in seen)


async def test_an_https_address_without_tls_is_unavailable(address: Address) -> None:
    server = HttpServer(address.url.replace("http:", "https:") + "/modern/json/none")
    async with McpSource("bench", server) as source:
        with pytest.raises(SourceUnavailable) as caught:
            await source.list_tools()
    unavailable(": it did not accept a connection", retryable=True).check(caught.value)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_404_ends_a_session_but_is_an_error_without_one(era: str, address: Address) -> None:
    async with bench(address.of(era), good=address.good) as crib:
        if era == "legacy":
            told = unavailable(
                "was restarted and did not run the request; the next call opens a new session", retryable=True
            )
        else:
            told = status("404 Not Found")
        told.check(await refused(crib, "bench.raw", how="404"))
        await until_it_works(crib)


async def test_a_proxy_that_fails_on_discovery_does_not_break_the_session(sick: Address) -> None:
    sick.flag.touch()
    before = len(asked(sick, "initialize"))
    async with McpSource("bench", sick.of("legacy", fault="502-to-discovery")) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        for _ in range(3):
            assert (await source.call_tool(tools["echo"], {"text": "through"}, CallContext())).text == "through"
    assert len(asked(sick, "initialize")) == before + 1


def asked(address: Address, method: str) -> list[dict[str, Any]]:
    return [entry for entry in events(address.seen, "request") if entry["method"] == method]


async def test_the_stream_of_a_timed_out_call_is_closed(sick: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    sick.flag.unlink(missing_ok=True)
    monkeypatch.setattr(connection, "HTTP_READ_TIMEOUT_S", 0.1)
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(connection, "QUESTION_S", 0.1)
    patience = replace(PATIENT, call_s=0.2)
    async with McpSource("bench", sick.of("legacy"), patience=patience) as source:
        tools = {tool.name: tool for tool in (await source.list_tools()).tools}
        with pytest.raises(SourceUnavailable, match="did not answer"):
            await source.call_tool(tools["raw"], {"how": "sse-endless"}, CallContext())
        await until(lambda: events(sick.seen, "left alone"), "the server notices that the stream was closed")
        assert (await source.call_tool(tools["echo"], {"text": "next"}, CallContext())).text == "next"


async def test_concurrent_calls_are_not_limited_by_the_connection_pool(address: Address) -> None:
    async with bench(address.of("modern"), good=address.good) as crib:
        handle, answers, under_way = crib.expand_tool("bench.slow").handle, list[str](), list[int]()

        async def hold_on() -> None:
            async def hear(progress: float, total: float | None, message: str | None) -> None:
                under_way.append(1)

            answers.append((await crib.call_tool(handle, {"steps": 1, "hold": True}, progress=hear)).text)

        async with anyio.create_task_group() as calls:
            for _ in range(120):
                calls.start_soon(hold_on)
            await until(lambda: len(under_way) == 120, "all calls are running")
            assert (await call(crib, "bench.echo", text="one more")).text == "one more"
            await address.release()
        assert answers == ["done after 1 steps"] * 120


async def test_closing_does_not_wait_for_a_server_that_ignores_session_end(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "END_OF_SESSION_S", 0.1)
    said, asking = LastWords(), RequestHandlers({}, lambda method, params: never())

    async def hear(message: object) -> None:
        pass

    with anyio.fail_after(DEADLINE_S):
        server = address.of("legacy", fault="deaf-to-its-end")
        async with connect(server, hear, said, call_timeout_s=30, asking=asking) as connection:
            assert connection.session.protocol_version == "2025-11-25"


async def never() -> ErrorData:
    raise NotImplementedError
