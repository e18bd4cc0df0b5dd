"""A check of the contract of a plugin, for its author."""

# ruff: noqa: S101  # a broken promise is an AssertionError, which test runners show best
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio.to_thread

from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import Tool, check_tool
from toolcrib.sources.base import source_name
from toolcrib.sources.plugins import Plugin, PluginDispatcher, PluginSource
from toolcrib.testing.sources import check_source


async def check_plugin(
    make: Callable[[], Plugin],
    *,
    tool: str,
    arguments: Mapping[str, Any],
    other_arguments: Mapping[str, Any] | None = None,
) -> None:
    """Check everything that `Plugin` promises, on the plugins that `make` returns, a new one for each call.

    `make` is the object that the entry point names: a class, or any callable without arguments. `tool` is the name of a
    tool without side effects, which returns equal answers for equal arguments. With `other_arguments`, which must lead
    to a different answer, calls of both kinds run concurrently.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    plugin = make()
    assert isinstance(cast("object", plugin), Plugin), f"`make` returns a {type(plugin).__name__} and not a `Plugin`"
    _check_words(plugin)
    await _check_available(plugin)
    _check_tools(plugin, tool, arguments, other_arguments)
    await _check_arguments_kept(plugin, tool, arguments)

    def source() -> PluginSource:
        return PluginDispatcher().add(make())

    await _check_listed_whole(source())
    await check_source(source, tool=tool, arguments=arguments, other_arguments=other_arguments)
    await _check_output(source(), tool, arguments)


def _check_words(plugin: Plugin) -> None:
    for key in ("name", "version", "description", "availability_hint"):
        assert isinstance(getattr(plugin, key, None), str), f"`{key}` must be a string"
    name = plugin.name
    assert name, "`name` is empty"
    assert source_name(name) == name, f"`{name}` is not a valid name: use letters, digits, `_` and `-`"
    assert plugin.version.strip(), "`version` is empty"
    assert plugin.description.strip(), "`description` is empty, but models read it before they search"


async def _check_available(plugin: Plugin) -> None:
    """Check `is_available` in a thread, as plugins are used."""
    is_available = cast("object", await anyio.to_thread.run_sync(plugin.is_available))
    assert isinstance(is_available, bool), f"`is_available` returns a {type(is_available).__name__} and not a bool"
    hint = plugin.availability_hint.strip()
    assert is_available, (
        f"the plugin is not available here, so it cannot be checked: {hint or '`availability_hint` is empty'}"
    )


def _check_tools(
    plugin: Plugin, tool: str, arguments: Mapping[str, Any], other_arguments: Mapping[str, Any] | None
) -> None:
    try:
        offered = [*plugin.tools()]
    except Exception as error:
        raise AssertionError(f"`tools` raises {type(error).__name__}: {error}") from error
    for each in offered:
        assert isinstance(cast("object", each), Tool), f"`tools` returns a {type(each).__name__} among its tools"
        assert each.source == plugin.name, f"`{each.name}` has the source `{each.source}` and not `{plugin.name}`"
        assert each.description.strip(), f"`{each.name}` has no description, so search cannot find it"
        try:
            _ = each.arguments
            check_tool(each)
        except InvalidTool as error:
            raise AssertionError(f"`{each.name}` cannot be offered: {error.message}") from error
    names = [each.name for each in offered]
    assert len(names) == len({*names}), f"duplicate tool names: {sorted({n for n in names if names.count(n) > 1})}"
    assert [*plugin.tools()] == offered, "`tools` returns different tools when it is called again"
    assert tool in names, f"tool `{tool}` not found; the tools are {names}"
    tried = offered[names.index(tool)]
    for given in (arguments, other_arguments):
        problems = tried.arguments.violations(dict(given)) if given is not None else ()
        assert not problems, f"the given arguments do not match the input schema of `{tool}`: {problems[0].message}"


async def _check_arguments_kept(plugin: Plugin, tool: str, arguments: Mapping[str, Any]) -> None:
    """Check that the plugin does not change its arguments.

    Callers pass copies, but a change would break its own tests.
    """
    given = copy.deepcopy(dict(arguments))
    try:
        await _execute(plugin, tool, given)
    except ToolcribError as error:
        raise AssertionError(f"`{tool}` fails on the given arguments: {error.message}") from error
    except Exception as error:
        raise AssertionError(f"`{tool}` raises {type(error).__name__} on the given arguments: {error}") from error
    assert given == arguments, f"calling `{tool}` changed its arguments"


async def _check_listed_whole(source: PluginSource) -> None:
    try:
        listing = await source.list_tools()
    except SourceUnavailable as error:
        raise AssertionError(f"{error.message} {error.diagnosis}".strip()) from error
    for aside in listing.set_aside:
        raise AssertionError(f"`{aside.name}` cannot be offered: {aside.reason}")


async def _check_output(source: PluginSource, tool: str, arguments: Mapping[str, Any]) -> None:
    tried = {listed.name: listed for listed in (await source.list_tools()).tools}[tool]
    if tried.results is None:
        return
    answer = (await source.call_tool(tried, arguments, CallContext())).structured_content
    problems = tried.results.violations(answer, "the answer")
    assert not problems, f"the answer of `{tool}` does not match its output schema: {problems[0].message}"


async def _execute(plugin: Plugin, tool: str, arguments: Mapping[str, Any]) -> object:
    def begin() -> object:
        return plugin.execute(tool, arguments, CallContext())

    value = await anyio.to_thread.run_sync(begin)
    return await value if inspect.isawaitable(value) else value
