"""The sources that one session adds to the catalog: the editor's tools and the MCP servers that the editor passed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.intake import Intake
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.tools import Tool
from toolcrib.sources.acp.diffs import Diff
from toolcrib.sources.acp.editor_source import EditorSource
from toolcrib.sources.acp.local import LocalSource

logger = logging.getLogger(__name__)

MAX_LOGGED = 5
"""How many ignored tools of one listing the log names."""


class SessionSources:
    """Starts each server immediately and independently. The editor's tools are listed at the first prompt.

    If a listing fails, the session offers fewer tools and the catalog reports the source as unavailable.
    """

    def __init__(self, tools: EditorSource | LocalSource, servers: Iterable[SourceEntry]) -> None:
        self.registry = ToolRegistry()
        self._intake = Intake(self.registry)
        self._tools = tools
        self._is_current = False
        """Whether the registry holds the editor's tools as they were last listed, with no change reported since."""
        self._listing = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._leaving = anyio.Event()
        for entry in servers:
            self._intake.add(entry.source, entry)

    async def run(self) -> None:
        """Run the servers and manage the editor's terminals, until `leave` is called."""
        async with self._tools, self._intake, anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await self._leaving.wait()
            finally:
                self._tasks = None
            tasks.cancel_scope.cancel()

    def leave(self) -> None:
        """Make `run` return."""
        self._leaving.set()

    async def ready(self) -> None:
        """Wait until every server has listed its tools or has failed."""
        await self._intake.ready()

    def tools_changed(self) -> None:
        """List the editor's changed tools again now, or before the next prompt if `run` is not active."""
        self._is_current = False
        if self._tasks is not None:
            self._tasks.start_soon(self.list_editor_tools)

    async def list_editor_tools(self) -> None:
        """List the editor's tools, unless they are already listed and unchanged."""
        async with self._listing:
            if self._is_current:
                return
            self._is_current = True  # set before the request, so that a change during it causes a new listing
            entry = SourceEntry(self._tools, trusted=True, plain_names=True, identity=self._tools.name)
            try:
                listing = await self._tools.list_tools()
            except BaseException as error:
                self._is_current = False
                if not isinstance(error, SourceUnavailable):  # usually a cancelled prompt
                    raise
                logger.warning("%s", " ".join(filter(None, (error.message, error.diagnosis))))
                failed = replace(entry, status=SourceStatus.FAILED, reason=error.message, diagnosis=error.diagnosis)
                self.registry.register_source(failed, [])
                return
            for each in listing.set_aside[:MAX_LOGGED]:
                logger.warning("the editor's tool `%s` is ignored: %s", each.name, each.reason)
            if more := listing.set_aside[MAX_LOGGED:]:
                logger.warning("%d more of the editor's tools are ignored, the first is `%s`", len(more), more[0].name)
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
            self.registry.register_source(ready, listing.tools)

    async def diffs(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[Diff, ...]:
        """Return the file changes that a call would make. Empty if they are not known before the call."""
        if tool.source != self._tools.name or not isinstance(self._tools, EditorSource):
            return ()
        return await self._tools.diffs(tool, arguments)
