"""The fake OpenAI server answers the SDK as the vendor does, and refuses the same requests as the vendor."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import pytest
from pydantic import TypeAdapter
from tests.vendors import Vendor

from toolcrib.testing.vendors.openai_requests import CHAT_PARAMETERS, RESPONSES_PARAMETERS
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Recorded, Silence, TokenUsage, Turn

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response
else:
    openai = Vendor("openai")
    ChatCompletion, ChatCompletionChunk = (
        Vendor("openai.types.chat", name) for name in ("ChatCompletion", "ChatCompletionChunk")
    )
    Response = Vendor("openai.types.responses", "Response")

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

ANY: Json = {"type": "object", "properties": {}}
HELLO: list[Json] = [{"role": "user", "content": "Hello"}]
ADD: Json = {"name": "add", "description": "Add.", "parameters": ANY}
ASKED: Json = {"role": "user", "content": "Add."}
SEARCH: Json = {"type": "tool_search", "execution": "client", "description": "Open.", "parameters": ANY}


@cache
def event_type() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


def chat_tool(**changes: Any) -> Json:
    return {"type": "function", "function": ADD | changes}


def tool(**changes: Any) -> Json:
    return {"type": "function", "strict": False} | ADD | changes


def client(server: OpenAIServer, *, max_retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=max_retries)


async def chat(server: OpenAIServer, **request: Any) -> ChatCompletion:
    async with client(server) as sdk:
        create: Any = sdk.chat.completions.create
        return await create(**({"model": "gpt-4.1", "messages": HELLO} | request))


async def chat_chunks(server: OpenAIServer, **request: Any) -> list[ChatCompletionChunk]:
    async with client(server) as sdk:
        create: Any = sdk.chat.completions.create
        stream = await create(**({"model": "gpt-4.1", "messages": HELLO, "stream": True} | request))
        return [chunk async for chunk in stream]


async def respond(server: OpenAIServer, **request: Any) -> Response:
    async with client(server) as sdk:
        create: Any = sdk.responses.create
        return await create(**({"model": "gpt-5.6", "input": HELLO} | request))


async def respond_events(server: OpenAIServer, **request: Any) -> list[Any]:
    async with client(server) as sdk:
        create: Any = sdk.responses.create
        stream = await create(**({"model": "gpt-5.6", "input": HELLO, "stream": True} | request))
        return [event_type().validate_python(event.to_dict(mode="json")) async for event in stream]


def said(error: openai.APIError) -> str:
    """Return the server's message. The SDK adds different words around it in different releases."""
    return cast(Json, error.body)["message"]


# Chat completions


async def test_a_chat_turn_has_its_text_calls_and_usage() -> None:
    turn = Turn(("Two ", "calls."), (Call("add", '{"a": 1}'), Call("add", "{")), usage=TokenUsage(100, 20, 64, 8, 5))
    async with OpenAIServer([turn]) as server:
        completion = await chat(server, tools=[chat_tool()])

    choice = completion.choices[0]
    assert choice.message.content == "Two calls."
    calls = choice.message.tool_calls or []
    assert [call.type == "function" and (call.id, call.function.arguments) for call in calls] == [
        ("call_1", '{"a": 1}'),
        ("call_2", "{"),
    ]
    assert choice.finish_reason == "tool_calls"
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert (usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens_details.cache_write_tokens) == (64, 8)
    assert usage.completion_tokens_details.reasoning_tokens == 5
    ChatCompletion.model_validate(completion.to_dict(mode="json"))


async def test_the_chunks_of_a_streamed_chat_turn_add_up_to_the_whole() -> None:
    arguments = ['{"a": "some longer text"}', "{}"]
    turn = Turn(("Two ", "calls."), tuple(Call("add", text) for text in arguments), usage=TokenUsage(7, 3))
    async with OpenAIServer([turn]) as server:
        chunks = await chat_chunks(server, tools=[chat_tool()], stream_options={"include_usage": True})

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert [delta.content for delta in deltas if delta.content] == ["Two ", "calls."]
    received = ["", ""]
    for delta in deltas:
        for call in delta.tool_calls or []:
            assert call.function is not None
            received[call.index] += call.function.arguments or ""
    assert received == arguments
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage] == [10]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict(mode="json"))


