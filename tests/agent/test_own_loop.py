"""Tools and answers for programs with their own model loop: in the vendor's form, with one answer for each call."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from toolcrib import Session, Toolcrib, ToolFailed, ToolResult
from toolcrib.agent.conversation.messages import ToolCall, ToolMessage
from toolcrib.agent.formats.call_formats import Form
from toolcrib.core.errors import InvalidTool, ToolNotFound
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Turn

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

FORMS: tuple[Form, ...] = ("openai", "openai-responses", "anthropic", "json-schema")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail() -> None:
    """Always fails."""
    raise ToolFailed("the belt broke")


def halved() -> ToolResult:
    """Return half of a surrogate pair."""
    return ToolResult({"content": [{"type": "text", "text": "\ud83d done"}]})


def long() -> str:
    """Return a long string."""
    return "x" * 300_000


def shop() -> Session:
    crib = Toolcrib()
    for function in (add, fail, halved, long):
        crib.add(function)
    return crib.session()


def chat_call(name: str, arguments: str = "{}", call_id: str = "c1") -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def told(session: Session, name: str, arguments: str = "{}") -> Any:
    """The answer to one call, parsed if it is JSON."""
    (answer,) = await session.handle([chat_call(name, arguments)])
    assert answer["role"] == "tool"
    try:
        return json.loads(answer["content"])
    except ValueError:
        return answer["content"]


def names(tools: list[Json]) -> list[str]:
    return [(tool.get("function") or tool)["name"] for tool in tools]


@pytest.mark.parametrize("form", FORMS)
async def test_operations_and_named_tools_have_the_form_of_each_vendor(form: Form) -> None:
    tools = shop().tools_for(form, ["functions.add"])
    assert names(tools) == ["list", "search_tools", "expand_tool", "call_tool", "functions__add"]
    last = tools[-1].get("function") or tools[-1]
    schema = last.get("parameters") or last["input_schema"]
    assert (last["description"], sorted(schema["properties"])) == ("Add two numbers.", ["a", "b"])


async def test_operations_are_selected_by_set_name_or_one_by_one() -> None:
    session = shop()
    assert names(session.tools_for("json-schema", operations="discovery"))[0] == "list_categories"
    assert names(session.tools_for("json-schema", operations=["search_nodes"])) == ["search_nodes"]
    assert session.tools_for("json-schema", operations=()) == []


@pytest.mark.parametrize(
    ("form", "operations"), [("cobol", "compact"), ("openai", "most"), ("openai", ["list", "destroy"])]
)
async def test_an_unknown_form_or_operation_is_refused_with_the_valid_ones(form: Any, operations: Any) -> None:
    with pytest.raises(ValueError, match="Use one of: "):
        shop().tools_for(form, operations=operations)


async def test_requesting_an_unknown_tool_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ToolNotFound) as raised:
        shop().tools_for("openai", ["functions.ad"])
    assert "functions.add" in str(raised.value.hints)


async def test_a_tool_named_like_an_operation_is_given_only_without_it() -> None:
    session = shop()
    own = session.tool_of(session.add(add, name="list"))
    with pytest.raises(InvalidTool):
        session.tools_for("openai", [own])
    assert names(session.tools_for("openai", [own], operations=())) == ["list"]
    assert await told(session, "list", '{"a": 1, "b": 2}') == 3


async def test_calls_are_answered_in_the_form_of_their_vendor_and_in_order() -> None:
    session = shop()
    session.tools_for("openai", ["functions.add"])
    arguments = '{"a": 1, "b": 2}'
    mixed: list[Any] = [
        {"type": "text", "text": "I add."},
        {"type": "tool_use", "id": "t1", "name": "functions__add", "input": {"a": 1, "b": 1}},
        {"type": "tool_use", "id": "t2", "name": "functions__add", "input": {}},
        chat_call("functions__add", arguments),
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "id": "fc", "call_id": "f1", "name": "functions__add", "arguments": arguments},
        ToolCall("own", "functions__add", arguments),
    ]
    blocks, chat, output, own = await session.handle(mixed)
    assert blocks["role"] == "user"
    assert [block["tool_use_id"] for block in blocks["content"]] == ["t1", "t2"]
    assert [block.get("is_error", False) for block in blocks["content"]] == [False, True]
    assert chat == {"role": "tool", "tool_call_id": "c1", "content": "3"}
    assert output == {"type": "function_call_output", "call_id": "f1", "output": "3"}
    assert own == ToolMessage("own", "functions__add", "3")


async def test_calls_may_be_objects_with_attributes_and_without_ids() -> None:
    session = shop()
    session.tools_for("openai", ["functions.add"])
    called = SimpleNamespace(name="functions__add", arguments='{"a": 1, "b": 2}')
    first, second = await session.handle([SimpleNamespace(id=None, type="function", function=called)] * 2)
    assert (first["content"], second["content"]) == ("3", "3")
    assert first["tool_call_id"] != second["tool_call_id"]


@pytest.mark.parametrize("nothing", [None, [], [{"type": "text", "text": "Done."}], ["text"]])
async def test_content_without_calls_gets_no_answers(nothing: Any) -> None:
    assert await shop().handle(nothing) == []


async def test_the_openai_sdk_accepts_the_answers_in_both_apis() -> None:
    import openai

    calls = (Call("functions__add", '{"a": 1, "b": 2}'), Call("functions__add", "{"))
    async with OpenAIServer([Turn("I add.", calls=calls), Turn("3.")] * 2) as server:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none") as sdk:
            sdk_any: Any = sdk
            session = shop()
            tools = session.tools_for("openai", ["functions.add"])
            messages: list[Any] = [{"role": "user", "content": "Add."}]
            answer = await sdk_any.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
            message = answer.choices[0].message
            messages += [message, *await session.handle(message.tool_calls)]
            answer = await sdk_any.chat.completions.create(model="gpt-4.1", messages=messages, tools=tools)
            assert answer.choices[0].message.content == "3."
            tools = session.tools_for("openai-responses", ["functions.add"])
            items: list[Any] = [{"role": "user", "content": "Add."}]
            response = await sdk_any.responses.create(model="gpt-4.1", input=items, tools=tools)
            items += [*response.output, *await session.handle(response.output)]
            response = await sdk_any.responses.create(model="gpt-4.1", input=items, tools=tools)
            assert response.output_text == "3."
    assert items[-2]["output"] == "3"
    assert json.loads(items[-1]["output"])["error"]["code"] == "INVALID_ARGUMENTS"


async def test_the_anthropic_sdk_accepts_the_answers() -> None:
    import anthropic

    calls = Call("functions__add", '{"a": 1, "b": 2}'), Call("functions__fail")
    async with AnthropicServer([Turn("I add.", calls=calls), Turn("3.")]) as server:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none") as sdk:
            sdk_any: Any = sdk
            session = shop()
            messages: list[Any] = [{"role": "user", "content": "Add."}]
            asked: Json = {
                "model": "claude-opus-4-8",
                "max_tokens": 100,
                "tools": session.tools_for("anthropic", ["functions.add", "functions.fail"]),
            }
            answer = await sdk_any.messages.create(messages=messages, **asked)
            answers = await session.handle(answer.content)
            messages += [{"role": "assistant", "content": answer.content}, *answers]
            answer = await sdk_any.messages.create(messages=messages, **asked)
            assert answer.content[0].text == "3."
    (results,) = answers
    assert [block.get("is_error", False) for block in results["content"]] == [False, True]


async def test_a_tool_that_was_not_given_can_be_called_after_it_was_expanded() -> None:
    session = shop()
    session.tools_for("openai")
    refused = (await told(session, "functions__add", '{"a": 1, "b": 2}'))["error"]
    assert refused["code"] == "NOT_EXPANDED"
    step = refused["next_action"]
    expanded = await told(session, step["operation"], json.dumps(step["arguments"]))
    assert await told(session, "functions__add", '{"a": 1, "b": 2}') == 3
    called = {"tool_id": expanded["handle"], "arguments": {"a": 2, "b": 2}}
    assert await told(session, "call_tool", json.dumps(called)) == 4


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("expand_tool", {"tool_ids": ["functions.add", "functions.none"]}),
        ("search_tools", {"query": "add two numbers", "detail_level": "full"}),
    ],
)
async def test_a_tool_expanded_by_any_operation_can_be_called(operation: str, arguments: Json) -> None:
    session = shop()
    session.tools_for("openai")
    await told(session, operation, json.dumps(arguments))
    assert await told(session, "functions__add", '{"a": 1, "b": 2}') == 3


async def test_an_expanded_tool_does_not_replace_an_operation_of_the_same_name() -> None:
    session = shop()
    own = session.tool_of(session.add(add, name="list"))
    session.tools_for("openai")
    expanded = await told(session, "expand_tool", json.dumps({"tool_id": own.id}))
    assert "nodes" in await told(session, "list")
    called = {"tool_id": expanded["handle"], "arguments": {"a": 1, "b": 2}}
    assert await told(session, "call_tool", json.dumps(called)) == 3


async def test_a_tool_expanded_in_the_same_turn_cannot_be_called_yet() -> None:
    session = shop()
    session.tools_for("openai")
    expand = chat_call("expand_tool", '{"tool_id": "functions.add"}', "c1")
    _, early = await session.handle([expand, chat_call("functions__add", '{"a": 1, "b": 2}', "c2")])
    assert json.loads(early["content"])["error"]["code"] == "NOT_EXPANDED"


async def test_a_changed_definition_is_stale_until_the_tool_is_given_again() -> None:
    crib = Toolcrib()
    tool = crib.tool_of(crib.add(add, name="sum"))
    session = crib.session()
    session.tools_for("openai", [tool])
    crib.registry.replace(replace(tool, description="Add two numbers, or more."))
    refused = (await told(session, "functions__sum", '{"a": 1, "b": 2}'))["error"]
    assert (refused["code"], refused["next_action"]["operation"]) == ("STALE_EXPANSION", "expand_tool")
    (given,) = session.tools_for("openai", [tool], operations=())
    assert given["function"]["description"] == "Add two numbers, or more."
    assert await told(session, "functions__sum", '{"a": 1, "b": 2}') == 3


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("functions__add", "{", "INVALID_ARGUMENTS"),
        ("functions__add", "[]", "INVALID_ARGUMENTS"),
        ("functions__add", '{"a": 1}', "INVALID_ARGUMENTS"),
        ("search_tool", "{}", "TOOL_NOT_FOUND"),
        ("search_nodes", '{"query": "add"}', "TOOL_NOT_FOUND"),
        ("melt", "{}", "TOOL_NOT_FOUND"),
        ("x" * 1_000_000, "{}", "TOOL_NOT_FOUND"),
        ("call_tool", '{"tool_id": "functions.add"}', "NOT_EXPANDED"),
        ("list", '{"path": ["no", "such"]}', "UNKNOWN_PATH"),
    ],
)
async def test_an_error_is_an_answer_that_says_what_to_do(name: str, arguments: str, code: str) -> None:
    session = shop()
    session.tools_for("openai", ["functions.add"])
    error = (await told(session, name, arguments))["error"]
    assert error["code"] == code
    assert error.get("hints") or error.get("next_action") or "Call it again" in error["message"]
    assert len(json.dumps(error)) < 5_000


async def test_answers_refer_only_to_tools_that_the_model_has() -> None:
    session = shop()
    session.tools_for("openai", ["functions.add"], operations=())
    slip = (await told(session, "functions__add", '{"a": "1", "b": 2}'))["error"]
    assert slip["next_action"] == {"operation": "functions__add", "arguments": {"a": 1, "b": 2}}
    lost = (await told(session, "functions__long"))["error"]
    assert "next_action" not in lost
    assert lost["hints"] == ["Your tools are: functions__add."]


async def test_errors_and_suggestions_use_the_given_operations() -> None:
    session = shop()
    session.tools_for("openai", operations="discovery")
    lost = (await told(session, "search_tools", '{"query": "add", "category": "none"}'))["error"]
    nothing = await told(session, "search_tools", '{"query": "zebra"}')
    assert lost["next_action"]["operation"] == nothing["next_action"]["operation"] == "list_categories"


async def test_a_failing_tool_does_not_affect_other_calls() -> None:
    session = shop()
    session.tools_for("openai", ["functions.add", "functions.fail"])
    calls = [chat_call("functions__fail"), chat_call("functions__add", '{"a": 1, "b": 2}')]
    failed, added = await session.handle(calls)
    assert "the belt broke" in failed["content"]
    assert added["content"] == "3"


async def test_calls_of_one_turn_run_concurrently_and_are_answered_in_order() -> None:
    crib, opened = Toolcrib(), anyio.Event()

    async def wait() -> str:
        await opened.wait()
        return "waited"

    async def open_gate() -> str:
        opened.set()
        return "opened"

    crib.add(wait)
    crib.add(open_gate)
    session = crib.session()
    session.tools_for("openai", ["functions.wait", "functions.open_gate"])
    first, second = await session.handle([chat_call("functions__wait"), chat_call("functions__open_gate", "", "c2")])
    assert (first["content"], second["content"]) == ("waited", "opened")
    assert (first["tool_call_id"], second["tool_call_id"]) == ("c1", "c2")


async def test_a_long_answer_is_shortened_with_the_number_of_omitted_characters() -> None:
    session = shop()
    session.tools_for("openai", ["functions.long"])
    assert (await told(session, "functions__long")).endswith("\n[100,000 more characters omitted]")


async def test_half_of_a_surrogate_pair_is_replaced_so_that_it_can_be_sent() -> None:
    session = shop()
    session.tools_for("openai", ["functions.halved"])
    assert (await told(session, "functions__halved")) == "? done"


async def test_tools_given_to_one_session_cannot_be_called_by_a_different_session() -> None:
    crib = Toolcrib()
    crib.add(add)
    first, second = crib.session(), crib.session()
    first.tools_for("openai", ["functions.add"])
    second.tools_for("openai")
    assert (await told(second, "functions__add"))["error"]["code"] == "NOT_EXPANDED"


async def test_non_text_content_is_described() -> None:
    crib = Toolcrib()

    def picture() -> ToolResult:
        """A picture."""
        return ToolResult({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]})

    crib.add(picture)
    session = crib.session()
    session.tools_for("openai", ["functions.picture"])
    assert await told(session, "functions__picture") == "[image image/png]"


async def test_calls_with_only_a_name_and_arguments_are_answered() -> None:
    session = Toolcrib().session()
    session.tools_for("json-schema")
    given: list[dict[str, Any]] = [{"name": "list", "arguments": {}}, {"id": "b", "name": "list", "arguments": "{}"}]
    first, second = await session.handle(given)
    assert [(each.call_id, each.is_error) for each in (first, second)] == [("call_1", False), ("b", False)]
    (third,) = await session.handle([ToolCall("c", "list", {})])  # pyright: ignore[reportArgumentType]
    assert (third.call_id, third.is_error) == ("c", False)


@pytest.mark.parametrize("one", [{"name": "list", "arguments": {}}, "list", ToolCall("c", "list", "{}")])
async def test_a_single_call_outside_a_list_is_refused(one: Any) -> None:
    with pytest.raises(TypeError, match="pass a list of calls"):
        await Toolcrib().session().handle(one)
