"""Chat Completions through OpenAI's SDK, over HTTP."""

from __future__ import annotations

import socket
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import anyio
import pytest
from tests.adapters.asking import ADD, HELLO, READ, answered, asked, connections, failure, ignore_text, is_prefix
from tests.adapters.verbatim import VerbatimServer

from toolcrib.adapters.openai_chat import OpenAIChatAdapter
from toolcrib.agent.conversation.messages import AssistantMessage, Stop, ToolCall, ToolMessage, Usage
from toolcrib.agent.loop.provider import Delivery
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.testing.vendors import server as vendor_server
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Script, Silence, Turn, sse

pytestmark = pytest.mark.anyio

CALLS = (Call("add", '{"a": 1}'), Call("add", "{"))
TWO_CALLS = Turn(("Two ", "calls."), CALLS, usage=vendor_server.TokenUsage(100, 20, 64))
LONG_CALL = Turn(("a", "b", "c"), (Call("add", '{"a": 1, "comment": "longer than a piece"}'),))


def adapter(server: OpenAIServer, model: str = "gpt-4.1", **options: Any) -> OpenAIChatAdapter:
    return OpenAIChatAdapter(model, api_key="none", base_url=server.base_url, **options)


async def failing(script: Script, *, streamed: bool = False, model: str = "gpt-4.1") -> ProviderFailed:
    async with OpenAIServer(script) as server, adapter(server, model) as chat:
        failed = await failure(chat, asked(), streamed=streamed)
        assert len(server.requests) == 1
        return failed


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_turn_has_text_calls_and_usage(streamed: bool) -> None:
    heard: list[str] = []
    async with OpenAIServer([TWO_CALLS]) as server, adapter(server) as chat:
        turn = await chat.respond(asked(), heard.append if streamed else None)

    assert (turn.message.text, turn.message.native) == ("Two calls.", None)
    assert [(call.name, call.arguments) for call in turn.message.calls] == [("add", '{"a": 1}'), ("add", "{")]
    assert len({call.id for call in turn.message.calls}) == 2
    assert (turn.stop, turn.usage) == (Stop.CALLS, Usage(100, 20, 64))
    assert heard == (["Two ", "calls."] if streamed else [])
    assert server.requests[0].content.get("stream", False) is streamed


async def test_text_is_passed_to_the_listener_piece_by_piece() -> None:
    heard: list[str] = []
    async with OpenAIServer([LONG_CALL]) as server, adapter(server) as chat:
        turn = await chat.respond(asked(), heard.append)

    assert heard == ["a", "b", "c"]
    assert turn.message.calls[0].arguments == '{"a": 1, "comment": "longer than a piece"}'


async def test_new_tools_and_messages_are_appended_at_the_end_of_their_lists() -> None:
    async with OpenAIServer([Turn(calls=(Call("read_section"),)), TWO_CALLS, Turn("Done.")]) as server:
        async with adapter(server) as chat:
            assert chat.delivery is Delivery.INJECT
            assert chat.supports_dynamic_tools
            first = asked(tools=[READ])
            second = asked(HELLO, *answered(await chat.respond(first), ADD), tools=[READ, ADD])
            third = asked(*second.messages, *answered(await chat.respond(second)), tools=[READ, ADD])
            turn = await chat.respond(third)

    assert (turn.message.text, turn.stop) == ("Done.", Stop.END)
    sent = [request.content for request in server.requests]
    for shorter, longer in pairwise(sent):
        assert is_prefix(shorter["messages"], longer["messages"])
        assert is_prefix(shorter["tools"], longer["tools"])
    assert sent[2]["messages"][-3]["tool_calls"][1]["function"]["arguments"] == "{"


async def test_a_minimal_request_has_only_model_and_messages() -> None:
    async with OpenAIServer([Turn("Hi.")]) as server, adapter(server) as chat:
        await chat.respond(asked(tools=(), system=""))

    assert server.requests[0].content == {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hello"}]}


async def test_structured_output_is_requested_and_omitted_keys_stay_omitted() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
        "required": ["name"],
    }
    turn = Turn('{"name": "é", "note": null}')
    async with OpenAIServer([turn, turn]) as server, adapter(server, max_output_tokens=50) as chat:
        found = await chat.respond(asked(output_schema=schema))

    assert found.message.text == '{"name": "é"}'
    sent = server.requests[0].content
    assert sent["max_completion_tokens"] == 50
    assert sent["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["name", "note"],
                "additionalProperties": False,
            },
        },
    }


