"""The counter: every operation, each on the view of whoever asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from toolcrib.catalog.bundles import Resolution
from toolcrib.catalog.own import OwnTools
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.client import Client
from toolcrib.core.errors import ToolNotFound
from toolcrib.core.principal import LOCAL, LOCAL_CONTEXT, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import ROOT, Tool
from toolcrib.operations.calling import watch_resource
from toolcrib.operations.describing import DEFAULT_BUDGET_TOKENS, Description, describe
from toolcrib.operations.desk import Desk
from toolcrib.operations.messages import (
    Answer,
    CategoryPage,
    DetailLevel,
    Expansion,
    Expansions,
    ListPage,
    NodePage,
    SearchPage,
)
from toolcrib.operations.showing import DEFAULT_LIMIT
from toolcrib.operations.tools import CALLS, DEFAULT_SET
from toolcrib.sources.base import ProgressListener, free_name, source_name

if TYPE_CHECKING:
    from toolcrib.agent.conversation.conversation import Conversation
    from toolcrib.agent.conversation.events import ConversationEvent
    from toolcrib.agent.formats.calls import Form
    from toolcrib.sources.functions import FunctionSource


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Counter(ABC):
    """The operations; whoever has a catalog says what is seen of it. Each `context` says on whose behalf it is asked,
    and within which bundle.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        """Where operations are answered and recorded."""

    @abstractmethod
    def view(self, principal: Principal = LOCAL, bundle: str | None = None) -> View:
        """What `principal` may see of the catalog as it is now, within `bundle`.

        Raises:
            UnknownBundle: no bundle is called so.
        """

    @abstractmethod
    def resolve(self, bundle: str, principal: Principal | None = LOCAL) -> Resolution:
        """What is there of a bundle for `principal`, by now; for None, of all that principals share.

        Before its sources are `ready`, what they have is missing.

        Raises:
            UnknownBundle: no bundle is called so.
        """

    def session(
        self,
        *,
        bundle: str | None = None,
        principal: Principal = LOCAL,
        client: Client | None = None,
        saved: str | None = None,
    ) -> Session:
        """The operations on behalf of `principal`, within `bundle` if one is named, and a conversation.

        `client` is asked where a person has to approve of a call, or a tool asks for input.
        `saved` is one that `Session.to_json` wrote, to be gone on with.

        Raises:
            UnknownBundle: no bundle is called so.
            InvalidPrompt: `saved` is no saved conversation.
        """
        from toolcrib.agent.conversation.conversation import Conversation  # noqa: PLC0415  a gateway never has a session

        conversation = None if saved is None else Conversation.from_json(saved)
        session = Session(self, CallContext(principal, bundle=bundle, client=client), conversation)
        session.view()
        return session

    @abstractmethod
    async def prepare(self, query: str) -> None:
        """Look up what `query` means where that takes a while; a search for it afterwards need not do without.

        What is asked through `perform` is prepared already.
        """

    def list(
        self,
        path: Sequence[str] = ROOT,
        *,
        tags: Sequence[str] = (),
        query: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        context: CallContext = LOCAL_CONTEXT,
    ) -> ListPage:
        """The nodes and tools at `path`; see `Operations.list`."""
        operation, view = self.desk.operations.list, self.seen_by(context)
        return self.desk.look(operation, view, context, path=path, tags=tags, query=query, limit=limit, cursor=cursor)

    def list_categories(
        self, *, limit: int | None = None, cursor: str | None = None, context: CallContext = LOCAL_CONTEXT
    ) -> CategoryPage:
        """What stands at the top, with ids of tools in it; see `Operations.list_categories`."""
        operation, view = self.desk.operations.list_categories, self.seen_by(context)
        return self.desk.look(operation, view, context, limit=limit, cursor=cursor)

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
        context: CallContext = LOCAL_CONTEXT,
    ) -> SearchPage:
        """The tools that serve `query`, best first; see `Operations.search_tools`."""
        return self.desk.look(
            self.desk.operations.search_tools,
            self.seen_by(context),
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
        context: CallContext = LOCAL_CONTEXT,
    ) -> SearchPage:
        """The tools at or below `category_path` that serve `query`; see `Operations.search_tool_by_category`."""
        operation, view = self.desk.operations.search_tool_by_category, self.seen_by(context)
        return self.desk.look(
            operation, view, context, query=query, category_path=category_path, limit=limit, cursor=cursor
        )

    def search_nodes(self, query: str, *, limit: int = DEFAULT_LIMIT, context: CallContext = LOCAL_CONTEXT) -> NodePage:
        """The categories that `query` means, best first; see `Operations.search_nodes`."""
        operation, view = self.desk.operations.search_nodes, self.seen_by(context)
        return self.desk.look(operation, view, context, query=query, limit=limit)

    def expand_tool(self, tool_id: str, *, context: CallContext = LOCAL_CONTEXT) -> Expansion:
        """The full schemas of one tool and the handle to call it by; see `Operations.expand_tool`."""
        operation, view = self.desk.operations.expand_tool, self.seen_by(context)
        return self.desk.look(operation, view, context, tool_id=tool_id)

    def expand_tools(self, tool_ids: Sequence[str], *, context: CallContext = LOCAL_CONTEXT) -> Expansions:
        """Those of several; see `Operations.expand_tools`."""
        operation, view = self.desk.operations.expand_tools, self.seen_by(context)
        return self.desk.look(operation, view, context, tool_ids=tool_ids)

    def describe(
        self,
        detail: DetailLevel = DetailLevel.FULL,
        budget_tokens: int = DEFAULT_BUDGET_TOKENS,
        *,
        context: CallContext = LOCAL_CONTEXT,
    ) -> Description:
        """The tools as text for a system prompt; see `toolcrib.operations.describing.describe`."""
        view = self.seen_by(context)
        return self.desk.look(describe, view, context, detail=detail, budget_tokens=budget_tokens)

    async def call_tool(
        self,
        handle: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        only_read: bool = False,
        context: CallContext = LOCAL_CONTEXT,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Run an expanded tool; see `toolcrib.operations.calling.Runner.call_tool`."""
        view = self.seen_by(context)
        return await self.desk.call_tool(view, context, handle, arguments, only_read=only_read, progress=progress)

    async def perform(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        context: CallContext = LOCAL_CONTEXT,
        progress: ProgressListener | None = None,
    ) -> Answer | ToolResult:
        """The answer to an operation by its name and JSON arguments, as surfaces get them; see `Desk.perform`."""
        if name not in CALLS and isinstance(query := arguments.get("query"), str):
            await self.prepare(query)
        return await self.desk.perform(self.seen_by(context), context, name, arguments, progress=progress)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, context: CallContext = LOCAL_CONTEXT
    ) -> Mapping[str, Any]:
        """A server's prompt, by its name in `view().shelf.prompts`; see `toolcrib.operations.calling.get_prompt`."""
        return await self.desk.get_prompt(self.seen_by(context), context, name, arguments)

    async def read_resource(self, uri: str, *, context: CallContext = LOCAL_CONTEXT) -> Mapping[str, Any]:
        """A server's resource, by a URI of `view().shelf` or of a link; see `toolcrib.operations.read_resource`."""
        return await self.desk.read_resource(self.seen_by(context), context, uri)

    async def watch_resource(
        self, uri: str, updated: Callable[[], None], *, context: CallContext = LOCAL_CONTEXT
    ) -> Callable[[], None]:
        """Be told of changes of a resource until what this gives is called; see `watch_resource`."""
        return await watch_resource(self.seen_by(context), uri, updated, context, runner=self.desk.runner)

    async def complete(self, params: Mapping[str, Any], *, context: CallContext = LOCAL_CONTEXT) -> Mapping[str, Any]:
        """Values for an argument of a prompt or template; see `toolcrib.operations.calling.complete`."""
        return await self.desk.complete(self.seen_by(context), context, params)

    def seen_by(self, context: CallContext) -> View:
        """What whoever asks in `context` may see, its own tools included; raises as `view` does."""
        view = self.view(context.principal, context.bundle)
        return context.own.on(view) if isinstance(context.own, OwnTools) else view


class Session:
    """The operations of a counter on behalf of one principal, within one bundle; it needs no end.

    Each takes what the counter's own takes, without its `context`. It holds what belongs to it alone: a conversation,
    and tools that nobody else sees.
    """

    def __init__(self, counter: Counter, context: CallContext, conversation: Conversation | None = None) -> None:
        from toolcrib.agent.conversation.conversation import Conversation  # noqa: PLC0415  a gateway never has a session
        from toolcrib.agent.own_loop import OwnLoop  # noqa: PLC0415  likewise

        self.counter = counter
        self.own = OwnTools()
        """Tools of this session alone."""
        self.context = context = replace(context, own=self.own)
        self.conversation = conversation or Conversation()
        """What was said in it, and done."""
        self._functions: dict[str, FunctionSource] = {}
        """By group."""
        self._added: dict[tuple[str, Callable[..., Any]], Tool] = {}
        self._own_loop = OwnLoop(
            self.view, partial(counter.call_tool, context=context), partial(counter.perform, context=context)
        )
        self.list = partial(counter.list, context=context)
        self.search_tools = partial(counter.search_tools, context=context)
        self.search_tool_by_category = partial(counter.search_tool_by_category, context=context)
        self.search_nodes = partial(counter.search_nodes, context=context)
        self.list_categories = partial(counter.list_categories, context=context)
        self.expand_tool = partial(counter.expand_tool, context=context)
        self.expand_tools = partial(counter.expand_tools, context=context)
        self.describe = partial(counter.describe, context=context)
        self.call_tool = partial(counter.call_tool, context=context)
        self.perform = partial(counter.perform, context=context)
        self.get_prompt = partial(counter.get_prompt, context=context)
        self.read_resource = partial(counter.read_resource, context=context)

    def view(self) -> View:
        """What there is by now."""
        return self.counter.seen_by(self.context)

    @overload
    def add(self, function: FunctionT, *, group: str = "", **given: Any) -> FunctionT: ...

    @overload
    def add(self, function: None = None, *, group: str = "", **given: Any) -> Callable[[FunctionT], FunctionT]: ...

    def add(self, function: Callable[..., Any] | None = None, *, group: str = "", **given: Any) -> Callable[..., Any]:
        """Take in a Python function as a tool of this session alone; `given` as `Toolcrib.add` takes it.

        Gives back the function, as `Toolcrib.add` does, and is a decorator like it. The tool is `tool_of(function)`.
        Those of one `group` stand below one node, and differ by name. One that is there already stays what it is.

        Raises:
            InvalidTool: as `Toolcrib.add` does.
        """
        if function is None:
            return partial(self.add, group=group, **given)
        self.show(self.take(function, group=group, **given))
        return function

    def tool_of(self, function: Callable[..., Any], *, group: str = "") -> Tool:
        """The tool that `add` made of a function.

        Raises:
            ToolNotFound: it was not added to this group.
        """
        if (tool := self._added.get((group, function))) is None:
            raise ToolNotFound(f"`{getattr(function, '__name__', function)}` was not added to this session")
        return tool

    def take(self, function: Callable[..., Any], *, group: str = "", **given: Any) -> Tool:
        """The tool that `add` would make of a function; it does not exist for any operation before `show` says so.

        Raises:
            InvalidTool: as `Toolcrib.add` does.
        """
        from toolcrib.sources.functions import FunctionSource  # noqa: PLC0415  reading signatures takes a parser

        if (known := self._added.get((group, function))) is not None:
            return known
        source = self._functions.get(group)
        if source is None:
            taken = {*self.view().sources, *(each.name for each in self._functions.values())}
            name = free_name(source_name(f"session-{group.replace('.', '__')}"), taken)
            source = self._functions[group] = FunctionSource(name)
        tool = self._added[group, function] = source.add(function, **given)
        return tool

    def show(self, *tools: Tool) -> None:
        """Have these exist from now on, of those that `take` made; others are passed over."""
        for group, source in self._functions.items():
            there = self.own.overlay.tools
            new = [tool for tool in tools if tool.source == source.name and tool.id not in there]
            if new:
                title = f"Functions of {group}" if group else "Functions of this session"
                entry = SourceEntry(source, SourceStatus.READY, title, trusted=True, plain_names=True)
                self.own.put(entry, [*(tool for tool in there.values() if tool.source == source.name), *new])

    def tools_for(
        self,
        form: Form,
        tools: Sequence[str | Tool] = (),
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
    ) -> list[dict[str, Any]]:
        """Tools as a vendor's API takes them, for a loop of one's own: operations, then `tools`, by id or as they are.

        `operations` is the name of one of `SETS`, or names some of `OPERATIONS`. What was given once can be called in
        this session from then on, as it was shown last.

        Raises:
            ToolNotFound: one of `tools` is not there, or may not be seen.
            SourceUnavailable: the source of one of them failed.
            InvalidTool: one has the name of an operation.
            ValueError: there is no such form, set or operation.
        """
        return self._own_loop.tools_for(form, tools, operations)

    async def handle(self, calls: Iterable[object] | None) -> list[Any]:
        """Messages that answer the calls in a model's answer, to be appended right after it, in the form they came in.

        `calls` is a list of tool calls, of output items or of content blocks, as dictionaries or as an SDK's objects;
        what is no call is passed over. They run side by side, and each has exactly one answer, in order, however it
        ended. A tool is called by its name only once it was given by `tools_for` or expanded by the model.
        """
        return await self._own_loop.handle(calls)

    def dispatch(self, *events: ConversationEvent) -> None:
        """Have them happened in the conversation, all at once."""
        self.conversation.dispatch(*events)

    def to_json(self) -> str:
        """The conversation, to be gone on with by `Counter.session(saved=...)`."""
        return self.conversation.to_json()

    def resolve(self) -> Resolution:
        """The tools of its bundle that are there, of which each required entry has one; `ready` comes before.

        Raises:
            BundleIncomplete: something required is missing; all of it is named.
            UnknownBundle: there is no such bundle any more, or the session is within none.
        """
        found = self.counter.resolve(self.context.bundle or "", self.context.principal)
        found.check()
        return found