async def test_usage_is_streamed_only_if_the_request_asks_for_it() -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        chunks = await chat_chunks(server)

    assert [chunk.usage for chunk in chunks if chunk.usage] == []
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize(
    ("turn", "reason"),
    [(Turn("a"), "stop"), (Turn("a", stop="length"), "length"), (Turn("No.", stop="refused"), "stop")],
)
async def test_a_chat_turn_has_the_scripted_finish_reason(turn: Turn, reason: str) -> None:
    async with OpenAIServer([turn, turn]) as server:
        whole = (await chat(server)).choices[0]
        streamed = await chat_chunks(server)

    assert whole.finish_reason == reason
    assert streamed[-1].choices[0].finish_reason == reason
    assert whole.message.refusal == ("No." if turn.stop == "refused" else None)
    refusals = "".join(chunk.choices[0].delta.refusal or "" for chunk in streamed)
    assert refusals == (whole.message.refusal or "")


async def test_a_script_can_be_a_function_of_the_request() -> None:
    def echo(request: Recorded) -> Turn:
        return Turn(request.content["messages"][-1]["content"])

    async with OpenAIServer(echo) as server:
        assert (await chat(server)).choices[0].message.content == "Hello"


# The Responses API


async def test_a_response_has_its_items_and_usage() -> None:
    turn = Turn("Well.", (Call("add", '{"a": 1}'),), usage=TokenUsage(100, 20, 64, 8, 5), reasoning="Hm.")
    async with OpenAIServer([turn]) as server:
        response = await respond(server, tools=[tool()])

    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output_text == "Well."
    assert response.status == "completed"
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens) == (100, 64, 20)
    assert (usage.input_tokens_details.cache_write_tokens, usage.output_tokens_details.reasoning_tokens) == (8, 5)
    Response.model_validate(response.to_dict(mode="json"))


async def test_the_numbered_events_of_a_streamed_response_add_up_to_the_whole() -> None:
    turn = Turn(("We", "ll."), (Call("add", '{"a": "some longer text"}'),), reasoning="Hm.")
    async with OpenAIServer([turn]) as server:
        events = await respond_events(server, tools=[tool()])

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["We", "ll."]
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 1
    assert "".join(pieces) == '{"a": "some longer text"}'
    assert events[-1].type == "response.completed"
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == events[-1].response.output


async def test_a_response_that_ran_out_of_tokens_is_incomplete() -> None:
    turn = Turn("We", stop="length")
    async with OpenAIServer([turn, turn]) as server:
        response = await respond(server)
        events = await respond_events(server)

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].type == "response.incomplete"


async def test_a_response_can_be_a_refusal() -> None:
    async with OpenAIServer([Turn("No.", stop="refused")]) as server:
        events = await respond_events(server)

    assert [event.delta for event in events if event.type == "response.refusal.delta"] == ["No."]
    assert events[-1].response.output[0].content[0].refusal == "No."


async def test_tools_found_by_a_client_search_can_be_called() -> None:
    script = [Turn(calls=(Call("open", '{"key": "math"}'),)), Turn(calls=(Call("add"),)), Turn("Done.")]
    async with OpenAIServer(script, search="open") as server:
        request: Json = {"tools": [SEARCH], "store": False}
        items: list[Any] = list(HELLO)
        found = (await respond(server, input=items, **request)).output[0]
        assert found.type == "tool_search_call"
        assert (found.execution, found.arguments) == ("client", {"key": "math"})
        output = {"type": "tool_search_output", "call_id": found.call_id, "execution": "client", "status": "completed"}
        items += [found.to_dict(), output | {"tools": [tool(defer_loading=True)]}]

        called = (await respond(server, input=items, **request)).output[0]
        assert called.type == "function_call"
        items += [called.to_dict(), {"type": "function_call_output", "call_id": called.call_id, "output": "3"}]

        assert (await respond(server, input=items, **request)).output_text == "Done."


async def test_a_search_is_an_ordinary_call_if_the_client_declares_no_search() -> None:
    script = [Turn(calls=(Call("open"),))] * 2
    async with OpenAIServer(script, search="open") as server:
        response = await respond(server, tools=[tool(name="open")])
        completion = await chat(server, tools=[chat_tool(name="open")])

    assert response.output[0].type == "function_call"
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_additional_tools_in_the_input_can_be_called() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [tool()]}
    async with OpenAIServer([Turn(calls=(Call("add"),))]) as server:
        assert (await respond(server, input=[*HELLO, added])).output[0].type == "function_call"


async def test_reasoning_must_be_returned_together_with_the_item_that_followed_it() -> None:
    script = [Turn(calls=(Call("add"),), reasoning="Hm."), Turn("Done.")]
    async with OpenAIServer(script) as server:
        first = await respond(server, tools=[tool()], store=False)
        reasoning, call = [item.to_dict() for item in first.output]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}

        async def refused(*items: Any) -> str:
            with pytest.raises(openai.APIStatusError) as caught:
                await respond(server, tools=[tool()], store=False, input=[*HELLO, *items])
            return said(caught.value)

        assert "without its required 'reasoning' item: 'rs_2'" in await refused(call, output)
        assert "without its required following item" in await refused(reasoning)
        assert "not persisted" in await refused(reasoning | {"encrypted_content": None}, call, output)
        request: Json = {"tools": [tool()], "store": False, "input": [*HELLO, reasoning, call, output]}
        assert (await respond(server, **request)).output_text == "Done."


