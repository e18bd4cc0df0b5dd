"""The published contract check of plugins: a correct plugin passes, and each broken rule is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from toolcrib import CallContext, Plugin, Tool, ToolExample, ToolFailed, ToolMetadata, ToolResult
from toolcrib.testing.plugins import check_plugin

pytestmark = pytest.mark.anyio

NUMBER = {"type": "object", "properties": {"number": {"type": "number"}}}
DOUBLED = {"type": "object", "properties": {"doubled": {"type": "number"}}, "required": ["doubled"]}

DOUBLE = Tool("kept", "double", "Double a number.", input_schema=NUMBER, output_schema=DOUBLED)


class Kept(Plugin):
    """A plugin that follows the contract."""

    name = "kept"
    version = "1"
    description = "Doubles numbers."

    def tools(self) -> Sequence[Tool]:
        return [DOUBLE, Tool(self.name, "idle", "Do nothing.")]

    def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        return {"doubled": 2 * arguments["number"]}


class KeptAsync(Kept):
    """A correct plugin whose `execute` runs on the event loop."""

    async def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        return {"doubled": 2 * arguments["number"]}


async def check(make: Callable[[], Plugin], **more: Any) -> None:
    given: dict[str, Any] = {"tool": "double", "arguments": {"number": 1}, "other_arguments": {"number": 2}}
    await check_plugin(make, **{**given, **more})


@pytest.mark.parametrize("kind", [Kept, KeptAsync])
async def test_a_correct_plugin_passes_the_contract_check(kind: type[Plugin]) -> None:
    await check(kind)


# -- its attributes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("name", "", "`name` is empty"),
        ("name", "a.b", "is not a valid name"),
        ("name", 7, "`name` must be a string"),
        ("version", "", "`version` is empty"),
        ("version", None, "`version` must be a string"),
        ("description", " ", "`description` is empty"),
        ("availability_hint", 3, "`availability_hint` must be a string"),
    ],
)
async def test_an_invalid_or_empty_attribute_of_a_plugin_fails(key: str, value: object, complaint: str) -> None:
    def make() -> Plugin:
        plugin = Kept()
        setattr(plugin, key, value)
        return plugin

    with pytest.raises(AssertionError, match=complaint):
        await check(make)


async def test_a_plugin_without_a_name_fails() -> None:
    class Nameless(Plugin):
        def tools(self) -> Sequence[Tool]:
            return []

        def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> None:
            return

    with pytest.raises(AssertionError, match="`name` must be a string"):
        await check(Nameless)


async def test_a_factory_that_does_not_return_a_plugin_fails() -> None:
    with pytest.raises(AssertionError, match="returns a dict and not a `Plugin`"):
        await check(cast("Any", dict))


@pytest.mark.parametrize(
    ("is_available", "complaint"),
    [(False, "not available here.*Start it first"), (None, "returns a NoneType and not a bool")],
)
async def test_a_plugin_that_is_unavailable_or_returns_no_bool_fails(is_available: Any, complaint: str) -> None:
    class Away(Kept):
        availability_hint = "Start it first."

        def is_available(self) -> bool:
            return is_available

    with pytest.raises(AssertionError, match=complaint):
        await check(Away)


# -- its tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ([DOUBLE, {"name": "a dict"}], "returns a dict among its tools"),
        ([DOUBLE, Tool("other", "stray", "Stray.")], "has the source `other` and not `kept`"),
        ([DOUBLE, DOUBLE], "duplicate tool names"),
        ([DOUBLE, Tool("kept", "silent")], "`silent` has no description"),
        ([DOUBLE, Tool("kept", "odd", "Odd.", input_schema={"type": "nothing"})], "`odd` cannot be offered"),
        ([replace(DOUBLE, title="\ud800")], "half a surrogate"),
        ([replace(DOUBLE, metadata=ToolMetadata(examples=(ToolExample("Bad", {"number": "x"}),)))], "example 1"),
        ([], "tool `double` not found"),
    ],
)
async def test_a_plugin_with_an_invalid_list_of_tools_fails(tools: list[Any], complaint: str) -> None:
    class Odd(Kept):
        def tools(self) -> Sequence[Tool]:
            return tools

    with pytest.raises(AssertionError, match=complaint):
        await check(Odd)


async def test_a_plugin_whose_tools_differ_between_calls_fails() -> None:
    class Fickle(Kept):
        asked = 0

        def tools(self) -> Sequence[Tool]:
            self.asked += 1
            return [DOUBLE, Tool("kept", f"tool-{self.asked}", "Another each time.")]

    with pytest.raises(AssertionError, match="returns different tools when it is called again"):
        await check(Fickle)


async def test_two_instances_of_a_plugin_with_different_tools_fail() -> None:
    made: list[str] = []

    class Counted(Kept):
        def __init__(self) -> None:
            made.append("one")
            self.number = len(made)

        def tools(self) -> Sequence[Tool]:
            return [DOUBLE, Tool("kept", f"tool-{self.number}", "Another in each.")]

    with pytest.raises(AssertionError, match="lists different tools"):
        await check(Counted)


async def test_arguments_that_do_not_match_the_input_schema_fail() -> None:
    with pytest.raises(AssertionError, match="do not match the input schema of `double`"):
        await check(Kept, arguments={"number": "one"})


# -- its answers ------------------------------------------------------------------------------------------------------


class Answering(Kept):
    """A plugin with a wrong answer."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Any]) -> None:
        self.answer = answer

    def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Any:
        return self.answer(arguments)


def fails(arguments: Mapping[str, Any]) -> Any:
    raise ToolFailed("I do not double.")


def raises(arguments: Mapping[str, Any]) -> Any:
    raise KeyError("number")


def gives(answer: Any) -> Callable[[Mapping[str, Any]], Any]:
    def give(arguments: Mapping[str, Any]) -> Any:
        return answer

    return give


def changes(arguments: Mapping[str, Any]) -> Any:
    return {"doubled": 2 * cast("dict[str, Any]", arguments).pop("number")}


last: list[Mapping[str, Any]] = [{"number": 1}]


def mixes_up(arguments: Mapping[str, Any]) -> Any:
    """Answer with the result of the previous call."""
    last.append(arguments)
    return {"doubled": 2 * last[-2]["number"]}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (fails, "fails on the given arguments: I do not double"),
        (raises, "raises KeyError on the given arguments"),
        (changes, "changed its arguments"),
        (gives(object()), "cannot be written as JSON"),
        (gives(ToolResult({"content": "text"})), "its answer is invalid"),
        (gives({"tripled": 3}), "does not match its output schema"),
        (mixes_up, "answer"),
    ],
)
async def test_a_plugin_with_an_invalid_answer_fails(
    answer: Callable[[Mapping[str, Any]], Any], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check(lambda: Answering(answer), **({} if answer is mixes_up else {"other_arguments": None}))
