"""Categories that somebody set up, and which tools hang in them besides below their sources."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property

from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.nodes import Node
from toolcrib.core.tools import Path, Tool

STANDARD: Mapping[str, Node] = {
    node.name: node
    for node in (
        Node(("code",), "Code", "Read, search, edit, refactor and analyse source code", ("code",)),
        Node(("vcs",), "Version control", "History, branches, commits, diffs and reviews", ("vcs",)),
        Node(("build",), "Build", "Compile, test, lint, package and run", ("build",)),
        Node(("research",), "Research", "Search the web and documents, fetch pages, look things up", ("research",)),
        Node(("publish",), "Publish", "Write, format, release, deploy and share", ("publish",)),
        Node(("utility",), "Utility", "Time, arithmetic, conversion, files and other small things", ("utility",)),
    )
}
"""Top categories that anybody may use: one of these names is described like this unless its owner says otherwise.

Source: ADR-001, the standard tool categories.
"""


@dataclass(frozen=True)
class Category:
    """A node, and how tools come to hang in it."""

    path: Path
    title: str | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Ids of tools; `*` stands for any characters, `?` for one, `[...]` for one of several."""
    tagged: tuple[str, ...] = ()
    """Tools that carry one of these tags hang in it as well."""
    also_under: tuple[Path, ...] = ()
    """Nodes that it hangs under besides the one above it."""

    @cached_property
    def node(self) -> Node:
        standard = STANDARD.get(self.path[0], Node(self.path)) if len(self.path) == 1 else Node(self.path)
        return Node(
            self.path, self.title or standard.title, self.summary or standard.summary, self.tags or standard.tags
        )

    def holds(self, tool: Tool) -> bool:
        """Whether `tool` hangs directly in it."""
        if not self.tagged_with.isdisjoint(tool.metadata.tags):
            return True
        return self._ids is not None and self._ids.fullmatch(tool.id) is not None

    @cached_property
    def tagged_with(self) -> frozenset[str]:
        return frozenset(self.tagged)

    @cached_property
    def _ids(self) -> re.Pattern[str] | None:
        return re.compile("|".join(translate(pattern) for pattern in self.tools)) if self.tools else None


class Categories:
    """All of them, checked: a directed acyclic graph over whatever nodes there are.

    Where a tool hangs depends on the tool alone, so one that is hidden moves no other.
    """

    def __init__(self, given: Iterable[Category] = ()) -> None:
        """In the order in which they claim tools.

        Raises:
            InvalidConfig: two have the same path, one has none, or one hangs below itself.
        """
        self.given = tuple(given)
        self._by_path = {category.path: category for category in self.given}
        for category in self.given:
            if not category.path or not all(category.path):
                raise InvalidConfig("a category without a name cannot be reached")
            if self._by_path[category.path] is not category:
                raise InvalidConfig(f"the category {_shown(category.path)} is set up twice")
        for category in self.given:
            if category.also_under and (cycle := self._cycle(category.path)):
                raise InvalidConfig(f"a category cannot hang below itself: {' > '.join(map(_shown, cycle))}")
        self._known: dict[str, tuple[Tool, tuple[Path, ...]]] = {}

    def __contains__(self, path: Path) -> bool:
        return path in self._by_path

    def with_one(self, category: Category) -> Categories:
        """These and one more; raises as they do."""
        return Categories((*self.given, category))

    @cached_property
    def nodes(self) -> Mapping[Path, Node]:
        return {category.path: category.node for category in self.given}

    @cached_property
    def links(self) -> Mapping[Path, tuple[Path, ...]]:
        """By node, those that hang under it besides the ones below it."""
        links: defaultdict[Path, list[Path]] = defaultdict(list)
        for category in self.given:
            for above in category.also_under:
                links[above].append(category.path)
        return {above: tuple(dict.fromkeys(paths)) for above, paths in links.items()}

    @cached_property
    def digest(self) -> str:
        """Equal for two that say the same."""
        return digest(
            [
                [
                    list(c.path),
                    c.title,
                    c.summary,
                    list(c.tags),
                    list(c.tools),
                    list(c.tagged),
                    [*map(list, c.also_under)],
                ]
                for c in self.given
            ]
        )

    def places(self, tool: Tool) -> tuple[Path, ...]:
        """Where `tool` hangs, the primary path first: the categories that claim it, then below its source."""
        own = (tool.source, *tool.metadata.category)
        if not self.given:
            return (own,)
        known = self._known.get(tool.id)
        if known is not None and known[0] is tool:
            return known[1]
        claimed = dict.fromkeys((*(category.path for category in self.given if category.holds(tool)), own))
        # Whatever hangs in a node hangs below those above it anyway.
        places = tuple(p for p in claimed if not any(len(o) > len(p) and o[: len(p)] == p for o in claimed))
        self._known[tool.id] = tool, places
        return places

    def reaches(self, tool: Tool) -> tuple[Path, ...]:
        """`places`, and by their primary paths the nodes that those above it hang under as well."""
        found = dict.fromkeys(self.places(tool))
        waiting = [*found] if self.links else []
        while waiting:
            path = waiting.pop()
            upper = (node for depth in range(1, len(path) + 1) for node in self._also_under(path[:depth]))
            new = dict.fromkeys(node for node in upper if node not in found)
            found |= new
            waiting += new
        return tuple(found)

    def primary(self, path: Path) -> Path:
        """The primary path of the node that `path` leads to, which may be through links."""
        here: Path = ()
        for name in path:
            child = (*here, name)
            linked = (link for link in self.links.get(here, ()) if link[-1] == name)
            here = child if child in self else next(linked, child)
        return here

    def _also_under(self, path: Path) -> tuple[Path, ...]:
        category = self._by_path.get(path)
        return category.also_under if category is not None else ()

    def _cycle(self, start: Path) -> tuple[Path, ...]:
        """The way down from `start` to itself; empty where there is none."""
        below: dict[Path, Path] = {}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for above in (*self._also_under(here), *([here[:-1]] if here else ())):
                if above == start:
                    way = [start, here]
                    while way[-1] != start:
                        way.append(below[way[-1]])
                    return tuple(way)
                if above not in below:
                    below[above] = here
                    waiting.append(above)
        return ()


NO_CATEGORIES = Categories()


def _shown(path: Path) -> str:
    return "/".join(path)[:200] or "the root"