# Recorded requests


async def test_every_request_is_recorded_unchanged() -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        await chat(server, temperature=0)
        with pytest.raises(openai.BadRequestError):
            await respond(server, tools=[{"type": "unheard_of"}])

    first, second = server.requests
    assert (first.method, first.path, second.path) == ("POST", "/v1/chat/completions", "/v1/responses")
    assert first.headers["authorization"] == "Bearer none"
    assert first.content == json.loads(first.body) == {"model": "gpt-4.1", "messages": HELLO, "temperature": 0}


async def test_identical_runs_have_identical_answers() -> None:
    async def run() -> bytes:
        async with OpenAIServer([Turn("Hi.", (Call("add"),), reasoning="Hm.")]) as server, httpx2.AsyncClient() as http:
            body = {"model": "gpt-5.6", "input": "Hello", "tools": [tool()], "stream": True}
            return (await http.post(f"{server.base_url}/responses", json=body)).content

    assert await run() == await run()


# Scripted failures


async def test_a_failure_has_its_status_code_and_headers() -> None:
    script = [Failure(429, "Slower.", {"retry-after": "7"}, code="rate_limit_exceeded"), Failure(503), Turn("Hi.")]
    async with OpenAIServer(script) as server:
        with pytest.raises(openai.RateLimitError, match="Slower") as limited:
            await chat(server)
        assert limited.value.response.headers["retry-after"] == "7"
        assert limited.value.code == "rate_limit_exceeded"
        with pytest.raises(openai.InternalServerError):
            await respond_events(server)
        assert (await chat(server)).choices[0].message.content == "Hi."


async def test_the_sdk_retries_failures_if_retries_are_allowed() -> None:
    async with OpenAIServer([Failure(500, headers={"retry-after-ms": "1"}), Turn("Hi.")]) as server:
        async with client(server, max_retries=1) as sdk:
            await sdk.responses.create(model="gpt-5.6", input="Hello")

    assert [request.headers["x-stainless-retry-count"] for request in server.requests] == ["0", "1"]


@pytest.mark.parametrize("events", [0, 1, 3])
async def test_a_stream_is_cut_after_the_given_number_of_events(events: int) -> None:
    turn = Turn(("a", "b", "c", "d"))
    async with OpenAIServer([Cut(turn, events), turn]) as server, client(server) as sdk:
        received: list[ChatCompletionChunk] = []
        # openai 2 lets the error of its HTTP client through, openai 3 wraps it.
        with pytest.raises(Exception, match=r"peer closed connection|Connection error"):  # noqa: PT012
            stream = await sdk.chat.completions.create(
                model="gpt-4.1", messages=[{"role": "user", "content": "Hello"}], stream=True
            )
            async for chunk in stream:
                received.append(chunk)  # noqa: PERF401
        assert len(received) == events
        assert len(await chat_chunks(server)) == 6


async def test_an_answer_that_is_not_streamed_is_cut_in_the_middle() -> None:
    async with OpenAIServer([Cut(Turn("Hi."), 1)]) as server:
        with pytest.raises(openai.APIConnectionError):
            await chat(server)


async def test_silence_lasts_until_the_client_gives_up() -> None:
    async with OpenAIServer([Silence(), Turn("Hi.")]) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat, server)
            await server.requested(1)
            tasks.cancel_scope.cancel()
        assert (await chat(server)).choices[0].message.content == "Hi."


async def test_closing_the_server_ends_waiting_requests() -> None:
    failures: list[Exception] = []

    async def ask(server: OpenAIServer) -> None:
        try:
            await chat(server)
        except openai.APIConnectionError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        async with OpenAIServer([Silence()]) as server:
            tasks.start_soon(ask, server)
            await server.requested(1)

    assert len(failures) == 1


async def test_a_request_after_the_end_of_the_script_is_refused() -> None:
    async with OpenAIServer() as server:
        with pytest.raises(openai.BadRequestError, match="no step") as refused:
            await chat(server)
    assert refused.value.code == "script_ended"


