"""Event streams: short events go to the SDK unchanged, and long answers are delivered directly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest
from mcp_types import ErrorData, RequestId

from toolcrib.sources.mcp import event_stream
from toolcrib.sources.mcp.event_stream import MAX_TOLD_BYTES, Events
from toolcrib.sources.mcp.refused_requests import Outcomes
from toolcrib.sources.mcp.wire_messages import SHORT_BYTES

pytestmark = pytest.mark.anyio

LONG = "x" * (SHORT_BYTES + 1)
LIMIT_BYTES = 4 * 2**20


class Sent(httpx2.AsyncByteStream):
    def __init__(self, text: bytes, piece: int, *, is_open: bool = False) -> None:
        self._text = text
        self._piece = piece
        self._is_open = is_open

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._text), self._piece):
            yield self._text[at : at + self._piece]
        if self._is_open:
            await anyio.sleep_forever()

    async def aclose(self) -> None: ...


async def passed_on(
    text: bytes, *, piece: int = 100_000, answers: RequestId | None = 7
) -> tuple[bytes, list[tuple[RequestId, Any]]]:
    """Return the bytes of the stream that the SDK gets, and the answers that were delivered directly."""
    put: list[tuple[RequestId, Any]] = []
    outcomes = Outcomes()
    outcomes.deliver = lambda request_id, came: put.append((request_id, came))
    response = httpx2.Response(200, stream=Sent(text, piece))
    stream = Events(response, outcomes, answers=answers, until=math.inf, max_message_bytes=LIMIT_BYTES)
    return b"".join([part async for part in stream]), put


def event(message: dict[str, Any], before: str = "", line_end: str = "\n", indent: int | None = None) -> bytes:
    lines = json.dumps({"jsonrpc": "2.0", **message}, indent=indent).splitlines()
    return (before + "".join(f"data: {line}{line_end}" for line in lines) + line_end).encode()


def lines_of(stream: bytes) -> list[list[bytes]]:
    """Return the lines of each event, for any line ending. Empty lines before an event are ignored."""
    return [part.strip().splitlines() for part in re.sub(rb"\r\n?", b"\n", stream).split(b"\n\n") if part.strip()]


@pytest.mark.parametrize("piece", [1, 2, 3, 1_000])
@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
async def test_short_events_are_passed_on_unchanged(piece: int, line_end: str) -> None:
    text = b": hello\n\n" + event({"method": "a"}, line_end=line_end) * 3 + b"data: cut off"
    assert await passed_on(text, piece=piece) == (text, [])


async def test_a_long_answer_is_delivered_directly_and_the_sdk_gets_an_empty_one() -> None:
    short = event({"method": "notifications/progress"})
    long = event({"id": "other", "result": {"text": LONG}}, "event: message\nid: 12\nretry: 5\n")
    passed, put = await passed_on(short + long)
    assert put == [(7, {"text": LONG})]  # as in the SDK, any answer on the stream of a request answers that request
    assert passed == short + b'id: 12\nretry: 5\ndata: {"jsonrpc": "2.0", "id": 7, "result": {}}\n\n'


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
async def test_a_long_answer_on_many_lines_is_one_event(
    piece: int, line_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "SHORT_BYTES", 100)  # no line is long, but the event is
    short = event({"method": "a"}, line_end=line_end)
    long = event({"id": "other", "result": {"texts": ["some text"] * 20}}, f"id: 12{line_end}", line_end, indent=1)
    passed, put = await passed_on(short + long + short, piece=piece)
    assert put == [(7, {"texts": ["some text"] * 20})]
    answer = b'id: 12\ndata: {"jsonrpc": "2.0", "id": 7, "result": {}}\n\n'
    assert lines_of(passed) == lines_of(short + answer + short)


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
async def test_a_long_event_is_passed_on_before_the_next_event_begins(line_end: str) -> None:
    """The stream may stay open without any further event."""
    long = event({"id": 7, "result": {"text": LONG}}, line_end=line_end)
    put = anyio.Event()
    outcomes = Outcomes()
    outcomes.deliver = lambda request_id, came: put.set()
    response = httpx2.Response(200, stream=Sent(long, 1_000, is_open=True))
    stream = Events(response, outcomes, answers=7, until=math.inf, max_message_bytes=LIMIT_BYTES)
    with anyio.fail_after(10):
        async for _ in stream:
            break
    assert put.is_set()


async def test_a_long_answer_on_the_common_stream_is_matched_by_its_id() -> None:
    passed, put = await passed_on(event({"id": "a", "error": {"code": 1, "message": LONG}}), answers=None)
    assert put == [("a", ErrorData(code=1, message=LONG))]
    assert b'"id": "a"' in passed


async def test_each_answer_in_a_long_array_is_delivered_directly() -> None:
    first, second = ({"jsonrpc": "2.0", "id": number, "result": {"text": LONG}} for number in (7, 8))
    noise = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
    array = f"id: 12\ndata: {json.dumps([first, noise, second])}\n\n".encode()
    passed, put = await passed_on(array, answers=None)
    assert put == [(7, {"text": LONG}), (8, {"text": LONG})]
    assert lines_of(passed) == [
        [b"id: 12", b'data: {"jsonrpc": "2.0", "id": 7, "result": {}}'],
        [b'data: {"jsonrpc": "2.0", "id": 8, "result": {}}'],
    ]


async def test_the_stream_of_a_request_uses_the_first_answer_of_a_long_array() -> None:
    first, second = ({"jsonrpc": "2.0", "id": 7, "result": {"text": text}} for text in (LONG, "late"))
    passed, put = await passed_on(f"data: {json.dumps([first, second])}\n\n".encode())
    assert put == [(7, {"text": LONG})]
    assert lines_of(passed) == [[b'data: {"jsonrpc": "2.0", "id": 7, "result": {}}']]


async def test_a_long_invalid_answer_fails_the_request() -> None:
    passed, put = await passed_on(f'data: {{"jsonrpc": "2.0", "id": 7, "result": "{LONG}"}}\n\n'.encode())
    assert len(passed) < 100
    ((request_id, came),) = put
    assert (request_id, came.message) == (7, "answered with something that is not an MCP message")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [SHORT_BYTES + 1, MAX_TOLD_BYTES + 1])
async def test_a_long_event_that_is_not_an_answer_is_passed_on_up_to_a_limit(
    size: int, line_end: str, indent: int | None
) -> None:
    data = ["x" * 1_000] * (size // 1_000 + 1)
    params = {"level": "info", "data": data}
    long = event({"method": "notifications/message", "params": params}, line_end=line_end, indent=indent)
    after = event({"method": "a"})
    passed, put = await passed_on(long + after)
    assert put == []
    assert passed == (long if size < MAX_TOLD_BYTES else b"") + after


async def test_an_event_over_the_limit_goes_to_the_sdk_and_ends_the_stream() -> None:
    text = b"data: " + b"x" * (2 * LIMIT_BYTES)
    passed, _ = await passed_on(text)
    assert passed == text
