"""Checks of the contract of a source, for any implementation."""

# ruff: noqa: S101  # a broken promise is an AssertionError, which test runners show best
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
"""The number of concurrent calls of each kind."""


async def check_source(
    make: Callable[[], Source],
    *,
    tool: str,
    arguments: Mapping[str, Any],
    other_arguments: Mapping[str, Any] | None = None,
) -> None:
    """Check everything that `Source` promises, on the sources that `make` returns, a new one for each call.

    `tool` is the source's own name of a tool without side effects, which returns equal answers for equal arguments.
    With `other_arguments`, which must lead to a different answer, calls of both kinds run concurrently.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    await check_listing(make)
    async with make() as source:
        offered = {listed.name: listed for listed in (await source.list_tools()).tools}
        assert tool in offered, f"`{tool}` is not listed; the listed tools are {[*offered]}"
        tried = offered[tool]
        given = copy.deepcopy(dict(arguments))
        result = await source.call_tool(tried, given, CallContext())
        _check_result(result)
        assert not result.is_error, f"`{tool}` fails on the given arguments: {result.text}"
        assert given == arguments, f"calling `{tool}` changed the caller's arguments"
        await _check_unknown(source)
        result = await source.call_tool(tried, arguments, CallContext(Principal("someone else")), progress=_hear)
        _check_result(result)
        if other_arguments is not None:
            await _check_concurrent(source, tried, arguments, other_arguments)
        listed_last = [listed.name for listed in (await source.list_tools()).tools]
        assert listed_last == [*offered], "calling tools changed the list"


async def check_listing(make: Callable[[], Source]) -> None:
    """Check what `Source` promises about names, listings and leaving, without calls.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    source = make()
    name = source.name
    assert name, "the source has no name"
    assert "." not in name, f"the name `{name}` contains a dot, which makes the ids of its tools ambiguous"
    async with source as entered:
        assert entered is source, "entering the source returns a different object"
        first = await source.list_tools()
        _check_listed(first, name)
        again = await source.list_tools()
        assert again.tools == first.tools, "two consecutive listings differ"
        assert isinstance(source.changes(), AsyncIterator), "`changes()` does not return an async iterator"
        assert source.name == name, f"the name of the source changed from `{name}` to `{source.name}`"
    async with make() as successor:
        assert successor.name == name, f"the name of a second source is `{successor.name}` and not `{name}`"
        restarted = await successor.list_tools()
        assert restarted.tools == first.tools, (
            "a second source, opened after the first was closed, lists different tools"
        )


def _check_listed(listing: Listing, name: str) -> None:
    ids = [tool.id for tool in listing.tools]
    assert len(ids) == len(set(ids)), f"duplicate ids: {sorted({i for i in ids if ids.count(i) > 1})}"
    for tool in listing.tools:
        assert tool.source == name, f"`{tool.id}` is listed by the source `{name}`, but belongs to `{tool.source}`"
        assert tool.name, f"a tool of `{name}` has no name"
        try:
            _ = tool.arguments
        except InvalidTool as error:
            raise AssertionError(f"`{tool.id}` is listed but cannot be called: {error}") from error
    for aside in listing.set_aside:
        assert aside.reason, f"`{aside.name}` is ignored without a reason"


def _check_result(result: object) -> None:
    assert isinstance(result, ToolResult), f"a call returns {type(result).__name__} and not ToolResult"
    content = result.wire.get("content")
    assert isinstance(content, list), f"the `content` of a result is {type(content).__name__} and not a list"
    for block in result.content:
        assert isinstance(block.get("type"), str), f"a content block of a result has no type: {block}"


async def _check_unknown(source: Source) -> None:
    """Check that an unknown tool is refused by the source or the server behind it. It must not look like success."""
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
        f"`{tool.name}` returns equal answers for both arguments, so swapped answers cannot be detected"
    )
    mixed_up: list[int] = []

    async def call(kind: int) -> None:
        result = await source.call_tool(tool, kinds[kind], CallContext())
        if result.content != expected[kind]:
            mixed_up.append(kind)

    async with anyio.create_task_group() as calls:
        for number in range(2 * _ROUNDS):
            calls.start_soon(call, number % 2)
    assert not mixed_up, f"{len(mixed_up)} of {2 * _ROUNDS} concurrent calls received the answer of a different call"


async def _hear(progress: float, total: float | None, message: str | None) -> None:
    """Accept every progress report."""
