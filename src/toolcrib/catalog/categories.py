"""Categories that somebody set up, and which tools hang in them besides below their sources."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from weakref import ref

from toolcrib.catalog.access import ANY, UNKNOWN
from toolcrib.catalog.patterns import Patterns
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.nodes import Node
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, Tool
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
"""Top categories that anybody may use: one of these names is described like this unless its owner says otherwise.

Source: ADR-001, the standard tool categories.
"""


_LEAST_KNOWN = 1_000
"""Tools of which something is known before any that are gone are looked for."""


@dataclass(frozen=True)
class Category:
    """A node, and how tools come to hang in it.

    Values are read as `mcp.json` has them: a lone string counts as a list of one, and `"Storage/Buckets"` as a path.

    Raises:
        InvalidConfig: a value cannot be read like this.
    """

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
    group: bool = False
    """Whether the catalog may show its tools in groups where there are more than a dozen; else a list shows them all
    in the category itself, by pages."""

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
        """Tools as they might hang in it, one for each thing it claims."""
        for pattern in self.tools:
            source, _, name = ANY.sub(UNKNOWN, pattern).partition(".")
            yield Tool(source, name)
        for tag in self.tagged:
            yield Tool(UNKNOWN, UNKNOWN, metadata=ToolMetadata(tags=(tag,)))


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
        self._standing = {path for category in self.given for path in ways_to(category.path)}
        self.links: Mapping[Path, tuple[Path, ...]] = {}
        """By node, those that hang under it besides the ones below it."""
        self._above: Mapping[Path, tuple[Path, ...]] = {}
        self._link()
        for category in self.given:
            if category.also_under and (cycle := self._cycle(category.path)):
                raise InvalidConfig(f"a category cannot hang below itself: {' > '.join(map(_shown, cycle))}")
        self._claims = _Claims(self.given)
        self._known: dict[int, tuple[ref[Tool], tuple[Path, ...]]] = {}
        """Places by the identity of a tool, for several may have one id; no tool is kept alive by it."""
        self._most_known = _LEAST_KNOWN

    def __contains__(self, path: Path) -> bool:
        return path in self._by_path

    @cached_property
    def nodes(self) -> Mapping[Path, Node]:
        return {category.path: category.node for category in self.given}

    @cached_property
    def digest(self) -> str:
        """Equal for two that say the same."""
        return digest([[*_told(c), list(c.tools), list(c.tagged), [*map(list, c.also_under)]] for c in self.given])

    def digest_of(self, nodes: Container[Path]) -> str:
        """Equal for two that say the same of `nodes`, whatever they say of others and whichever tools they claim."""
        return digest([[*_told(c), [*map(list, self.above(c.path))]] for c in self.given if c.path in nodes])

    def places(self, tool: Tool) -> tuple[Path, ...]:
        """Where `tool` hangs, the primary path first: the categories that claim it, its own, and below its source."""
        if not self.given:
            return self._found(tool) if tool.metadata.category else ((tool.source, *tool.own_path),)
        key = id(tool)
        known = self._known.get(key)
        if known is not None and known[0]() is tool:
            return known[1]
        places = self._found(tool)
        if len(self._known) >= self._most_known:
            self._forget()
        self._known[key] = ref(tool), places
        return places

    def reaches(self, tool: Tool) -> tuple[Path, ...]:
        """`places`, and by their primary paths the nodes that those above it hang under as well."""
        return self.reached(self.places(tool))

    def reached(self, places: Collection[Path]) -> tuple[Path, ...]:
        """`places`, and by their primary paths the nodes that those above them hang under as well."""
        found = dict.fromkeys(places)
        waiting = [*found] if self.links else []
        while waiting:
            upper = (node for way in ways_to(waiting.pop()) for node in self.above(way))
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
            here = child if child in self._standing else next(linked, child)
        return here

    def above(self, path: Path) -> tuple[Path, ...]:
        """The nodes that the one at `path` hangs under besides the one above it, by their primary paths."""
        return self._above.get(path, ())

    def leads_to_one(self, path: Path) -> bool:
        """Whether a category is at `path` or below it."""
        return path in self._standing

    def may_group(self, path: Path) -> bool:
        """Whether the owner wants groups in the category at `path`."""
        return path in self._by_path and self._by_path[path].group

    def is_unclaimed_at(self, tool: Tool, path: Path) -> bool:
        """Whether `path` is the node of the source of `tool`, and the tool was not put there in any other way."""
        if path != (tool.source,) or tool.own_path or tool.metadata.category == path:
            return False
        return path not in self._by_path or path not in self._claims.of(tool)

    def _found(self, tool: Tool) -> tuple[Path, ...]:
        own = (tool.source, *tool.own_path)
        said = (tool.metadata.category,) if tool.metadata.category else ()
        claimed = dict.fromkeys((*self._claims.of(tool), *said, own))
        if len(claimed) == 1:
            return (own,)
        # Whatever hangs in a node hangs below those above it anyway.
        depths = {len(path) for path in claimed}
        above = {path[:depth] for path in claimed for depth in depths if depth < len(path)}
        return tuple(path for path in claimed if path not in above)

    def _forget(self) -> None:
        """Let go of what is known of tools that are gone, so seldom that it costs each tool little."""
        self._known = {key: known for key, known in [*self._known.items()] if known[0]() is not None}
        self._most_known = max(_LEAST_KNOWN, 2 * len(self._known))

    def _link(self) -> None:
        """Find the links; one may be given by a way that leads through another, which is known a round earlier."""
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
        """The way down from `start` to itself; empty where there is none."""
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
    """Which categories claim a tool, found without asking each of them."""

    def __init__(self, given: Iterable[Category]) -> None:
        given = tuple(given)
        self._order = {category.path: position for position, category in enumerate(given)}
        self._by_id = Patterns((pattern, category.path) for category in given for pattern in category.tools)
        self._by_tag: defaultdict[str, list[Path]] = defaultdict(list)
        for category in given:
            for tag in category.tagged:
                self._by_tag[tag].append(category.path)

    def of(self, tool: Tool) -> list[Path]:
        """Those that claim `tool`, in the order in which they were given."""
        claiming = [*self._by_id.of(tool.id)]
        for tag in tool.metadata.tags:
            claiming += self._by_tag.get(tag, ())
        return sorted(claiming, key=self._order.__getitem__)


NO_CATEGORIES = Categories()


def ways_to(path: Path) -> Iterator[Path]:
    """The paths of the nodes that `path` leads through, the one at its end included, the root not."""
    return (path[:depth] for depth in range(1, len(path) + 1))


def _told(category: Category) -> list[object]:
    return [list(category.path), category.title, category.summary, list(category.tags), category.group]


def _shown(path: Path) -> str:
    return "/".join(path)[:200] or "the root"
