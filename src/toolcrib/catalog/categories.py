"""Configured categories, and which tools belong to them in addition to the categories of their sources."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import ref

from toolcrib.catalog.access import ANY, UNKNOWN
from toolcrib.catalog.id_patterns import Patterns
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Node, Path, Tool
from toolcrib.core.values import read_path, read_paths, read_strings

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
"""Standard top-level categories. A category with one of these names gets this description unless its owner sets one.

Source: ADR-001, the standard tool categories.
"""


_LEAST_KNOWN = 1_000
"""How many cached places there are before the first removal of tools that no longer exist."""


@dataclass(frozen=True)
class Category:
    """A configured category, and which tools belong to it.

    Values are read as in `mcp.json`: a lone string counts as a list of one, and `"Storage/Buckets"` as a path.

    Raises:
        InvalidConfig: a value has the wrong form.
    """

    path: Path
    title: str | None = None
    summary: str = ""
    tags: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    """Ids of tools that belong to it; `*` matches any characters, `?` one character, `[...]` one of several."""
    tagged: tuple[str, ...] = ()
    """Tools with one of these tags belong to it, too."""
    also_under: tuple[Path, ...] = ()
    """Other categories in which it also appears, in addition to its parent."""
    group: bool = False
    """Whether the catalog can show its tools in groups if there are more than a dozen. Otherwise a list shows all tools
    in the category itself, in pages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", read_path(self.path, "path"))
        object.__setattr__(self, "also_under", read_paths(self.also_under, "also_under"))
        for key in ("tags", "tools", "tagged"):
            object.__setattr__(self, key, read_strings(getattr(self, key), key))

    @cached_property
    def node(self) -> Node:
        standard = STANDARD.get(self.path[0], Node(self.path)) if len(self.path) == 1 else Node(self.path)
        return Node(
            self.path, self.title or standard.title, self.summary or standard.summary, self.tags or standard.tags
        )

    def possible_tools(self) -> Iterator[Tool]:
        """Yield a placeholder tool for each pattern and tag, as an example of a tool that could belong to it."""
        for pattern in self.tools:
            source, _, name = ANY.sub(UNKNOWN, pattern).partition(".")
            yield Tool(source, name)
        for tag in self.tagged:
            yield Tool(UNKNOWN, UNKNOWN, metadata=ToolMetadata(tags=(tag,)))


