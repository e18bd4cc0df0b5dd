"""How clients are told of what nobody asked about just now: that a list, or a resource, has become another."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
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

from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.crib import Toolcrib
from toolcrib.sources.base import NO_EXTRAS
from toolcrib.surfaces.mcp_gateway.connections import Ctx, principal_of

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 0.5
"""Changes that follow each other are told of together, after this long in seconds."""

TELLING_TIMEOUT_S = 5.0
"""How long a client may take to take a notification, in seconds; one that does not read must not hold up the others."""


class _Offered(NamedTuple):
    """What clients have been told of."""

    prompts: Mapping[str, Any]
    resources: Mapping[str, Any]
    tools: int


_NOTHING = _Offered({}, {}, 0)

_LISTENING: ContextVar[str] = ContextVar("listening")
"""The id of the principal whose stream is being opened; the SDK's handler does not pass it on."""


class _Streams:
    """Open streams as the SDK's handler knows them, with whose each is: not all that happens is for everybody."""

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[str, Callable[[ServerEvent], None]]] = {}

    async def publish(self, event: ServerEvent, to: str | None = None) -> None:
        """Tell the streams of one principal, or all."""
        for whose, listener in [*self._listeners.values()]:
            if to in {None, whose}:
                listener(event)
        await anyio.lowlevel.checkpoint()  # streams have their turn before the next

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = _LISTENING.get(), listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe


class Telling:
    """Tells clients of the newer era on the streams that they asked for, and the others on their connections."""

    def __init__(self, crib: Toolcrib, *, tools_are_listed: bool) -> None:
        """`tools_are_listed`: the list of tools is that of the catalog, and changes with it."""
        self._crib = crib
        self._tools_are_listed = tools_are_listed
        self._streams = _Streams()
        self._connections: weakref.WeakKeyDictionary[Connection, str] = weakref.WeakKeyDictionary()
        """Each with the id of its principal."""
        self._listen = ListenHandler(self._streams)

    async def listen(
        self, ctx: Ctx, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answer `subscriptions/listen`, and agree to all that is asked for."""
        _LISTENING.set(principal_of(ctx).id)
        return await self._listen(ctx, params)

    def remember(self, connection: Connection, principal: Principal) -> None:
        """Tell whoever is at the other end, too, for as long as it is there."""
        self._connections[connection] = principal.id

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, as the protocol does."""
        self._listen.close()

    async def tell_of_tools(self) -> None:
        """The list of tools has become another."""
        await self._tell(ToolsListChanged(), Connection.send_tool_list_changed)

    async def tell_of_update(self, uri: str, principal: Principal, connections: Iterable[Connection]) -> None:
        """A resource of `principal` has become another: tell its streams that ask for it, and these connections."""
        await self._streams.publish(ResourceUpdated(uri), principal.id)
        await _tell_each(connections, lambda connection: connection.send_resource_updated(uri))

    async def follow(self) -> None:
        """Tell of whatever changes in what the sources offer, until cancelled."""
        changed = anyio.Event()
        changed_for: set[str | None] = set()

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                changed_for.add(None)
                changed.set()

        def own_listener(principal_id: str) -> None:
            changed_for.add(principal_id)
            changed.set()

        told: dict[str | None, _Offered] = {None: self._offered(None)}
        self._crib.registry.subscribe(listener)
        self._crib.lockers.subscribe(own_listener)
        try:
            while True:
                await changed.wait()
                changed, now = anyio.Event(), {whose: self._offered(whose) for whose in changed_for}
                changed_for.clear()
                for whose, offered in now.items():
                    await self._tell_what_changed(told.get(whose, _NOTHING), offered, whose)
                told = {whose: offered for whose, offered in (told | now).items() if whose is None or any(offered)}
                await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)
            self._crib.lockers.unsubscribe(own_listener)

    async def _tell_what_changed(self, told: _Offered, now: _Offered, to: str | None) -> None:
        if now.prompts != told.prompts:
            await self._tell(PromptsListChanged(), Connection.send_prompt_list_changed, to)
        if now.resources != told.resources:
            await self._tell(ResourcesListChanged(), Connection.send_resource_list_changed, to)
        if now.tools != told.tools:
            await self._tell(ToolsListChanged(), Connection.send_tool_list_changed, to)

    def _offered(self, whose: str | None) -> _Offered:
        """What all share, or what one principal has for itself."""
        shared = self._crib.registry.state
        own = None if whose is None else self._crib.lockers.open_overlay(whose)
        sources = shared.sources if own is None else own.sources
        tools = shared.fingerprint if own is None else sum(tool.fingerprint for tool in own.tools.values())
        extras = {name: entry.extras for name, entry in sources.items() if entry.extras != NO_EXTRAS}
        return _Offered(
            prompts={name: each.prompts for name, each in extras.items()},
            resources={name: (each.resources, each.templates) for name, each in extras.items()},
            # Of all tools: which of them a client may see hangs on who it is.
            tools=tools if self._tools_are_listed else 0,
        )

    async def _tell(
        self, event: ServerEvent, tell: Callable[[Connection], Awaitable[None]], to: str | None = None
    ) -> None:
        await self._streams.publish(event, to)
        await _tell_each([each for each, whose in [*self._connections.items()] if to in {None, whose}], tell)


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
