"""Tests that an approval and an input request of the source can follow each other in one call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import mcp_types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from tests.catalogs import tool
from tests.surfaces.serving import Json, Mode, run_tool, text_of

from toolcrib import Toolcrib
from toolcrib.catalog.access import Access, Rules
from toolcrib.config import Config
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import ProgressListener
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

PUSH = tool("git.push", "Send commits away.")
WHERE: Json = {"message": "Where to?", "requestedSchema": {"type": "object", "properties": {"to": {"type": "string"}}}}
HOME = mcp_types.ElicitResult(action="accept", content={"to": "home"})
ONCE = mcp_types.ElicitResult(action="accept", content={"answer": "once"})


class Curious(ScriptedSource):
    """A source that requests input before it runs a call."""

    def __init__(self) -> None:
        super().__init__("git", [PUSH])
        self.states: list[str | None] = []
        """The state that each call brought back."""

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        self.states.append(context.resumed.state if context.resumed is not None else None)
        if context.resumed is not None:
            return ToolResult.of(None, text=str(context.resumed.responses["where"]["content"]["to"]))
        asks: Json = {"where": {"method": "elicitation/create", "params": WHERE}}
        return ToolResult({"resultType": "input_required", "inputRequests": asks, "requestState": "its own"})


class Person:
    """A person who answers `once` to Toolcrib and `home` to the source."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        self.asked.append(params.message.partition(" ")[0])
        return ONCE if params.message.startswith("Toolcrib asks") else HOME


@asynccontextmanager
async def client_of(source: Curious, person: Person, mode: Mode = "auto") -> AsyncGenerator[Client]:
    crib = Toolcrib(policy=Rules((), Access.ASK))
    crib.add_source(source)
    async with crib:
        await crib.ready()
        gateway = Gateway(crib, Config(Path("mcp.json")), principal=LOCAL)
        async with gateway, Client(gateway.server, mode=mode, elicitation_callback=person.elicit) as client:
            yield client


@BOTH
async def test_a_tool_that_requests_input_is_approved_once_per_call(mode: Mode) -> None:
    source, person = Curious(), Person()
    async with client_of(source, person, mode) as client:
        for calls in (1, 2):
            assert text_of(await run_tool(client, "git.push")) == "home"
            assert person.asked == ["Toolcrib", "Where"] * calls
            assert source.states == [None, "its own"] * calls


async def send(client: Client, state: str | None = None, **answers: mcp_types.ElicitResult) -> Json:
    """Calls the tool without automatic answers to input requests, and returns the raw result."""
    call: Json = {"tool_id": PUSH.handle, "arguments": {}}
    more: dict[str, Any] = {"input_responses": answers, "request_state": state} if answers else {}
    result = await client.session.call_tool("call_tool", call, allow_input_required=True, **more)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def asks(result: Json) -> str:
    """Returns the first word of the question in `result`."""
    (question,) = cast("Json", result["inputRequests"]).values()
    return question["params"]["message"].partition(" ")[0]


async def waiting_call(client: Client) -> Json:
    """Returns an approved call that waits for the input that the source requested."""
    first = await send(client)
    (key,) = first["inputRequests"]
    waits = await send(client, first["requestState"], **{key: ONCE})
    assert asks(waits) == "Where"
    return waits


async def test_input_responses_without_request_state_start_a_new_approval() -> None:
    source = Curious()
    async with client_of(source, Person()) as client:
        await waiting_call(client)

        assert asks(await send(client, where=HOME)) == "Toolcrib"
        assert source.states == [None]


async def test_a_request_state_can_be_used_only_once() -> None:
    source = Curious()
    async with client_of(source, Person()) as client:
        waits = await waiting_call(client)

        assert (await send(client, waits["requestState"], where=HOME))["content"][0]["text"] == "home"
        assert asks(await send(client, waits["requestState"], where=HOME)) == "Toolcrib"
        assert source.states == [None, "its own"]
