"""What one session has besides the catalog: its editor's tools, and the MCP servers that the editor passed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from toolcrib.catalog.intake import Intake
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.tools import Tool
from toolcrib.sources.acp.diffs import Diff
from toolcrib.sources.acp.local import LocalSource
from toolcrib.sources.acp.source import EditorSource

logger = logging.getLogger(__name__)

TOLD_ASIDE = 5
"""Descriptors that are not offered, of one listing, that the log tells of."""


class SessionSources:
    """Servers are started at once, each by itself; the editor is asked when the first prompt comes.

    A rung that fails shows less, and says so where the catalog tells what is unavailable.
    """

    def __init__(self, tools: EditorSource | LocalSource, servers: Iterable[SourceEntry]) -> None:
        self.registry = ToolRegistry()
        self._intake = Intake(self.registry)
        self._tools = tools
        self._is_current = False
        """Whether what the registry has of `tools` is what was listed since they last changed."""
        self._looking = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._leaving = anyio.Event()
        for entry in servers:
            self._intake.add(entry.source, entry)

    async def run(self) -> None:
        """Until `leave`: have the servers run, and the editor's terminals looked after."""
        async with self._tools, self._intake, anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await self._leaving.wait()
            finally:
                self._tasks = None
            tasks.cancel_scope.cancel()

    def leave(self) -> None:
        """Let `run` end."""
        self._leaving.set()

    async def ready(self) -> None:
        """Return once every server has listed its tools or failed to."""
        await self._intake.ready()

    def tools_changed(self) -> None:
        """What the editor offers is another by now: looked at anew at once, and before the next prompt."""
        self._is_current = False
        if self._tasks is not None:
            self._tasks.start_soon(self.look)

    async def look(self) -> None:
        """List the editor's tools where they are not known, or may be others by now."""
        async with self._looking:
            if self._is_current:
                return
            self._is_current = True  # before it is asked: what changes meanwhile is looked at again
            entry = SourceEntry(self._tools, trusted=True, plain_names=True, identity=self._tools.name)
            try:
                listing = await self._tools.list_tools()
            except BaseException as error:
                self._is_current = False
                if not isinstance(error, SourceUnavailable):  # given up, as a rule, with the prompt that waited
                    raise
                logger.warning("%s", " ".join(filter(None, (error.message, error.diagnosis))))
                failed = replace(entry, status=SourceStatus.FAILED, reason=error.message, diagnosis=error.diagnosis)
                self.registry.put_source(failed, [])
                return
            for each in listing.set_aside[:TOLD_ASIDE]:
                logger.warning("`%s` of the editor is not offered: %s", each.name, each.reason)
            if more := listing.set_aside[TOLD_ASIDE:]:
                logger.warning("%d more of the editor are not offered, the first of them `%s`", len(more), more[0].name)
            for warning in listing.warnings:
                logger.warning("the editor: %s", warning)
            ready = replace(
                entry,
                status=SourceStatus.READY,
                title=listing.title,
                summary=listing.summary,
                set_aside=listing.set_aside,
                warnings=listing.warnings,
                nodes=tuple(replace(node, path=(entry.name, *node.path)) for node in listing.nodes),
            )
            self.registry.put_source(ready, listing.tools)

    async def diffs(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[Diff, ...]:
        """What a call would change in which files; nothing where that is not known before."""
        if tool.source != self._tools.name or not isinstance(self._tools, EditorSource):
            return ()
        return await self._tools.diffs(tool, arguments)
