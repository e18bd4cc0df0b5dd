"""Starts `toolcrib serve` with the client of the MCP SDK or with a raw pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import psutil
from mcp import Client, StdioServerParameters
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, PromptMessage

TOOLCRIB = str(Path(sys.executable).with_name("toolcrib"))

Mode = Literal["legacy", "auto"]
Json = dict[str, Any]

ENVELOPE: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@asynccontextmanager
async def served(
    config: Path, mode: Mode = "auto", heard: MessageHandlerFnT | None = None, *, operations: str = "compact"
) -> AsyncGenerator[Client]:
    """Yields a client of the gateway over `config`. The log of the gateway is discarded."""
    args = ["serve", str(config), "--operations", operations, "--no-cache", "--no-audit"]
    parameters = StdioServerParameters(command=TOOLCRIB, args=args)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(parameters, errlog=nowhere), mode=mode, message_handler=heard) as client:
            yield client


async def ask(client: Client, operation: str, /, **arguments: Any) -> Json:
    """Calls an operation and returns its answer or error. Checks that text and structured content agree."""
    result = await client.call_tool(operation, arguments)
    assert json.loads(text_of(result)) == result.structured_content
    assert ("error" in result.structured_content) == result.is_error
    return result.structured_content


async def run_tool(client: Client, tool_id: str, /, **arguments: Any) -> CallToolResult:
    """Expand a tool and call it, as a model does."""
    handle = (await ask(client, "expand_tool", tool_id=tool_id))["handle"]
    return await client.call_tool("call_tool", {"tool_id": handle, "arguments": arguments})


def text_of(result: CallToolResult | PromptMessage) -> str:
    blocks = result.content if isinstance(result.content, list) else [result.content]
    return "".join(getattr(block, "text", "") for block in blocks)


class Conversation:
    """Exchanges raw protocol lines with a gateway."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[bytes] = []
        """All lines that the gateway has printed so far."""
        self._last_id = 0

    def send(self, method: str, params: Json | None = None, *, modern: bool = False, note: bool = False) -> int:
        self._last_id += 1
        message: Json = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if modern:
            message["params"] = {**message["params"], "_meta": ENVELOPE}
        if not note:
            message["id"] = self._last_id
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._last_id

    def answer(self, request_id: int) -> Json:
        """Reads until the response to the request. Earlier messages are stored in `lines`."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.lines.append(line)
            message = json.loads(line)
            if message.get("id") == request_id:
                return message
        raise AssertionError("the gateway went away without an answer")

    def ask(self, method: str, params: Json | None = None, *, modern: bool = False) -> Json:
        """Sends a request and returns its result."""
        return self.answer(self.send(method, params, modern=modern))["result"]

    def call(self, operation: str, arguments: Json, *, modern: bool = False) -> Json:
        return self.ask("tools/call", {"name": operation, "arguments": arguments}, modern=modern)

    def run_tool(self, tool_id: str, arguments: Json | None = None, *, modern: bool = False) -> Json:
        expansion = self.call("expand_tool", {"tool_id": tool_id}, modern=modern)["structuredContent"]
        called = {"tool_id": expansion["handle"], "arguments": arguments or {}}
        return self.call("call_tool", called, modern=modern)

    def shake_hands(self) -> Json:
        """Initialize the session as clients of version 2025-11-25 do."""
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        told = self.ask("initialize", client)
        self.send("notifications/initialized", note=True)
        return told

    def servers(self) -> list[psutil.Process]:
        """Returns all processes below the gateway."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> int:
        """Closes the input, reads the remaining output, and returns the exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.lines += self.process.stdout.readlines()
        return self.process.wait(30)


@contextmanager
def conversation(config: Path) -> Generator[Conversation]:
    """Runs a gateway for the block, and kills any process that it leaves behind."""
    command = [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        left = Conversation(process)
        try:
            yield left
        finally:
            orphans = left.servers() if process.poll() is None else []
            process.kill()
            for orphan in orphans:
                orphan.kill()
