"""A source of tools that are Python functions in this process."""

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

from toolcrib.core.errors import InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.metadata import NO_METADATA, ToolMetadata
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool, ToolAnnotations, check_tool
from toolcrib.core.values import check_kind
from toolcrib.sources.agreement import disagreements
from toolcrib.sources.base import Listing, ProgressListener, source_name
from toolcrib.sources.signatures import Signature, is_async, read_signature
from toolcrib.sources.tool_definitions import object_schema
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
class _PlainTool:
    """The function that `plain_tool` returns."""

    name: str
    description: str
    run: Callable[[dict[str, Any]], Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.run(arguments)


def plain_tool(name: str, description: str, call: Callable[[dict[str, Any]], Any]) -> _PlainTool:
    """Make a function for `add()` from a name, a description and a callable.

    `call` gets the arguments as one dictionary. They are not checked, unless a schema is given to `add()`. `call` may
    be async. Source: ADR-001, `SimpleExtendedTool`.
    """
    return _PlainTool(name, description, call)


class FunctionSource:
    """Offers Python callables of this process as tools.

    An async function runs on the event loop of the caller. Other functions run in a worker thread, with the caller's
    context variables. Cancelling a call abandons the thread: the function runs on, and its answer is dropped.

    If a function raises, the answer has `is_error` and the text `TypeName: message`. The traceback goes only to the
    log. `ToolFailed` and `SourceUnavailable` pass through, so that a function can choose what the model reads.

    Raises:
        InvalidTool: `name` contains a dot or another character that a source name must not contain.
    """

    def __init__(self, name: str = "functions", *, title: str | None = None, summary: str = "") -> None:
        if source_name(name) != name:
            raise InvalidTool(f"`{name}` is not a valid source name; use `{source_name(name)}`")
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
        """The tools that the source offers now."""
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
        """Offer `fn` as a tool, from any thread. Values that are not given are read from its signature and docstring.

        A schema given here replaces the one that was read, and must agree with it: see `disagreements`. Arguments still
        go to `fn` by name, converted to the annotated types. A function with `**arguments` gets additional arguments
        unconverted. `metadata` may be a mapping, which `ToolMetadata.from_wire` reads.

        Raises:
            InvalidTool: the name is taken or missing (a lambda needs one); a given schema is invalid or promises what
                `fn` does not accept; an example does not match the schema; or the signature cannot be read (see
                `read_signature`).
        """
        if isinstance(metadata, Mapping):
            metadata = ToolMetadata.from_wire(cast("object", metadata))
        check_kind(metadata, ToolMetadata, "metadata", InvalidTool)
        check_kind(annotations, ToolAnnotations, "annotations", InvalidTool)
        signature = read_signature(fn)
        if isinstance(fn, _PlainTool):
            name, description = name or fn.name, fn.description if description is None else description
        name = signature.name if name is None else name
        if not name or not name.strip():
            raise InvalidTool(f"`{fn!r}` has no name; pass `name=`")
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
        _ = tool.arguments  # compiled now, so that an invalid schema fails here and not at the first call
        if input_schema is not None and (found := [*disagreements(tool.input_schema, signature.input_schema)]):
            raise InvalidTool(f"`{tool.id}`: its schema and the callable disagree: {'; '.join(found)}")
        check_tool(tool)
        with self._lock:
            if name in self._functions:
                raise InvalidTool(f"`{self._name}` already has a tool `{name}`")
            function = _Function(tool, fn, signature, is_async(fn))
            self._functions = MappingProxyType({**self._functions, name: function})
        self._watches.tell()
        return tool

    def tool_of(self, fn: Callable[..., Any]) -> Tool | None:
        """Return the tool that `fn` was added as (the last one if there are several), or None."""
        found = [function.tool for function in self._functions.values() if function.call == fn]
        return found[-1] if found else None

    def holds(self, name: str) -> bool:
        return name in self._functions

    def remove(self, name: str) -> None:
        """Remove the tool. This works from any thread; running calls finish.

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
        """Run the function behind `tool` with `arguments`, converted to the annotated Python types.

        `arguments` match the tool's schema. A `str` is answered as text only and None as no content, unless the tool
        has an output schema for them. Every other value is answered as compact JSON text and as structured content.

        Raises:
            InvalidArguments: an argument matches the schema but not the type (for example the 31st of February).
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
            if inspect.isawaitable(value):  # a plain function may return the awaitable of an async one
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
            return _failure(f"The tool ran, but its answer cannot be written as JSON: {error}")

    def changes(self) -> AsyncIterator[None]:
        """Yield after tools were added or removed since this call; several changes in between yield once."""
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
    """Ignore progress that has no listener."""


class _Told:
    """The answer to a progress report of a plain function. Awaiting it is allowed and has no effect."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _tell_from_worker(
    listener: ProgressListener, progress: float, total: float | None = None, message: str | None = None
) -> Awaitable[None]:
    """Report progress from a worker thread. The listener has run when this returns, because a plain function cannot
    await."""
    anyio.from_thread.run(listener, progress, total, message)
    return _Told()


def _answer(function: _Function, value: Any) -> ToolResult:
    schema = function.tool.output_schema
    if isinstance(value, ToolResult):
        return value
    if schema is None and value is None:
        return ToolResult({"content": []})  # some vendors' APIs refuse an empty text block
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
    """Replace lone surrogates in `text`, which file names can contain and which cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
