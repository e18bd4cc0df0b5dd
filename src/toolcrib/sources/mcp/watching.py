"""Follows the changes of a server across reconnects: of its lists, and of single resources."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from pydantic import ValidationError

from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.listing import WholeResult, WireRequest
from toolcrib.sources.mcp.refused_requests import Closed

logger = logging.getLogger(__name__)

LIST_CHANGED = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
"""The notifications that report a changed list."""

FIRST_WAIT_S = 1.0
LAST_WAIT_S = 60.0
"""A lost stream is requested again after the first wait, then after twice as long, up to the last wait. A server that
cannot be reached is retried after the first wait, or when it may be called again."""


async def follow_changes(connection: Connection, name: str, changed: Callable[[], None]) -> None:
    """Call `changed` for each event on the stream, until cancelled. `name` is the server's.

    Servers of the newer era report changes only on this stream. A lost stream is requested again.
    """
    session = connection.session
    offered = session.server_capabilities
    if not connection.is_modern or offered is None:
        return
    tools = offered.tools is not None and bool(offered.tools.list_changed)
    prompts = offered.prompts is not None and bool(offered.prompts.list_changed)
    resources = offered.resources is not None and bool(offered.resources.list_changed)
    if not (tools or prompts or resources):
        return
    wait_s = FIRST_WAIT_S
    while True:
        try:
            async with listen(
                session,
                tools_list_changed=tools,
                prompts_list_changed=prompts,
                resources_list_changed=resources,
            ) as events:
                async for _ in events:
                    wait_s = FIRST_WAIT_S
                    changed()
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            logger.info("source %s: its stream of changes was lost: %s", name, error)
        await anyio.sleep(wait_s)
        wait_s = min(2 * wait_s, LAST_WAIT_S)
        changed()  # changes in between were missed


class Watching:
    """The resources that clients subscribe to, kept across connections."""

    def __init__(self) -> None:
        self._updated: dict[str, list[Callable[[], None]]] = {}
        self._held: set[str] = set()
        """The resources that the server accepted at some time since they were wanted."""
        self.changed = anyio.Event()
        """Set when the set of wanted resources changes. Each change makes a new event."""
        self._stays_connected = False

    @property
    def uris(self) -> frozenset[str]:
        return frozenset(self._updated)

    def want(self, uri: str, updated: Callable[[], None]) -> None:
        told = self._updated.setdefault(uri, [])
        told.append(updated)
        if len(told) == 1:
            self._change()

    def drop(self, uri: str, updated: Callable[[], None]) -> None:
        told = self._updated.get(uri, [])
        if updated in told:
            told.remove(updated)
            if not told:
                del self._updated[uri]
                self._held.discard(uri)
                self._change()

    def hold(self, uri: str) -> None:
        """Note that the server accepted `uri`. If it had accepted it before, changes in between were missed, so report
        one."""
        if uri in self._held:
            self.tell(uri)
        self._held.add(uri)

    def tell(self, uri: str) -> None:
        """Report that a resource changed. `uri` may be a part of a wanted resource.

        Source: MCP, `ResourceUpdatedNotificationParams`.
        """
        slashes = [at for at, char in enumerate(uri) if char == "/"]
        wholes = {uri, *(uri[:at] for at in slashes), *(uri[: at + 1] for at in slashes)}
        for wanted in wholes & self._updated.keys():
            for updated in [*self._updated[wanted]]:
                updated()

    async def stay_connected(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        """While any resource is wanted, restart a server that stopped, without a call.

        `connect` returns the current connection or a new one. Nothing happens if this method is already running.
        """
        if self._stays_connected:
            return
        self._stays_connected = True
        while self.uris:
            changed = self.changed
            try:
                connection = await connect()
                await first(connection.dispatcher.ended, changed)
            except SourceUnavailable as error:
                await anyio.sleep(max(FIRST_WAIT_S, error.retry_after_s or 0.0))
        self._stays_connected = False

    def _change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


@dataclass(slots=True, eq=False)
class Upkeep:
    """Subscribes to all wanted resources on one connection, in the way of the server's protocol era."""

    watching: Watching
    connection: Connection
    answer_s: float
    """How long the server may take to answer, in seconds."""
    _taken: frozenset[str] = frozenset()
    """The resources whose changes the server reports now."""
    _refused: dict[str, MCPError] = field(default_factory=dict[str, MCPError])
    _moved: anyio.Event = field(default_factory=anyio.Event)
    _is_over: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether the server declares that it supports subscriptions."""
        capabilities = self.connection.session.server_capabilities
        return (
            capabilities is not None and capabilities.resources is not None and bool(capabilities.resources.subscribe)
        )

    async def taken(self, uri: str) -> None:
        """Wait until the server reports changes of `uri`, which is wanted.

        Raises:
            MCPError: the server does not; `Closed` if the connection has ended.
        """
        while uri not in self._taken:
            if self._is_over:
                raise Closed
            if (error := self._refused.get(uri)) is not None:
                raise error
            await self._moved.wait()

    async def run(self) -> None:
        """Follow the wanted resources until cancelled."""
        try:
            if not self.is_possible:
                return
            if self.connection.is_modern:
                await self._follow_by_stream()
            else:
                await self._follow_one_by_one()
        finally:
            self._is_over = True
            self._move()

    def _settle(self, taken: frozenset[str], refused: dict[str, MCPError]) -> None:
        for uri in taken - self._taken:
            self.watching.hold(uri)
        for uri in refused.keys() - self._refused.keys():
            logger.info("a server does not report changes of %s: %s", uri, refused[uri])
        self._taken = taken
        self._refused = {uri: error for uri, error in refused.items() if uri in self.watching.uris}
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    # -- the handshake era: one request to subscribe to each resource, one to unsubscribe ------------------------------

    async def _follow_one_by_one(self) -> None:
        while True:
            changed, wanted = self.watching.changed, self.watching.uris
            for uri in self._taken - wanted:
                self._taken -= {uri}
                if (error := await self._ask("resources/unsubscribe", uri)) is not None:
                    logger.info("a server did not end a subscription: %s", error)
            self._settle(self._taken, self._refused)
            for uri in wanted - self._taken - self._refused.keys():
                if (error := await self._ask("resources/subscribe", uri)) is None:
                    self._settle(self._taken | {uri}, self._refused)
                else:
                    self._settle(self._taken, self._refused | {uri: error})
            await changed.wait()

    async def _ask(self, method: str, uri: str) -> MCPError | None:
        request = WireRequest(method=method, params={"uri": uri})
        try:
            with anyio.fail_after(self.answer_s):
                await self.connection.session.send_request(request, WholeResult)
        except MCPError as error:
            return error
        except TimeoutError:
            return MCPError(INVALID_PARAMS, f"The server did not answer {method} within {self.answer_s:g} s.")
        except ValidationError:
            logger.info("a server answered %s with an invalid result, which counts as success", method)
        return None

    # -- the newer era: one stream for all resources, requested again when they change ---------------------------------

    async def _follow_by_stream(self) -> None:
        wait_s = FIRST_WAIT_S
        async with anyio.create_task_group() as tasks:
            last: anyio.CancelScope | None = None
            while True:
                changed, wanted, lost = self.watching.changed, self.watching.uris, anyio.Event()
                stream = anyio.CancelScope()
                if wanted:
                    await tasks.start(self._stream, wanted, stream, lost)
                else:
                    self._settle(wanted, {})
                if last is not None:  # only now, so that no change is missed in between
                    last.cancel()
                last = stream
                if not lost.is_set():
                    wait_s = FIRST_WAIT_S
                    await first(changed, lost)
                if lost.is_set():
                    self._taken = frozenset()
                    with anyio.move_on_after(wait_s):
                        await changed.wait()
                    wait_s = min(2 * wait_s, LAST_WAIT_S)

    async def _stream(
        self,
        wanted: frozenset[str],
        scope: anyio.CancelScope,
        lost: anyio.Event,
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Pass on the events of one stream until it ends. The task counts as started once the server has accepted or
        refused."""
        started = False
        try:
            with scope, anyio.fail_after(self.answer_s) as patience:
                async with listen(self.connection.session, resource_subscriptions=sorted(wanted)) as events:
                    patience.deadline = float("inf")
                    agreed = wanted.intersection(events.honored.resource_subscriptions or ())
                    left = {uri: _declined(uri) for uri in wanted - agreed}
                    self._settle(agreed, left)
                    started = True
                    task_status.started()
                    async for event in events:
                        if isinstance(event, ResourceUpdated):
                            self.watching.tell(event.uri)
        except (MCPError, SubscriptionLost, TimeoutError) as error:
            if not started:
                known = error if isinstance(error, MCPError) else None
                self._settle(frozenset(), {uri: known or _declined(uri) for uri in wanted})
            logger.info("a stream of updates was lost: %s", error)
        finally:
            lost.set()
            if not started:
                task_status.started()


def _declined(uri: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"The server refused to report changes of {uri}.")


async def first(*events: anyio.Event) -> None:
    """Wait for the first of the events."""

    async def wait(event: anyio.Event) -> None:
        await event.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for event in events:
            tasks.start_soon(wait, event)
