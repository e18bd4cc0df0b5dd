"""The table of faults over HTTP: what a caller sees of each in a call and at the first contact, and that it passes."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest
from tests.servers import faulty
from tests.servers.faulty_http import FAULTS, KEY, RELEASE, RETRY_AFTER_S, RETRY_DATE_S
from tests.servers.launching import http_server
from tests.servers.table import (
    HASTY,
    PATIENT,
    Told,
    another_call,
    bench,
    call,
    entry_of,
    failed,
    refused,
    unavailable,
    why_not,
    works_again,
)
from tests.waiting import until

from toolcrib.catalog import intake
from toolcrib.catalog.state import SourceStatus
from toolcrib.core.errors import ErrorCode, SourceUnavailable
from toolcrib.sources.mcp import HttpServer, Patience, backoff
from toolcrib.sources.mcp.source import McpSource

pytestmark = pytest.mark.anyio

NO_MESSAGE = failed("`bench` answered with what is no message of the protocol.")
OTHER_ID = failed("`bench` answered with the id of another request.")
TOO_LONG = failed("`bench` answered with more than 32 MiB, which was not read.")
NO_ANSWER = unavailable("`bench` did not answer within 0.5 s.")
BROKE_OFF = unavailable("`bench` broke off before it had answered.")


def status(told: str, *, retryable: bool = False, retry_after_s: float | None = None) -> Told:
    details = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    again = "" if retry_after_s is None else f"; it may be asked again in {retry_after_s:g} s"
    return unavailable(f"`bench` refused with HTTP {told}{again}.", retryable=retryable, **details)


def redirects(code: int) -> Told:
    return unavailable(f"`bench` redirects to ELSEWHERE (HTTP {code}), where nothing is sent; ")


IN_A_CALL: dict[str, Told | str] = {
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
    "redirect-around": unavailable("`bench` redirects over and over."),
    "redirect-with-a-name": unavailable("`bench` redirects to http://127.0.0.1:"),
    "page": unavailable("`bench` answered with `text/html` instead of a message of the protocol (HTTP 200)."),
    "no-type": unavailable("`bench` answered with nothing instead of a message of the protocol (HTTP 200)."),
    "accepted": unavailable("`bench` answered with nothing instead of a message of the protocol (HTTP 202)."),
    "nothing": unavailable("`bench` answered with nothing instead of a message of the protocol (HTTP 204)."),
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
    "badly-packed": failed("`bench` answered with a body that cannot be unpacked."),
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
}
"""What a call gives that is met by this fault: an error, or the text of a result."""

AT_FIRST_CONTACT: dict[str, Told | None] = {
    "404": status("404 Not Found"),
    "400-error": unavailable("The vice is taken", retryable=True),
    "500-error": unavailable("The vice is taken", retryable=True),
    "sse-endless": unavailable("`bench` did not answer within 0.5 s of its start.", retryable=True),
    "endless-drip": unavailable("`bench` did not answer within 0.5 s of its start.", retryable=True),
    "silence": unavailable("`bench` did not answer within 0.5 s of its start.", retryable=True),
}
"""Where it is told in other words to whoever asks for a tool of a server that never could be listed; None: it works."""

AS_A_STREAM: dict[str, Told | str] = {
    "method-number": NO_MESSAGE,
    "array": NO_MESSAGE,
    "wrong-id": "plain",
    "float-id": NO_MESSAGE,
    "not-utf-8": "pl\ufffdin",
    "half-a-pair": NO_MESSAGE,
    "byte-order-mark": NO_MESSAGE,
}
"""Where the SDK, which reads streams, judges otherwise."""


@dataclass(frozen=True)
class Address:
    """A server with faults, and another one that redirects of the first lead to."""

    url: str
    elsewhere: str
    seen_elsewhere: Path
    flag: Path
    """It is good while there is no such file, if it was started so."""

    @property
    def good(self) -> HttpServer:
        return HttpServer(f"{self.elsewhere}/modern/json/none")

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
            yield Address(url, elsewhere, log, log)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory, address: Address) -> Generator[Address]:
    """A server that is well while there is no file of its `flag`."""
    flag = tmp_path_factory.mktemp("sick") / "flag"
    with http_server("--elsewhere", address.elsewhere, "--while", str(flag), module="faulty_http") as url:
        yield replace(address, url=url, flag=flag)


def at_first_contact(fault: str) -> Told | None:
    """What is told of a server whose every answer has this fault: the same as in a call, but that it never began.

    Nothing has run, so that it can be asked again, unless only its owner can mend it.
    """
    if fault in AT_FIRST_CONTACT:
        return AT_FIRST_CONTACT[fault]
    told = IN_A_CALL[fault]
    if isinstance(told, str):
        return None
    told = replace(told, code=ErrorCode.SOURCE_UNAVAILABLE, message=told.message.replace("`bench`", ": it"))
    return replace(told, retryable=not LASTING.search(told.message))


LASTING = re.compile("HTTP 4(00|01|03|04|05)|redirects to")


def rows(*modes: str) -> list[tuple[str, str, str]]:
    """Fault, era and mode, the eras in turn."""
    streamed = [fault for fault in IN_A_CALL if fault in faulty.ODD_ANSWERS]
    return [
        (fault, "legacy" if (number + at) % 2 else "modern", mode)
        for at, mode in enumerate(modes)
        for number, fault in enumerate(IN_A_CALL if mode == "json" else streamed)
    ]


@pytest.mark.parametrize(("fault", "era", "mode"), rows("json", "sse"))
async def test_a_fault_is_told_to_its_caller_alone_and_the_next_call_goes_through(
    fault: str, era: str, mode: str, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = IN_A_CALL[fault] if mode == "json" else AS_A_STREAM.get(fault, IN_A_CALL[fault])
    if isinstance(expected, Told):
        to = f"{address.elsewhere}/{era}/json/none"
        expected = replace(expected, message=expected.message.replace("ELSEWHERE", to))
    patience = HASTY if expected == NO_ANSWER else PATIENT
    async with bench(address.of(era, mode), patience, good=address.good) as crib:
        if expected == NO_ANSWER:  # nobody else waits longer
            NO_ANSWER.of(await refused(crib, "bench.raw", how=fault))
        else:
            async with another_call(crib, address.release) as other:
                if isinstance(expected, Told):
                    expected.of(await refused(crib, "bench.raw", how=fault))
                else:
                    assert (await call(crib, "bench.raw", how=fault)).text == expected
            assert other == ["done after 1 steps"]
        if fault != "429-for-ever":
            await works_again(crib)


@pytest.mark.parametrize(
    ("fault", "era"),
    [(fault, "legacy" if number % 2 else "modern") for number, fault in enumerate(FAULTS) if fault != "redirected"],
)
async def test_a_fault_at_the_first_contact_is_told_and_the_server_is_used_once_it_is_over(
    fault: str, era: str, sick: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(backoff, "FIRST_WAIT_S", 0.05)
    sick.flag.touch()
    told = at_first_contact(fault)
    patience = PATIENT if told is None or "0.5 s" not in told.message else Patience(0.5, list_s=30, call_s=30)
    async with bench(sick.of(era, fault=fault), patience, good=sick.good, ready=told is None) as crib:
        if told is not None:
            to = f"{sick.elsewhere}/{era}/json/{fault.replace('redirect', 'none')}"
            told = replace(told, message=told.message.replace("ELSEWHERE", to))
            assert entry_of(crib).status is SourceStatus.FAILED
            assert told.message in why_not(crib).message
            async with McpSource("bench", sick.of(era, fault=fault), patience=patience) as source:
                with pytest.raises(SourceUnavailable) as caught:
                    await source.list_tools()
            told.of(caught.value)
        sick.flag.unlink()
        if fault != "429-for-ever":
            await until(lambda: "bench.echo" in crib.view().tools, "the server is listed once it is well")
            await works_again(crib)
