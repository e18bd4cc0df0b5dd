"""Messages as bytes: other tasks run while long messages are read."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from toolcrib.sources.mcp.wire_messages import SHORT_BYTES, Garbled, received

pytestmark = pytest.mark.anyio

LIMIT_BYTES = 100_000_000


async def test_other_tasks_run_while_a_long_message_is_read() -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"list": ["x" * 100] * 100_000}}).encode()
    turns, results = 0, list[Any]()

    async def take() -> None:
        results.extend(await received(line, LIMIT_BYTES))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        while not results:
            await anyio.lowlevel.checkpoint()
            turns += 1
    assert turns > len(line) / SHORT_BYTES  # reading in one step would give fewer turns than this
    assert [len(each.message.result["list"]) for each in results] == [100_000]


@pytest.mark.parametrize("size", [10, SHORT_BYTES])
async def test_short_and_long_messages_are_read_the_same(size: int) -> None:
    text = "x" * size
    good, bad = {"jsonrpc": "2.0", "id": 1, "result": {"text": text}}, {"jsonrpc": "2.0", "id": 2, "result": text}
    read = [*await received(b"\xef\xbb\xbf" + json.dumps([good, bad]).encode(), LIMIT_BYTES)]
    kinds = [type(each.message if isinstance(each, SessionMessage) else each) for each in read]
    assert kinds == [JSONRPCResponse, Garbled, JSONRPCError]


@pytest.mark.parametrize("line", [b"{" + b"x" * SHORT_BYTES, b"[1" + b" " * SHORT_BYTES, b"x" * SHORT_BYTES + b"\n"])
async def test_a_long_line_that_is_not_a_message_is_shown_by_its_beginning(line: bytes) -> None:
    (read,) = await received(line, LIMIT_BYTES)
    assert isinstance(read, Garbled)
    assert len(str(read)) <= 80
