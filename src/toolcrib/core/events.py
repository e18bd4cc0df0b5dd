"""What happened, as frozen values, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.core.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolRegistered:
    """A tool is in the catalog that was not there before. Source: ADR-001, `OnToolRegistered`."""

    tool: Tool


@dataclass(frozen=True, slots=True)
class ToolReplaced:
    """A tool's definition changed under the same id."""

    old: Tool
    new: Tool


@dataclass(frozen=True, slots=True)
class ToolUnregistered:
    """A tool left the catalog. Source: ADR-001, `OnToolUnregistered`."""

    tool: Tool


@dataclass(frozen=True, slots=True)
class CatalogPublished:
    """A new state is what readers see from now on; told last of all events of that publication."""

    version: int


Event = ToolRegistered | ToolReplaced | ToolUnregistered | CatalogPublished

Listener = Callable[[Event], None]
"""Told of events after their publication, in order, outside any lock."""
