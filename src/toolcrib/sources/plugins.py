"""Plugins: packages of tools that others write, each kept from harming anything but itself."""

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

from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.sources.apart import NotStarted, apart
from toolcrib.sources.base import Listing, ProgressListener, SetAside, headline, source_name
from toolcrib.sources.definitions import read_definition

logger = logging.getLogger(__name__)

LIST_S = 30.0
"""Seconds a plugin may take to be imported and to say which tools it has."""

MOST_CALLS = 64
"""Calls of one plugin that run in threads at once; one more is refused."""

PluginAnswer: TypeAlias = ToolResult | Mapping[str, Any] | Sequence[Any] | str | float | bool | None
"""What a tool may answer: text, a JSON value, nothing, or a whole result."""


class Plugin(ABC):
    """Some tools and what runs them. Say `name`, `tools` and `execute`; the rest can stay as it is.

    Nothing but `execute` may have side effects. Everything may be asked at any time, from any thread, and an `execute`
    that is not async by several calls at once.
    """

    name: str
    """Unique among plugins and servers: letters, digits, `_` and `-`. The first part of the ids of its tools."""
    version: str = ""
    description: str = ""
    """The first line says what it is for; models read it before they search."""
    availability_hint: str = ""
    """What a person can do where it is not available, in a sentence that anybody may read."""

    @abstractmethod
    def tools(self) -> Sequence[Tool]:
        """All of its tools, the `source` of each being `name`; no name twice."""

    @abstractmethod
    def execute(
        self, tool_name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> PluginAnswer | Awaitable[PluginAnswer]:
        """Run the tool of that name, with arguments that match its input schema and are this call's own.

        Where this is an `async def`, it runs on the event loop and must not block it; otherwise in a thread. A `str` is
        answered as text and None as nothing, unless the tool has an output schema; any other value as JSON.

        Raise `ToolFailed` to tell the model why it failed. Of any other exception it reads `TypeName: message`.
        """

    def is_available(self) -> bool:
        """Whether its tools can be called here and now; asked before each call, so it should be quick."""
        return True


class PluginDispatcher:
    """Plugins by name: lists the tools of each, and leads every call to the one whose tool it is.

    Whatever a plugin raises, gives that is no answer, or never comes back with, ends as an error of its own: in words
    that any caller may read, with the exception as diagnosis, and its traceback in the log.
    """

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def add(self, plugin: Plugin) -> PluginSource:
        """Take in a plugin. It is asked for its tools at once, in this thread; what fails then is told by its source.

        Raises:
            InvalidTool: its name cannot name a source or is another's, or two of its tools have the same name.
        """
        try:
            name = _text(plugin, "name")
        except _Misfit as error:
            raise InvalidTool(f"a {type(plugin).__name__} cannot be a plugin: {error}") from error
        if not name or source_name(name) != name:
            raise InvalidTool(f"`{name}` cannot name a plugin: letters, digits, `_` and `-` can")
        held = _Held(name, lambda: plugin)
        try:
            held.read()
        except _RepeatedTool as error:
            raise InvalidTool(f"the plugin `{name}` cannot be used: {error}") from error
        except _Misfit:
            logger.debug("the plugin `%s` has no tools for now", name, exc_info=True)
        return self._put(held)

    def add_late(self, name: str, load: Callable[[], object]) -> PluginSource:
        """Take in the plugin to which `load` leads: a `Plugin`, a class of one, or whatever gives one when called.

        It is loaded when it is first listed, once, in a thread.

        Raises:
            InvalidTool: another plugin has the name.
        """
        return self._put(_Held(name, load))

    def remove(self, name: str) -> None:
        """Forget a plugin; calls that are under way finish. No error where it is not known."""
        self._held.pop(name, None)

    async def list_tools(self, name: str) -> Listing:
        """What the plugin offers now.

        Raises:
            SourceUnavailable: it is not available, cannot be used, or does not answer within `LIST_S`.
        """
        held = self._named(name)
        if not held.asked.acquire(blocking=False):
            raise SourceUnavailable(f"The plugin `{name}` still does not say which tools it has.", retryable=True)

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
                f"The plugin `{name}` did not say within {LIST_S:g} s which tools it has.", retryable=True
            ) from error
        except _Misfit as misfit:
            raise held.unusable(misfit, retryable=False) from misfit
        held.told = ""
        return listing

    async def execute(self, name: str, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolResult:
        """Run a tool of the plugin `name`; one that raises gives an answer with `is_error`.

        Raises:
            SourceUnavailable: the plugin is not available or cannot be used, so that nothing ran; or it raised this.
            ToolFailed: the plugin has no such tool, or raised this.
        """
        held = self._named(name)
        if held.plugin is None:
            await self.list_tools(name)
        if tool.name not in held.offered:
            raise ToolFailed(f"`{name}` has no tool `{tool.name}`")
        if not held.calls.acquire(blocking=False):
            raise SourceUnavailable(f"The plugin `{name}` runs {MOST_CALLS} calls already.", retryable=True)

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
            raise SourceUnavailable(f"The plugin `{name}` is gone.", retryable=True)
        return held

    def _put(self, held: _Held) -> PluginSource:
        if held.name in self._held:
            raise InvalidTool(f"a plugin named `{held.name}` is there already")
        self._held[held.name] = held
        return PluginSource(self, held.name)


class PluginSource:
    """One plugin of a dispatcher as a source of tools."""

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
        except SourceUnavailable:  # the catalog should say so too
            bell, self._bell = self._bell, anyio.Event()
            bell.set()
            raise

    async def changes(self) -> AsyncIterator[None]:
        """Yields after a call found the plugin unavailable; of anything else it does not tell."""
        while True:
            await self._bell.wait()
            yield


class _Misfit(Exception):
    """What is wrong with a plugin, in words for anybody, the exception behind it as its cause."""


class _RepeatedTool(_Misfit):
    """Two tools have the same name."""


class _Away(_Misfit):
    """It says itself that it is not available; its hint."""


class _NoAnswer(_Misfit):
    """A call came to an end, and there is nothing to hand on."""


@contextmanager
def _doing(what: str) -> Generator[None]:
    """For code of a plugin in a thread: whatever it raises, `SystemExit` included, is a `_Misfit`."""
    try:
        yield
    except _Misfit:
        raise
    except BaseException as error:
        raise _Misfit(f"{what} raised {type(error).__name__}") from error


@dataclass(slots=True)
class _Held:
    """A plugin that is there, or is to be loaded."""

    name: str
    load: Callable[[], object]
    plugin: Plugin | None = None
    unloadable: _Misfit | None = None
    """Why it could not be loaded; it is not tried again, since a second import would only repeat its side effects."""
    offered: frozenset[str] = frozenset()
    """Names of the tools listed last."""
    told: str = ""
    """What was last logged of it."""
    asked: threading.Lock = field(default_factory=threading.Lock)
    """Held while a thread asks it for its tools, however long that takes."""
    calls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST_CALLS))

    def read(self) -> Listing:
        """What it offers, loaded before if need be; raises `_Misfit`."""
        plugin = self._loaded()
        version, summary = _text(plugin, "version"), headline(_text(plugin, "description"))
        self._check_available(plugin)
        with _doing("its `tools`"):
            offered = [*cast("Sequence[object]", plugin.tools())]
        tools, set_aside = self._judged(offered)
        self.offered = frozenset(tool.name for tool in tools)
        return Listing(tools, summary=summary, version=version or None, set_aside=set_aside)

    def begin(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> object:
        """The answer of the tool, or what is to be awaited for it."""
        plugin = self._loaded()
        try:
            self._check_available(plugin)
        except _Misfit as misfit:
            raise self.unusable(misfit, retryable=True) from misfit
        with _doing("it"):
            try:
                return plugin.execute(tool_name, copy.deepcopy(dict(arguments)), context)
            except (ToolFailed, SourceUnavailable) as error:
                return error  # its own words for the model

    def unusable(self, misfit: _Misfit, *, retryable: bool) -> SourceUnavailable:
        """The error that says so; what is new of it is logged, unless the plugin said so itself."""
        if isinstance(misfit, _Away):
            hint = f": {misfit}" if str(misfit) else "."
            return SourceUnavailable(f"The plugin `{self.name}` is not available{hint}", retryable=retryable)
        if (told := f"The plugin `{self.name}` cannot be used: {misfit}.") != self.told:
            self.told = told
            logger.error("%s", told, exc_info=misfit.__cause__)
        return SourceUnavailable(told, diagnosis=_told(misfit.__cause__), retryable=retryable)

    def _loaded(self) -> Plugin:
        if self.unloadable is not None:
            raise self.unloadable.with_traceback(None)  # else it grows with every raise
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
            raise _Misfit(f"its entry point leads to a `{type(found).__name__}` and not to a plugin")
        if (name := _text(found, "name")) != self.name:
            raise _Misfit(f"it calls itself `{name}`, and its entry point is called `{self.name}`")
        return found

    def _check_available(self, plugin: Plugin) -> None:
        with _doing("its `is_available`"):
            is_available = cast("object", plugin.is_available())
        if not isinstance(is_available, bool):
            raise _Misfit(f"its `is_available` gives a `{type(is_available).__name__}` and neither True nor False")
        if not is_available:
            raise _Away(_text(plugin, "availability_hint").strip())

    def _judged(self, offered: Sequence[object]) -> tuple[tuple[Tool, ...], tuple[SetAside, ...]]:
        """The tools that can be taken, and why the others cannot."""
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
        """The tool, where it is one that a catalog can take; raises `InvalidTool` or `_Misfit`."""
        if not isinstance(tool, Tool):
            raise InvalidTool(f"it is a `{type(tool).__name__}` and not a `Tool`")
        if tool.source != self.name:
            raise InvalidTool(f"its `source` is `{tool.source}` and not the plugin's name")
        definition = {"name": tool.name, "title": tool.title, "description": tool.description}
        schemas = {"inputSchema": tool.input_schema, "outputSchema": tool.output_schema}
        with _doing("reading it"):
            try:
                read = read_definition(self.name, {**definition, **schemas})
                checked = replace(
                    tool,
                    title=read.title,
                    input_schema=read.input_schema,
                    # Read as if they had travelled: a value of another kind would fail wherever it is told.
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
        raise _Misfit(f"its `{key}` is a `{type(value).__name__}` and not a text")
    return _writable(value)


async def _awaited(value: object) -> object:
    """`value`, or what comes of awaiting it."""
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
        raise _NoAnswer("It was given up: something that it waited for was cancelled.") from error
    except (KeyboardInterrupt, GeneratorExit):  # of whoever runs this program
        raise
    except BaseException as error:  # a plugin must not end the program that runs it
        raise _Misfit(f"it raised {type(error).__name__}") from error


def _is_cancelled() -> bool:
    """Whether this very task is being cancelled: a plugin can raise the same of its own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop than asyncio's, where nobody can
        return True
    return task is None or task.cancelling() > 0


def _answer(tool: Tool, value: object) -> ToolResult:
    """What the plugin gave, as a result that can be sent; raises `_Misfit` where it cannot be."""
    if isinstance(value, ToolResult):
        return replace(value, wire=_wire(value))
    if tool.output_schema is None:
        if value is None:
            return ToolResult({"content": []})  # some vendors' APIs refuse an empty text
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
                "It ran, and its answer is no result: its `content` is no list of objects that have a `type`."
            )


def _is_block(block: object) -> bool:
    match block:
        case {"type": str()}:
            return True
        case _:
            return False


def _json(value: object) -> tuple[Any, str]:
    """`value` as a JSON value of its own, and as compact text."""
    from pydantic_core import from_json, to_json  # noqa: PLC0415  only a call needs it

    try:
        encoded = to_json(value, by_alias=True, inf_nan_mode="null", fallback=_as_object)
        return from_json(encoded), encoded.decode()
    except (ValueError, TypeError, RecursionError) as error:
        raise _NoAnswer("It ran, and its answer cannot be written as JSON.") from error


def _as_object(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    raise TypeError(f"a `{type(value).__name__}` is no JSON value")


def _no_thread(name: str) -> SourceUnavailable:
    return SourceUnavailable(f"The plugin `{name}` was not run: there is no thread to run it in.", retryable=True)


def _failure(misfit: _Misfit) -> ToolResult:
    words = str(misfit) if isinstance(misfit, _NoAnswer) else _told(misfit.__cause__)
    return ToolResult({"content": [{"type": "text", "text": _writable(words)}], "isError": True})


def _told(error: BaseException | None) -> str:
    """An exception in a line, without the names of files."""
    if error is None:
        return ""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _writable(text: str) -> str:
    """`text` with half surrogate pairs replaced: they cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
