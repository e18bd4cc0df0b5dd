"""Tool calls through the gateway, from the client's request to an answer that fits the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import HandlerResult

from toolcrib.config import DEFAULT_ROOM, Room
from toolcrib.core.principal import CallContext
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import ProgressListener
from toolcrib.surfaces.mcp_gateway.answers import whole
from toolcrib.surfaces.mcp_gateway.clients import Clients
from toolcrib.surfaces.mcp_gateway.connections import Ctx, principal_of
from toolcrib.surfaces.mcp_gateway.large import LargeResults
from toolcrib.surfaces.mcp_gateway.results import fitted


class Calls:
    """Runs tools for clients of both eras. Questions and progress of the tools go to the client."""

    def __init__(self, crib: Toolcrib, clients: Clients, large: LargeResults) -> None:
        self._crib = crib
        self._clients = clients
        self._large = large
        self.room: Room = DEFAULT_ROOM
        """The maximum size of an answer."""

    async def call(
        self,
        ctx: Ctx,
        arguments: Mapping[str, Any],
        *,
        operation: str = "call_tool",
        keeps_structure: bool = False,
    ) -> HandlerResult:
        """Perform `operation`, which is one of `CALLS`, with these `arguments`. `keeps_structure`: see `LargeResults`.

        Raises:
            ToolcribError: the operation failed.
        """

        async def send(context: CallContext, progress: ProgressListener | None) -> Mapping[str, Any]:
            return (await self._crib.perform(operation, arguments, context=context, progress=progress)).to_wire()

        answer = await self._clients.carry(ctx, send)
        if answer.get("resultType") == "input_required":
            return dict(answer)
        answer = self._large.fitted(answer, self.room, principal_of(ctx), keeps_structure=keeps_structure)
        return whole(fitted(answer, ctx.protocol_version))
