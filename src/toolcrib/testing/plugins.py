"""The contract of a plugin, as a check that its author can put it through."""

# ruff: noqa: S101  # a broken promise is an AssertionError, as test runners show it best
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio.to_thread

from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import Tool
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
    """Put the plugins that `make` gives, a new one each time, through everything that `Plugin` promises.

    `make` is what the entry point names: a class, or any callable without arguments. `tool` is the name of a tool
    without side effects, which answers the same arguments alike every time. With `other_arguments`, which it must
    answer differently, many calls of both kinds run at the same time.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    plugin = make()
    assert isinstance(cast("object", plugin), Plugin), f"`make` gives a {type(plugin).__name__} and not a `Plugin`"
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
        assert isinstance(getattr(plugin, key, None), str), f"`{key}` is no text"
    name = plugin.name
    assert name, "`name` is empty"
    assert source_name(name) == name, f"`{name}` cannot name a plugin: letters, digits, `_` and `-` can"
    assert plugin.version.strip(), "`version` is empty"
    assert plugin.description.strip(), "`description` is empty: models read it before they search"


async def _check_available(plugin: Plugin) -> None:
    """Asked in a thread, as it is where the plugin is used."""
    is_available = cast("object", await anyio.to_thread.run_sync(plugin.is_available))
    assert isinstance(is_available, bool), f"`is_available` gives a {type(is_available).__name__} and not a bool"
    hint = plugin.availability_hint.strip()
    assert is_available, f"it is not available here, so that it cannot be checked: {hint or 'it does not say why'}"


def _check_tools(
    plugin: Plugin, tool: str, arguments: Mapping[str, Any], other_arguments: Mapping[str, Any] | None
) -> None:
    try:
        offered = [*plugin.tools()]
    except Exception as error:
        raise AssertionError(f"`tools` raises {type(error).__name__}: {error}") from error
    for each in offered:
        assert isinstance(cast("object", each), Tool), f"`tools` gives a {type(each).__name__} among its tools"
        assert each.source == plugin.name, f"`{each.name}` has the source `{each.source}` and not `{plugin.name}`"
        assert each.description.strip(), f"`{each.name}` has no description: nobody would find it"
        try:
            _ = each.arguments
            check_tool(each)
        except InvalidTool as error:
            raise AssertionError(f"`{each.name}` cannot be offered: {error.message}") from error
    names = [each.name for each in offered]
    assert len(names) == len({*names}), f"tools have the same name: {sorted({n for n in names if names.count(n) > 1})}"
    assert [*plugin.tools()] == offered, "`tools` gives others when it is asked again"
    assert tool in names, f"there is no tool `{tool}`; there are {names}"
    tried = offered[names.index(tool)]
    for given in (arguments, other_arguments):
        problems = tried.arguments.violations(dict(given)) if given is not None else ()
        assert not problems, f"`{tool}` is to be called with what its schema refuses: {problems[0].message}"


async def _check_arguments_kept(plugin: Plugin, tool: str, arguments: Mapping[str, Any]) -> None:
    """They are a call's own where the plugin is used; a plugin that changes them still breaks whoever tests it."""
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
    assert not problems, f"`{tool}` misses its own output schema: {problems[0].message}"


async def _execute(plugin: Plugin, tool: str, arguments: Mapping[str, Any]) -> object:
    def begin() -> object:
        return plugin.execute(tool, arguments, CallContext())

    value = await anyio.to_thread.run_sync(begin)
    return await value if inspect.isawaitable(value) else value
