"""Lists prompts and resources in the background if a server is slow to list them, while its tools are already used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from toolcrib.sources.base import NO_EXTRAS, Extras
from toolcrib.sources.mcp.connection import Connection
from toolcrib.sources.mcp.extras import list_extras

logger = logging.getLogger(__name__)

EXTRAS_WAIT_S = 2.0
"""How long the tools of a server wait for its prompts and resources, in seconds."""

InBackground = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""Runs a coroutine in the background."""


class LateExtras:
    """The prompts and resources of one connection. Tools do not wait for them, and late ones are reported as a
    change."""

    def __init__(
        self, name: str, *, page_timeout_s: float, in_background: InBackground, came: Callable[[], None]
    ) -> None:
        """`name` is the server's. `came` is called when late prompts and resources are there for the next listing."""
        self._name = name
        self._page_timeout_s = page_timeout_s
        self._in_background = in_background
        self._came = came
        self._late: tuple[Extras, tuple[str, ...]] | None = None
        """What arrived after the tools were listed, until the next listing takes it."""
        self._is_waiting = False

    async def list(self, connection: Connection) -> tuple[Extras, tuple[str, ...]]:
        """Return what the server offers besides tools, and warnings about it, if it comes soon; otherwise nothing for
        now.

        Raises:
            MCPError: the connection has ended.
        """
        if self._late is not None:
            late, self._late = self._late, None
            return late
        with anyio.move_on_after(EXTRAS_WAIT_S):
            return await list_extras(connection, page_timeout_s=self._page_timeout_s)
        if not self._is_waiting:
            self._is_waiting = True
            self._in_background(partial(self._wait, connection))
        return NO_EXTRAS, ()

    async def _wait(self, connection: Connection) -> None:
        try:
            self._late = await list_extras(connection, page_timeout_s=self._page_timeout_s)
        except MCPError as error:
            logger.info(
                "source %s: the connection ended before it listed its prompts and resources: %s", self._name, error
            )
        else:
            self._came()
        finally:
            self._is_waiting = False
