"""Resources of one server that somebody wants to be told of, asked for on every connection to it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskStatus
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import ValidationError

from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.extras import WholeResult, WireRequest
from toolcrib.sources.mcp.refusals import Closed

logger = logging.getLogger(__name__)

FIRST_WAIT_S = 1.0
LAST_WAIT_S = 60.0
"""A stream of updates that was lost is asked for again after the first, then after twice as long, up to the last. A
server that cannot be reached is tried again after the first, or once it may be."""


class Watching:
    """What is wanted, whatever becomes of the connections."""

    def __init__(self) -> None:
        self._updated: dict[str, list[Callable[[], None]]] = {}
        self._held: set[str] = set()
        """Those that the server has taken at some time since they are wanted."""
        self.changed = anyio.Event()
        """Set when something else is wanted than before; taken afresh each time."""
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
        """The server has taken `uri`: not for the first time, if nobody told of what changed in between."""
        if uri in self._held:
            self.tell(uri)
        self._held.add(uri)

    def tell(self, uri: str) -> None:
        """A resource has become another; it may be a part of the one that is wanted.

        Source: MCP, `ResourceUpdatedNotificationParams`.
        """
        slashes = [at for at, char in enumerate(uri) if char == "/"]
        wholes = {uri, *(uri[:at] for at in slashes), *(uri[: at + 1] for at in slashes)}
        for wanted in wholes & self._updated.keys():
            for updated in [*self._updated[wanted]]:
                updated()

    async def stay_connected(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        """While anything is wanted, start a server that went away again without being called.

        `connect` gives the connection there is, or a new one. Nothing happens where this is being done already.
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
    """Has the server of one connection tell of all that is wanted, as its era does."""

    watching: Watching
    connection: Connection
    answer_s: float
    """How long it may take to answer, in seconds."""
    _taken: frozenset[str] = frozenset()
    """What it tells of now."""
    _refused: dict[str, MCPError] = field(default_factory=dict[str, MCPError])
    _moved: anyio.Event = field(default_factory=anyio.Event)
    _is_over: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether the server says that it can."""
        capabilities = self.connection.session.server_capabilities
        return (
            capabilities is not None and capabilities.resources is not None and bool(capabilities.resources.subscribe)
        )

    async def taken(self, uri: str) -> None:
        """Wait until the server tells of `uri`, which is wanted.

        Raises:
            MCPError: it does not; `Closed` when the connection has ended.
        """
        while uri not in self._taken:
            if self._is_over:
                raise Closed
            if (error := self._refused.get(uri)) is not None:
                raise error
            await self._moved.wait()

    async def run(self) -> None:
        """Follow what is wanted, until cancelled."""
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
            logger.info("a server does not tell of changes of %s: %s", uri, refused[uri])
        self._taken = taken
        self._refused = {uri: error for uri, error in refused.items() if uri in self.watching.uris}
        self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    # -- the handshake era: a request for each, and another to end it -------------------------------------------------

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
            logger.info("a server answered %s oddly, which counts as a yes", method)
        return None

    # -- the newer era: one stream for all, asked for anew when they change --------------------------------------------

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
                if last is not None:  # only now, so that nothing is missed in between
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
        """Pass on what comes on one stream until it ends; started once the server has agreed to it, or not."""
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
    return MCPError(INVALID_PARAMS, f"The server does not agree to tell of changes of {uri}.")


async def first(*events: anyio.Event) -> None:
    """Wait for one of them."""

    async def wait(event: anyio.Event) -> None:
        await event.wait()
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for event in events:
            tasks.start_soon(wait, event)
