"""How clients are told of what nobody asked about just now: that a list, or a resource, has become another."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import anyio
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import LOCAL
from toolcrib.crib import Toolcrib
from toolcrib.sources.base import NO_EXTRAS

logger = logging.getLogger(__name__)

TELL_AGAIN_S = 0.5
"""Changes that follow each other are told of together, after this long in seconds."""

TELLING_TIMEOUT_S = 5.0
"""How long a client may take to take a notification, in seconds; one that does not read must not hold up the others."""


class _Offered(NamedTuple):
    """What clients have been told of."""

    prompts: Mapping[str, Any]
    resources: Mapping[str, Any]
    tools: str


class Telling:
    """Tells clients of the newer era on the streams that they asked for, and the others on their connections."""

    def __init__(self, crib: Toolcrib, *, tools_are_listed: bool) -> None:
        """`tools_are_listed`: the list of tools is that of the catalog, and changes with it."""
        self._crib = crib
        self._tools_are_listed = tools_are_listed
        self._bus = InMemorySubscriptionBus()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.listen = ListenHandler(self._bus)
        """Answers `subscriptions/listen`, and agrees to all that is asked for."""

    def remember(self, connection: Connection) -> None:
        """Tell whoever is at the other end, too, for as long as it is there."""
        self._connections.add(connection)

    def hang_up(self) -> None:
        """End the streams on which clients wait for changes, as the protocol does."""
        self.listen.close()

    async def tell_of_tools(self) -> None:
        """The list of tools has become another."""
        await self._tell(ToolsListChanged(), Connection.send_tool_list_changed)

    async def tell_of_update(self, uri: str, connections: Iterable[Connection]) -> None:
        """A resource has become another: tell the streams that ask for it, and these connections."""
        await self._bus.publish(ResourceUpdated(uri))
        await _tell_each(connections, lambda connection: connection.send_resource_updated(uri))

    async def follow(self) -> None:
        """Tell of whatever changes in what the sources offer, until cancelled."""
        changed = anyio.Event()

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                changed.set()

        told = self._offered()
        self._crib.registry.subscribe(listener)
        try:
            while True:
                await changed.wait()
                changed = anyio.Event()
                now = self._offered()
                if now.prompts != told.prompts:
                    await self._tell(PromptsListChanged(), Connection.send_prompt_list_changed)
                if now.resources != told.resources:
                    await self._tell(ResourcesListChanged(), Connection.send_resource_list_changed)
                if now.tools != told.tools:
                    await self.tell_of_tools()
                told = now
                await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)

    def _offered(self) -> _Offered:
        sources = self._crib.registry.state.sources
        extras = {name: entry.extras for name, entry in sources.items() if entry.extras != NO_EXTRAS}
        return _Offered(
            prompts={name: each.prompts for name, each in extras.items()},
            resources={name: (each.resources, each.templates) for name, each in extras.items()},
            tools=self._crib.view(LOCAL).fingerprint if self._tools_are_listed else "",
        )

    async def _tell(self, event: ServerEvent, tell: Callable[[Connection], Awaitable[None]]) -> None:
        await self._bus.publish(event)
        await _tell_each([*self._connections], tell)


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
