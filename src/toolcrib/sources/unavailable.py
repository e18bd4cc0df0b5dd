"""A source that is configured but cannot be used. Every request to it fails with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import anyio

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, ProgressListener


class UnavailableSource:
    """Takes the place of a source whose configuration is wrong, so that the owner sees why its tools are missing."""

    def __init__(self, name: str, reason: str, *, diagnosis: str = "", remedy: str = "") -> None:
        self._name = name
        self.reason = reason
        self.diagnosis = diagnosis
        self.remedy = remedy

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
        raise self._error()

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        raise self._error()

    async def changes(self) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    def _error(self) -> SourceUnavailable:
        return SourceUnavailable(self.reason, diagnosis=self.diagnosis, remedy=self.remedy)
