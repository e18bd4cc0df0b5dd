"""A model can call what it expanded, with every vendor's SDK and its delivery."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toolcrib import InnerLoopConfig, MainLoop, MarkdownSection, PromptTemplate, Toolcrib, get_adapter
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Recorded, Script, Turn

pytestmark = pytest.mark.anyio

PROMPT = PromptTemplate("tests", "fees", [MarkdownSection("Task", "task", "Say what it costs.")]).bind()
ID = "functions.loan_fee"


def loan_fee(days: int) -> int:
    """What it costs to borrow a tool for some days."""
    return 4 * days


def serving(name: str, script: Script) -> OpenAIServer | AnthropicServer:
    return AnthropicServer(script) if name.startswith("anthropic") else OpenAIServer(script, search="read_section")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "by_handle"),
    [
        ("openai:gpt-5.6", False),
        ("openai:gpt-4.1", False),
        ("openai-chat:gpt-4.1", False),
        ("litellm:openai/gpt-4.1", False),
        ("anthropic:claude-opus-4-8", True),
        ("anthropic:claude-opus-4-1", False),
    ],
)
async def test_an_expanded_tool_can_be_called(name: str, by_handle: bool) -> None:
    vendor = name.partition(":")[0]
    pytest.importorskip(vendor.removesuffix("-chat"), reason="the extra of this vendor is not installed")
    turns = iter(range(3))

    def answer(request: Recorded) -> Turn:
        told = json.dumps(request.content)
        match next(turns):
            case 0:
                return Turn(calls=(Call("expand_tool", json.dumps({"tool_id": ID})),))
            case 1 if by_handle:
                handle = re.search(rf"{ID}@[0-9a-f.]+", told)
                assert handle is not None
                arguments = {"tool_id": handle[0], "arguments": {"days": 3}}
                return Turn(calls=(Call("call_tool", json.dumps(arguments)),))
            case 1:
                return Turn(calls=(Call("functions__loan_fee", '{"days": 3}'),))
            case _:
                return Turn("It is 12." if '"12"' in told else "I was told nothing.")

    crib = Toolcrib()
    crib.add(loan_fee)
    config = InnerLoopConfig(operations=("search_tools", "expand_tool"), max_turns=4, retries=0)
    async with serving(name, answer) as server:
        options: dict[str, Any] = {"base_url": server.base_url if isinstance(server, OpenAIServer) else server.url}
        async with get_adapter(name, api_key="none", **options) as adapter:
            loop = MainLoop(config=config)
            response = await loop.execute(PROMPT, session=crib.session(), adapter=adapter, request="Three days.")
    assert response.output == "It is 12."
    assert len(server.requests) == 3