@pytest.mark.parametrize("ask", [chat, chat_chunks, respond, respond_events])
async def test_a_script_cannot_call_a_tool_that_is_not_offered_unless_it_says_so(ask: Callable[..., Any]) -> None:
    script = [Turn(calls=(Call("add"),)), Turn(calls=(Call("add", offered=False),))]
    async with OpenAIServer(script) as server:
        with pytest.raises(openai.BadRequestError, match="does not offer") as refused:
            await ask(server)
        assert refused.value.code == "script_calls_what_is_not_offered"
        await ask(server)


async def test_a_script_cannot_call_a_deferred_tool_that_was_not_loaded() -> None:
    async with OpenAIServer([Turn(calls=(Call("add"),))]) as server:
        with pytest.raises(openai.BadRequestError, match="does not offer"):
            await respond(server, tools=[SEARCH, tool(defer_loading=True)])


async def test_a_script_cannot_make_parallel_calls_if_they_are_forbidden() -> None:
    async with OpenAIServer([Turn(calls=(Call("add"), Call("add")))]) as server:
        with pytest.raises(openai.BadRequestError, match="in parallel"):
            await chat(server, tools=[chat_tool()], parallel_tool_calls=False)


# Requests that the vendor refuses

CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CALLED: Json = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT: Json = {"role": "tool", "tool_call_id": "call_1", "content": "3"}
STRICT: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


REFUSED_CHATS: list[tuple[Json, str]] = [
    ({"messages": [ASKED, CALLED]}, "did not have response messages: call_1"),
    ({"messages": [ASKED, CALLED, ASKED]}, "did not have response messages: call_1"),
    ({"messages": [ASKED, CALLED, RESULT, RESULT]}, "must be a response to a preceeding message"),
    ({"messages": [ASKED, CALLED, RESULT | {"tool_call_id": "call_2"}]}, "must be a response to a preceeding"),
    ({"messages": [ASKED, CALLED | {"tool_calls": [CALL, CALL]}]}, "Duplicate value for 'tool_call_id'"),
    ({"messages": [ASKED, CALLED | {"tool_calls": []}]}, "empty array"),
    ({"messages": [ASKED, {"role": "assistant", "content": None}]}, "got null"),
    ({"messages": [ASKED, CALLED, RESULT | {"content": None}]}, "Invalid value for 'content'"),
    ({"messages": [{"role": "robot", "content": ""}]}, "Invalid value: 'robot'"),
    ({"messages": ["Hello"]}, "Invalid type for 'messages'"),
    ({"messages": [ASKED, CALLED | {"tool_calls": ["add"]}]}, "Invalid type for 'messages[1].tool_calls'"),
    ({"tools": ["add"]}, "Invalid type for 'tools'"),
    ({"messages": []}, "Missing required parameter: 'messages'"),
    ({"tools": []}, "empty array"),
    ({"tools": [chat_tool(), chat_tool()]}, "Duplicate function name 'add'"),
    ({"tools": [chat_tool(name="git.commit")]}, "does not match pattern"),
    ({"tools": [chat_tool(name="a" * 65)]}, "does not match pattern"),
    ({"tools": [chat_tool(parameters={"type": "array"})]}, "got 'type: \"array\"'"),
    ({"tools": [chat_tool(parameters=STRICT, strict=True)]}, "every key in properties"),
    ({"tools": [chat_tool(strict=True)]}, "'additionalProperties' is required"),
    ({"tools": [chat_tool() | {"defer_loading": True}]}, "Unknown parameter: 'tools[0].defer_loading'"),
    ({"tools": [chat_tool(name=f"t{number}") for number in range(129)]}, "maximum length 128"),
    ({"tools": [tool()]}, "Missing required parameter: 'tools[0].function'"),
    ({"tools": [chat_tool()], "model": "gpt-5.6-terra"}, "use /v1/responses or set reasoning_effort to 'none'"),
    ({"parallel_tool_calls": True}, "only allowed when 'tools' are specified"),
    ({"tool_choice": "auto"}, "only allowed when 'tools' are specified"),
    (
        {"tools": [chat_tool()], "tool_choice": {"type": "function", "function": {"name": "b"}}},
        "not found in 'tools'",
    ),
    ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": ANY}}}, "json_schema.name"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ANY, "strict": True}}},
        "'additionalProperties' is required",
    ),
    ({"extra_body": {"instructions": "x"}}, "Unknown parameter: 'instructions'"),
]


@pytest.mark.parametrize(("request_", "message"), REFUSED_CHATS)
async def test_chat_refuses_requests_that_the_vendor_refuses(request_: Json, message: str) -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        with pytest.raises(openai.BadRequestError) as refused:
            await chat(server, **request_)
        assert message in said(refused.value)
        assert refused.value.type == "invalid_request_error"
        assert (await chat(server)).choices[0].message.content == "Hi."


