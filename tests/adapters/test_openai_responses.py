"""The Responses API through OpenAI's SDK, over HTTP."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest
from tests.adapters.asking import ADD, HELLO, READ, answered, asked, failure, ignore_text, is_prefix
from tests.adapters.verbatim import VerbatimServer

from toolcrib.adapters.openai_responses import OpenAIResponsesAdapter
from toolcrib.agent.conversation.messages import AssistantMessage, Stop, ToolCall, ToolMessage, Usage
from toolcrib.agent.loop.provider import Delivery
from toolcrib.core.errors import ProviderFailed
from toolcrib.testing.vendors import server as vendor_server
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Script, Silence, Turn, sse

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

TWO_CALLS = Turn(
    ("Two ", "calls."),
    (Call("add", '{"a": 1}'), Call("add", "{")),
    usage=vendor_server.TokenUsage(100, 20, 64),
    reasoning="Hm.",
)
READING = Turn("I read.", (Call("read_section", '{"section_key": "a"}'),), reasoning="Hm.")


def serving(script: Script) -> OpenAIServer:
    return OpenAIServer(script, search="read_section")


def adapter(server: OpenAIServer, model: str = "gpt-5.6", **options: Any) -> OpenAIResponsesAdapter:
    return OpenAIResponsesAdapter(model, api_key="none", base_url=server.base_url, **options)


async def failing(script: Script, *, streamed: bool = False, model: str = "gpt-5.6") -> ProviderFailed:
    async with serving(script) as server, adapter(server, model) as responses:
        failed = await failure(responses, asked(tools=[READ, ADD]), streamed=streamed)
        assert len(server.requests) == 1
        return failed


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_turn_has_text_calls_and_usage(streamed: bool) -> None:
    heard: list[str] = []
    async with serving([TWO_CALLS]) as server, adapter(server) as responses:
        turn = await responses.respond(asked(), heard.append if streamed else None)

    assert turn.message.text == "Two calls."
    assert [(call.name, call.arguments) for call in turn.message.calls] == [("add", '{"a": 1}'), ("add", "{")]
    assert (turn.stop, turn.usage) == (Stop.CALLS, Usage(100, 20, 64))
    assert heard == (["Two ", "calls."] if streamed else [])
    assert server.requests[0].content.get("stream", False) is streamed


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_are_added_between_items_and_each_request_starts_with_the_previous_one(streamed: bool) -> None:
    on_text = ignore_text if streamed else None
    script = [READING, Turn(calls=(Call("add", '{"a": 1}'), Call("add", "{")), reasoning="So."), Turn("Done.")]
    async with serving(script) as server, adapter(server) as responses:
        assert (responses.delivery, responses.reveals_unlisted) == (Delivery.DEFER, True)
        first = asked(tools=[READ])
        read = await responses.respond(first, on_text)
        second = asked(HELLO, *answered(read, ADD), tools=[READ])
        third = asked(*second.messages, *answered(await responses.respond(second, on_text)), tools=[READ])
        turn = await responses.respond(third, on_text)

    assert read.message.calls[0].name == "read_section"
    assert read.message.calls[0].arguments == '{"section_key": "a"}'
    assert (turn.message.text, turn.stop) == ("Done.", Stop.END)
    sent: list[Json] = [request.content for request in server.requests]
    for shorter, longer in pairwise(sent):
        assert is_prefix(shorter["input"], longer["input"])
        assert len(shorter["input"]) < len(longer["input"])
        assert {**shorter, "input": None} == {**longer, "input": None}
    kinds = [item.get("type", item.get("role")) for item in sent[2]["input"]]
    assert kinds == [
        "user",
        *("reasoning", "message", "tool_search_call", "tool_search_output", "developer"),
        *("reasoning", "function_call", "function_call", "function_call_output", "function_call_output"),
    ]
    brought = sent[1]["input"][4]
    assert [(tool["name"], tool["defer_loading"]) for tool in brought["tools"]] == [("add", True)]
    assert sent[1]["input"][5]["content"] == "Did read_section."
    assert sent[2]["input"][8]["arguments"] == "{"


async def test_nothing_is_stored_by_the_vendor_and_reasoning_is_encrypted() -> None:
    async with serving([Turn("Hi.")]) as server, adapter(server) as responses:
        await responses.respond(asked(tools=(), system=""))

    assert server.requests[0].content == {
        "model": "gpt-5.6",
        "input": [{"role": "user", "content": "Hello"}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


@pytest.mark.parametrize(
    "model", ["gpt-4.1", "gpt-4o-mini", "gpt-5-chat-latest", "gpt-5.2-chat-latest", "ft:gpt-4.1:x"]
)
async def test_a_model_without_reasoning_is_not_asked_for_reasoning(model: str) -> None:
    async with serving([Turn("Hi.")]) as server, adapter(server, model) as responses:
        await responses.respond(asked())

    assert "include" not in server.requests[0].content


@pytest.mark.parametrize(
    ("model", "delivery"),
    [
        ("gpt-5.4", Delivery.DEFER),
        ("gpt-5.4-mini", Delivery.DEFER),
        ("gpt-5.10", Delivery.DEFER),
        ("gpt-6", Delivery.DEFER),
        ("gpt-5.4-nano", Delivery.INJECT),
        ("gpt-5.3-codex", Delivery.INJECT),
        ("gpt-5", Delivery.INJECT),
        ("o3", Delivery.INJECT),
        ("qwen3", Delivery.INJECT),
    ],
)
async def test_tools_are_deferred_if_the_model_supports_tool_search(model: str, delivery: Delivery) -> None:
    async with serving([READING]) as server, adapter(server, model) as responses:
        assert responses.delivery is delivery
        turn = await responses.respond(asked(tools=[READ]))

    kind = "tool_search" if delivery is Delivery.DEFER else "function"
    assert [tool["type"] for tool in server.requests[0].content["tools"]] == [kind]
    assert turn.message.calls[0].name == "read_section"


@pytest.mark.parametrize("delivery", [Delivery.INJECT, Delivery.RESTART, Delivery.PROXY])
async def test_a_different_delivery_can_be_selected(delivery: Delivery) -> None:
    async with serving([READING, TWO_CALLS]) as server, adapter(server, delivery=delivery) as responses:
        assert responses.delivery is delivery
        assert responses.supports_dynamic_tools is (delivery is not Delivery.RESTART)
        turn = await responses.respond(asked(tools=[READ]))
        await responses.respond(asked(HELLO, *answered(turn), tools=[READ, ADD]))

    sent = server.requests[1].content
    assert [tool["name"] for tool in sent["tools"]] == ["read_section", "add"]
    assert sent["input"][-1]["type"] == "function_call_output"


async def test_a_conversation_started_with_a_different_vendor_can_continue() -> None:
    told = (
        AssistantMessage("Hm.", (ToolCall("toolu_1", "read_section", "{"),), {"anthropic": [{"type": "thinking"}]}),
        ToolMessage("toolu_1", "read_section", "No such section.", is_error=True),
    )
    async with serving([Turn("Hi.")]) as server, adapter(server) as responses:
        turn = await responses.respond(asked(HELLO, *told, tools=[READ]))

    assert turn.message.text == "Hi."
    assert server.requests[0].content["input"][2]["arguments"] == "{"


async def test_structured_output_is_requested() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    async with serving([Turn('{"name": "é"}')]) as server, adapter(server, max_output_tokens=50) as responses:
        turn = await responses.respond(asked(output_schema=schema))

    assert turn.message.text == '{"name": "é"}'
    sent = server.requests[0].content
    assert sent["max_output_tokens"] == 50
    assert sent["text"] == {
        "format": {
            "type": "json_schema",
            "name": "answer",
            "strict": True,
            "schema": schema | {"additionalProperties": False},
        }
    }


@pytest.mark.parametrize("streamed", [False, True])
async def test_refusals_and_truncated_answers_are_reported_by_the_stop_reason(streamed: bool) -> None:
    heard: list[str] = []
    on_text = heard.append if streamed else None
    cut_off = [Turn("Half an ans", stop="length"), Turn(stop="length", reasoning="H")]
    async with (
        serving([Turn("I will not.", stop="refused"), *cut_off, Turn("Hi.")]) as server,
        adapter(server) as responses,
    ):
        refused = await responses.respond(asked(), on_text)
        cut = await responses.respond(asked(), on_text)
        thinking = await responses.respond(asked(), on_text)
        await responses.respond(asked(HELLO, refused.message, cut.message, thinking.message, HELLO))

    assert (refused.stop, refused.message.text) == (Stop.REFUSED, "I will not.")
    assert (cut.stop, cut.message.text) == (Stop.LENGTH, "Half an ans")
    assert (thinking.stop, thinking.message.text) == (Stop.LENGTH, "")
    assert heard == (["I will not.", "Half an ans"] if streamed else [])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("said", "what_to_do", "retryable", "retry_after_s"),
    [
        (Failure(401, code="invalid_api_key"), "OPENAI_API_KEY", False, None),
        (Failure(404, code="model_not_found"), "does not know the model gpt-5.6", False, None),
        (Failure(400, code="context_length_exceeded"), "as too long: shorten it", False, None),
        (Failure(429, code="insufficient_quota"), "no quota left", False, None),
        (Failure(429, headers={"retry-after": "0.5"}), "retry later", True, 0.5),
        (Failure(400, "Tool 'tool_search' is not supported."), "delivery=Delivery.INJECT", False, None),
        (Failure(500), "could not process the request", True, None),
    ],
)
async def test_an_error_says_what_to_do_and_whether_to_retry(
    said: Failure, what_to_do: str, retryable: bool, retry_after_s: float | None, streamed: bool
) -> None:
    failed = await failing([said], streamed=streamed)

    assert what_to_do in failed.message
    assert (failed.retryable, failed.retry_after_s) == (retryable, retry_after_s)


@pytest.mark.parametrize("events", [0, 1, 6])
async def test_an_interrupted_stream_is_retryable(events: int) -> None:
    assert (await failing([Cut(TWO_CALLS, events)], streamed=True)).retryable


@pytest.mark.parametrize(
    ("last", "what_to_do", "retryable"),
    [
        ({"type": "error", "code": "server_error", "message": "Broken."}, "It says: Broken.", True),
        ({"type": "error", "code": "context_length_exceeded", "message": "Long."}, "as too long", False),
        (
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "slow_down", "message": "No."}},
            },
            "It says: No.",
            True,
        ),
        (
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "bio_policy", "message": "No."}},
            },
            "It says: No.",
            False,
        ),
        ({"type": "response.in_progress", "response": {}}, "closed the connection", True),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_says_what_to_do(last: Json, what_to_do: str, retryable: bool) -> None:
    body = sse({"type": "response.created", "response": {}}, "response.created") + sse(last, last["type"])
    async with VerbatimServer(body, "text/event-stream") as server:
        async with OpenAIResponsesAdapter("any", api_key="none", base_url=server.base_url) as responses:
            failed = await failure(responses, asked(), streamed=True)

    assert what_to_do in failed.message
    assert failed.retryable is retryable


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued"])
async def test_a_response_with_an_unfinished_status_is_an_error(status: str) -> None:
    async with VerbatimServer(b'{"status": "%s", "error": null}' % status.encode(), "application/json") as server:
        async with OpenAIResponsesAdapter("any", api_key="none", base_url=server.base_url) as responses:
            failed = await failure(responses, asked())

    assert f"The status of the response is `{status}`." in failed.message


@pytest.mark.parametrize("body", [b'{"output": [{"type": "function_call"}]}', b'{"output": 3}', b"[]", b'"Hello"'])
async def test_a_server_that_is_not_the_openai_api_is_reported(body: bytes) -> None:
    async with VerbatimServer(body, "application/json") as server:
        async with OpenAIResponsesAdapter("any", api_key="none", base_url=server.base_url) as responses:
            failed = await failure(responses, asked())

    assert "did not answer like the OpenAI API" in failed.message


async def test_an_interrupted_answer_is_retryable() -> None:
    assert (await failing([Cut(TWO_CALLS, 0)])).retryable


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_silent_server_is_a_retryable_error_after_the_timeout(streamed: bool) -> None:
    async with serving([Silence()]) as server, adapter(server, timeout_s=0.01) as responses:
        failed = await failure(responses, asked(), streamed=streamed)

    assert failed.retryable
    assert "sent nothing for 0.01 s" in failed.message


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_a_request_stops_waiting(streamed: bool) -> None:
    async with serving([Silence()]) as server, adapter(server) as responses:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(responses.respond, asked(), ignore_text if streamed else None)
                await server.requested(1)
                scope.cancel()

    assert scope.cancelled_caught