class Categories:
    """All configured categories, checked: they form a directed acyclic graph.

    The places of a tool depend only on the tool itself. So hiding one tool never moves a different tool.
    """

    def __init__(self, given: Iterable[Category] = ()) -> None:
        """Check and link `given`. Their order is the order in which they claim tools.

        Raises:
            InvalidConfig: two categories have the same path, one has no path, or one is below itself.
        """
        self.given = tuple(given)
        self._by_path = {category.path: category for category in self.given}
        for category in self.given:
            if not category.path or not all(category.path):
                raise InvalidConfig("a category must have a name")
            if self._by_path[category.path] is not category:
                raise InvalidConfig(f"duplicate category {_shown(category.path)}")
        self._all_paths = {path for category in self.given for path in ways_to(category.path)}
        self.links: Mapping[Path, tuple[Path, ...]] = {}
        """By path, the categories that are linked below it in addition to its children."""
        self._above: Mapping[Path, tuple[Path, ...]] = {}
        self._link()
        for category in self.given:
            if category.also_under and (cycle := self._cycle(category.path)):
                raise InvalidConfig(f"a category cannot be below itself: {' > '.join(map(_shown, cycle))}")
        self._claims = _Claims(self.given)
        self._known: dict[int, tuple[ref[Tool], tuple[Path, ...]]] = {}
        """The places of tools, by `id()`, because several tools can have the same tool id. The references are weak."""
        self._most_known = _LEAST_KNOWN

    def __contains__(self, path: Path) -> bool:
        return path in self._by_path

    @cached_property
    def nodes(self) -> Mapping[Path, Node]:
        return {category.path: category.node for category in self.given}

    @cached_property
    def digest(self) -> str:
        """A digest that is equal if and only if two sets of categories say the same."""
        return digest([[*_words(c), list(c.tools), list(c.tagged), [*map(list, c.also_under)]] for c in self.given])

    def digest_of(self, nodes: Container[Path]) -> str:
        """Return a digest of what the categories say about `nodes`. Other nodes and claimed tools do not matter."""
        return digest([[*_words(c), [*map(list, self.above(c.path))]] for c in self.given if c.path in nodes])

    def places(self, tool: Tool) -> tuple[Path, ...]:
        """Return the paths of `tool`, primary path first: categories that claim it, its own category, its source's."""
        if not self.given:
            return self._found(tool) if tool.metadata.category else ((tool.source, *tool.own_path),)
        key = id(tool)
        known = self._known.get(key)
        if known is not None and known[0]() is tool:
            return known[1]
        places = self._found(tool)
        if len(self._known) >= self._most_known:
            self._drop_unused()
        self._known[key] = ref(tool), places
        return places

    def reaches(self, tool: Tool) -> tuple[Path, ...]:
        """Return the places of `tool`, and the primary paths of all categories that they are linked to."""
        return self.reached(self.places(tool))

    def reached(self, places: Collection[Path]) -> tuple[Path, ...]:
        """Return `places`, and the primary paths of all categories to which they or their parents are linked."""
        found = dict.fromkeys(places)
        waiting = [*found] if self.links else []
        while waiting:
            upper = (node for way in ways_to(waiting.pop()) for node in self.above(way))
            new = dict.fromkeys(node for node in upper if node not in found)
            found |= new
            waiting += new
        return tuple(found)

    def primary(self, path: Path) -> Path:
        """Return the primary path of the category that `path` leads to. `path` can lead through links."""
        here: Path = ()
        for name in path:
            child = (*here, name)
            linked = (link for link in self.links.get(here, ()) if link[-1] == name)
            here = child if child in self._all_paths else next(linked, child)
        return here

    def above(self, path: Path) -> tuple[Path, ...]:
        """Return the primary paths of the categories under which `path` is linked, in addition to its parent."""
        return self._above.get(path, ())

    def leads_to_one(self, path: Path) -> bool:
        """Return whether a configured category is at `path` or below it."""
        return path in self._all_paths

    def may_group(self, path: Path) -> bool:
        """Return whether the owner allows groups in the category at `path`."""
        return path in self._by_path and self._by_path[path].group

    def is_unclaimed_at(self, tool: Tool, path: Path) -> bool:
        """Return whether `tool` is at `path` only because `path` is the category of its source."""
        if path != (tool.source,) or tool.own_path or tool.metadata.category == path:
            return False
        return path not in self._by_path or path not in self._claims.of(tool)

    def _found(self, tool: Tool) -> tuple[Path, ...]:
        own = (tool.source, *tool.own_path)
        said = (tool.metadata.category,) if tool.metadata.category else ()
        claimed = dict.fromkeys((*self._claims.of(tool), *said, own))
        if len(claimed) == 1:
            return (own,)
        # A tool in a category is below the categories above it anyway, so drop those.
        depths = {len(path) for path in claimed}
        above = {path[:depth] for path in claimed for depth in depths if depth < len(path)}
        return tuple(path for path in claimed if path not in above)

    def _drop_unused(self) -> None:
        """Drop cached places of tools that no longer exist. It runs rarely, so the cost per tool is small."""
        self._known = {key: known for key, known in [*self._known.items()] if known[0]() is not None}
        self._most_known = max(_LEAST_KNOWN, 2 * len(self._known))

    def _link(self) -> None:
        """Resolve the links. A link can lead through a different link, so this repeats until nothing changes."""
        above = {category.path: category.also_under for category in self.given if category.also_under}
        for _ in range(len(above) + 1):
            links: defaultdict[Path, dict[Path, None]] = defaultdict(dict)
            for path, uppers in above.items():
                for upper in uppers:
                    links[upper][path] = None
            self._above, self.links = above, {upper: tuple(paths) for upper, paths in links.items()}
            above = {path: tuple(map(self.primary, self._by_path[path].also_under)) for path in above}
            if above == self._above:
                return

    def _cycle(self, start: Path) -> tuple[Path, ...]:
        """Return the way down from `start` to itself; empty if there is no cycle."""
        below: dict[Path, Path] = {}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for above in (*self.above(here), *([here[:-1]] if here else ())):
                if above == start:
                    way = [start, here]
                    while way[-1] != start:
                        way.append(below[way[-1]])
                    return tuple(way)
                if above not in below:
                    below[above] = here
                    waiting.append(above)
        return ()


class _Claims:
    """Finds the categories that claim a tool, without testing every category."""

    def __init__(self, given: Iterable[Category]) -> None:
        given = tuple(given)
        self._order = {category.path: position for position, category in enumerate(given)}
        self._by_id = Patterns((pattern, category.path) for category in given for pattern in category.tools)
        self._by_tag: defaultdict[str, list[Path]] = defaultdict(list)
        for category in given:
            for tag in category.tagged:
                self._by_tag[tag].append(category.path)

    def of(self, tool: Tool) -> list[Path]:
        """Return the paths of the categories that claim `tool`, in the order in which they were given."""
        claiming = [*self._by_id.of(tool.id)]
        for tag in tool.metadata.tags:
            claiming += self._by_tag.get(tag, ())
        return sorted(claiming, key=self._order.__getitem__)


NO_CATEGORIES = Categories()


def ways_to(path: Path) -> Iterator[Path]:
    """Yield the paths of all categories on the way to `path`, including `path` itself, without the root."""
    return (path[:depth] for depth in range(1, len(path) + 1))


def _words(category: Category) -> list[object]:
    return [list(category.path), category.title, category.summary, list(category.tags), category.group]


def _shown(path: Path) -> str:
    return "/".join(path)[:200] or "the root"