FUNCTION_CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
FUNCTION_OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
SEARCH_CALL: Json = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {}}
SEARCH_OUTPUT: Json = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": []}


REFUSED_RESPONSES: list[tuple[Json, str]] = [
    ({"input": [FUNCTION_CALL]}, "No tool output found for function call call_1"),
    ({"input": [FUNCTION_OUTPUT]}, "No tool call found for function call output with call_id call_1"),
    ({"input": [FUNCTION_CALL, FUNCTION_OUTPUT, FUNCTION_OUTPUT]}, "No tool call found for function call output"),
    ({"input": [SEARCH_CALL]}, "No tool output found for tool search call call_1"),
    ({"input": [SEARCH_OUTPUT]}, "No tool call found for tool search call output with call_id call_1"),
    ({"input": [SEARCH_CALL, FUNCTION_OUTPUT]}, "No tool call found for function call output"),
    ({"input": [SEARCH_CALL, SEARCH_OUTPUT | {"tools": [tool(), tool()]}]}, "Duplicate function name 'add'"),
    ({"input": [FUNCTION_CALL | {"id": "call_1"}, FUNCTION_OUTPUT]}, "Expected an ID that begins with 'fc'"),
    ({"input": [FUNCTION_CALL | {"arguments": {}}]}, "Invalid type for 'input[0].arguments'"),
    ({"input": [FUNCTION_CALL | {"call_id": "c" * 65}]}, "maximum length 64"),
    ({"input": [{"type": "function_call", "call_id": "a"}]}, "Missing required parameter: 'input[0].name'"),
    ({"input": [{"type": "additional_tools", "role": "user", "tools": []}]}, "Invalid value: 'user'"),
    ({"input": ["Hello"]}, "Invalid type for 'input'"),
    ({"input": [SEARCH_CALL, SEARCH_OUTPUT | {"tools": ["add"]}]}, "Invalid type for 'input[1].tools'"),
    ({"input": [{"type": "unheard_of"}]}, "Invalid value: 'unheard_of'"),
    ({"tools": [tool(defer_loading=True)]}, "Deferred tools require tools.tool_search"),
    ({"tools": [SEARCH], "model": "gpt-5.1"}, "not supported with gpt-5.1"),
    ({"tools": [SEARCH], "model": "gpt-5.4-nano"}, "not supported with gpt-5.4-nano"),
    ({"tools": [tool(), tool()]}, "Duplicate function name 'add'"),
    ({"tools": [tool(name="a b")]}, "does not match pattern"),
    ({"tools": [chat_tool()]}, "Unknown parameter: 'tools[0].function'"),
    ({"tools": [{"type": "function"}]}, "Missing required parameter: 'tools[0].name'"),
    ({"tools": [tool()], "tool_choice": {"type": "function", "name": "b"}}, "not found in 'tools'"),
    ({"text": {"format": {"type": "json_schema", "schema": ANY}}}, "text.format.name"),
    ({"extra_body": {"messages": []}}, "Unknown parameter: 'messages'"),
]


@pytest.mark.parametrize(("request_", "message"), REFUSED_RESPONSES)
async def test_responses_refuses_requests_that_the_vendor_refuses(request_: Json, message: str) -> None:
    async with OpenAIServer([Turn("Hi.")]) as server:
        with pytest.raises(openai.BadRequestError) as refused:
            await respond(server, **request_)
        assert message in said(refused.value)
        assert (await respond(server)).output_text == "Hi."


async def test_an_unsupported_path_is_not_found() -> None:
    async with OpenAIServer() as server, client(server) as sdk:
        with pytest.raises(openai.NotFoundError):
            await sdk.models.list()
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/v1/models")]


async def test_structured_output_can_be_requested_in_both_apis() -> None:
    schema = STRICT | {"required": ["a"]}
    async with OpenAIServer([Turn('{"a": "b"}')] * 2) as server:
        form = {"name": "answer", "schema": schema, "strict": True}
        await chat(server, response_format={"type": "json_schema", "json_schema": form})
        assert (await respond(server, text={"format": {"type": "json_schema"} | form})).output_text == '{"a": "b"}'


def test_the_known_parameters_include_those_of_the_sdk() -> None:
    from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
    from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

    chat_parameters = (
        CompletionCreateParamsStreaming.__required_keys__ | CompletionCreateParamsStreaming.__optional_keys__
    )
    parameters = ResponseCreateParamsStreaming.__required_keys__ | ResponseCreateParamsStreaming.__optional_keys__
    assert chat_parameters <= CHAT_PARAMETERS
    assert parameters <= RESPONSES_PARAMETERS
