"""The base class of sources that wrap a source, and the wrapper that reports whether its source is in use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import FetchMethod, Listing, ProgressListener, Source, fetch, unwatch, watch


class WrapperSource:
    """Delegates everything to the wrapped source. A subclass overrides what it changes.

    If the wrapped source does not support a request (for prompts or resources, say), the error has its name.
    """

    def __init__(self, wrapped: Source) -> None:
        self._wrapped = wrapped

    @property
    def name(self) -> str:
        return self._wrapped.name

    async def __aenter__(self) -> Self:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._wrapped.__aexit__(kind, error, traceback)

    async def list_tools(self) -> Listing:
        return await self._wrapped.list_tools()

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        return await self._wrapped.call_tool(tool, arguments, context, progress=progress)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return await fetch(self._wrapped, method, params, context)

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        await watch(self._wrapped, uri, updated)

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        unwatch(self._wrapped, uri, updated)

    def changes(self) -> AsyncIterator[None]:
        return self._wrapped.changes()


class UsedSource(WrapperSource):
    """Makes every request inside `in_use`, which may refuse it."""

    def __init__(self, wrapped: Source, in_use: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(wrapped)
        self._in_use = in_use
        self._watched: set[tuple[str, Callable[[], None]]] = set()

    @property
    def is_watched(self) -> bool:
        """Whether a client subscribes to a resource of this source."""
        return bool(self._watched)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        with self._in_use():
            return await super().call_tool(tool, arguments, context, progress=progress)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        with self._in_use():
            return await super().fetch(method, params, context)

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        with self._in_use():
            await super().watch(uri, updated)
            self._watched.add((uri, updated))

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        super().unwatch(uri, updated)
        self._watched.discard((uri, updated))
