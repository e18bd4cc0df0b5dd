"""Learns that a server's lists have changed: from a notification, or from a subscribed stream."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from toolcrib.sources.mcp.connection import Connection

logger = logging.getLogger(__name__)

LIST_CHANGED = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
"""The notifications that report a changed list."""

FIRST_WAIT_S = 1.0
LAST_WAIT_S = 60.0
"""A lost stream of changes is requested again after the first wait, then after twice as long, up to the last wait."""


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
