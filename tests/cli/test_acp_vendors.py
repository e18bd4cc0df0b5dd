"""`toolcrib acp` with vendors' own SDKs, against servers that speak the vendors' HTTP and refuse what they refuse."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from toolcrib.testing import FakeAcpClient
from toolcrib.testing.acp.faults import Hang
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Failure, Turn

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RENAME = {
    "name": "rename_symbol",
    "kind": "edit",
    "description": "Rename a symbol everywhere.",
    "parameters": {
        "type": "object",
        "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
        "required": ["old", "new"],
    },
}

OPEN = Turn("Looking.", (Call("expand_tool", '{"tool_id": "editor.rename_symbol"}'),))
RENAMING = Turn(calls=(Call("rename_symbol", '{"old": "a", "new": "b"}'),))
DONE = Turn(("Do", "ne."))

VENDORS = {
    "anthropic:claude-opus-4-8": AnthropicServer,
    "openai-chat:gpt-4.1": OpenAIServer,
}


def env_of(server: AnthropicServer | OpenAIServer, folder: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "any",
        "OPENAI_API_KEY": "any",
        "ANTHROPIC_BASE_URL": server.url,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "XDG_STATE_HOME": str(folder),
    }


def command(model: str) -> list[str]:
    return [sys.executable, "-m", "toolcrib", "acp", "--model", model]


@pytest.mark.parametrize("model", VENDORS)
async def test_a_vendor_model_calls_a_tool_of_the_editor_after_approval(model: str, tmp_path: Path) -> None:
    client = FakeAcpClient(tools=[RENAME], answers={"rename_symbol": "1 file"})
    async with VENDORS[model]([OPEN, RENAMING, DONE]) as server:
        async with client.started(command(model), env=env_of(server, tmp_path)):
            await client.initialize()
            answer = await client.prompt(await client.new_session(tmp_path), "Rename a to b.")
    assert (answer.stop_reason, answer.text) == ("end_turn", "Looking.Done.")
    assert [called.arguments for called in client.tools_called] == [{"old": "a", "new": "b"}]
    assert len(client.permissions_asked) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize("model", VENDORS)
async def test_a_session_cancelled_during_a_call_is_still_accepted_by_the_vendor(model: str, tmp_path: Path) -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"_toolcrib/call_tool": Hang()})
    async with VENDORS[model]([OPEN, RENAMING, DONE]) as server:
        async with client.started(command(model), env=env_of(server, tmp_path)):
            await client.initialize()
            session = await client.new_session(tmp_path)
            prompting = asyncio.create_task(client.prompt(session, "Rename a to b."))
            await client.until(lambda: "_toolcrib/call_tool" in client.asked)
            await client.cancel(session)
            assert (await prompting).stop_reason == "cancelled"
        async with client.started(command(model), env=env_of(server, tmp_path)):
            await client.initialize()
            await client.load_session(session, tmp_path)
            assert (await client.prompt(session, "Never mind.")).text == "Done."


@pytest.mark.parametrize("model", VENDORS)
async def test_an_error_of_the_vendor_fails_only_one_prompt_with_its_message(model: str, tmp_path: Path) -> None:
    client = FakeAcpClient()
    async with VENDORS[model]([Failure(401, "No such key."), DONE]) as server:
        async with client.started(command(model), env=env_of(server, tmp_path)):
            await client.initialize()
            session = await client.new_session(tmp_path)
            with pytest.raises(Exception, match="No such key"):
                await client.prompt(session, "Hello.")
            assert (await client.prompt(session, "And now?")).text == "Done."
