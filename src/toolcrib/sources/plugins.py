"""Plugins: packages of tools by other authors. A failing plugin affects nothing but its own tools."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

import anyio

from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.threads import NotStarted, apart
from toolcrib.core.tools import Tool, ToolAnnotations, check_tool
from toolcrib.sources.base import Listing, ProgressListener, SetAside, headline, source_name
from toolcrib.sources.tool_definitions import read_definition

logger = logging.getLogger(__name__)

LIST_S = 30.0
"""How many seconds a plugin may take to be imported and to list its tools."""

MOST_CALLS = 64
"""How many calls of one plugin may run in threads at once. Further calls are refused."""

PluginAnswer: TypeAlias = ToolResult | Mapping[str, Any] | Sequence[Any] | str | float | bool | None
"""What a tool may return: a string, a JSON value, None, or a complete result."""


class Plugin(ABC):
    """Some tools and the code that runs them. Define `name`, `tools` and `execute`; the rest is optional.

    Only `execute` may have side effects. Toolcrib can call any method at any time, from any thread. It can call an
    `execute` that is not async for several calls at once.
    """

    name: str
    """The plugin's name, unique among plugins and servers: letters, digits, `_` and `-`. Its tools' ids begin with
    it."""
    version: str = ""
    description: str = ""
    """What the plugin is for. Models read the first line before they search."""
    availability_hint: str = ""
    """What a person can do while the plugin is not available: one sentence that any caller may read."""

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """Return all tools of the plugin. The `source` of each is `name`, and no two have the same name."""

    @abstractmethod
    def execute(
        self, tool_name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> PluginAnswer | Awaitable[PluginAnswer]:
        """Run the tool of that name. `arguments` match its input schema and are a copy for this call.

        An `async def` runs on the event loop and must not block it. A plain `def` runs in a thread. A `str` is answered
        as text and None as no content, unless the tool has an output schema. Every other value is answered as JSON.

        Raise `ToolFailed` to tell the model why the tool failed. For any other exception the model reads `TypeName:
        message`.
        """

    def is_available(self) -> bool:
        """Return whether the tools can be called now. Toolcrib asks before each call, so this should be fast."""
        return True


class PluginDispatcher:
    """Holds plugins by name: lists the tools of each, and routes every call to the right plugin.

    A plugin may raise, return an invalid answer, or never return. Each becomes an error with words that any caller may
    read. The exception is the diagnosis, and its traceback goes to the log.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def add(self, plugin: Plugin) -> PluginSource:
        """Add a plugin. It is asked for its tools at once, in this thread; its source reports an error in that.

        Raises:
            InvalidTool: its name is not a valid source name or is taken, or two of its tools have the same name.
        """
        try:
            name = _text(plugin, "name")
        except _Misfit as error:
            raise InvalidTool(f"a {type(plugin).__name__} cannot be a plugin: {error}") from error
        if not name or source_name(name) != name:
            raise InvalidTool(f"`{name}` is not a valid plugin name: use letters, digits, `_` and `-`")
        held = _Held(name, lambda: plugin)
        try:
            held.read()
        except _RepeatedTool as error:
            raise InvalidTool(f"the plugin `{name}` cannot be used: {error}") from error
        except _Misfit:
            logger.debug("the plugin `%s` has no tools yet", name, exc_info=True)
        return self._put(held)

    def add_late(self, name: str, load: Callable[[], object]) -> PluginSource:
        """Add the plugin that `load` returns: a `Plugin`, a class of one, or a callable that returns one.

        `load` runs once, in a thread, when the plugin is first listed.

        Raises:
            InvalidTool: the name is taken by a different plugin.
        """
        return self._put(_Held(name, load))

    def remove(self, name: str) -> None:
        """Remove a plugin; running calls finish. An unknown name is not an error."""
        self._held.pop(name, None)

    async def list_tools(self, name: str) -> Listing:
        """Return what the plugin offers now.

        Raises:
            SourceUnavailable: the plugin is not available, is invalid, or does not answer within `LIST_S`.
        """
        held = self._named(name)
        if not held.asked.acquire(blocking=False):
            raise SourceUnavailable(f"The plugin `{name}` is still listing its tools.", retryable=True)

        def read() -> Listing:
            try:
                return held.read()
            finally:
                held.asked.release()

        try:
            with anyio.fail_after(LIST_S):
                listing = await apart(read)
        except NotStarted as error:
            held.asked.release()
            raise _no_thread(name) from error
        except TimeoutError as error:
            raise SourceUnavailable(
                f"The plugin `{name}` did not list its tools within {LIST_S:g} s.", retryable=True
            ) from error
        except _Misfit as misfit:
            raise held.unusable(misfit, retryable=False) from misfit
        held.told = ""
        return listing

    async def execute(self, name: str, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolResult:
        """Run a tool of the plugin `name`. If the plugin raises, the answer has `is_error`.

        Raises:
            SourceUnavailable: the plugin is not available or cannot be used, so nothing ran; or the plugin raised this
                itself.
            ToolFailed: the plugin has no such tool, or raised this itself.
        """
        held = self._named(name)
        if held.plugin is None:
            await self.list_tools(name)
        if tool.name not in held.offered:
            raise ToolFailed(f"`{name}` has no tool `{tool.name}`")
        if not held.calls.acquire(blocking=False):
            raise SourceUnavailable(
                f"The plugin `{name}` already runs {MOST_CALLS} calls. Retry later.", retryable=True
            )

        def begin() -> object:
            try:
                return held.begin(tool.name, arguments, context)
            finally:
                held.calls.release()

        try:
            value = await _awaited(await apart(begin))
            return _answer(tool, value)
        except NotStarted as error:
            held.calls.release()
            raise _no_thread(name) from error
        except _Misfit as misfit:
            logger.error("the tool `%s`: %s", tool.id, misfit, exc_info=misfit.__cause__)  # noqa: TRY400  its cause
            return _failure(misfit)

    def _named(self, name: str) -> _Held:
        held = self._held.get(name)
        if held is None:
            raise SourceUnavailable(f"The plugin `{name}` was removed.", retryable=True)
        return held

    def _put(self, held: _Held) -> PluginSource:
        if held.name in self._held:
            raise InvalidTool(f"a plugin named `{held.name}` already exists")
        self._held[held.name] = held
        return PluginSource(self, held.name)


class PluginSource:
    """One plugin of a dispatcher, as a source of tools."""

    def __init__(self, dispatcher: PluginDispatcher, name: str) -> None:
        self._dispatcher = dispatcher
        self._name = name
        self._bell = anyio.Event()

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    async def list_tools(self) -> Listing:
        return await self._dispatcher.list_tools(self._name)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        try:
            return await self._dispatcher.execute(self._name, tool, arguments, context)
        except SourceUnavailable:  # the catalog should show it too
            bell, self._bell = self._bell, anyio.Event()
            bell.set()
            raise

    async def changes(self) -> AsyncIterator[None]:
        """Yield after a call found the plugin unavailable. No other change is reported."""
        while True:
            await self._bell.wait()
            yield


class _Misfit(Exception):
    """What is wrong with a plugin, in words for any reader. The exception behind it is the cause."""


class _RepeatedTool(_Misfit):
    """Two tools of a plugin have the same name."""


class _Away(_Misfit):
    """The plugin reports that it is not available. The message is its hint."""


class _NoAnswer(_Misfit):
    """A call ended without an answer that can be passed on."""


@contextmanager
def _doing(what: str) -> Generator[None]:
    """Run code of a plugin in a thread: every exception it raises, even `SystemExit`, becomes a `_Misfit`."""
    try:
        yield
    except _Misfit:
        raise
    except BaseException as error:
        raise _Misfit(f"{what} raised {type(error).__name__}") from error


@dataclass(slots=True)
class _Held:
    """A plugin that is loaded, or will be on first use."""

    name: str
    load: Callable[[], object]
    plugin: Plugin | None = None
    unloadable: _Misfit | None = None
    """Why the plugin could not be loaded. There is no retry, because a second import would only repeat its side
    effects."""
    offered: frozenset[str] = frozenset()
    """The names of the tools in the last listing."""
    told: str = ""
    """What was last logged about the plugin."""
    asked: threading.Lock = field(default_factory=threading.Lock)
    """Held while a thread asks the plugin for its tools, for as long as that takes."""
    calls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_CALLS))

    def read(self) -> Listing:
        """Return what the plugin offers, after loading it if necessary; raises `_Misfit`."""
        plugin = self._loaded()
        version, summary = _text(plugin, "version"), headline(_text(plugin, "description"))
        self._check_available(plugin)
        with _doing("its `tools`"):
            offered = [*cast("Sequence[object]", plugin.tools())]
        tools, set_aside = self._judged(offered)
        self.offered = frozenset(tool.name for tool in tools)
        return Listing(tools, summary=summary, version=version or None, set_aside=set_aside)

    def begin(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> object:
        """Return the answer of the tool, or an awaitable for it."""
        plugin = self._loaded()
        try:
            self._check_available(plugin)
        except _Misfit as misfit:
            raise self.unusable(misfit, retryable=True) from misfit
        with _doing("it"):
            try:
                return plugin.execute(tool_name, copy.deepcopy(dict(arguments)), context)
            except (ToolFailed, SourceUnavailable) as error:
                return error  # the plugin's own words for the model

    def unusable(self, misfit: _Misfit, *, retryable: bool) -> SourceUnavailable:
        """Return the error for `misfit`. A new problem is logged, unless the plugin itself reported it."""
        if isinstance(misfit, _Away):
            hint = f": {misfit}" if str(misfit) else "."
            return SourceUnavailable(f"The plugin `{self.name}` is not available{hint}", retryable=retryable)
        if (told := f"The plugin `{self.name}` cannot be used: {misfit}.") != self.told:
            self.told = told
            logger.error("%s", told, exc_info=misfit.__cause__)
        return SourceUnavailable(told, diagnosis=_told(misfit.__cause__), retryable=retryable)

    def _loaded(self) -> Plugin:
        if self.unloadable is not None:
            raise self.unloadable.with_traceback(None)  # otherwise the traceback grows with every raise
        if self.plugin is None:
            try:
                self.plugin = self._load()
            except _Misfit as misfit:
                self.unloadable = misfit
                raise
        return self.plugin

    def _load(self) -> Plugin:
        with _doing("importing it"):
            found = self.load()
        if not isinstance(found, Plugin) and callable(found):
            with _doing("making it"):
                found = found()
        if not isinstance(found, Plugin):
            raise _Misfit(f"its entry point leads to a `{type(found).__name__}`, not to a plugin")
        if (name := _text(found, "name")) != self.name:
            raise _Misfit(f"its `name` is `{name}`, but its entry point is named `{self.name}`")
        return found

    def _check_available(self, plugin: Plugin) -> None:
        with _doing("its `is_available`"):
            is_available = cast("object", plugin.is_available())
        if not isinstance(is_available, bool):
            raise _Misfit(f"its `is_available` returned a `{type(is_available).__name__}` instead of True or False")
        if not is_available:
            raise _Away(_text(plugin, "availability_hint").strip())

    def _judged(self, offered: Sequence[object]) -> tuple[tuple[Tool, ...], tuple[SetAside, ...]]:
        """Return the tools that are valid, and why the others are ignored."""
        names = (cast("object", tool.name) for tool in offered if isinstance(tool, Tool))
        counts = Counter(name for name in names if isinstance(name, str))
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise _RepeatedTool(f"two of its tools are named `{repeated[0]}`")
        tools: list[Tool] = []
        set_aside: list[SetAside] = []
        for number, tool in enumerate(offered, start=1):
            try:
                tools.append(self._checked(tool))
            except (InvalidTool, _Misfit) as error:
                name = tool.name if isinstance(tool, Tool) and isinstance(cast("object", tool.name), str) else ""
                set_aside.append(SetAside(name.strip() or f"#{number}", str(error)))
        return tuple(tools), tuple(set_aside)

    def _checked(self, tool: object) -> Tool:
        """Return the tool if a catalog can hold it; raises `InvalidTool` or `_Misfit`."""
        if not isinstance(tool, Tool):
            raise InvalidTool(f"it is a `{type(tool).__name__}`, not a `Tool`")
        if tool.source != self.name:
            raise InvalidTool(f"its `source` is `{tool.source}`, not the plugin's name")
        definition = {"name": tool.name, "title": tool.title, "description": tool.description}
        schemas = {"inputSchema": tool.input_schema, "outputSchema": tool.output_schema}
        with _doing("reading it"):
            try:
                read = read_definition(self.name, {**definition, **schemas})
                checked = replace(
                    tool,
                    title=read.title,
                    input_schema=read.input_schema,
                    # Read as if they came over the wire: a value of a wrong type would fail later, wherever it is
                    # shown.
                    annotations=ToolAnnotations.from_wire({**tool.annotations.to_wire(), "title": read.title}),
                    metadata=ToolMetadata.from_wire(tool.metadata.to_wire()),
                    own_path=ToolMetadata.from_wire({"category": [*tool.own_path]}).category,
                )
                check_tool(checked)
                _ = checked.handle
            except InvalidTool as error:
                raise _Misfit(error.message) from error
        return checked


def _text(plugin: Plugin, key: str) -> str:
    with _doing(f"its `{key}`"):
        value: object = getattr(plugin, key)
    if not isinstance(value, str):
        raise _Misfit(f"its `{key}` is a `{type(value).__name__}`, not a string")
    return _writable(value)


async def _awaited(value: object) -> object:
    """Return `value`, or what awaiting it returns."""
    if isinstance(value, ToolFailed | SourceUnavailable):
        raise value
    if not inspect.isawaitable(value):
        return value
    try:
        return await cast("Awaitable[object]", value)
    except (ToolFailed, SourceUnavailable):
        raise
    except anyio.get_cancelled_exc_class() as error:
        if _is_cancelled():
            raise
        raise _NoAnswer("The tool did not finish: something that it waited for was cancelled.") from error
    except (KeyboardInterrupt, GeneratorExit):  # meant for the program that runs this
        raise
    except BaseException as error:  # a plugin must not end the program that runs it
        raise _Misfit(f"it raised {type(error).__name__}") from error


def _is_cancelled() -> bool:
    """Return whether this task itself is being cancelled. A plugin can raise the same exception on its own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # not asyncio's event loop, where this cannot be known
        return True
    return task is None or task.cancelling() > 0


def _answer(tool: Tool, value: object) -> ToolResult:
    """Return the plugin's answer as a result that can be sent; raises `_Misfit` if that is not possible."""
    if isinstance(value, ToolResult):
        return replace(value, wire=_wire(value))
    if tool.output_schema is None:
        if value is None:
            return ToolResult({"content": []})  # some vendors' APIs refuse an empty text block
        if isinstance(value, str):
            return ToolResult.of(None, text=_writable(value))
    answer, text = _json(value)
    return ToolResult.of(answer, text=answer if isinstance(answer, str) else text)


def _wire(result: ToolResult) -> Mapping[str, Any]:
    wire, _ = _json(result.wire)
    match wire:
        case {"resultType": "input_required"}:
            return wire
        case {"content": [*blocks]} if all(_is_block(block) for block in blocks):
            return wire
        case _:
            raise _NoAnswer(
                "The tool ran, but its answer is invalid: `content` must be a list of objects with a `type`."
            )


def _is_block(block: object) -> bool:
    match block:
        case {"type": str()}:
            return True
        case _:
            return False


def _json(value: object) -> tuple[Any, str]:
    """Return a copy of `value` as a JSON value, and as compact JSON text."""
    from pydantic_core import from_json, to_json  # noqa: PLC0415  only a call needs it

    try:
        encoded = to_json(value, by_alias=True, inf_nan_mode="null", fallback=_as_object)
        return from_json(encoded), encoded.decode()
    except (ValueError, TypeError, RecursionError) as error:
        raise _NoAnswer("The tool ran, but its answer cannot be written as JSON.") from error


def _as_object(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"a `{type(value).__name__}` is not a JSON value")


def _no_thread(name: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The plugin `{name}` did not run: the system has no free thread. Retry later.", retryable=True
    )


def _failure(misfit: _Misfit) -> ToolResult:
    words = str(misfit) if isinstance(misfit, _NoAnswer) else _told(misfit.__cause__)
    return ToolResult({"content": [{"type": "text", "text": _writable(words)}], "isError": True})


def _told(error: BaseException | None) -> str:
    """Return an exception as one line, without file names."""
    if error is None:
        return ""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _writable(text: str) -> str:
    """Replace lone surrogates in `text`, because they cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
