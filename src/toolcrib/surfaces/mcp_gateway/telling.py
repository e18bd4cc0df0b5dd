"""How clients are told of what nobody asked about just now: that a list, or a resource, has become another."""

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

from toolcrib.catalog.shelf import Item
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.digests import digest
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.connections import Ctx, principal_of

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 0.5
"""Changes that follow each other are told of together, after this long in seconds."""

TELLING_TIMEOUT_S = 5.0
"""How long a client may take to take a notification, in seconds; one that does not read must not hold up the others."""


class _Lists(NamedTuple):
    """What the lists of one principal hang on, by source: equal for two exactly when the lists are."""

    prompts: Mapping[str, object]
    resources: Mapping[str, object]
    tools: Mapping[str, object]


_CHANGES = (
    (PromptsListChanged(), Connection.send_prompt_list_changed),
    (ResourcesListChanged(), Connection.send_resource_list_changed),
    (ToolsListChanged(), Connection.send_tool_list_changed),
)
"""How a change of each of `_Lists` is told, on streams and on connections."""

_LISTENING: ContextVar[Principal] = ContextVar("listening")
"""The principal whose stream is being opened; the SDK's handler does not pass it on."""


class _Streams:
    """Open streams as the SDK's handler knows them, with whose each is: nothing that happens is for everybody."""

    def __init__(self, opened: Callable[[Principal], None]) -> None:
        """`opened` is told of each new one."""
        self._opened = opened
        self._listeners: dict[object, tuple[Principal, Callable[[ServerEvent], None]]] = {}
        self.principals = Counter[Principal]()
        """How many streams each has; one principal may have a thousand."""

    async def publish(self, event: ServerEvent, to: Collection[Principal] = ()) -> None:
        """Tell the streams of these principals."""
        for whose, listener in [*self._listeners.values()]:
            if whose in to:
                listener(event)
        await anyio.lowlevel.checkpoint()  # streams have their turn before the next

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


class Telling:
    """Tells clients of the newer era on the streams that they asked for, and the others on their connections.

    Each is told of what it sees itself: of what is hidden from its principal it does not even hear that it changed.
    """

    def __init__(
        self,
        crib: Toolcrib,
        tools: Callable[[View], Mapping[str, object]],
        bundle: str | None = None,
        *,
        tools_are_listed: bool,
    ) -> None:
        """`tools` gives what the list of tools hangs on, by source, for the principal of a view.

        `tools_are_listed`: that list is the catalog's, and changes with it.
        """
        self._crib = crib
        self._tools = tools
        self._bundle = bundle
        self._tools_are_listed = tools_are_listed
        self._streams = _Streams(self._expect)
        self._connections: weakref.WeakKeyDictionary[Connection, Principal] = weakref.WeakKeyDictionary()
        self._listen = ListenHandler(self._streams)
        self._told: dict[Principal, _Lists] = {}
        """What those who listen know of, or could have asked for when they began to."""
        self._changed = anyio.Event()
        self._changed_for: set[str] = set()
        """Ids of the principals whose own sources changed since somebody was told."""
        self._shared: object = None
        """What all lists were made from when somebody was told last."""

    async def listen(
        self, ctx: Ctx, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answer `subscriptions/listen`, and agree to all that is asked for."""
        _LISTENING.set(principal_of(ctx))
        return await self._listen(ctx, params)

    def remember(self, connection: Connection, principal: Principal) -> None:
        """Tell whoever is at the other end, too, for as long as it is there."""
        self._connections[connection] = principal
        self._expect(principal)

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, as the protocol does."""
        self._listen.close()

    def look(self) -> None:
        """Whatever anybody can list may have become another."""
        self._shared = None
        self._changed.set()

    async def tell_of_update(
        self, uri: str, principals: Collection[Principal], connections: Iterable[Connection]
    ) -> None:
        """A resource has become another: tell streams of these principals that ask for it, and these connections."""
        await self._streams.publish(ResourceUpdated(uri), principals)
        await _tell_each(connections, lambda connection: connection.send_resource_updated(uri))

    async def follow(self) -> None:
        """Tell of whatever changes in what clients can list, until cancelled."""

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                self._changed.set()

        def own_listener(principal_id: str) -> None:
            self._changed_for.add(principal_id)
            self._changed.set()

        self._crib.registry.subscribe(listener)
        self._crib.lockers.subscribe(own_listener)
        try:
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await self._tell_what_changed()
                await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)
            self._crib.lockers.unsubscribe(own_listener)

    async def _tell_what_changed(self) -> None:
        shared, own, self._changed_for = self._made_from(), self._changed_for, set()
        is_shared = shared != self._shared
        self._shared = shared
        told = self._of_listeners()
        now = {who: self._offered(who, lists) if is_shared or who.id in own else lists for who, lists in told.items()}
        self._told = now
        for at, (event, send) in enumerate(_CHANGES):
            whom = {who for who, lists in now.items() if lists[at] != told[who][at]}
            if whom:
                await self._streams.publish(event, whom)
                await _tell_each([each for each, whose in [*self._connections.items()] if whose in whom], send)

    def _expect(self, principal: Principal) -> None:
        """Remember what a new listener can list by now, unless another of the same principal listens already."""
        told = self._of_listeners()
        if principal not in told:
            told[principal] = self._offered(principal)
        self._told = told

    def _of_listeners(self) -> dict[Principal, _Lists]:
        """`_told` without those who are gone."""
        listening = self._streams.principals.keys() | {*self._connections.values()}
        return {who: lists for who, lists in self._told.items() if who in listening}

    def _made_from(self) -> object:
        """What no list can change without, of all that is shared: looking at each list takes a while."""
        state = self._crib.registry.state
        if self._tools_are_listed:
            return state
        return {
            name: (entry.extras, entry.status, entry.trusted, entry.plain_names)
            for name, entry in state.sources.items()
        }

    def _offered(self, principal: Principal, told: _Lists | None = None) -> _Lists:
        """What `principal` can list by now.

        What it has for itself and lacks just now, since nobody used it or it is starting, is taken to be as `told`: it
        is there again for whoever asks.
        """
        view = self._crib.glance(principal, self._bundle)
        lists = _Lists(
            prompts=_by_source(view.shelf.prompts.values()),
            resources=_by_source((*view.shelf.resources.values(), *view.shelf.templates.values())),
            tools=self._tools(view),
        )
        if told is None:
            return lists
        starting = {name for name, entry in view.sources.items() if entry.status is SourceStatus.STARTING}
        absent = starting.union(self._crib.lockers.put_away(principal.id))
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
    async with anyio.create_task_group() as telling:
        for connection in connections:
            telling.start_soon(_tell, connection, tell)


async def _tell(connection: Connection, tell: Callable[[Connection], Awaitable[None]]) -> None:
    try:
        with anyio.move_on_after(TELLING_TIMEOUT_S):
            await tell(connection)
    except Exception as error:  # noqa: BLE001  one client that cannot be told must not cost the others
        logger.info("a client was not told of a change: %s", error)
