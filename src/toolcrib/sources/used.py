"""A source that reports whether it is in use, so that its owner can stop it when it is idle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import FetchMethod, ProgressListener, Source
from toolcrib.sources.wrapper import WrapperSource


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
