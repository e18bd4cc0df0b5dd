"""An agent that plays a script, and the editor that talks to it over a real stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from toolcrib import Toolcrib
from toolcrib.adapters.pydantic_ai.model_script import scripted_model
from toolcrib.catalog.access import CAREFUL
from toolcrib.surfaces.acp_agent.agent import Setup
from toolcrib.surfaces.acp_agent.serving import serve_streams
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.updates import PromptTurn

RENAME: Mapping[str, Any] = {
    "name": "rename_symbol",
    "kind": "edit",
    "description": "Rename a symbol everywhere.",
    "parameters": {
        "type": "object",
        "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
        "required": ["old", "new"],
        "additionalProperties": False,
    },
    "categories": ["refactoring"],
}

USAGES: Mapping[str, Any] = {
    "name": "find_usages",
    "kind": "search",
    "description": "Find where a symbol is used.",
    "parameters": {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]},
    "categories": ["navigation"],
}

Script = Sequence[Mapping[str, Any]]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def turn(*calls: Mapping[str, Any], text: str = "") -> dict[str, Any]:
    """One answer of the model."""
    return {"text": text, "calls": [*calls]}


def expand(*tool_ids: str) -> dict[str, Any]:
    return turn(call("expand_tool", tool_ids=[*tool_ids]))


DONE = turn(text="Done.")

RENAMING = (expand("editor.rename_symbol"), turn(call("rename_symbol", old="total", new="amount")), DONE)
"""The script of a model that expands and calls one tool of the editor."""


@asynccontextmanager
async def talking(
    client: FakeAcpClient,
    script: Script,
    *,
    crib: Toolcrib | None = None,
    introduces: bool = True,
    **setup: Any,
) -> AsyncGenerator[FakeAcpClient]:
    """Connects `client` to an agent whose model plays `script` from the start in every session.

    `setup` holds the other fields of `Setup`.
    """
    crib = crib or Toolcrib(policy=CAREFUL)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with crib:
            await serve_streams(Setup(crib, scripted_model(script), **setup), reader, writer)

    async with client.connected_to(serve):
        if introduces:
            await client.initialize()
        yield client


async def prompted(client: FakeAcpClient, script: Script, prompt: str = "Do it.") -> PromptTurn:
    """Sends one prompt in a new session and returns the answer."""
    async with talking(client, script):
        return await client.prompt(await client.new_session("/project"), prompt)


def outcome(turn: PromptTurn, name: str) -> Any:
    """Returns the status and the output of the last call whose title begins with `name`."""
    calls = [each for each in turn.tool_calls.values() if (each.title or "").startswith(name)]
    assert calls, f"{name} was not called"
    return calls[-1].status, calls[-1].raw_output
