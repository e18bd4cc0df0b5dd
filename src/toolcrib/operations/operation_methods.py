"""The operations as Python methods that `Toolcrib` and `Session` share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from toolcrib.catalog.view import View
from toolcrib.core.principal import LOCAL_CONTEXT, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import ROOT
from toolcrib.operations.calling import watch_resource
from toolcrib.operations.catalog_operations import DEFAULT_LIMIT
from toolcrib.operations.describing import DEFAULT_BUDGET_TOKENS, Description, describe
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_table import CALLS
from toolcrib.operations.protocol_messages import (
    Answer,
    CategoryPage,
    DetailLevel,
    Expansion,
    Expansions,
    ListPage,
    NodePage,
    SearchPage,
)
from toolcrib.sources.base import ProgressListener

_P = ParamSpec("_P")
_A = TypeVar("_A", bound=Answer | Description)


class OperationMethods(ABC):
    """The operations as methods.

    Each method takes a `context`, which sets the principal and the bundle. Without it, the object's own context is
    used.
    """

    dispatcher: Dispatcher
    """Answers and records the operations."""
    context: CallContext = LOCAL_CONTEXT

    @abstractmethod
    def seen_by(self, context: CallContext) -> View:
        """Return the view for `context`, including the tools of a session.

        Raises:
            UnknownBundle: `context` names a bundle that does not exist.
        """

    @abstractmethod
    async def prepare(self, query: str) -> None:
        """Embed `query` in advance, if that is slow, so that a search for it uses the vector of the model.

        `perform` calls this itself.
        """

    def list(
        self,
        path: Sequence[str] = ROOT,
        *,
        tags: Sequence[str] = (),
        query: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        context: CallContext | None = None,
    ) -> ListPage:
        """List the categories and tools at `path`; see `Operations.list`."""
        method = self.dispatcher.operations.list
        return self._perform("list", method, context, path=path, tags=tags, query=query, limit=limit, cursor=cursor)

    def list_categories(
        self, *, limit: int | None = None, cursor: str | None = None, context: CallContext | None = None
    ) -> CategoryPage:
        """List the top-level categories with the ids of their tools; see `Operations.list_categories`."""
        method = self.dispatcher.operations.list_categories
        return self._perform("list_categories", method, context, limit=limit, cursor=cursor)

    def search_tools(
        self,
        query: str = "",
        *,
        category: Sequence[str] = ROOT,
        tags: Sequence[str] = (),
        detail_level: DetailLevel = DetailLevel.SUMMARY,
        include_unavailable: bool = False,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        context: CallContext | None = None,
    ) -> SearchPage:
        """Find tools for `query`, best first; see `Operations.search_tools`."""
        return self._perform(
            "search_tools",
            self.dispatcher.operations.search_tools,
            context,
            query=query,
            category=category,
            tags=tags,
            detail_level=detail_level,
            include_unavailable=include_unavailable,
            limit=limit,
            cursor=cursor,
        )

    def search_tool_by_category(
        self,
        query: str,
        category_path: Sequence[str],
        *,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        context: CallContext | None = None,
    ) -> SearchPage:
        """Find tools for `query` in or below `category_path`; see `Operations.search_tool_by_category`."""
        return self._perform(
            "search_tool_by_category",
            self.dispatcher.operations.search_tool_by_category,
            context,
            query=query,
            category_path=category_path,
            limit=limit,
            cursor=cursor,
        )

    def search_nodes(self, query: str, *, limit: int = DEFAULT_LIMIT, context: CallContext | None = None) -> NodePage:
        """Find categories for `query`, best first; see `Operations.search_nodes`."""
        return self._perform("search_nodes", self.dispatcher.operations.search_nodes, context, query=query, limit=limit)

    def expand_tool(self, tool_id: str, *, context: CallContext | None = None) -> Expansion:
        """Return the full schemas of one tool and the handle to call it by; see `Operations.expand_tool`."""
        return self._perform("expand_tool", self.dispatcher.operations.expand_tool, context, tool_id=tool_id)

    def expand_tools(self, tool_ids: Sequence[str], *, context: CallContext | None = None) -> Expansions:
        """Return the full schemas and handles of several tools; see `Operations.expand_tools`."""
        return self._perform("expand_tool", self.dispatcher.operations.expand_tools, context, tool_ids=tool_ids)

    def describe(
        self,
        detail: DetailLevel = DetailLevel.FULL,
        budget_tokens: int = DEFAULT_BUDGET_TOKENS,
        *,
        context: CallContext | None = None,
    ) -> Description:
        """Describe the tools as text for a system prompt; see `toolcrib.operations.describing.describe`."""
        return self._perform("describe", describe, context, detail=detail, budget_tokens=budget_tokens)

    async def call_tool(
        self,
        handle: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        only_read: bool = False,
        context: CallContext | None = None,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run an expanded tool; see `toolcrib.operations.calling.Runner.call_tool`."""
        context = context or self.context
        view = self.seen_by(context)
        return await self.dispatcher.call_tool(view, context, handle, arguments, only_read=only_read, progress=progress)

    async def perform(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        context: CallContext | None = None,
        progress: ProgressListener | None = None,
    ) -> Answer | ToolResult:
        """Answer an operation by its name and JSON arguments, as surfaces do; see `Dispatcher.perform`."""
        context = context or self.context
        if name not in CALLS and isinstance(query := arguments.get("query"), str):
            await self.prepare(query)
        return await self.dispatcher.perform(self.seen_by(context), context, name, arguments, progress=progress)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, context: CallContext | None = None
    ) -> Mapping[str, Any]:
        """Fetch a server's prompt by its name in `view().prompts_and_resources.prompts`; see `calling.get_prompt`."""
        context = context or self.context
        return await self.dispatcher.get_prompt(self.seen_by(context), context, name, arguments)

    async def read_resource(self, uri: str, *, context: CallContext | None = None) -> Mapping[str, Any]:
        """Read a server's resource by a URI of the view or of a link; see `calling.read_resource`."""
        context = context or self.context
        return await self.dispatcher.read_resource(self.seen_by(context), context, uri)

    async def watch_resource(
        self, uri: str, updated: Callable[[], None], *, context: CallContext | None = None
    ) -> Callable[[], None]:
        """Call `updated` on each change of a resource, until the function that this returns is called.

        See `calling.watch_resource`.
        """
        context = context or self.context
        return await watch_resource(self.seen_by(context), uri, updated, context, runner=self.dispatcher.runner)

    async def complete(self, params: Mapping[str, Any], *, context: CallContext | None = None) -> Mapping[str, Any]:
        """Complete an argument of a prompt or template; see `calling.complete`."""
        context = context or self.context
        return await self.dispatcher.complete(self.seen_by(context), context, params)

    def _perform(
        self,
        name: str,
        method: Callable[Concatenate[View, _P], _A],
        context: CallContext | None,
        *args: _P.args,
        **given: _P.kwargs,
    ) -> _A:
        context = context or self.context
        return self.dispatcher.perform_method(name, method, self.seen_by(context), context, *args, **given)
