"""The adapter that plays a script, alone and in a loop, and `get_adapter`."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from toolcrib import InnerLoopConfig, MainLoop, MarkdownSection, PromptTemplate, Toolcrib, get_adapter
from toolcrib.adapters import ADAPTERS
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from toolcrib.core.errors import BudgetExceeded, InvalidConfig, ProviderFailed

ADD = ToolSpec("add", "Adds.", {"type": "object"})
HELLO = ModelRequest("Be brief.", (ADD,), (UserMessage("Hello"),))


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.anyio
async def test_a_script_file_runs_in_a_loop_as_a_named_model(tmp_path: Path) -> None:
    script = tmp_path / "sum.json"
    calls = [{"name": "add", "arguments": {"a": 2, "b": 3}}]
    script.write_text(json.dumps([{"text": "Let me see.", "calls": calls}, {"text": "5"}]))
    prompt = PromptTemplate[int]("check", "sum", [MarkdownSection("Sums", "sums", "Add.", tools=[add])]).bind()
    async with Toolcrib() as crib, get_adapter(f"scripted:{script}") as adapter:
        session = crib.session()
        heard: list[str] = []
        answer = await MainLoop().execute(prompt, session=session, adapter=adapter, on_text=heard.append)
    assert (answer.output, adapter.model) == (5, str(script))
    assert heard == ["Let me see.", "5"]
    assert answer.usage.input > answer.usage.output > 0
    assert isinstance(adapter, ScriptedAdapter)
    assert [len(request.messages) for request in adapter.requests] == [1, 3]
    assert adapter.requests[0].tools[0].name == "add"


@pytest.mark.anyio
async def test_the_token_budget_applies_to_estimated_usage() -> None:
    prompt = PromptTemplate[str]("check", "sum", [MarkdownSection("Sums", "sums", "Add.", tools=[add])]).bind()
    turn = {"calls": [{"name": "add", "arguments": {"a": 2, "b": 3}}]}
    async with Toolcrib() as crib:
        loop = MainLoop(config=InnerLoopConfig(max_tokens=10))
        with pytest.raises(BudgetExceeded):
            await loop.execute(prompt, session=crib.session(), adapter=ScriptedAdapter([turn, {"text": "5"}]))


@pytest.mark.anyio
async def test_the_stop_reason_comes_from_the_script_or_from_its_calls() -> None:
    adapter = ScriptedAdapter([{"calls": [{"name": "add"}]}, {"text": "Half an", "stop": "length"}, {}])
    stops = [(await adapter.respond(HELLO)).stop for _ in range(3)]
    assert stops == [Stop.CALLS, Stop.LENGTH, Stop.END]


@pytest.mark.anyio
async def test_thinking_in_a_script_is_not_in_the_message() -> None:
    turn = await ScriptedAdapter([{"thinking": "They greet me.", "text": "Hello."}]).respond(HELLO)
    assert turn.message == AssistantMessage("Hello.")


@pytest.mark.anyio
async def test_string_arguments_are_sent_unchanged() -> None:
    adapter = ScriptedAdapter(
        [{"calls": [{"name": "add", "arguments": '{"a": '}, {"name": "add", "arguments": {"a": 1}}]}]
    )
    first, second = (await adapter.respond(HELLO)).message.calls
    assert (first.arguments, second.arguments) == ('{"a": ', '{"a":1}')
    assert first.id != second.id


@pytest.mark.anyio
async def test_a_script_that_has_ended_is_a_provider_error() -> None:
    adapter = ScriptedAdapter([])
    with pytest.raises(ProviderFailed, match="ended") as caught:
        await adapter.respond(HELLO)
    assert caught.value.retryable is False
    assert adapter.requests == [HELLO]


@pytest.mark.anyio
async def test_a_call_of_a_tool_that_is_not_offered_is_refused_by_default() -> None:
    script = [{"calls": [{"name": "subtract"}]}]
    with pytest.raises(ProviderFailed, match=r"`subtract`, which the request does not offer\. It offers: add"):
        await ScriptedAdapter(script).respond(HELLO)
    turn = await ScriptedAdapter(script, calls_only_offered=False).respond(HELLO)
    assert turn.message.calls[0].name == "subtract"


@pytest.mark.anyio
async def test_a_deferred_tool_is_offered_only_after_a_message_reveals_it() -> None:
    script = [{"calls": [{"name": "hidden"}]}] * 2
    hidden = ToolSpec("hidden", "Hides.", {"type": "object"}, is_deferred=True)
    adapter = ScriptedAdapter(script)
    held = ModelRequest("", (ADD, hidden), (UserMessage("Hello"),))
    with pytest.raises(ProviderFailed, match="does not offer"):
        await adapter.respond(held)
    call = AssistantMessage("", (ToolCall("c1", "add", "{}"),))
    revealed = ModelRequest("", held.tools, (*held.messages, call, ToolMessage("c1", "add", "5", revealed=(hidden,))))
    assert (await adapter.respond(revealed)).message.calls[0].name == "hidden"


@pytest.mark.anyio
async def test_the_script_can_be_a_sync_or_async_function() -> None:
    def at_once(request: ModelRequest) -> ModelTurn:
        return ModelTurn(AssistantMessage(request.system))

    async def later(request: ModelRequest) -> ModelTurn:
        return at_once(request)

    for function in (at_once, later):
        assert (await ScriptedAdapter(function).respond(HELLO)).message.text == "Be brief."


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('{"text": "Hello"}', "is not valid"),
        ('[{"texts": "Hello"}]', "text"),
        ('[{"calls": [{"arguments": {}}]}]', "name"),
        ('[{"stop": "later"}]', "stop"),
        ("[", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_an_invalid_script_file_is_refused_with_the_reason(tmp_path: Path, script: str | None, complaint: str) -> None:
    path = tmp_path / "script.json"
    if script is not None:
        path.write_text(script)
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        get_adapter(f"scripted:{path}")
    assert str(path) in caught.value.message


# -- by name ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("openai:gpt-5.6", {"api_key": "any"}, ("openai", "gpt-5.6", True)),
        ("openai-chat:gpt-4.1", {"api_key": "any"}, ("openai-chat", "gpt-4.1", True)),
        ("litellm:openai/gpt-4.1", {}, ("litellm", "openai/gpt-4.1", True)),
    ],
)
def test_a_vendor_adapter_is_created_by_name_and_reports_its_capabilities(
    name: str, options: dict[str, Any], told: tuple[str, str, bool]
) -> None:
    adapter = get_adapter(name, **options)
    assert (adapter.name, adapter.model, adapter.supports_dynamic_tools) == told


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("open-ai:gpt-5.6", "Did you mean `openai:gpt-5.6`?"),
        ("antropic", "Did you mean `anthropic:MODEL`?"),
        ("", "Unknown adapter ``. The adapters are: anthropic,"),
        ("openai", "Write `openai:MODEL`"),
        ("openai:", "Write `openai:MODEL`"),
    ],
)
def test_an_unknown_adapter_name_is_refused_with_a_suggestion(name: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        get_adapter(name)
    assert complaint in caught.value.message


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("openai:gpt-5.6", {"timeout": 5}, "has no option `timeout`. Its options are: api_key, base_url, timeout_s,"),
        ("anthropic:claude-opus-5-5", {"baseurl": "x"}, "Did you mean `base_url`?"),
        ("openai-chat:gpt-4.1", {"delivery": "defer"}, "`openai-chat` has no option `delivery`."),
        ("scripted:any.json", {"model": "any"}, "has no option `model`."),
        (
            "claude-agent:claude-opus-5-5",
            {"max_output_tokens": 5},
            "Its options are: delivery, api_key, base_url, cwd, env, program",
        ),
    ],
)
def test_an_unknown_option_is_refused_with_the_valid_options(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        get_adapter(name, **options)
    assert complaint in caught.value.message


def test_vendor_sdks_are_imported_only_when_their_adapter_is_created() -> None:
    code = (
        "import sys, toolcrib; toolcrib.get_adapter; import toolcrib.agent.loop.main, toolcrib.adapters.scripted;"
        "print({'openai', 'anthropic', 'litellm', 'claude_agent_sdk'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_every_listed_adapter_exists_and_has_its_name() -> None:
    for name, (module, kind) in ADAPTERS.items():
        assert getattr(import_module(module), kind).name == name
