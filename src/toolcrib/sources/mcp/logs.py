"""Sets the level from which a server logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from toolcrib.core.client import LOG_LEVELS, is_as_severe
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.extras import WholeResult, WireRequest

logger = logging.getLogger(__name__)

SET_LEVEL_S = 2.0
"""How long a server may take to change its level, in seconds. After that the call is sent anyway."""


def is_log_message(params: Mapping[str, Any]) -> bool:
    """Return whether a client can read the message. Source: MCP, `LoggingMessageNotificationParams`."""
    return params.get("level") in LOG_LEVELS and "data" in params


class Verbosity:
    """The level from which the server of one connection logs.

    A server of the newer era gets the level with every request. A server of the handshake era has one level for
    everything. Toolcrib sets it when a client that asked for log messages makes a call, and only ever lowers it. If it
    followed each caller, clients would lose each other's messages, and every call would need an additional request.
    Each client gets only the messages at its own level. Until a client asks for messages, the server uses its own
    default.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lowest: str | None = None

    async def reach(self, connection: Connection, level: str | None) -> None:
        """Make a server of the handshake era log from `level` on. If the server refuses, the call still goes on."""
        session = connection.session
        capabilities = session.server_capabilities
        if level is None or (self._lowest is not None and is_as_severe(level, self._lowest)):
            return
        if connection.is_modern or capabilities is None or capabilities.logging is None:
            return
        self._lowest = level
        try:
            with anyio.fail_after(SET_LEVEL_S):
                await session.send_request(WireRequest(method="logging/setLevel", params={"level": level}), WholeResult)
        except (MCPError, TimeoutError, ValidationError) as error:
            logger.info("source %s: its log level was not set: %s", self._name, error)
