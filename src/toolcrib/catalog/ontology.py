"""Nodes and where they stand: the categories that tools hang in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from toolcrib.core.tools import ROOT, Path, Tool


@dataclass(frozen=True, slots=True)
class Node:
    """A category in the ontology. Source: discovery protocol v0.1, "Node"."""

    path: Path
    title: str | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else ""


def primary_path(tool: Tool) -> Path:
    """Where a tool stands when it stands in several places: below its source, in its category."""
    return (tool.source, *tool.metadata.category)


@dataclass(frozen=True)
class Ontology:
    """The nodes above a set of tools, derived from these tools alone: no other leaves a trace."""

    described: Mapping[Path, Node]
    """Nodes that somebody described; one without a tool below it does not show."""
    tools: Mapping[str, Tool]
    """By id: the tools that hang in it."""

    @cached_property
    def tools_at(self) -> Mapping[Path, tuple[str, ...]]:
        """Ids of the tools directly at a path, sorted."""
        at: defaultdict[Path, list[str]] = defaultdict(list)
        for tool_id, tool in self.tools.items():
            at[primary_path(tool)].append(tool_id)
        return {path: tuple(sorted(ids)) for path, ids in at.items()}

    @cached_property
    def counts(self) -> Mapping[Path, int]:
        """How many tools hang at or below a path; only paths with one at least, and the root."""
        counts: Counter[Path] = Counter({ROOT: 0})
        for path, ids in self.tools_at.items():
            for depth in range(len(path) + 1):
                counts[path[:depth]] += len(ids)
        return counts

    @cached_property
    def children(self) -> Mapping[Path, tuple[Path, ...]]:
        """The nodes directly below a path, sorted by name without regard to case."""
        below: defaultdict[Path, list[Path]] = defaultdict(list)
        for path in self.counts:
            if path:
                below[path[:-1]].append(path)
        return {path: tuple(sorted(paths, key=lambda p: (p[-1].casefold(), p[-1]))) for path, paths in below.items()}

    def __contains__(self, path: Path) -> bool:
        return path in self.counts

    def node(self, path: Path) -> Node:
        """The node at a path of this ontology, made up from its children where nobody described it."""
        node = self.described.get(path, Node(path))
        if node.summary:
            return node
        names = [child[-1] for child in self.children.get(path, ())] or [
            self.tools[tool_id].name for tool_id in self.tools_at.get(path, ())
        ]
        return replace(node, summary=_enumerate(names))

    def within(self, path: Path) -> Iterable[str]:
        """Ids of all tools at or below `path`."""
        for at, ids in self.tools_at.items():
            if at[: len(path)] == path:
                yield from ids


def _enumerate(names: list[str], limit: int = 6) -> str:
    shown = ", ".join(names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")
