"""LiteLLM over HTTP, with servers that speak like OpenAI and one that speaks like Anthropic."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from itertools import pairwise
from typing import Any

import anyio
import pytest
from tests.adapters.asking import ADD, HELLO, READ, answered, asked, connections, failure, ignore_text, is_prefix

from toolcrib.adapters.litellm import LiteLLMAdapter
from toolcrib.agent.conversation.messages import AssistantMessage, Stop, ToolCall, ToolMessage, Usage
from toolcrib.agent.loop.provider import Delivery
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.testing.vendors import server as vendor_server
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Script, Silence, Turn

pytestmark = [
    pytest.mark.anyio,
    # Importing LiteLLM takes each worker six seconds.
    pytest.mark.slow,
    # LiteLLM accesses its models in ways that Pydantic has deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

CALLS = (Call("add", '{"a": 1}'), Call("add", "{"))
TWO_CALLS = Turn(("Two ", "calls."), CALLS, usage=vendor_server.TokenUsage(100, 20, 64))


def adapter(server: OpenAIServer, **options: Any) -> LiteLLMAdapter:
    return LiteLLMAdapter("openai/any", api_key="none", base_url=server.base_url, **options)


async def failing(script: Script, *, streamed: bool = False) -> ProviderFailed:
    async with OpenAIServer(script) as server, adapter(server) as lite:
        failed = await failure(lite, asked(), streamed=streamed)
        assert len(server.requests) == 1
        return failed


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_turn_has_text_calls_and_usage(streamed: bool) -> None:
    heard: list[str] = []
    async with OpenAIServer([TWO_CALLS]) as server, adapter(server) as lite:
        turn = await lite.respond(asked(), heard.append if streamed else None)

    assert (turn.message.text, turn.message.native) == ("Two calls.", None)
    assert [(call.name, call.arguments) for call in turn.message.calls] == [("add", '{"a": 1}'), ("add", "{")]
    assert (turn.stop, turn.usage) == (Stop.CALLS, Usage(100, 20, 64))
    assert heard == (["Two ", "calls."] if streamed else [])
    assert server.requests[0].content.get("stream", False) is streamed


async def test_new_tools_and_messages_are_appended_at_the_end_of_their_lists() -> None:
    async with OpenAIServer([Turn(calls=(Call("read_section"),)), TWO_CALLS, Turn("Done.")]) as server:
        async with adapter(server) as lite:
            assert lite.delivery is Delivery.INJECT
            assert lite.supports_dynamic_tools
            first = asked(tools=[READ])
            second = asked(HELLO, *answered(await lite.respond(first), ADD), tools=[READ, ADD])
            third = asked(*second.messages, *answered(await lite.respond(second)), tools=[READ, ADD])
            turn = await lite.respond(third)

    assert (turn.message.text, turn.stop) == ("Done.", Stop.END)
    for shorter, longer in pairwise([request.content for request in server.requests]):
        assert is_prefix(shorter["messages"], longer["messages"])
        assert is_prefix(shorter["tools"], longer["tools"])


@pytest.mark.parametrize("streamed", [False, True])
async def test_reasoning_is_sent_back_to_its_vendor_and_malformed_arguments_are_wrapped(
    streamed: bool,
) -> None:
    on_text = ignore_text if streamed else None
    script = [Turn("Hm.", (Call("add", '{"a": 1}'),), reasoning="Sum them."), Turn("Done.")]
    async with AnthropicServer(script) as server:
        async with LiteLLMAdapter("anthropic/claude-sonnet-4-5", api_key="none", base_url=server.url) as lite:
            turn = await lite.respond(asked(), on_text)
            malformed = AssistantMessage("", (ToolCall("toolu_x", "add", "{"),))
            again = (malformed, ToolMessage("toolu_x", "add", "No JSON."))
            await lite.respond(asked(HELLO, *answered(turn), *again), on_text)

    assert turn.stop is Stop.CALLS
    sent = [message["content"] for message in server.requests[1].content["messages"]]
    assert sent[1][0]["type"] == "thinking"
    assert sent[1][0]["signature"]
    assert [block["input"] for block in sent[1] if block["type"] == "tool_use"] == [{"a": 1}]
    assert [block["input"] for block in sent[3] if block["type"] == "tool_use"] == [{"malformed": "{"}]


async def test_structured_output_is_requested_if_tools_can_still_be_called() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    async with OpenAIServer([Turn('{"name": "é"}')]) as server, adapter(server, max_output_tokens=50) as lite:
        turn = await lite.respond(asked(output_schema=schema))
    async with AnthropicServer([Turn('{"name": "é"}')]) as other:
        async with LiteLLMAdapter("anthropic/claude-sonnet-4-5", api_key="none", base_url=other.url) as lite:
            await lite.respond(asked(output_schema=schema))

    assert turn.message.text == '{"name": "é"}'
    assert server.requests[0].content["max_tokens"] == 50
    asked_for = server.requests[0].content["response_format"]["json_schema"]
    assert asked_for == {"name": "answer", "strict": True, "schema": schema | {"additionalProperties": False}}
    assert [tool["name"] for tool in other.requests[0].content["tools"]] == ["add"]
    assert "tool_choice" not in other.requests[0].content


@pytest.mark.parametrize("streamed", [False, True])
async def test_refusals_and_truncated_answers_are_reported_by_the_stop_reason(streamed: bool) -> None:
    on_text = ignore_text if streamed else None
    script = [Turn("I will not.", stop="refused"), Turn("Half an ans", stop="length")]
    async with OpenAIServer(script) as server, adapter(server) as lite:
        refused = await lite.respond(asked(), on_text)
        cut = await lite.respond(asked(), on_text)

    # LiteLLM's streams lose the text of a refusal.
    assert (refused.stop, refused.message.text) == (
        Stop.REFUSED,
        "The model refused to answer." if streamed else "I will not.",
    )
    assert (cut.stop, cut.message.text) == (Stop.LENGTH, "Half an ans")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("said", "what_to_do", "retryable", "retry_after_s"),
    [
        (Failure(401, code="invalid_api_key"), "`api_key`", False, None),
        (Failure(404, code="model_not_found"), "does not know the model openai/any", False, None),
        (Failure(400, code="context_length_exceeded"), "as too long: shorten it", False, None),
        (Failure(429, code="insufficient_quota"), "no quota left", False, None),
        (Failure(429, headers={"retry-after": "7"}), "retry later", True, 7.0),
        (Failure(400), "refused the request", False, None),
        (Failure(500), "could not process the request", True, None),
    ],
)
async def test_an_error_says_what_to_do_and_whether_to_retry(
    said: Failure, what_to_do: str, retryable: bool, retry_after_s: float | None, streamed: bool
) -> None:
    failed = await failing([said], streamed=streamed)

    assert what_to_do in failed.message
    assert (failed.retryable, failed.retry_after_s) == (retryable, retry_after_s)


@pytest.mark.parametrize("events", [0, 1, 4])
async def test_an_interrupted_stream_is_retryable(events: int) -> None:
    assert (await failing([Cut(TWO_CALLS, events)], streamed=True)).retryable


async def test_an_interrupted_answer_is_retryable() -> None:
    assert (await failing([Cut(TWO_CALLS, 0)])).retryable


async def test_an_unreachable_server_is_a_retryable_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with LiteLLMAdapter("openai/any", api_key="none", base_url=f"http://127.0.0.1:{port}/v1") as lite:
        failed = await failure(lite, asked())

    assert failed.retryable


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_silent_server_is_a_retryable_error_after_the_timeout(streamed: bool) -> None:
    async with OpenAIServer([Silence()]) as server, adapter(server, timeout_s=0.01) as lite:
        failed = await failure(lite, asked(), streamed=streamed)

    assert failed.retryable
    assert "sent nothing for 0.01 s" in failed.message


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_a_request_stops_waiting(streamed: bool) -> None:
    async with OpenAIServer([Silence()]) as server, adapter(server) as lite:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(lite.respond, asked(), ignore_text if streamed else None)
                await server.requested(1)
                scope.cancel()

    assert scope.cancelled_caught


async def test_closing_the_adapter_closes_its_connections() -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        async with adapter(server) as lite:
            await lite.respond(asked())
            assert connections(server)
        await anyio.wait_all_tasks_blocked()
        assert not connections(server)


async def test_an_adapter_can_be_entered_again_after_it_was_closed() -> None:
    async with OpenAIServer([Turn("One."), Turn("Two.")]) as server:
        lite = adapter(server)
        async with lite:
            await lite.respond(asked())
        async with lite:
            turn = await lite.respond(asked())

    assert turn.message.text == "Two."


async def test_closing_one_adapter_does_not_close_connections_of_others() -> None:
    async with OpenAIServer([Silence(), Turn("Meanwhile."), Turn("Later.")]) as server, adapter(server) as waiting:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(waiting.respond, asked())
                await server.requested(1)
                for _ in range(2):
                    async with adapter(server) as other:
                        await other.respond(asked())
                scope.cancel()

    assert scope.cancelled_caught


async def test_an_adapter_closed_twice_still_closes_later_connections_and_only_its_own() -> None:
    async with OpenAIServer([Turn("One."), Turn("Two.")]) as server:
        async with adapter(server) as kept:
            await kept.respond(asked())
            async with adapter(server) as lite:
                pass
            await lite.__aexit__(None, None, None)
            await anyio.wait_all_tasks_blocked()
            assert connections(server)
        async with lite:
            await lite.respond(asked())
        await anyio.wait_all_tasks_blocked()
        assert not connections(server)


def test_a_model_without_a_provider_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidConfig, match="`provider/model`"):
        LiteLLMAdapter("no-such-model")

    assert capsys.readouterr().out == ""


def test_missing_litellm_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)

    with pytest.raises(InvalidConfig, match=r"pip install 'toolcrib\[litellm\]'"):
        LiteLLMAdapter("openai/any")


def test_importing_the_adapter_makes_no_connection_and_reads_no_env_file(tmp_path: Any) -> None:
    (tmp_path / ".env").write_text("SECRET_OF_THIS_FOLDER=1\n")
    program = (
        "import os, socket\n"
        "def refuse(*_): raise AssertionError('connected')\n"
        "socket.socket.connect = refuse\n"
        "from toolcrib.adapters.litellm import LiteLLMAdapter\n"
        "LiteLLMAdapter('openai/any', api_key='none')\n"
        "print('SECRET_OF_THIS_FOLDER' in os.environ)\n"
    )
    unset = {key: value for key, value in os.environ.items() if not key.startswith("LITELLM_")}

    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=unset, capture_output=True, text=True, check=True
    )

    assert (run.stdout, run.stderr) == ("False\n", "")
