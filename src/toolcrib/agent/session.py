"""A session: the operations on behalf of one principal, with its own conversation and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from toolcrib.agent.conversation.conversation import Conversation
from toolcrib.agent.own_loop import OwnLoop
from toolcrib.catalog.bundles import Resolution
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.session_tools import SessionTools
from toolcrib.catalog.view import View
from toolcrib.core.errors import ToolNotFound
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.operations.dispatcher import Dispatcher
from toolcrib.operations.operation_methods import OperationMethods
from toolcrib.operations.operation_table import DEFAULT_SET
from toolcrib.sources.base import free_name, source_name

if TYPE_CHECKING:
    from toolcrib.agent.conversation.events import ConversationEvent
    from toolcrib.agent.formats.call_formats import Form
    from toolcrib.sources.functions import FunctionSource

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


class _Catalog(Protocol):
    """The part of `Toolcrib` that a session needs."""

    @property
    def dispatcher(self) -> Dispatcher: ...

    def seen_by(self, context: CallContext) -> View: ...

    async def prepare(self, query: str) -> None: ...

    def resolve(self, bundle: str, principal: Principal | None = ...) -> Resolution: ...


class Session(OperationMethods):
    """The operations on behalf of one principal, within one bundle. A session does not have to be closed.

    It also has a conversation, and tools that only this session sees.
    """

    def __init__(self, crib: _Catalog, context: CallContext, conversation: Conversation | None = None) -> None:
        self.crib = crib
        self.dispatcher = crib.dispatcher
        self.own = SessionTools()
        """The tools that only this session has."""
        self.context = replace(context, own=self.own)
        self.conversation = conversation or Conversation()
        """The messages and events of the session."""
        self._functions: dict[str, FunctionSource] = {}
        """The functions of this session, by group."""
        self._added: dict[tuple[str, Callable[..., Any]], Tool] = {}
        self._own_loop = OwnLoop(self.view, self.call_tool, self.perform)

    def seen_by(self, context: CallContext) -> View:
        return self.crib.seen_by(context)

    async def prepare(self, query: str) -> None:
        await self.crib.prepare(query)

    def view(self) -> View:
        """Return what this session may see of the current catalog."""
        return self.seen_by(self.context)

    @overload
    def add(self, function: _FunctionT, *, group: str = "", **given: Any) -> _FunctionT: ...

    @overload
    def add(self, function: None = None, *, group: str = "", **given: Any) -> Callable[[_FunctionT], _FunctionT]: ...

    def add(self, function: Callable[..., Any] | None = None, *, group: str = "", **given: Any) -> Callable[..., Any]:
        """Add a Python function as a tool of this session only. `given` takes the arguments of `Toolcrib.add`.

        Returns the function and works as a decorator, like `Toolcrib.add`. `tool_of(function)` returns the tool. Tools
        with the same `group` are in the same category, and must have different names. A function that was already added
        is unchanged.

        Raises:
            InvalidTool: for the same reasons as `Toolcrib.add`.
        """
        if function is None:
            return partial(self.add, group=group, **given)
        self.show(self.take(function, group=group, **given))
        return function

    def tool_of(self, function: Callable[..., Any], *, group: str = "") -> Tool:
        """Return the tool that `add` made from a function.

        Raises:
            ToolNotFound: the function was not added to this group.
        """
        if (tool := self._added.get((group, function))) is None:
            raise ToolNotFound(f"`{getattr(function, '__name__', function)}` was not added to this session")
        return tool

    def take(self, function: Callable[..., Any], *, group: str = "", **given: Any) -> Tool:
        """Return the tool that `add` would make from a function. Operations do not see it before `show`.

        Raises:
            InvalidTool: for the same reasons as `Toolcrib.add`.
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
        """Let operations see these tools, if `take` made them. Other tools are ignored."""
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
        """Return tools in the format of a vendor's API, for your own loop: operations, then `tools`, by id or as
        objects.

        `operations` is the name of one of `SETS`, or some names of `OPERATIONS`. Tools that were returned once can be
        called in this session from then on, with the definition that was returned last.

        Raises:
            ToolNotFound: one of `tools` does not exist, or may not be seen.
            SourceUnavailable: the source of one of them failed.
            InvalidTool: one has the name of an operation.
            ValueError: there is no such form, set or operation.
        """
        return self._own_loop.tools_for(form, tools, operations)

    async def handle(self, calls: Iterable[object] | None) -> list[Any]:
        """Run the calls in a model's answer, and return the messages to append after it, in the format of the calls.

        `calls` is a list of tool calls, output items or content blocks, as dictionaries or as an SDK's objects. Other
        items are ignored. The calls run in parallel. Each has exactly one answer, in order, even if it fails. A tool
        can be called by name only after `tools_for` returned it or the model expanded it.
        """
        return await self._own_loop.handle(calls)

    def dispatch(self, *events: ConversationEvent) -> None:
        """Apply events to the conversation, all at once."""
        self.conversation.dispatch(*events)

    def to_json(self) -> str:
        """Return the conversation in the form that `Toolcrib.session(saved=...)` continues."""
        return self.conversation.to_json()

    def resolve(self) -> Resolution:
        """Return the available tools of the session's bundle, if no required tool is missing. Call `ready` first.

        Raises:
            BundleIncomplete: required tools are missing. The error names all of them.
            UnknownBundle: the bundle no longer exists, or the session has no bundle.
        """
        found = self.crib.resolve(self.context.bundle or "", self.context.principal)
        found.check()
        return found
