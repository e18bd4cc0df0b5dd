"""Python functions as tools."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Self, cast

import anyio
import anyio.from_thread
import anyio.to_thread

from toolcrib.core.checks import check_tool
from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.metadata import NO_METADATA, ToolMetadata
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.core.values import check_kind
from toolcrib.sources.agreement import disagreements
from toolcrib.sources.base import Listing, ProgressListener, source_name
from toolcrib.sources.definitions import object_schema
from toolcrib.sources.signatures import Signature, is_async, read_signature
from toolcrib.sources.watches import Watches

_logger = logging.getLogger(__name__)

_NO_ANNOTATIONS = ToolAnnotations()


@dataclass(frozen=True, slots=True)
class _Function:
    tool: Tool
    call: Callable[..., Any]
    signature: Signature
    is_async: bool


@dataclass(frozen=True, slots=True)
class PlainTool:
    """What `plain_tool` makes."""

    name: str
    description: str
    run: Callable[[dict[str, Any]], Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.run(arguments)


def plain_tool(name: str, description: str, call: Callable[[dict[str, Any]], Any]) -> PlainTool:
    """A function to be added as a tool, of something that has no more than a name, a description and a callable.

    `call` takes the arguments as one dictionary, as they come: any, unless a schema is given where it is added. It may
    be async. Source: ADR-001, `SimpleExtendedTool`.
    """
    return PlainTool(name, description, call)


class FunctionSource:
    """Python callables, run in this process.

    Async functions run where they are called; others run in a worker thread, with the caller's context variables.
    Cancelling a call abandons the thread: the function runs on, and its answer is dropped.

    A function that raises gives an answer with `is_error` and the text `TypeName: message`; the traceback goes to the
    log alone. `ToolFailed` and `SourceUnavailable` pass through, for a function that knows what to tell the model.

    Raises:
        InvalidTool: `name` holds a dot or another character that the name of a source may not hold.
    """

    def __init__(self, name: str = "functions", *, title: str | None = None, summary: str = "") -> None:
        if source_name(name) != name:
            raise InvalidTool(f"`{name}` cannot name a source; `{source_name(name)}` can")
        self._name = name
        self._title = title
        self._summary = summary
        self._functions: Mapping[str, _Function] = MappingProxyType({})
        self._lock = threading.Lock()
        self._watches = Watches()

    @property
    def name(self) -> str:
        return self._name

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What it offers by now."""
        return tuple(function.tool for function in self._functions.values())

    def add(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        metadata: ToolMetadata | Mapping[str, Any] = NO_METADATA,
        annotations: ToolAnnotations = _NO_ANNOTATIONS,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> Tool:
        """Offer `fn` as a tool, from any thread; whatever is not given is read from its signature and docstring.

        A schema given by hand replaces the one that was read, with which it must agree: see `disagreements`. Arguments
        still go to `fn` by name, converted to the types that it annotates; one that takes `**arguments` gets them as
        they are. `metadata` may be a mapping, which is read as `ToolMetadata.from_wire` does.

        Raises:
            InvalidTool: the name is taken or missing (a lambda needs one), a given schema cannot be used or promises
                what `fn` does not take, an example does not match it, or the signature cannot be read; see
                `read_signature`.
        """
        if isinstance(metadata, Mapping):
            metadata = ToolMetadata.from_wire(cast("object", metadata))
        check_kind(metadata, ToolMetadata, "metadata", InvalidTool)
        check_kind(annotations, ToolAnnotations, "annotations", InvalidTool)
        signature = read_signature(fn)
        if isinstance(fn, PlainTool):
            name, description = name or fn.name, fn.description if description is None else description
        name = signature.name if name is None else name
        if not name or not name.strip():
            raise InvalidTool(f"`{fn!r}` needs a name")
        if output_schema is not None:
            Schema(output_schema)
        tool = Tool(
            source=self._name,
            name=name,
            description=signature.description if description is None else description,
            input_schema=signature.input_schema if input_schema is None else object_schema(input_schema),
            output_schema=signature.output_schema if output_schema is None else output_schema,
            title=annotations.title,
            annotations=annotations,
            metadata=metadata,
        )
        _ = tool.arguments  # compiled now: a schema that cannot be used fails here, not at the first call
        if input_schema is not None and (found := [*disagreements(tool.input_schema, signature.input_schema)]):
            raise InvalidTool(f"`{tool.id}`: its schema and what is called disagree: {'; '.join(found)}")
        check_tool(tool)
        with self._lock:
            if name in self._functions:
                raise InvalidTool(f"`{self._name}` already has a tool `{name}`")
            function = _Function(tool, fn, signature, is_async(fn))
            self._functions = MappingProxyType({**self._functions, name: function})
        self._watches.tell()
        return tool

    def tool_of(self, fn: Callable[..., Any]) -> Tool | None:
        """The tool that `fn` was added as, the last of several; None where there is none."""
        found = [function.tool for function in self._functions.values() if function.call == fn]
        return found[-1] if found else None

    def holds(self, name: str) -> bool:
        return name in self._functions

    def remove(self, name: str) -> None:
        """Offer the tool no longer, from any thread; calls that are under way finish.

        Raises:
            ToolFailed: there is no such tool.
        """
        with self._lock:
            self._named(name)
            self._functions = MappingProxyType({key: fn for key, fn in self._functions.items() if key != name})
        self._watches.tell()

    async def list_tools(self) -> Listing:
        return Listing(self.tools, title=self._title, summary=self._summary)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run the function behind `tool` with `arguments`, which match its schema, as the Python types it asks for.

        A `str` is answered as text alone and None as no content at all, unless the output schema speaks of them.
        Everything else is answered as compact JSON and, the same value, as structured content.

        Raises:
            InvalidArguments: an argument matches the schema and not the type (the 31st of February, say).
            ToolFailed: there is no such tool, or the function raised this itself.
            SourceUnavailable: the function raised this itself.
        """
        function = self._named(tool.name)
        listener: ProgressListener = progress or _say_nothing
        if not function.is_async:
            listener = cast("ProgressListener", partial(_tell_from_worker, listener))
        positional, keywords = function.signature.bind(arguments, context, listener)
        call = partial(function.call, *positional, **keywords)
        try:
            value = await call() if function.is_async else await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
            if inspect.isawaitable(value):  # a plain function may hand on what an async one gave it
                value = await value
        except (ToolFailed, SourceUnavailable):
            raise
        except (Exception, SystemExit) as error:  # a tool must not end the program that offers it
            _logger.exception("the tool `%s` raised", function.tool.id)
            return _failure(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        try:
            return _answer(function, value)
        except (ValueError, RecursionError) as error:
            _logger.exception("the answer of the tool `%s` cannot be sent", function.tool.id)
            return _failure(f"The tool ran, and its answer cannot be written as JSON: {error}")

    def changes(self) -> AsyncIterator[None]:
        """Yields after tools were added or removed since this was called, once for all that happened meanwhile."""
        return self._watches.watch()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watches.end()

    def _named(self, name: str) -> _Function:
        function = self._functions.get(name)
        if function is None:
            raise ToolFailed(f"`{self._name}` has no tool `{name}`")
        return function


async def _say_nothing(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Progress that nobody listens to."""


class _Told:
    """Awaiting it is allowed and changes nothing."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _tell_from_worker(
    listener: ProgressListener, progress: float, total: float | None = None, message: str | None = None
) -> Awaitable[None]:
    """Progress out of a worker thread: told when this returns, since a plain function cannot await."""
    anyio.from_thread.run(listener, progress, total, message)
    return _Told()


def _answer(function: _Function, value: Any) -> ToolResult:
    schema = function.tool.output_schema
    if isinstance(value, ToolResult):
        return value
    if schema is None and value is None:
        return ToolResult({"content": []})  # some vendors' APIs refuse an empty text
    if schema is None and isinstance(value, str):
        return ToolResult.of(None, text=_writable(value))
    answer, text = function.signature.answer_json(value)
    if isinstance(answer, str):
        text = answer
    wraps = schema is not None and schema is function.signature.output_schema and function.signature.wraps_answer
    return ToolResult.of({"result": answer} if wraps else answer, text=text)


def _failure(text: str) -> ToolResult:
    return ToolResult({"content": [{"type": "text", "text": _writable(text)}], "isError": True})


def _writable(text: str) -> str:
    """`text` with half surrogate pairs, as file names may hold them, replaced: they cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
