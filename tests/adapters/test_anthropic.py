"""Anthropic's Messages API through Anthropic's SDK, over HTTP."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.adapters.asking import ADD, HELLO, READ, answered, asked, failure, ignore_text
from tests.adapters.verbatim import VerbatimServer

from toolcrib import Toolcrib
from toolcrib.adapters.anthropic import AnthropicAdapter
from toolcrib.agent.conversation.events import EvaluationRestarted
from toolcrib.agent.conversation.messages import AssistantMessage, Stop, ToolCall, ToolMessage, ToolSpec, Usage
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import Delivery
from toolcrib.agent.sections import MarkdownSection, PromptTemplate, SectionVisibility, ToolsInjected
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.testing.vendors import server as vendor_server
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Script, Silence, Step, Turn, sse

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

DEFERRED_ADD = ToolSpec(ADD.name, ADD.description, ADD.input_schema, is_deferred=True)
BOUND_MODEL = "claude-opus-5-5"
"""This model accepts its thinking blocks only with the same prompt and tools."""

TWO_CALLS = Turn(
    ("Two ", "calls."),
    (Call("add", '{"a": 1}'), Call("add", "{")),
    usage=vendor_server.TokenUsage(100, 20, 60, 30),
    reasoning="Hm.",
)
READING = Turn("I read.", (Call("read_section", '{"section_key": "a"}'),), reasoning="Hm.")


def adapter(server: AnthropicServer, model: str = "claude-opus-4-8", **options: Any) -> AnthropicAdapter:
    return AnthropicAdapter(model, api_key="any", base_url=server.url, **options)


async def failing(script: Script) -> ProviderFailed:
    async with AnthropicServer(script) as server, adapter(server) as model:
        failed = await failure(model, asked())
        assert len(server.requests) == 1
        return failed


def text(said: str) -> Json:
    return {"type": "text", "text": said}


# -- one turn ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [False, True])
async def test_a_turn_has_text_calls_and_usage(listens: bool) -> None:
    heard: list[str] = []
    async with AnthropicServer([TWO_CALLS]) as server, adapter(server) as model:
        turn = await model.respond(asked(), heard.append if listens else None)

    assert turn.message.text == "Two calls."
    assert [(call.name, call.arguments) for call in turn.message.calls] == [("add", '{"a": 1}'), ("add", "{")]
    assert (turn.stop, turn.usage) == (Stop.CALLS, Usage(100, 20, 60))
    assert heard == (["Two ", "calls."] if listens else [])


async def test_stable_parts_of_a_request_are_marked_for_caching() -> None:
    async with AnthropicServer([Turn("Hi."), Turn("Hi.")]) as server, adapter(server) as model:
        await model.respond(asked())
        await model.respond(asked(tools=(), system=""))

    with_all, bare = (request.content for request in server.requests)
    assert bare == {
        "model": "claude-opus-4-8",
        "max_tokens": 32_000,
        "messages": [{"role": "user", "content": [text("Hello")]}],
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }
    assert with_all == bare | {
        "system": [text("Be brief.") | {"cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "add", "description": "Add.", "input_schema": ADD.input_schema}],
    }


async def test_thinking_is_sent_back_complete_with_the_results_of_all_calls() -> None:
    async with AnthropicServer([TWO_CALLS, Turn("Done.")]) as server, adapter(server, BOUND_MODEL) as model:
        turn = await model.respond(asked())
        saved = json.loads(json.dumps(turn.message.native))
        again = AssistantMessage(turn.message.text, turn.message.calls, saved)
        done = await model.respond(asked(HELLO, again, *answered(turn)[1:]))

    assert done.message.text == "Done."
    asking, said, given = server.requests[1].content["messages"]
    assert asking["role"] == "user"
    assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert said["content"][0]["thinking"] == "Hm."
    assert [block["input"] for block in said["content"][2:]] == [{"a": 1}, {"malformed": "{"}]
    assert [block["type"] for block in given["content"]] == ["tool_result", "tool_result"]
    assert "thinking" not in server.requests[1].content


@pytest.mark.parametrize(
    ("model", "delivery"),
    [
        ("claude-fable-5-2", Delivery.DEFER),
        ("claude-sonnet-5", Delivery.DEFER),
        ("claude-haiku-4-5-20251001", Delivery.DEFER),
        ("us.anthropic.claude-opus-4-6-v1:0", Delivery.DEFER),
        ("claude-opus-4-1-20250805", Delivery.INJECT),
        ("claude-sonnet-4-20250514", Delivery.INJECT),
        ("claude-3-7-sonnet-latest", Delivery.INJECT),
        ("deepseek-chat", Delivery.INJECT),
    ],
)
async def test_tools_are_deferred_if_the_model_supports_it(model: str, delivery: Delivery) -> None:
    async with (
        AnthropicAdapter(model, api_key="any") as plain,
        AnthropicAdapter(model, api_key="any", delivery=Delivery.PROXY) as own,
    ):
        assert (plain.delivery, plain.reveals_unlisted) == (delivery, False)
        assert own.delivery is Delivery.PROXY


async def test_a_request_with_only_deferred_tools_is_refused_before_sending() -> None:
    async with AnthropicServer([Turn("Hi.")]) as server, adapter(server) as model:
        failed = await failure(model, asked(tools=[DEFERRED_ADD]))

    assert "at least one tool that is not deferred" in failed.message
    assert not failed.retryable
    assert not server.requests


async def test_a_conversation_started_with_a_different_vendor_can_continue() -> None:
    told = (
        AssistantMessage("Hm.", (ToolCall("call:1", "read_section", "{"),), {"openai_responses": [{"type": "x"}]}),
        ToolMessage("call:1", "read_section", "No such section.", is_error=True),
    )
    async with AnthropicServer([Turn("Hi.")]) as server, adapter(server) as model:
        turn = await model.respond(asked(HELLO, *told, tools=[READ]))

    assert turn.message.text == "Hi."
    assert server.requests[0].content["messages"][1]["content"][1]["input"] == {"malformed": "{"}


async def test_half_of_a_surrogate_pair_is_sent_as_a_question_mark() -> None:
    told = (AssistantMessage("", (ToolCall("1", "add", "{}"),)), ToolMessage("1", "add", "a\ud800b"))
    async with AnthropicServer([Turn("Hi.")]) as server, adapter(server) as model:
        await model.respond(asked(HELLO, *told))

    assert server.requests[0].content["messages"][-1]["content"][0]["content"] == [text("a?b")]


async def test_structured_output_is_requested_if_the_model_and_schema_support_it() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
    }
    script = [Turn('{"name": "é", "age": null}'), Turn('{"name": "é"}'), Turn('{"name": "é"}')]
    async with AnthropicServer(script) as server, adapter(server, max_output_tokens=50) as model:
        turn = await model.respond(asked(output_schema=schema))
        await model.respond(asked(output_schema={"type": "object", "additionalProperties": {"type": "string"}}))
        async with adapter(server, "claude-opus-4-1") as old:
            await old.respond(asked(output_schema=schema))

    assert turn.message.text == '{"name": "é"}'
    strict, loose, old_one = (request.content for request in server.requests)
    assert strict["max_tokens"] == 50
    wanted = strict["output_config"]["format"]
    assert wanted["type"] == "json_schema"
    assert wanted["schema"]["required"] == ["name", "age"]
    assert "output_config" not in loose
    assert "output_config" not in old_one


async def test_refusals_and_truncated_answers_are_reported_by_the_stop_reason() -> None:
    script = [
        Turn("I will not.", (Call("add"),), stop="refused"),
        Turn("Half an ans", stop="length"),
        Turn(stop="length", reasoning="H"),
        Turn("Hi."),
    ]
    async with AnthropicServer(script) as server, adapter(server) as model:
        refused, cut, thinking = [await model.respond(asked()) for _ in range(3)]
        await model.respond(asked(HELLO, refused.message, cut.message, thinking.message, HELLO))

    assert (refused.stop, refused.message) == (Stop.REFUSED, AssistantMessage("I will not."))
    assert (cut.stop, cut.message.text) == (Stop.LENGTH, "Half an ans")
    assert (thinking.stop, thinking.message.text) == (Stop.LENGTH, "")


# -- complete prompts -------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    total: int


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def mul(a: int, b: int) -> int:
    """Multiplies."""
    return a * b


PRODUCTS = MarkdownSection(
    *("Products", "products", "How to multiply."),
    summary="About products.",
    visibility=SectionVisibility.SUMMARY,
    tools=(mul,),
)
SUMS = MarkdownSection(
    *("Sums", "sums", "How to add."),
    summary="About sums.",
    visibility=SectionVisibility.SUMMARY,
    tools=(add,),
    children=(PRODUCTS,),
)
TEMPLATE = PromptTemplate[Answer]("tests", "sums", [MarkdownSection("Task", "task", "Compute."), SUMS])


def reading(key: str, *more: Call) -> Turn:
    call = Call("read_section", json.dumps({"section_key": key}))
    return Turn(f"I read {key}.", (call, *more), reasoning=f"About {key}.")


PLAY = (
    reading("sums"),
    reading("sums.products", Call("add", '{"a": 1, "b": 2}')),
    Turn(calls=(Call("mul", '{"a": 6, "b": 7}'),), reasoning="Now."),
    Turn('{"total": 42}', reasoning="So."),
)


async def execute(server: AnthropicServer, model: AnthropicAdapter, *, evaluations: int = 1) -> list[object]:
    """Run the template several times, check each answer, and return the events."""
    happened: list[object] = []
    async with Toolcrib() as crib, model:
        session = crib.session()
        session.conversation.subscribe(happened.append)
        for _ in range(evaluations):
            response = await MainLoop().execute(TEMPLATE.bind(), session=session, adapter=model)
            assert response.output == Answer(42)
    assert not isinstance(server.requests[-1].content["system"], str)
    return happened


def cached(body: Json) -> bytes:
    """Serialize a request in the order in which the vendor caches it, without its closing bracket."""
    parts = (json.dumps(body[name], separators=(",", ":")) for name in ("tools", "system", "messages"))
    return "".join(parts).encode().removesuffix(b"]")


async def test_reading_a_section_reveals_deferred_tools_and_keeps_the_request_prefix() -> None:
    async with AnthropicServer(PLAY) as server:
        happened = await execute(server, adapter(server, BOUND_MODEL))

    bodies = [request.content for request in server.requests]
    for shorter, longer in pairwise(bodies):
        assert cached(longer).startswith(cached(shorter))
    assert {(tool["name"], tool.get("defer_loading", False)) for tool in bodies[0]["tools"]} == {
        *(("read_section", False), ("add", True), ("mul", True))
    }
    read, opened = bodies[2]["messages"][2], bodies[2]["messages"][4]
    assert read["content"][0]["content"] == [{"type": "tool_reference", "tool_name": "add"}]
    assert "How to add." in read["content"][1]["text"]
    assert opened["content"][0]["content"] == [{"type": "tool_reference", "tool_name": "mul"}]
    assert opened["content"][1]["content"] == [text("3")]
    assert "How to multiply." in opened["content"][2]["text"]
    assert bodies[3]["messages"][6]["content"][0]["content"] == [text("42")]
    injected = [event.tool_names for event in happened if isinstance(event, ToolsInjected)]
    assert injected == [("add",), ("mul",)]
    assert all("thinking" not in body for body in bodies)


async def test_an_older_model_gets_new_tools_at_the_end_of_the_list() -> None:
    async with AnthropicServer(PLAY) as server:
        happened = await execute(server, adapter(server, "claude-opus-4-1"))

    bodies = [request.content for request in server.requests]
    assert [[tool["name"] for tool in body["tools"]] for body in bodies] == [
        ["read_section"],
        ["read_section", "add"],
        *[["read_section", "add", "mul"]] * 2,
    ]
    assert b"defer_loading" not in server.requests[-1].body
    assert b"tool_reference" not in server.requests[-1].body
    for shorter, longer in pairwise(bodies):
        assert cached(longer | {"tools": []}).startswith(cached(shorter | {"tools": []}))
    assert [event.tool_names for event in happened if isinstance(event, ToolsInjected)] == [("add",), ("mul",)]


DROPPING = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


@pytest.mark.parametrize("delivery", [Delivery.INJECT, Delivery.RESTART])
async def test_thinking_under_different_tools_or_prompt_is_dropped_by_the_vendor(delivery: Delivery) -> None:
    async with AnthropicServer(PLAY) as server:
        happened = await execute(server, adapter(server, BOUND_MODEL, delivery=delivery))

    assert [body.content.get("thinking") for body in server.requests] == [None, DROPPING, DROPPING, DROPPING]
    assert server.requests[3].headers["anthropic-beta"] == "thinking-binding-controls-2026-08-01"
    assert "anthropic-beta" not in server.requests[0].headers
    assert b"About sums." in server.requests[3].body
    assert len([event for event in happened if isinstance(event, EvaluationRestarted)]) == (
        2 if delivery is Delivery.RESTART else 0
    )


async def test_a_session_continues_with_thinking_from_before_a_prompt_change() -> None:
    async with AnthropicServer([*PLAY, Turn('{"total": 42}', reasoning="Again.")]) as server:
        await execute(server, adapter(server, BOUND_MODEL), evaluations=2)

    last = server.requests[4].content
    assert last["thinking"] == DROPPING
    assert all("defer_loading" not in tool for tool in last["tools"])
    assert b"tool_reference" not in server.requests[4].body


async def test_a_model_without_thinking_binding_gets_its_thinking_back_unchanged() -> None:
    async with AnthropicServer(PLAY) as server:
        await execute(server, adapter(server, delivery=Delivery.INJECT))

    assert all("thinking" not in request.content for request in server.requests)
    assert b'"signature"' in server.requests[3].body


async def test_a_failed_request_is_retried_with_the_same_body() -> None:
    first, *rest = PLAY
    overloaded = Failure(529, headers={"retry-after": "0"})
    script: list[Step] = [overloaded, Failure(429, headers={"retry-after-ms": "1"}), first, *rest]
    async with AnthropicServer(script) as server:
        await execute(server, adapter(server))

    assert len({request.body for request in server.requests[:3]}) == 1


@pytest.mark.parametrize(
    "said",
    [
        "output_config.format.schema: Invalid schema: The compiled grammar is too large.",
        "Schemas contains too many parameters with union types.",
    ],
)
async def test_a_schema_that_is_too_large_for_the_vendor_is_omitted_on_retry(said: str) -> None:
    first, *rest = PLAY
    async with AnthropicServer([Failure(400, said), first, *rest]) as server:
        await execute(server, adapter(server))

    assert ["output_config" in request.content for request in server.requests] == [True, *[False] * len(PLAY)]


async def test_a_tool_refused_by_the_vendor_is_not_retried() -> None:
    refusal = Failure(400, "tools.0.custom.input_schema: JSON schema is invalid")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    async with AnthropicServer([refusal]) as server, adapter(server) as model:
        failed = await failure(model, asked(output_schema=schema))

    assert not failed.retryable


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "what_to_do", "retryable", "retry_after_s"),
    [
        (Failure(401), "check ANTHROPIC_API_KEY", False, None),
        (Failure(402), "add credit", False, None),
        (Failure(400, "Your credit balance is too low."), "add credit", False, None),
        (Failure(403), "use a different model", False, None),
        (Failure(404), "does not know the model claude-opus-4-8", False, None),
        (Failure(413), "as too long: shorten it", False, None),
        (Failure(400, "prompt is too long: 9 tokens > 8 maximum"), "as too long: shorten it", False, None),
        (Failure(400, "max_tokens: 32000 > 8192"), "smaller `max_output_tokens`", False, None),
        (Failure(400, "defer_loading: not supported"), "delivery=Delivery.INJECT", False, None),
        (Failure(400), "refused the request", False, None),
        (Failure(429, headers={"retry-after": "7"}), "retry later", True, 7.0),
        (Failure(429, headers={"x-should-retry": "false", "retry-after": "7"}), "retry later", False, None),
        (Failure(529, headers={"retry-after": "soon"}), "retry later", True, None),
        (Failure(500), "could not process the request", True, None),
        (Failure(409), "refused the request", True, None),
    ],
)
async def test_an_error_says_what_to_do_and_whether_to_retry(
    said: Failure, what_to_do: str, retryable: bool, retry_after_s: float | None
) -> None:
    failed = await failing([said])

    assert what_to_do in failed.message
    assert f"It says: {said.message.rstrip('.')}." in failed.message
    assert (failed.retryable, failed.retry_after_s) == (retryable, retry_after_s)
    assert failed.details["status"] == said.status


@pytest.mark.parametrize("events", [0, 1, 5, 20])
async def test_an_interrupted_stream_is_retryable(events: int) -> None:
    failed = await failing([Cut(TWO_CALLS, events)])

    assert failed.retryable
    assert "closed the connection" in failed.message or "cannot be reached" in failed.message


def event(kind: str, **more: Any) -> bytes:
    return sse({"type": kind, **more}, kind)


START = event("message_start", message={"usage": {"input_tokens": 1, "output_tokens": 1}})


async def answer_of(body: bytes, media_type: str = "text/event-stream") -> ProviderFailed:
    async with VerbatimServer(body, media_type) as server:
        async with AnthropicAdapter("claude-opus-4-8", api_key="any", base_url=server.url) as model:
            return await failure(model, asked(), streamed=True)


@pytest.mark.parametrize(
    ("kind", "what_to_do", "retryable"),
    [
        ("overloaded_error", "retry later", True),
        ("api_error", "could not process the request", True),
        ("invalid_request_error", "refused the request", False),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_says_what_to_do(kind: str, what_to_do: str, retryable: bool) -> None:
    failed = await answer_of(START + event("error", error={"type": kind, "message": "Broken."}))

    assert what_to_do in failed.message
    assert "It says: Broken." in failed.message
    assert failed.retryable is retryable


async def test_a_stream_without_a_stop_reason_counts_as_interrupted() -> None:
    failed = await answer_of(START)

    assert "closed the connection" in failed.message
    assert failed.retryable


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"<html>Welcome</html>", "text/html"),
        (b'{"content": []}', "application/json"),
        (b"event: message_start\ndata: {\n\n", "text/event-stream"),
        (b'event: message_start\ndata: "Hello"\n\n', "text/event-stream"),
        (event("message_start"), "text/event-stream"),
        (event("content_block_delta", index=3, delta={"type": "text_delta"}), "text/event-stream"),
    ],
)
async def test_a_server_that_is_not_the_anthropic_api_is_reported(body: bytes, media_type: str) -> None:
    failed = await answer_of(body, media_type)

    assert "did not answer like the Anthropic API" in failed.message
    assert not failed.retryable


async def test_an_unreachable_server_is_a_retryable_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with AnthropicAdapter("claude-opus-4-8", api_key="any", base_url=f"http://127.0.0.1:{port}") as model:
        failed = await failure(model, asked())

    assert failed.retryable
    assert "cannot be reached" in failed.message


async def test_a_silent_server_is_a_retryable_error_after_the_timeout() -> None:
    async with AnthropicServer([Silence()]) as server, adapter(server, timeout_s=0.01) as model:
        failed = await failure(model, asked())

    assert failed.retryable
    assert "sent nothing for 0.01 s" in failed.message


async def test_cancelling_a_request_stops_waiting() -> None:
    async with AnthropicServer([Silence()]) as server, adapter(server) as model:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(model.respond, asked(), ignore_text)
                await server.requested(1)
                scope.cancel()

    assert scope.cancelled_caught


async def test_an_exception_of_a_text_listener_is_not_wrapped() -> None:
    def listen(_: str) -> None:
        raise KeyError("mine")

    async with AnthropicServer([TWO_CALLS]) as server, adapter(server) as model:
        with pytest.raises(KeyError, match="mine"):
            await model.respond(asked(), listen)


async def test_the_sdk_records_no_telemetry_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def get_tracer(*_: object, **__: object) -> trace.Tracer:
        return provider.get_tracer("all")

    monkeypatch.setattr(trace, "get_tracer", get_tracer)
    async with AnthropicServer([Turn("Hi.")]) as server, adapter(server) as model:
        await model.respond(asked())

    assert not spans.get_finished_spans()


# -- creating the adapter ---------------------------------------------------------------------------------------------


async def test_an_adapter_can_be_entered_again_after_it_was_closed() -> None:
    async with AnthropicServer([Turn("One."), Turn("Two.")]) as server:
        model = adapter(server)
        async with model:
            await model.respond(asked())
        async with model:
            turn = await model.respond(asked())

    assert turn.message.text == "Two."


@pytest.fixture
def without_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("ANTHROPIC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("without_key")
async def test_a_missing_api_key_is_reported_with_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProviderFailed, match="set ANTHROPIC_API_KEY"):
        AnthropicAdapter("claude-opus-4-8")

    monkeypatch.setenv("ANTHROPIC_PROFILE", "missing")
    with pytest.raises(ProviderFailed, match=r"set ANTHROPIC_API_KEY.*missing\.json"):
        AnthropicAdapter("claude-opus-4-8")


@pytest.mark.usefixtures("without_key")
async def test_unreadable_credentials_are_reported_when_they_are_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_IDENTITY_TOKEN_FILE", str(tmp_path / "none.txt"))
    monkeypatch.setenv("ANTHROPIC_FEDERATION_RULE_ID", "fdrl_1")
    monkeypatch.setenv("ANTHROPIC_ORGANIZATION_ID", "00000000-0000-0000-0000-000000000000")
    async with AnthropicServer([]) as server, AnthropicAdapter("claude-opus-4-8", base_url=server.url) as model:
        failed = await failure(model, asked())

    assert "set ANTHROPIC_API_KEY" in failed.message
    assert "none.txt" in failed.message


async def test_a_missing_sdk_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)

    with pytest.raises(InvalidConfig, match=r"pip install 'toolcrib\[anthropic\]'"):
        AnthropicAdapter("claude-opus-4-8", api_key="any")
