"""A source that a test controls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio

from toolcrib.core.errors import ToolcribError, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, ProgressListener

Answer = ToolResult | ToolcribError | Callable[[Mapping[str, Any]], ToolResult]
"""The answer of a scripted tool, or a function of its arguments. An error is raised."""

_NO_ANSWERS: Mapping[str, Answer] = MappingProxyType({})


class ScriptedSource:
    """Offers `tools`, answers with `answers` by tool name, and records calls in `calls`.

    A tool without an answer returns its arguments as structured content. While `failure` is set, listing and calling
    raise it.
    """

    def __init__(self, name: str, tools: Iterable[Tool] = (), *, answers: Mapping[str, Answer] = _NO_ANSWERS) -> None:
        self._name = name
        self._tools = tuple(tools)
        self._changed = anyio.Event()
        self._changes = 0
        self._left = False
        self.answers = dict(answers)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []
        self.failure: ToolcribError | None = None

    @property
    def name(self) -> str:
        return self._name

    def offer(self, *tools: Tool) -> None:
        """Offer exactly `tools` from now on, and announce the change."""
        self._tools = tools
        self._notify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left = True
        self._notify()

    async def list_tools(self) -> Listing:
        if self.failure is not None:
            raise self.failure
        return Listing(self._tools)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        self.calls.append((tool.name, arguments))
        if self.failure is not None:
            raise self.failure
        if all(offered.name != tool.name for offered in self._tools):
            raise ToolFailed(f"`{self._name}` has no tool `{tool.name}`")
        answer = self.answers.get(tool.name)
        if isinstance(answer, ToolcribError):
            raise answer
        if isinstance(answer, ToolResult):
            return answer
        return answer(arguments) if answer else ToolResult.of(dict(arguments), text=json.dumps(dict(arguments)))

    async def changes(self) -> AsyncIterator[None]:
        seen = self._changes
        while not self._left:
            if self._changes == seen:
                await self._changed.wait()
            else:
                seen = self._changes
                yield

    def _notify(self) -> None:
        self._changes += 1
        self._changed.set()
        self._changed = anyio.Event()
