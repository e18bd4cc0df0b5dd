"""An SSE stream that passes only short events to the SDK, which reads each event in one step."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator

import anyio
import httpx2
from mcp_types import JSONRPCError, JSONRPCResponse, RequestId

from toolcrib.sources.mcp.refused_requests import Outcomes
from toolcrib.sources.mcp.wire_messages import SHORT_BYTES, Garbled, received

logger = logging.getLogger(__name__)

MAX_TOLD_BYTES = 2**20
"""The maximum size of an event that is not an answer, in bytes. No request or notification of a server needs more."""

# Not a bare `\r`: the search would count the two characters of one CRLF as two line ends. If a part ends between them,
# the second one looks like an empty line before the next event, which is harmless. Waiting for it would delay the last
# event of a server that ends its lines with CR.
_END = re.compile(rb"(?:\r\n|\r(?!\n)|\n){2}")
_LINE = re.compile(rb"\r\n|\r|\n")


class Events(httpx2.AsyncByteStream):
    """The event stream of a response.

    The answers in a long event are read here, in a thread, and put into `outcomes`. For each one the SDK gets an empty
    answer with the same id, which ends the stream for the SDK and reaches no caller.
    """

    def __init__(
        self,
        response: httpx2.Response,
        outcomes: Outcomes,
        *,
        answers: RequestId | None,
        until: float,
        max_message_bytes: int,
    ) -> None:
        """`answers`: the id of the request that the stream answers; None if the stream carries unsolicited messages.

        `until`: when the stream must be over, by the clock of the event loop. It ends then even if the server keeps
        sending data for an abandoned request.
        """
        self._response = response
        self._outcomes = outcomes
        self._answers = answers
        self._until = until
        self._max_message_bytes = max_message_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        event = bytearray()
        async for part in self._response.aiter_bytes():
            if anyio.current_time() > self._until:
                raise httpx2.ReadTimeout("its stream did not end in time")
            looked_at = max(0, len(event) - 3)
            event += part
            while (end := _END.search(event, looked_at)) is not None:
                whole, looked_at = bytes(event[: end.end()]), 0
                del event[: end.end()]
                if len(whole) <= SHORT_BYTES:
                    yield whole
                    continue
                async for passed in self._read(whole):
                    yield passed
            if len(event) > self._max_message_bytes + SHORT_BYTES:
                yield bytes(event)  # longer than the SDK accepts: it ends the stream
                event.clear()
        yield bytes(event)

    async def aclose(self) -> None:
        await self._response.aclose()

    async def _read(self, event: bytes) -> AsyncIterator[bytes]:
        """Yield what the SDK gets instead of a long `event`, one event at a time: an array may contain very many
        answers."""
        lines = _LINE.split(event)
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        answered: set[RequestId] = set()  # several if the event is an array, as servers of 2025-03-26 may send it
        for read in await received(data, self._max_message_bytes):
            if isinstance(read, Garbled) or not isinstance(message := read.message, JSONRPCResponse | JSONRPCError):
                continue
            request_id = message.id if self._answers is None else self._answers
            if request_id is None or request_id in answered:
                continue
            self._outcomes.put(request_id, message.result if isinstance(message, JSONRPCResponse) else message.error)
            done = f'data: {{"jsonrpc": "2.0", "id": {json.dumps(request_id)}, "result": {{}}}}'
            known = [line for line in lines if line.startswith((b"id:", b"retry:"))] if not answered else []
            answered.add(request_id)
            yield b"\n".join([*known, done.encode(), b"", b""])
        if answered:
            return
        if len(event) <= MAX_TOLD_BYTES:
            yield event
        else:
            logger.info("dropped an event of %d bytes that is not an answer", len(event))
