"""How tools come in: each source is listed in the background, and again whenever it says that its list has changed."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import anyio

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.core.errors import ToolcribError
from toolcrib.sources.base import Source

logger = logging.getLogger(__name__)

LISTED_AT_ONCE = 8
"""Sources that are started and listed side by side; more at once only make each of them later."""

FIRST_RETRY_S = 5.0
LAST_RETRY_S = 300.0
"""A source that could not be listed is tried again after the first, then after twice as long, up to the last."""


class Intake:
    """Keeps the registry in step with its sources, each in a task of its own: one that fails takes nothing with it."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._starts = anyio.CapacityLimiter(LISTED_AT_ONCE)

    async def attend(self, source: Source, entry: SourceEntry, listed: anyio.Event) -> None:
        """Enter `source`, publish its listing and keep it current; once cancelled, let go of its tools and leave it.

        `entry` holds what is known beforehand; a title and summary there stand before those the source sends. `listed`
        is set once the source has listed its tools, or failed to, for the first time. A first listing that fails is
        tried again, less and less often; a later one that fails leaves the tools as last seen, for the next call to
        start the source anew or to say why it cannot.
        """
        try:
            async with source:
                wait_s = FIRST_RETRY_S
                while not await self._list(source, entry, known=False):
                    listed.set()
                    await anyio.sleep(wait_s)
                    wait_s = min(2 * wait_s, LAST_RETRY_S)
                listed.set()
                async for _ in source.changes():
                    await self._list(source, entry, known=True)
        except Exception as error:  # a source that breaks its contract must not take the others with it
            logger.exception("source %s broke off", source.name)
            self._fail(entry, f"it broke off: {type(error).__name__}: {error}", known=False)
            listed.set()
        except BaseException:
            self._registry.drop_source(source.name)
            raise

    async def _list(self, source: Source, entry: SourceEntry, *, known: bool) -> bool:
        began = time.monotonic()
        try:
            async with self._starts:
                listing = await source.list_tools()
        except ToolcribError as error:
            self._fail(entry, " ".join((error.message, *error.hints)), known=known)
            return False
        self._registry.put_source(
            replace(
                entry,
                status=SourceStatus.READY,
                title=entry.title or listing.title,
                summary=entry.summary or listing.summary,
                set_aside=listing.set_aside,
                warnings=listing.warnings,
                listed_in_s=time.monotonic() - began,
            ),
            listing.tools,
        )
        return True

    def _fail(self, entry: SourceEntry, reason: str, *, known: bool) -> None:
        logger.warning("source %s is unavailable: %s", entry.name, reason)
        self._registry.put_source(replace(entry, status=SourceStatus.FAILED, reason=reason), None if known else ())
