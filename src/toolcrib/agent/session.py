"""A session: the operations on behalf of one principal, with a conversation and tools of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from toolcrib.agent.conversation.conversation import Conversation
from toolcrib.agent.own_loop import OwnLoop
from toolcrib.catalog.bundles import Resolution
from toolcrib.catalog.own import OwnTools
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import ToolNotFound
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.operations.desk import Desk
from toolcrib.operations.methods import OperationMethods
from toolcrib.operations.tools import DEFAULT_SET
from toolcrib.sources.base import free_name, source_name

if TYPE_CHECKING:
    from toolcrib.agent.conversation.events import ConversationEvent
    from toolcrib.agent.formats.calls import Form
    from toolcrib.sources.functions import FunctionSource

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


class Catalog(Protocol):
    """What a session needs of a `Toolcrib`."""

    @property
    def desk(self) -> Desk: ...

    def seen_by(self, context: CallContext) -> View: ...

    async def prepare(self, query: str) -> None: ...

    def resolve(self, bundle: str, principal: Principal | None = ...) -> Resolution: ...


class Session(OperationMethods):
    """The operations on behalf of one principal, within one bundle. A session needs no end.

    It also holds a conversation, and tools that nobody else sees.
    """

    def __init__(self, crib: Catalog, context: CallContext, conversation: Conversation | None = None) -> None:
        self.crib = crib
        self.desk = crib.desk
        self.own = OwnTools()
        """Tools of this session alone."""
        self.context = replace(context, own=self.own)
        self.conversation = conversation or Conversation()
        """What was said in it, and done."""
        self._functions: dict[str, FunctionSource] = {}
        """By group."""
        self._added: dict[tuple[str, Callable[..., Any]], Tool] = {}
        self._own_loop = OwnLoop(self.view, self.call_tool, self.perform)

    def seen_by(self, context: CallContext) -> View:
        return self.crib.seen_by(context)

    async def prepare(self, query: str) -> None:
        await self.crib.prepare(query)

    def view(self) -> View:
        """What this session may see of the catalog as it is now."""
        return self.seen_by(self.context)

    @overload
    def add(self, function: _FunctionT, *, group: str = "", **given: Any) -> _FunctionT: ...

    @overload
    def add(self, function: None = None, *, group: str = "", **given: Any) -> Callable[[_FunctionT], _FunctionT]: ...

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
        """The conversation, to be gone on with by `Toolcrib.session(saved=...)`."""
        return self.conversation.to_json()

    def resolve(self) -> Resolution:
        """The tools of its bundle that are there, of which each required entry has one; `ready` comes before.

        Raises:
            BundleIncomplete: something required is missing; all of it is named.
            UnknownBundle: there is no such bundle any more, or the session is within none.
        """
        found = self.crib.resolve(self.context.bundle or "", self.context.principal)
        found.check()
        return found
