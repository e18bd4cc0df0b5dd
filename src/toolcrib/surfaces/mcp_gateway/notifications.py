"""Sends `list_changed` and `resources/updated` notifications to clients."""

from __future__ import annotations

import logging
import weakref
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import mcp_types
from mcp.server.connection import Connection
from mcp.server.subscriptions import ListenHandler
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.prompts_and_resources import Item
from toolcrib.catalog.view import View
from toolcrib.core.digests import digest
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, principal_of

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 0.5
"""The shortest time between two rounds of notifications, in seconds. Changes in between are combined."""

TELLING_TIMEOUT_S = 5.0
"""How long a client may take to receive a notification, in seconds.

A client that does not read must not delay others.
"""


class _Lists(NamedTuple):
    """A value per source for each list of one principal. Two values are equal if and only if the lists are equal."""

    prompts: Mapping[str, object]
    resources: Mapping[str, object]
    tools: Mapping[str, object]


_CHANGES = (
    (PromptsListChanged(), Connection.send_prompt_list_changed),
    (ResourcesListChanged(), Connection.send_resource_list_changed),
    (ToolsListChanged(), Connection.send_tool_list_changed),
)
"""How to announce a change of each of `_Lists`: on streams, and on connections."""

_LISTENING: ContextVar[Principal] = ContextVar("listening")
"""The principal whose stream is being opened, because the SDK's handler does not pass it on."""


class _Streams:
    """The open streams, for the SDK's handler. Each stream belongs to a principal and only receives its events."""

    def __init__(self, opened: Callable[[Principal], None]) -> None:
        """`opened` is called with the principal of each new stream."""
        self._opened = opened
        self._listeners: dict[object, tuple[Principal, Callable[[ServerEvent], None]]] = {}
        self.principals = Counter[Principal]()
        """The number of streams of each principal. One principal may have a thousand."""

    async def publish(self, event: ServerEvent, to: Collection[Principal] = ()) -> None:
        """Send an event to the streams of these principals."""
        for whose, listener in [*self._listeners.values()]:
            if whose in to:
                listener(event)
        await anyio.lowlevel.checkpoint()  # so that the streams run before the next event

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        key, whose = object(), _LISTENING.get()
        self._listeners[key] = whose, listener
        self.principals[whose] += 1
        self._opened(whose)

        def unsubscribe() -> None:
            if self._listeners.pop(key, None) is None:
                return
            self.principals[whose] -= 1
            if not self.principals[whose]:
                del self.principals[whose]

        return unsubscribe


