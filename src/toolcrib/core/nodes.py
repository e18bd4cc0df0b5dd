"""The description of one category in the catalog's tree."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.core.tools import Path


@dataclass(frozen=True, slots=True)
class Node:
    """A category, which contains tools and other categories. Source: discovery protocol v0.1, "Node"."""

    path: Path
    title: str | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path; empty for the root."""
        return self.path[-1] if self.path else ""
