"""The SSE transport of 2024-11-05: answers come on one event stream, whose first event names the address for requests.

The SDK's own transport is not used. It stops sending once a server refused a message, and the caller waits forever.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import httpx2
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared._httpx_utils import sse_within_origin
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from toolcrib.sources.mcp.http_transport import HttpClient
from toolcrib.sources.mcp.refused_requests import Refusal, RequestRefused
from toolcrib.sources.mcp.wire_messages import Garbled, received

logger = logging.getLogger(__name__)

Incoming = SessionMessage | Exception


@asynccontextmanager
async def streamed(
    client: HttpClient, url: str, *, max_message_bytes: int
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """Open the stream at `url`, and yield the streams for incoming and outgoing messages.

    Raises:
        Refused: the server answers with something else, or names an endpoint at a different origin.
        httpx2.RequestError: the server cannot be reached.
    """
    arriving, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    async with (
        arriving,
        incoming,
        outgoing,
        leaving,
        sse_within_origin(client, url, max_event_size=max_message_bytes) as events,
        anyio.create_task_group() as tasks,
    ):
        if (refusal := await client.stream_refusal(events.response)) is not None:
            raise RequestRefused(refusal)
        endpoint = await tasks.start(_read, events, url, arriving, max_message_bytes)
        tasks.start_soon(_write, client, endpoint, leaving)
        try:
            yield incoming, outgoing
        finally:
            tasks.cancel_scope.cancel()


async def _read(
    events: httpx2.EventSource,
    url: str,
    arriving: MemoryObjectSendStream[Incoming],
    max_message_bytes: int,
    *,
    task_status: TaskStatus[str],
) -> None:
    """Pass on what the server sends. The task counts as started with the address in the first event."""
    named = False
    try:
        async for event in events:
            if event.event == "endpoint" and not named:
                endpoint, at = httpx2.URL(urljoin(url, event.data)), httpx2.URL(url)
                if (endpoint.scheme, endpoint.host, endpoint.port) != (at.scheme, at.host, at.port):
                    raise RequestRefused(
                        Refusal("named an endpoint at a different origin, which Toolcrib does not use", lasting=True)
                    )
                named = True
                task_status.started(str(endpoint))
            elif event.event == "message" and event.data:
                for message in await received(event.data.encode("utf-8", "replace"), max_message_bytes):
                    await arriving.send(message)
    except httpx2.SSEError:
        await arriving.send(Garbled(f"an event of more than {max_message_bytes / 2**20:g} MiB"))
    except httpx2.RequestError as error:
        logger.debug("the stream ended early: %s", error)
    finally:
        await arriving.aclose()
    if not named:
        raise RequestRefused(Refusal("ended its event stream before it named an endpoint"))


async def _write(client: HttpClient, endpoint: str, leaving: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async def post(text: str) -> None:
        # A failure goes to the task that waits for the answer.
        await client.post(endpoint, content=text.encode(), headers={"Content-Type": "application/json"})

    async with anyio.create_task_group() as tasks:
        async for message in leaving:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            if isinstance(message.message, JSONRPCRequest):
                tasks.start_soon(post, text)  # some servers accept the POST only after they have answered the request
            else:
                await post(text)
