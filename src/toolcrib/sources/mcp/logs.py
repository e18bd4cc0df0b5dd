"""How much a server is asked to log."""

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
"""How long a server may take to change its level before the call is sent all the same, in seconds."""


def is_log_message(params: Mapping[str, Any]) -> bool:
    """Whether a client could read it. Source: MCP, `LoggingMessageNotificationParams`."""
    return params.get("level") in LOG_LEVELS and "data" in params


class Verbosity:
    """From which level on the server of one connection logs.

    A server of the newer era is told with every request. One of the handshake era has one level for all that it does.
    It is set when a client that asked for messages calls, and only ever to a lower one: were it to follow whoever
    calls, clients would take each other's messages away, and every call would cost a request more. Each client is told
    only what it wants itself. While no client has asked for messages, the server goes by its own judgement.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lowest: str | None = None

    async def reach(self, connection: Connection, level: str | None) -> None:
        """Have a server of the handshake era log from `level` on; one that does not want to does not fail the call."""
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
