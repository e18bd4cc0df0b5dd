"""The contract of a source, as checks that any implementation can be put through."""

# ruff: noqa: S101  # a broken promise is an AssertionError, as test runners show it best
from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anyio

from toolcrib.core.errors import InvalidTool, ToolcribError
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, Source

_UNKNOWN = "no-such-tool-4b1f"
_ROUNDS = 8
"""Calls of each kind that run at the same time."""


async def check_source(
    make: Callable[[], Source],
    *,
    tool: str,
    arguments: Mapping[str, Any],
    other_arguments: Mapping[str, Any] | None = None,
) -> None:
    """Put the sources that `make` gives, a new one each time, through everything that `Source` promises.

    `tool` is the name, at its source, of a tool without side effects, which answers the same arguments alike every
    time. With `other_arguments`, which it must answer differently, many calls of both kinds run at the same time.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    await check_listing(make)
    async with make() as source:
        offered = {listed.name: listed for listed in (await source.list_tools()).tools}
        assert tool in offered, f"`{tool}` is not listed; there are {[*offered]}"
        tried = offered[tool]
        given = copy.deepcopy(dict(arguments))
        result = await source.call_tool(tried, given, CallContext())
        _check_result(result)
        assert not result.is_error, f"`{tool}` fails on the given arguments: {result.text}"
        assert given == arguments, f"calling `{tool}` changed the arguments of its caller"
        await _check_unknown(source)
        result = await source.call_tool(tried, arguments, CallContext(Principal("somebody else")), progress=_hear)
        _check_result(result)
        if other_arguments is not None:
            await _check_concurrent(source, tried, arguments, other_arguments)
        listed_last = [listed.name for listed in (await source.list_tools()).tools]
        assert listed_last == [*offered], "calling tools changed the list"


async def check_listing(make: Callable[[], Source]) -> None:
    """Put the sources that `make` gives through what `Source` promises of names, lists and leaving, calls aside.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    source = make()
    name = source.name
    assert name, "the source has no name"
    assert "." not in name, f"the name `{name}` holds a dot, so that the ids of its tools would have two readings"
    async with source as entered:
        assert entered is source, "entering a source gives something other than the source"
        first = await source.list_tools()
        _check_listed(first, name)
        again = await source.list_tools()
        assert again.tools == first.tools, "two lists, one after the other, differ"
        assert isinstance(source.changes(), AsyncIterator), "`changes()` gives no async iterator"
        assert source.name == name, f"the source was called `{name}` and is now called `{source.name}`"
    async with make() as successor:
        assert successor.name == name, f"a second source is called `{successor.name}` and not `{name}`"
        restarted = await successor.list_tools()
        assert restarted.tools == first.tools, "a second source, after the first was left, lists other tools"


def _check_listed(listing: Listing, name: str) -> None:
    ids = [tool.id for tool in listing.tools]
    assert len(ids) == len(set(ids)), f"ids occur twice: {sorted({i for i in ids if ids.count(i) > 1})}"
    for tool in listing.tools:
        assert tool.source == name, f"`{tool.id}` is listed by `{name}`"
        assert tool.name, f"a tool of `{name}` has no name"
        try:
            _ = tool.arguments
        except InvalidTool as error:
            raise AssertionError(f"`{tool.id}` is listed and cannot be called: {error}") from error
    for aside in listing.set_aside:
        assert aside.reason, f"`{aside.name}` is set aside without a reason"


def _check_result(result: object) -> None:
    assert isinstance(result, ToolResult), f"a call gives {type(result).__name__} and not ToolResult"
    content = result.wire.get("content")
    assert isinstance(content, list), f"the `content` of an answer is {type(content).__name__} and not a list"
    for block in result.content:
        assert isinstance(block.get("type"), str), f"a block of an answer's content has no type: {block}"


async def _check_unknown(source: Source) -> None:
    """Refused by the source, or by the server behind it: either way it must not look like success."""
    try:
        result = await source.call_tool(Tool(source.name, _UNKNOWN), {}, CallContext())
    except ToolcribError:
        return
    assert result.is_error, "calling a tool that does not exist succeeds"


async def _check_concurrent(
    source: Source, tool: Tool, arguments: Mapping[str, Any], other_arguments: Mapping[str, Any]
) -> None:
    kinds = (arguments, other_arguments)
    expected = [(await source.call_tool(tool, kind, CallContext())).content for kind in kinds]
    assert expected[0] != expected[1], (
        f"`{tool.name}` answers both arguments alike, so that mixed up calls cannot be told"
    )
    mixed_up: list[int] = []

    async def call(kind: int) -> None:
        result = await source.call_tool(tool, kinds[kind], CallContext())
        if result.content != expected[kind]:
            mixed_up.append(kind)

    async with anyio.create_task_group() as calls:
        for number in range(2 * _ROUNDS):
            calls.start_soon(call, number % 2)
    assert not mixed_up, f"{len(mixed_up)} of {2 * _ROUNDS} calls at the same time got the answer of another"


async def _hear(progress: float, total: float | None, message: str | None) -> None:
    """Takes every report of progress."""