async def test_a_schema_outside_strict_mode_is_sent_loosely_or_omitted() -> None:
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    async with OpenAIServer([Turn('{"a": null}'), Turn("[]")]) as server, adapter(server) as chat:
        found = await chat.respond(asked(output_schema=free))
        await chat.respond(asked(output_schema={"type": "array", "items": {"type": "integer"}}))

    first, second = (request.content for request in server.requests)
    assert first["response_format"]["json_schema"] == {"name": "answer", "schema": free, "strict": False}
    assert found.message.text == '{"a": null}'
    assert "response_format" not in second


@pytest.mark.parametrize("streamed", [False, True])
async def test_refusals_and_truncated_answers_are_reported_by_the_stop_reason(streamed: bool) -> None:
    heard: list[str] = []
    on_text = heard.append if streamed else None
    script = [Turn("I will not.", stop="refused"), Turn("Half an ans", stop="length")]
    async with OpenAIServer(script) as server, adapter(server) as chat:
        refused = await chat.respond(asked(), on_text)
        cut = await chat.respond(asked(), on_text)

    assert (refused.stop, refused.message.text) == (Stop.REFUSED, "I will not.")
    assert (cut.stop, cut.message.text) == (Stop.LENGTH, "Half an ans")
    assert heard == (["I will not.", "Half an ans"] if streamed else [])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("said", "what_to_do", "retryable", "retry_after_s"),
    [
        (Failure(401, code="invalid_api_key"), "OPENAI_API_KEY", False, None),
        (Failure(403), "use a different model", False, None),
        (Failure(404, code="model_not_found"), "does not know the model gpt-4.1", False, None),
        (Failure(400, code="context_length_exceeded"), "as too long: shorten it", False, None),
        (Failure(429, code="insufficient_quota", headers={"retry-after": "1"}), "no quota left", False, None),
        (Failure(429, headers={"retry-after": "7"}), "retry later", True, 7.0),
        (Failure(429, headers={"retry-after": "7", "retry-after-ms": "250"}), "retry later", True, 0.25),
        (Failure(429, headers={"retry-after": "soon"}), "retry later", True, None),
        (Failure(429, headers={"x-should-retry": "false"}), "retry later", False, None),
        (Failure(400, headers={"x-should-retry": "true"}), "refused the request", True, None),
        (Failure(400), "refused the request", False, None),
        (Failure(409), "refused the request", True, None),
        (Failure(503), "could not process the request", True, None),
    ],
)
async def test_an_error_says_what_to_do_and_whether_to_retry(
    said: Failure, what_to_do: str, retryable: bool, retry_after_s: float | None, streamed: bool
) -> None:
    failed = await failing([said], streamed=streamed)

    assert what_to_do in failed.message
    assert "It says: Scripted failure." in failed.message
    assert (failed.retryable, failed.retry_after_s) == (retryable, retry_after_s)
    assert failed.details["status"] == said.status


async def test_a_retry_date_is_converted_to_seconds() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)

    later = await failing([Failure(429, headers={"retry-after": in_an_hour})])
    now = await failing([Failure(429, headers={"retry-after": past})])

    assert later.retry_after_s is not None
    assert 0 < later.retry_after_s <= 3600
    assert now.retry_after_s == 0


async def test_a_model_that_accepts_tools_only_in_the_responses_api_is_reported() -> None:
    failed = await failing([], model="gpt-5.6")

    assert "use `openai:gpt-5.6`" in failed.message
    assert not failed.retryable


@pytest.mark.parametrize("events", [0, 1, 4])
async def test_an_interrupted_stream_is_retryable(events: int) -> None:
    failed = await failing([Cut(TWO_CALLS, events)], streamed=True)

    assert failed.retryable
    assert "closed the connection" in failed.message or "cannot be reached" in failed.message


async def test_an_interrupted_answer_is_retryable() -> None:
    assert (await failing([Cut(TWO_CALLS, 0)])).retryable


async def test_an_unreachable_server_is_a_retryable_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with OpenAIChatAdapter("any", api_key="none", base_url=f"http://127.0.0.1:{port}/v1") as chat:
        failed = await failure(chat, asked())

    assert failed.retryable
    assert "cannot be reached" in failed.message


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_silent_server_is_a_retryable_error_after_the_timeout(streamed: bool) -> None:
    async with OpenAIServer([Silence()]) as server, adapter(server, timeout_s=0.01) as chat:
        failed = await failure(chat, asked(), streamed=streamed)

    assert failed.retryable
    assert "sent nothing for 0.01 s" in failed.message


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_a_request_stops_waiting(streamed: bool) -> None:
    async with OpenAIServer([Silence()]) as server, adapter(server) as chat:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(chat.respond, asked(), ignore_text if streamed else None)
                await server.requested(1)
                scope.cancel()

    assert scope.cancelled_caught


