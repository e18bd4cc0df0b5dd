"""The fake Anthropic server, called by Anthropic's own SDK and by the program of the Claude Agent SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.vendors import Vendor

from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.server import Call, Cut, Failure, Recorded, Script, Silence, Step, TokenUsage, Turn

anthropic: Any = Vendor("anthropic")
httpx2 = pytest.importorskip("httpx2")

pytestmark = pytest.mark.anyio

MODEL = "claude-opus-4-8"
PREFIX_BOUND_MODEL = "claude-fable-5-2"
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
FINE = (Turn("Fine."),)
ASK = {"role": "user", "content": "Say something."}
NOTHING: list[Any] = []
NAMELESS: dict[str, Any] = {}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name}.", "input_schema": SCHEMA, **more}


def called(number: int, name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [use(number, name, **arguments)]}


def use(number: int, name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


def answered(number: int, content: Any = "found", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **more}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def reference(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "tool_name": name}


async def ask(server: AnthropicServer, *messages: Any, **more: Any) -> Any:
    """Return one complete answer of the server, as the SDK reads it."""
    async with anthropic.AsyncAnthropic(api_key="any", base_url=server.url, max_retries=0) as client:
        request = {"model": MODEL, "max_tokens": 100, "messages": messages or [ASK]} | more
        return await client.messages.create(**request)


async def stream(server: AnthropicServer, *messages: Any, **more: Any) -> AsyncIterator[Any]:
    async with anthropic.AsyncAnthropic(api_key="any", base_url=server.url, max_retries=0) as client:
        request = {"model": MODEL, "max_tokens": 100, "messages": messages or [ASK]} | more
        async for event in await client.messages.create(stream=True, **request):
            yield event


async def refusal(*messages: Any, script: Script = FINE, **more: Any) -> str:
    """Return the message with which the server refuses the request."""
    async with AnthropicServer(script) as server:
        with pytest.raises(anthropic.BadRequestError) as caught:
            await ask(server, *messages, **more)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.api_message is not None
    return caught.value.api_message


async def test_a_turn_has_its_text_calls_and_usage() -> None:
    usage = TokenUsage(input=100, output=20, cached=60, cache_written=30, reasoning=5)
    turn = Turn(("Let me ", "look."), (Call("search", '{"q": "x"}'), Call("search", "{}")), usage=usage)

    async with AnthropicServer([turn]) as server:
        message = await ask(server, tools=[tool("search")])

    text, first, second = message.content
    assert text.text == "Let me look."
    assert [(call.id, call.name, call.input) for call in (first, second)] == [
        ("toolu_2", "search", {"q": "x"}),
        ("toolu_3", "search", {}),
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (10, 60)
    assert (message.usage.cache_creation_input_tokens, message.usage.output_tokens) == (30, 20)
    assert message.usage.output_tokens_details.thinking_tokens == 5


async def test_a_streamed_turn_equals_the_unstreamed_turn() -> None:
    turn = Turn(("Let me ", "look."), (Call("search", '{"q": "x"}'),), reasoning="Hm.", usage=TokenUsage(cached=3))

    async with AnthropicServer([turn, turn]) as server:
        whole = await ask(server, tools=[tool("search")])
        async with (
            anthropic.AsyncAnthropic(api_key="any", base_url=server.url, max_retries=0) as client,
            client.messages.stream(model=MODEL, max_tokens=100, messages=[ASK], tools=[tool("search")]) as events,
        ):
            streamed = await events.get_final_message()

    # Ids are new each time. A signature depends on the thinking text and its position.
    ids = {"id": True, "content": {2: {"id"}}}
    assert streamed.model_dump(mode="json", exclude=ids) == whole.model_dump(mode="json", exclude=ids)


async def test_arguments_are_streamed_as_scripted_even_if_they_are_not_json() -> None:
    async with AnthropicServer([Turn(calls=(Call("search", '{"q": nonsense'),))]) as server:
        events = [event async for event in stream(server, tools=[tool("search")])]

    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta"]
    assert "".join(pieces) == '{"q": nonsense'
    assert pieces[0] == ""
    assert len(pieces) > 2


@pytest.mark.parametrize(
    ("turn", "reason"),
    [
        (Turn("Done."), "end_turn"),
        (Turn("Too l", stop="length"), "max_tokens"),
        (Turn("No.", stop="refused"), "refusal"),
    ],
)
async def test_the_stop_reason_uses_the_words_of_the_vendor(turn: Turn, reason: str) -> None:
    async with AnthropicServer([turn, turn]) as server:
        assert (await ask(server)).stop_reason == reason
        events = [event async for event in stream(server)]

    assert events[-2].delta.stop_reason == reason


async def test_a_script_can_be_a_function_of_the_request() -> None:
    def echo(recorded: Recorded) -> Step:
        return Turn(recorded.content["messages"][-1]["content"].upper())

    async with AnthropicServer(echo) as server:
        assert (await ask(server, {"role": "user", "content": "hi"})).content[0].text == "HI"

    (recorded,) = server.requests
    assert recorded.headers["anthropic-version"] == "2026-10-21"
    assert json.loads(recorded.body) == recorded.content


async def test_a_failure_has_its_status_headers_and_the_error_shape_of_the_vendor() -> None:
    async with AnthropicServer([Failure(429, "Slow down.", headers={"retry-after": "7"}), Failure(529)]) as server:
        with pytest.raises(anthropic.RateLimitError) as limited:
            await ask(server)
        with pytest.raises(anthropic.OverloadedError) as overloaded:
            await ask(server)

    assert limited.value.api_message == "Slow down."
    assert limited.value.response.headers["retry-after"] == "7"
    assert overloaded.value.type == "overloaded_error"


async def test_a_stream_that_is_cut_ends_with_a_lost_connection() -> None:
    async with AnthropicServer([Cut(Turn(("a", "b", "c")), events=4)]) as server:
        events = stream(server)
        # The second event is a ping, which the SDK does not pass on.
        assert [(await anext(events)).type for _ in range(3)] == [
            "message_start",
            "content_block_start",
            "content_block_delta",
        ]
        with pytest.raises(httpx2.RemoteProtocolError):
            await anext(events)


async def test_silence_lasts_until_the_client_gives_up() -> None:
    async with AnthropicServer([Silence(), Turn("Here.")]) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, server)
            await server.requested(1)
            group.cancel_scope.cancel()

        assert (await ask(server)).content[0].text == "Here."


async def test_a_request_after_the_end_of_the_script_is_refused() -> None:
    assert "no step" in await refusal(script=())


async def test_an_unsupported_path_is_not_found() -> None:
    async with AnthropicServer() as server, anthropic.AsyncAnthropic(api_key="any", base_url=server.url) as client:
        with pytest.raises(anthropic.NotFoundError):
            await client.models.list()


async def test_count_tokens_returns_more_tokens_for_a_longer_request() -> None:
    async with AnthropicServer() as server, anthropic.AsyncAnthropic(api_key="any", base_url=server.url) as client:
        few = await client.messages.count_tokens(model=MODEL, messages=[ASK])
        more = await client.messages.count_tokens(model=MODEL, messages=[ASK], system="word " * 100)

    assert 0 < few.input_tokens < more.input_tokens


WHOLE = {"model": MODEL, "max_tokens": 100, "messages": [ASK]}
CALLER = {"x-api-key": "any", "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("headers", "body", "status", "said"),
    [
        ({"anthropic-version": "2023-06-01"}, WHOLE, 401, "x-api-key header is required"),
        ({"x-api-key": "any"}, WHOLE, 400, "anthropic-version: header is required"),
        (CALLER, "Hello.", 400, "The request body is not a JSON object."),
        (CALLER, {"model": MODEL, "messages": [ASK]}, 400, "max_tokens: Field required"),
        (CALLER, WHOLE | {"max_tokens": -1}, 400, "max_tokens: Input should be greater than or equal to 0"),
        (CALLER, WHOLE | {"messages": NOTHING}, 400, "messages: at least one message is required"),
        (CALLER, WHOLE | {"tools": [NAMELESS]}, 400, "tools.0.name: Field required"),
        (CALLER, WHOLE | {"messages": [{"role": "user"}]}, 400, "messages.0.content: Input should be a valid list"),
    ],
)
async def test_invalid_requests_that_the_sdk_would_not_send_are_refused(
    headers: dict[str, str], body: Any, status: int, said: str
) -> None:
    async with AnthropicServer(FINE) as server, httpx2.AsyncClient() as client:
        answer = await client.post(f"{server.url}/v1/messages", headers=headers, json=body)

    assert (answer.status_code, answer.json()["error"]["message"]) == (status, said)


# Calls and results


async def test_calls_whose_results_follow_in_one_message_are_accepted() -> None:
    rounds = [ASK, {"role": "assistant", "content": [use(1), use(2)]}, user(answered(1), answered(2, is_error=True))]
    async with AnthropicServer([Turn("Fine.")]) as server:
        assert (await ask(server, *rounds, tools=[tool("search")])).content[0].text == "Fine."


@pytest.mark.parametrize(
    "rest",
    [
        [user({"type": "text", "text": "Well?"})],
        [user(answered(1))],
        [user({"type": "text", "text": "Here:"}, answered(1), answered(2))],
        [user(answered(1), {"type": "text", "text": "and"}, answered(2))],
        [{"role": "system", "content": "Hurry."}, user(answered(1), answered(2))],
    ],
    ids=["none", "one of two", "after text", "one after text", "after a system message"],
)
async def test_calls_whose_results_do_not_all_follow_at_once_are_refused(rest: list[Any]) -> None:
    said = await refusal(ASK, {"role": "assistant", "content": [use(1), use(2)]}, *rest, tools=[tool("search")])

    assert "`tool_result`" in said or "a system message must follow a user message" in said


async def test_a_result_without_a_call_is_refused() -> None:
    said = await refusal(ASK, called(1), user(answered(1), answered(9)), tools=[tool("search")])

    assert "unexpected `tool_use_id` found in `tool_result` blocks: toolu_9" in said


async def test_two_results_for_one_call_are_refused() -> None:
    said = await refusal(ASK, called(1), user(answered(1), answered(1)), tools=[tool("search")])

    assert "each tool_use must have a single result" in said


async def test_one_id_for_two_calls_is_refused() -> None:
    said = await refusal(ASK, called(1), user(answered(1)), called(1), user(answered(1)), tools=[tool("search")])

    assert "ids must be unique" in said


async def test_an_error_result_with_content_other_than_text_is_refused() -> None:
    search = [tool("search"), tool("later", defer_loading=True)]
    said = await refusal(ASK, called(1), user(answered(1, [reference("later")], is_error=True)), tools=search)

    assert "all content must be type `text` if `is_error` is true" in said


async def test_tool_references_mixed_with_other_content_are_refused() -> None:
    mixed = answered(1, [{"type": "text", "text": "Found:"}, reference("later")])
    tools = [tool("search"), tool("later", defer_loading=True)]

    assert "cannot be mixed" in await refusal(ASK, called(1), user(mixed), tools=tools)


# Tools


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([tool("a"), tool("a")], "Tool names must be unique"),
        ([tool("a.b")], "tools.0.custom.name: String should match pattern"),
        ([tool("a" * 129)], "tools.0.custom.name: String should match pattern"),
        ([tool("a", defer_loading=True), tool("b", defer_loading=True)], "All tools cannot be deferred"),
        ([tool("a"), tool("b", defer_loading=True, cache_control={"type": "ephemeral"})], "cannot have cache_control"),
        ([tool("a", examples=[])], "tools.0.custom.examples: Extra inputs are not permitted"),
        ([{"name": "a"}], "tools.0.custom.input_schema: Field required"),
        ([tool("a", input_schema={"type": "array"})], "Input should be 'object'"),
        ([tool("a", input_schema={"type": "object", "anyOf": [{}]})], "does not support oneOf, allOf, or anyOf"),
        ([tool("a", input_schema={"type": "object", "required": "q"})], "JSON schema is invalid"),
        ([tool("a", input_schema={"type": "object", "properties": {"ö": {}}})], "Property keys should match"),
        ([tool("a", strict=True)], "'additionalProperties' must be explicitly set to false"),
    ],
)
async def test_tools_that_the_vendor_refuses_are_refused(tools: list[Any], said: str) -> None:
    assert said in await refusal(tools=tools)


async def test_a_reference_to_an_unknown_tool_is_refused() -> None:
    said = await refusal(ASK, called(1), user(answered(1, [reference("nowhere")])), tools=[tool("search")])

    assert said == "Tool reference 'nowhere' not found in available tools"


async def test_a_deferred_tool_can_be_called_after_a_result_referred_to_it() -> None:
    tools = [tool("search"), tool("later", defer_loading=True)]
    rounds = [ASK, called(1), user(answered(1, [reference("later")]), {"type": "text", "text": "Found it."})]

    async with AnthropicServer([Turn(calls=(Call("later"),))]) as server:
        (call,) = (await ask(server, *rounds, tools=tools)).content

    assert call.name == "later"


@pytest.mark.parametrize(("name", "why"), [("later", "nothing revealed"), ("nowhere", "was not offered")])
async def test_a_script_cannot_call_a_tool_that_the_model_does_not_see(name: str, why: str) -> None:
    tools = [tool("search"), tool("later", defer_loading=True)]

    said = await refusal(script=[Turn(calls=(Call(name),))], tools=tools)

    assert f"The script calls `{name}`" in said
    assert why in said


async def test_a_script_cannot_call_two_tools_if_the_request_allows_one() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    script = [Turn(calls=(Call("search"), Call("search")))]

    assert "allows one" in await refusal(script=script, tools=[tool("search")], tool_choice=choice)


async def test_arguments_that_are_not_json_are_only_possible_in_a_stream() -> None:
    assert "only possible in a stream" in await refusal(
        script=[Turn(calls=(Call("search", "[]"),))], tools=[tool("search")]
    )


async def test_a_script_may_call_an_invented_tool_name() -> None:
    async with AnthropicServer([Turn(calls=(Call("nowhere", offered=False),))]) as server:
        assert (await ask(server, tools=[tool("search")])).content[0].name == "nowhere"


BY_REFERENCE = "mid-conversation-tool-changes-2026-07-01"
INLINE = "inline-tools-2026-09-15"
ADDED = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "later"}}
REMOVED = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "search"}}
DEFINED = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("new")}}


@pytest.mark.parametrize(
    ("beta", "change", "now", "no_longer"),
    [(BY_REFERENCE, ADDED, "later", None), (BY_REFERENCE, REMOVED, None, "search"), (INLINE, DEFINED, "new", None)],
    ids=["added", "removed", "defined"],
)
async def test_a_system_message_changes_the_tools_if_its_beta_is_requested(
    beta: str, change: dict[str, Any], now: str | None, no_longer: str | None
) -> None:
    tools = [tool("search"), tool("later", defer_loading=True)]
    rounds = [ASK, {"role": "system", "content": [change]}]
    betas = {"anthropic-beta": beta}

    if now is not None:
        async with AnthropicServer([Turn(calls=(Call(now),))]) as server:
            assert (await ask(server, *rounds, tools=tools, extra_headers=betas)).content[0].name == now
    if no_longer is not None:
        script = [Turn(calls=(Call(no_longer),))]
        said = await refusal(*rounds, script=script, tools=tools, extra_headers=betas)
        assert f"The script calls `{no_longer}`" in said
    assert "does not match any of the expected tags" in await refusal(*rounds, tools=tools)


async def test_a_system_message_cannot_add_an_unknown_tool() -> None:
    async with AnthropicServer(FINE) as server:
        changed = {"role": "system", "content": [ADDED]}
        betas = {"anthropic-beta": BY_REFERENCE}
        with pytest.raises(anthropic.BadRequestError) as caught:
            await ask(server, ASK, changed, tools=[tool("search")], extra_headers=betas)

    assert caught.value.error_code == "tool_reference_unresolved"


# The rest of a request


async def test_more_than_four_cache_markers_are_refused() -> None:
    mark = {"type": "ephemeral"}
    parts = [{"type": "text", "text": "word", "cache_control": mark} for _ in range(4)]

    assert "Found 5." in await refusal(user(*parts), tools=[tool("search", cache_control=mark)])
    async with AnthropicServer([Turn("Fine.")]) as server:
        # A parameter may have any name.
        schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
        await ask(server, user(*parts), tools=[tool("search", input_schema=schema)])


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "text", "text": ""}, "must be non-empty"),
        ({"type": "text", "text": " \n"}, "must contain non-whitespace text"),
        ({"type": "text", "text": "Hi.", "parsed_output": None}, "parsed_output: Extra inputs are not permitted"),
        ({"type": "text"}, "messages.1.content.0.text.text: Field required"),
        (use(1) | {"input": "{}"}, "messages.1.content.0.tool_use.input: Input should be a valid dictionary"),
        (use(1) | {"id": "call 1"}, "messages.1.content.0.tool_use.id: String should match pattern"),
    ],
)
async def test_content_blocks_that_the_vendor_refuses_are_refused(block: dict[str, Any], said: str) -> None:
    assert said in await refusal(ASK, {"role": "assistant", "content": [block]}, ASK, tools=[tool("search")])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"extra_body": {"temperature": 1}}, "temperature: Extra inputs are not permitted"),
        ({"extra_body": {"response_format": {}}}, "response_format: Extra inputs are not permitted"),
        ({"system": [{"type": "text", "text": ""}]}, "must be non-empty"),
        ({"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
        ({"tool_choice": {"type": "tool", "name": "b"}, "tools": [tool("a")]}, "Tool 'b' not found in provided tools"),
        ({"cache_control": {"type": "persistent"}}, "cache_control: Input should be of type 'ephemeral'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema: Field required"),
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "'additionalProperties' must be"),
    ],
)
async def test_parameters_that_the_vendor_refuses_are_refused(more: dict[str, Any], said: str) -> None:
    assert said in await refusal(**more)


SAID = {"role": "assistant", "content": "So."}
TOLD = {"role": "system", "content": "Hurry."}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([SAID, ASK], 'first message must use the "user" role'),
        ([ASK, SAID], "does not support assistant message prefill"),
        ([ASK, SAID, TOLD, SAID, ASK], "messages.2: a system message must follow a user message"),
        ([ASK, TOLD, ASK], "messages.1: a system message must be last or stand before an assistant message"),
        ([ASK, {"role": "tool", "content": "found"}], "messages.1.role: Input should be"),
        ([ASK | {"content": NOTHING}], "messages.0: all messages must have non-empty content"),
        ([ASK | {"name": "me"}], "messages.0.name: Extra inputs are not permitted"),
        ([user({"text": "Hi."})], "messages.0.content.0.type: Field required"),
    ],
)
async def test_messages_that_the_vendor_refuses_are_refused(messages: list[Any], said: str) -> None:
    assert said in await refusal(*messages)


async def test_a_system_message_may_follow_a_user_message() -> None:
    async with AnthropicServer(FINE) as server:
        assert (await ask(server, ASK, TOLD, SAID, ASK, TOLD)).content[0].text == "Fine."


# Thinking


async def test_thinking_must_be_returned_unchanged() -> None:
    script = [Turn(calls=(Call("search"),), reasoning="Hm."), Turn("Fine.")]
    async with AnthropicServer(script) as server:
        first = await ask(server, tools=[tool("search")])
        thinking, call = first.content
        rest = user({"type": "tool_result", "tool_use_id": call.id, "content": "found"})
        kept = {"role": "assistant", "content": [thinking.to_dict(), call.to_dict()]}
        without = {"role": "assistant", "content": [call.to_dict()]}
        changed = {"role": "assistant", "content": [thinking.to_dict() | {"thinking": "Ah."}, call.to_dict()]}

        with pytest.raises(anthropic.BadRequestError, match="Expected `thinking`"):
            await ask(server, ASK, without, rest, tools=[tool("search")])
        with pytest.raises(anthropic.BadRequestError, match="Invalid `signature`"):
            await ask(server, ASK, changed, rest, tools=[tool("search")])

        assert (await ask(server, ASK, kept, rest, tools=[tool("search")])).content[0].text == "Fine."


@pytest.mark.parametrize(
    ("model", "tools", "taken"),
    [
        (PREFIX_BOUND_MODEL, [tool("search")], True),
        (PREFIX_BOUND_MODEL, [tool("search"), tool("new", defer_loading=True)], True),
        (PREFIX_BOUND_MODEL, [tool("search"), tool("new")], False),
        (MODEL, [tool("search"), tool("new")], True),
    ],
    ids=["same tools", "one more that is deferred", "one more", "one more, for an older model"],
)
async def test_on_the_newest_models_thinking_is_bound_to_the_tools_of_its_request(
    model: str, tools: list[Any], taken: bool
) -> None:
    script = [Turn(calls=(Call("search"),), reasoning="Hm."), Turn("Fine.")]
    async with AnthropicServer(script) as server:
        first = await ask(server, model=model, tools=[tool("search")])
        content = [block.to_dict() for block in first.content]
        rest = user({"type": "tool_result", "tool_use_id": content[1]["id"], "content": "found"})
        rounds = [ASK, {"role": "assistant", "content": content}, rest]

        if taken:
            assert (await ask(server, *rounds, model=model, tools=tools)).content[0].text == "Fine."
        else:
            with pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"):
                await ask(server, *rounds, model=model, tools=tools)
            drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            betas = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
            said = await ask(server, *rounds, model=model, tools=tools, thinking=drop, extra_headers=betas)
            assert said.content[0].text == "Fine."


# The program of the Claude Agent SDK


@pytest.mark.interop
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", PREFIX_BOUND_MODEL])
async def test_the_program_of_the_claude_agent_sdk_calls_a_tool(tmp_path: Path, model: str) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    asked: list[Any] = []

    @sdk.tool("echo", "Echo it.", {"text": str})
    async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(arguments)
        return {"content": [{"type": "text", "text": "an echo"}]}

    script = [Turn("Well.", (Call("mcp__crib__echo", '{"text": "hi"}'),), reasoning="Hm."), Turn("All done.")]
    async with AnthropicServer(script) as server:
        options = sdk.ClaudeAgentOptions(
            model=model,
            system_prompt="Be brief.",
            tools=[],
            allowed_tools=["mcp__crib"],
            mcp_servers={"crib": sdk.create_sdk_mcp_server("crib", tools=[echo])},
            strict_mcp_config=True,
            setting_sources=[],
            cwd=tmp_path,
            env={
                "ANTHROPIC_BASE_URL": server.url,
                "ANTHROPIC_API_KEY": "any",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": str(tmp_path),
                "HOME": str(tmp_path),
            },
        )
        messages = [message async for message in sdk.query(prompt="Say hi.", options=options)]

    assert asked == [{"text": "hi"}]
    assert (messages[-1].subtype, messages[-1].result) == ("success", "All done.")
    assert [recorded.path for recorded in server.requests] == ["/v1/messages", "/v1/messages"]
    assert "an echo" in json.dumps(server.requests[1].content["messages"])