class Notifications:
    """Notifies clients of the newer era on their streams, and other clients on their connections.

    A client is only notified of changes that it can see. It learns nothing about changes of what is hidden from its
    principal.
    """

    def __init__(
        self,
        crib: Toolcrib,
        tools: Callable[[View], Mapping[str, object]],
        bundle: str | None = None,
        *,
        tools_are_listed: bool,
    ) -> None:
        """`tools` returns, for the principal of a view, a value per source that changes if the list of tools changes.

        `tools_are_listed`: the list of tools is that of the catalog, and changes with it.
        """
        self._crib = crib
        self._tools = tools
        self._bundle = bundle
        self._tools_are_listed = tools_are_listed
        self._streams = _Streams(self._expect)
        self._connections: weakref.WeakKeyDictionary[Connection, Principal] = weakref.WeakKeyDictionary()
        self._listen = ListenHandler(self._streams)
        self._known: dict[Principal, _Lists] = {}
        """The lists that each listening principal already knows, or could have requested when it began to listen."""
        self._changed = anyio.Event()
        self._changed_for: set[str] = set()
        """Ids of the principals whose isolated sources changed since the last round."""
        self._shared: object = None
        """What all lists were made from in the last round."""

    async def listen(
        self, ctx: Ctx, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answer `subscriptions/listen`, and agree to all requested notifications."""
        _LISTENING.set(principal_of(ctx))
        return await self._listen(ctx, params)

    def remember(self, connection: Connection, principal: Principal) -> None:
        """Notify the client of this connection for as long as it is connected."""
        self._connections[connection] = principal
        self._expect(principal)

    def hang_up(self) -> None:
        """End the open streams by the protocol's own means."""
        self._listen.close()

    def compare_all(self) -> None:
        """Compare all lists again, because any of them may have changed."""
        self._shared = None
        self._changed.set()

    async def tell_of_update(
        self, uri: str, principals: Collection[Principal], connections: Iterable[Connection]
    ) -> None:
        """Send `resources/updated` to the subscribed streams of these principals and to these connections."""
        await self._streams.publish(ResourceUpdated(uri), principals)
        await _tell_each(connections, lambda connection: connection.send_resource_updated(uri))

    async def follow(self) -> None:
        """Notify clients of changes to their lists. Runs until it is cancelled."""

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                self._changed.set()

        def own_listener(principal_id: str) -> None:
            self._changed_for.add(principal_id)
            self._changed.set()

        self._crib.registry.subscribe(listener)
        self._crib.isolated_sources.subscribe(own_listener)
        try:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await self._tell_what_changed()
                await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)
            self._crib.isolated_sources.unsubscribe(own_listener)

    async def _tell_what_changed(self) -> None:
        shared, own, self._changed_for = self._made_from(), self._changed_for, set()
        is_shared = shared != self._shared
        self._shared = shared
        told = self._of_listeners()
        now = {who: self._offered(who, lists) if is_shared or who.id in own else lists for who, lists in told.items()}
        self._known = now
        for at, (event, send) in enumerate(_CHANGES):
            whom = {who for who, lists in now.items() if lists[at] != told[who][at]}
            if whom:
                await self._streams.publish(event, whom)
                await _tell_each([each for each, whose in [*self._connections.items()] if whose in whom], send)

    def _expect(self, principal: Principal) -> None:
        """Note what a new listener can list now, unless the same principal already listens."""
        told = self._of_listeners()
        if principal not in told:
            told[principal] = self._offered(principal)
        self._known = told

    def _of_listeners(self) -> dict[Principal, _Lists]:
        """Return `_known` without the principals that no longer listen."""
        listening = self._streams.principals.keys() | {*self._connections.values()}
        return {who: lists for who, lists in self._known.items() if who in listening}

    def _made_from(self) -> object:
        """Return the shared state that lists are made from. Comparing it is cheaper than comparing each list."""
        state = self._crib.registry.state
        if self._tools_are_listed:
            return state
        return {
            name: (entry.extras, entry.status, entry.trusted, entry.plain_names)
            for name, entry in state.sources.items()
        }

    def _offered(self, principal: Principal, told: _Lists | None = None) -> _Lists:
        """Return what `principal` can list now.

        Isolated sources may be missing for the moment, because they are starting or were unused. These count as in
        `told`, since they return at the next request.
        """
        view = self._crib.peek(principal, self._bundle)
        lists = _Lists(
            prompts=_by_source(view.prompts_and_resources.prompts.values()),
            resources=_by_source(
                (*view.prompts_and_resources.resources.values(), *view.prompts_and_resources.templates.values())
            ),
            tools=self._tools(view),
        )
        if told is None:
            return lists
        starting = {name for name, entry in view.sources.items() if entry.status is SourceStatus.STARTING}
        absent = starting.union(self._crib.isolated_sources.closed_names(principal.id))
        return _Lists(*(_with_absent(now, before, absent) for now, before in zip(lists, told, strict=True)))


def _by_source(items: Iterable[Item]) -> Mapping[str, object]:
    wires: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for item in items:
        wires[item.source].append(item.wire)
    return {source: digest(each) for source, each in wires.items()}


def _with_absent(
    now: Mapping[str, object], before: Mapping[str, object], absent: Collection[str]
) -> Mapping[str, object]:
    return {**{source: known for source, known in before.items() if source in absent}, **now}


async def _tell_each(connections: Iterable[Connection], tell: Callable[[Connection], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as sending:
        for connection in connections:
            sending.start_soon(_tell, connection, tell)


async def _tell(connection: Connection, tell: Callable[[Connection], Awaitable[None]]) -> None:
    try:
        with anyio.move_on_after(TELLING_TIMEOUT_S):
            await tell(connection)
    except Exception as error:  # noqa: BLE001  one failing client must not affect the others
        logger.info("could not notify a client of a change: %s", error)