async def test_an_exception_of_a_text_listener_is_not_wrapped() -> None:
    def listen(_: str) -> None:
        raise KeyError("mine")

    async with OpenAIServer([TWO_CALLS]) as server, adapter(server) as chat:
        with pytest.raises(KeyError, match="mine"):
            await chat.respond(asked(), listen)


async def test_half_of_a_surrogate_pair_is_sent_as_a_question_mark() -> None:
    answers = (AssistantMessage("", (ToolCall("call_1", "add", "{}"),)), ToolMessage("call_1", "add", "a\ud800b"))
    async with OpenAIServer([Turn("Hi.")]) as server, adapter(server) as chat:
        await chat.respond(asked(HELLO, *answers))

    assert server.requests[0].content["messages"][-1]["content"] == "a?b"


async def test_a_base_url_without_the_api_is_reported() -> None:
    async with OpenAIServer([]) as server, OpenAIChatAdapter("any", api_key="none", base_url=server.url) as chat:
        failed = await failure(chat, asked())

    assert "and the address" in failed.message


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"<html>Welcome</html>", "text/html"),
        (b'{"choices": [{"message": {"tool_calls": [{"function": "add"}]}}]}', "application/json"),
        (b'{"choices": [{"message": {"tool_calls": 3}}]}', "application/json"),
        (b"[]", "application/json"),
    ],
)
async def test_a_server_that_is_not_the_openai_api_is_reported(body: bytes, media_type: str) -> None:
    async with VerbatimServer(body, media_type) as server:
        async with OpenAIChatAdapter("any", api_key="none", base_url=server.base_url) as chat:
            failed = await failure(chat, asked())

    assert "did not answer like the OpenAI API" in failed.message
    assert not failed.retryable


@pytest.mark.parametrize(
    ("code", "what_to_do", "retryable"),
    [
        ("server_error", "could not process", True),
        ("context_length_exceeded", "as too long", False),
        ("invalid_prompt", "could not process", False),
        (None, "could not process", True),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_says_what_to_do(
    code: str | None, what_to_do: str, retryable: bool
) -> None:
    body = sse({"choices": [{"delta": {"content": "Hi"}}]}) + sse({"error": {"message": "Broken.", "code": code}})
    async with VerbatimServer(body, "text/event-stream") as server:
        async with OpenAIChatAdapter("any", api_key="none", base_url=server.base_url) as chat:
            failed = await failure(chat, asked(), streamed=True)

    assert what_to_do in failed.message
    assert "It says: Broken." in failed.message
    assert failed.retryable is retryable


@pytest.mark.parametrize(
    "body",
    [
        b"data: {no JSON}\n\n",
        sse({"choices": ["text"]}),
        sse({"choices": [{"delta": {"tool_calls": [3]}}]}),
    ],
    ids=["no-json", "choice", "call"],
)
async def test_a_stream_that_is_not_from_the_openai_api_is_reported(body: bytes) -> None:
    async with VerbatimServer(body, "text/event-stream") as server:
        async with OpenAIChatAdapter("any", api_key="none", base_url=server.base_url) as chat:
            failed = await failure(chat, asked(), streamed=True)

    assert "did not answer like the OpenAI API" in failed.message


async def test_a_stream_without_a_finish_reason_counts_as_interrupted() -> None:
    body = sse({"choices": [{"delta": {"content": "Hi"}}]}) + b"data: [DONE]\n\n"
    async with VerbatimServer(body, "text/event-stream") as server:
        async with OpenAIChatAdapter("any", api_key="none", base_url=server.base_url) as chat:
            failed = await failure(chat, asked(), streamed=True)

    assert "closed the connection" in failed.message
    assert failed.retryable


async def test_closing_the_adapter_closes_its_connections() -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        async with adapter(server) as chat:
            await chat.respond(asked())
            assert connections(server)
        await anyio.wait_all_tasks_blocked()
        assert not connections(server)


async def test_an_adapter_can_be_entered_again_after_it_was_closed() -> None:
    async with OpenAIServer([Turn("One."), Turn("Two.")]) as server:
        chat = adapter(server)
        async with chat:
            await chat.respond(asked())
        async with chat:
            turn = await chat.respond(asked())

    assert turn.message.text == "Two."


async def test_a_missing_api_key_is_reported_with_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ProviderFailed, match="OPENAI_API_KEY"):
        OpenAIChatAdapter("gpt-4.1")


async def test_a_missing_sdk_is_reported_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(InvalidConfig, match=r"pip install 'toolcrib\[openai\]'"):
        OpenAIChatAdapter("gpt-4.1", api_key="none")
