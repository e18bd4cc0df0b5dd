"""Subscriptions to single resources: which client wants which resource, with one upstream subscription for each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import anyio
import mcp_types
from mcp.server.connection import Connection
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.catalog.access import Access
from toolcrib.core.errors import ToolcribError, ToolFailed
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.shares import Shares
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import Source
from toolcrib.surfaces.mcp_gateway.gateway_answers import own_refusal, protocol_error
from toolcrib.surfaces.mcp_gateway.notifications import TELL_AGAIN_S, Notifications
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, connection_of, principal_of
from toolcrib.surfaces.mcp_gateway.startup_wait import StartupWait

logger = logging.getLogger(__name__)

MAX_WATCHED = 10_000
"""The maximum number of watched resources, for all clients together.

When the limit is reached, a principal that uses its share is refused more. Others displace those of principals that use
more than their share.
"""

ASKED_AT_ONCE = 8
"""How many resources of one stream are subscribed to concurrently."""

STREAM_WAIT_S = 30.0
"""How long a stream waits for its sources, in seconds. Resources of later sources are left out of the stream."""

_RELEASED = "toolcrib/subscriptions"
"""The key under which a connection notes that its end releases its subscriptions."""

_Who = object
"""A connection of the handshake era, or an object that represents one stream of the newer era."""


class _Key(NamedTuple):
    """Identifies one upstream subscription. Principals differ in their rights, and may have isolated servers."""

    whose: str
    """The id of the principal."""
    source: str
    uri: str
    """The URI that the source itself uses."""


@dataclass(slots=True, eq=False)
class _Watched:
    """One watched resource of one source."""

    principal: Principal
    """The principal of the latest subscription. The source is asked with its scopes."""
    wanted: dict[_Who, dict[str, Principal]] = field(default_factory=dict[_Who, dict[str, Principal]])
    """The URIs by which each client knows the resource, with the rights for each.

    With plain names there are two URIs.
    """
    asking: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: int = 0
    """The number of clients that wait for the answer to their subscription."""
    source: Source | None = None
    """The source that watches the resource now, or None."""
    end: Callable[[], None] | None = None


class Subscriptions:
    """Answers `resources/subscribe`, `resources/unsubscribe` and `subscriptions/listen`, and sends updates."""

    def __init__(
        self, crib: Toolcrib, notifications: Notifications, startup: StartupWait, bundle: str | None = None
    ) -> None:
        self._crib = crib
        self._notifications = notifications
        self._startup = startup
        self._bundle = bundle
        self._watched = Shares[_Key, _Watched](MAX_WATCHED)
        self._updated: dict[_Key, None] = {}
        """The resources whose subscribers must be notified. Several updates of one resource count once."""
        self._news = anyio.Event()

    def answer_on(self, server: Server[dict[str, Any]]) -> None:
        """Register the handlers of the handshake era."""
        server.add_request_handler("resources/subscribe", mcp_types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", mcp_types.UnsubscribeRequestParams, self._unsubscribe)

    async def listen(
        self, ctx: Ctx, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Answer one stream of the newer era. It agrees to the resources whose sources support subscriptions."""
        asked = dict.fromkeys(params.notifications.resource_subscriptions or ())
        if not asked:
            return await self._notifications.listen(ctx, params)
        stream = object()
        try:
            with anyio.move_on_after(STREAM_WAIT_S):
                await _side_by_side([partial(self._try, stream, uri, principal_of(ctx)) for uri in asked])
            wanted = {uri for _, watched in self._watched.items() for uri in watched.wanted.get(stream, ())}
            agreed = [uri for uri in asked if uri in wanted]
            told = params.notifications.model_copy(update={"resource_subscriptions": agreed or None})
            return await self._notifications.listen(ctx, params.model_copy(update={"notifications": told}))
        finally:
            self._release(stream)

    def check_access(self) -> None:
        """End the subscriptions of clients that lost access, soon."""
        self._news.set()

    async def follow(self) -> None:
        """Notify subscribers of updates, and subscribe again at a source that was replaced. Runs until it is cancelled.

        A client that lost access to a resource receives no more updates of it. Its subscription does not return with
        the access.
        """

        def listener(event: Event) -> None:
            if isinstance(event, CatalogPublished):
                self._news.set()

        def own_listener(_: str) -> None:
            self._news.set()

        self._crib.registry.subscribe(listener)
        self._crib.isolated_sources.subscribe(own_listener)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._news.wait()
                    self._news = anyio.Event()
                    self._end_what_may_not_be_had()
                    for key, watched in self._replaced():
                        tasks.start_soon(self._ask_again, key, watched)
                    updated, self._updated = self._updated, {}
                    for key in updated:
                        await self._tell(key)
                    if updated:
                        await anyio.sleep(TELL_AGAIN_S)
        finally:
            self._crib.registry.unsubscribe(listener)
            self._crib.isolated_sources.unsubscribe(own_listener)

    async def _subscribe(self, ctx: Ctx, params: mcp_types.SubscribeRequestParams) -> HandlerResult:
        connection, uri = connection_of(ctx), str(params.uri)
        await self._startup.wait(principal_of(ctx), uri)
        if _RELEASED not in connection.state:
            connection.state[_RELEASED] = True
            connection.exit_stack.callback(self._release, connection)
        try:
            await self._want(connection, uri, principal_of(ctx))
        except ToolFailed as error:
            raise own_refusal(error) or MCPError(INVALID_PARAMS, error.message, error.to_wire()) from error
        except ToolcribError as error:
            raise protocol_error(error) from error
        return mcp_types.EmptyResult()

    async def _unsubscribe(self, ctx: Ctx, params: mcp_types.UnsubscribeRequestParams) -> HandlerResult:
        connection, uri = connection_of(ctx), str(params.uri)
        for key, watched in self._watched.items():
            uris = watched.wanted.get(connection, {})
            uris.pop(uri, None)
            if not uris:
                watched.wanted.pop(connection, None)
                self._tidy(key, watched)
        return mcp_types.EmptyResult()

    async def _try(self, stream: _Who, uri: str, principal: Principal) -> None:
        await self._startup.wait(principal, uri)
        try:
            await self._want(stream, uri, principal)
        except ToolcribError as error:
            logger.info("cannot subscribe to the resource %s: %s", uri, error.message)

    async def _want(self, who: _Who, uri: str, principal: Principal) -> None:
        """Notify `who`, a client of `principal`, of updates of a resource from now on.

        Raises:
            ToolcribError: as `Toolcrib.watch_resource` does, or `ToolFailed` if too many resources are watched.
        """
        key = _Key(
            principal.id, *(self._crib.view(principal, self._bundle).prompts_and_resources.locate(uri) or ("", uri))
        )
        watched = self._watched.get(key) or self._taken_in(key, principal)
        watched.waiting += 1
        try:
            async with watched.asking:
                if watched.source is None or watched.principal != principal:
                    await self._watch(key, uri, watched, principal)
                if self._watched.get(key) is not watched:  # displaced by others in the meantime
                    raise _no_room(principal)
                watched.wanted.setdefault(who, {})[uri] = principal
                if not self._may_have(key, principal):  # the rights may have changed while the source was asked
                    self._news.set()
        finally:
            watched.waiting -= 1
            self._tidy(key, watched)

    def _taken_in(self, key: _Key, principal: Principal) -> _Watched:
        if not self._watched.can_take(principal.id):
            raise _no_room(principal)
        watched = _Watched(principal)
        for other in self._watched.put(principal.id, key, watched):
            logger.info("ended a resource subscription of `%s` to make room for other principals", other.principal.id)
            other.wanted.clear()
            self._end(other)
        return watched

    async def _watch(self, key: _Key, uri: str, watched: _Watched, principal: Principal) -> None:
        source = self._source(key, principal)
        end = await self._crib.watch_resource(
            uri, partial(self._note, key), context=CallContext(principal, bundle=self._bundle)
        )
        if watched.end is not None:
            watched.end()
        watched.principal, watched.source, watched.end = principal, source, end

    def _source(self, key: _Key, principal: Principal) -> Source | None:
        entry = self._crib.view(principal, self._bundle).sources.get(key.source)
        return entry.source if entry is not None else None

    def _note(self, key: _Key) -> None:
        self._updated[key] = None
        self._news.set()

    async def _tell(self, key: _Key) -> None:
        if (watched := self._watched.get(key)) is None:
            return
        for uri in {uri for uris in watched.wanted.values() for uri in uris}:
            by = {who: uris[uri] for who, uris in watched.wanted.items() if uri in uris}
            by = {who: principal for who, principal in by.items() if self._may_have(key, principal)}
            connections = [who for who in by if isinstance(who, Connection)]
            await self._notifications.tell_of_update(uri, {*by.values()}, connections)

    def _may_have(self, key: _Key, principal: Principal) -> bool:
        return self._crib.peek(principal, self._bundle).access_to_item(key.source, key.uri) >= Access.ASK

    def _end_what_may_not_be_had(self) -> None:
        for key, watched in self._watched.items():
            asking = {principal for uris in watched.wanted.values() for principal in uris.values()}
            left = {principal for principal in asking if self._may_have(key, principal)}
            if left == asking:
                continue
            logger.info(
                "ended the subscription to `%s` of the source `%s`: `%s` lost access", key.uri, key.source, key.whose
            )
            of_all = {
                who: {uri: principal for uri, principal in uris.items() if principal in left}
                for who, uris in watched.wanted.items()
            }
            watched.wanted = {who: uris for who, uris in of_all.items() if uris}
            watched.principal = next((principal for principal in left), watched.principal)
            self._tidy(key, watched)

    def _replaced(self) -> list[tuple[_Key, _Watched]]:
        """Return the watched resources whose source was replaced by a configuration change."""
        return [
            (key, watched)
            for key, watched in self._watched.items()
            if watched.wanted
            and not watched.asking.locked()
            and (source := self._source(key, watched.principal)) is not None
            and source is not watched.source
        ]

    async def _ask_again(self, key: _Key, watched: _Watched) -> None:
        uri = next((uri for uris in watched.wanted.values() for uri in uris), None)
        if uri is None:  # all subscriptions ended since this task was started
            return
        watched.waiting += 1
        try:
            async with watched.asking:
                watched.source, watched.end = None, None
                await self._watch(key, uri, watched, watched.principal)
            self._note(key)
        except ToolcribError as error:
            logger.info("cannot subscribe to the resource %s again: %s", uri, error.message)
        finally:
            watched.waiting -= 1
            self._tidy(key, watched)

    def _release(self, who: _Who) -> None:
        for key, watched in self._watched.items():
            if watched.wanted.pop(who, None) is not None:
                self._tidy(key, watched)

    def _tidy(self, key: _Key, watched: _Watched) -> None:
        """Stop watching a resource that has no subscribers."""
        if watched.wanted or watched.waiting:
            return
        if self._watched.get(key) is watched:
            self._watched.pop(key)
        self._end(watched)

    def _end(self, watched: _Watched) -> None:
        if watched.end is not None:
            watched.end()
            watched.source, watched.end = None, None


def _no_room(principal: Principal) -> ToolFailed:
    return ToolFailed(
        f"`{principal.id}` has reached its share of the {MAX_WATCHED:,} resource subscriptions. "
        "End other subscriptions first."
    )


async def _side_by_side(tasks: Iterable[Callable[[], Awaitable[None]]]) -> None:
    places = anyio.Semaphore(ASKED_AT_ONCE)

    async def run(task: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await task()

    async with anyio.create_task_group() as running:
        for task in tasks:
            running.start_soon(run, task)
