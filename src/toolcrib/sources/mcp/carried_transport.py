"""The transport to a server whose messages travel through a connection of a different component."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic_core import to_json

from toolcrib.sources.mcp.carrier import Channel, Unanswered, Unreachable
from toolcrib.sources.mcp.refused_requests import NO_MESSAGE, Refusal, RequestRefused
from toolcrib.sources.mcp.server_spec import CarriedServer
from toolcrib.sources.mcp.wire_messages import Garbled, overlong, received, refused

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def carried(server: CarriedServer, *, max_message_bytes: int) -> AsyncGenerator[Streams]:
    """Reach `server`, and yield the streams for incoming and outgoing messages.

    Raises:
        Refused: the server cannot be reached.
    """
    async with AsyncExitStack() as stack:
        try:
            channel = await stack.enter_async_context(server.carrier.open(server.server_id))
        except Unreachable as error:
            refusal = Refusal(error.what, error.diagnosis, lasting=error.lasting, unreached=True)
            raise RequestRefused(refusal) from error
        arriving, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        async with arriving, incoming, outgoing, leaving, anyio.create_task_group() as tasks:
            tasks.start_soon(_read, channel, arriving, max_message_bytes)
            tasks.start_soon(_write, channel, leaving, arriving)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()


async def _read(channel: Channel, arriving: MemoryObjectSendStream[Incoming], limit_bytes: int) -> None:
    try:
        while (came := await channel.receive()) is not None:
            for message in await _messages(came, limit_bytes):
                await arriving.send(message)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # the session has ended
    finally:
        await arriving.aclose()


async def _write(
    channel: Channel, leaving: MemoryObjectReceiveStream[SessionMessage], arriving: MemoryObjectSendStream[Incoming]
) -> None:
    try:
        async for message in leaving:
            await channel.send(message.message.model_dump(by_alias=True, exclude_unset=True, mode="json"))
    except Unreachable:
        await arriving.aclose()  # no answer can come from a server that cannot be reached


async def _messages(came: Mapping[str, Any] | Unanswered, limit_bytes: int) -> Iterable[Incoming]:
    if isinstance(came, Unanswered):
        refusal = Refusal(
            came.what,
            came.diagnosis,
            ran=came.ran,
            retryable=came.retryable,
            lasting=came.lasting,
            unreached=came.unreached,
        )
        return [refused(came.request_id, refusal)]
    try:
        # Written as a line again, so that the limits and refusals for a server's own output also apply here.
        line = to_json(came)
    except ValueError:  # nested too deeply
        unread = Garbled("a message that cannot be written as JSON")
        return [unread] if "method" in came else [unread, refused(came["id"], NO_MESSAGE)]
    return await received(overlong(line) if len(line) > limit_bytes else line, limit_bytes)
