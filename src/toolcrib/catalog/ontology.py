"""The tree of categories, a directed acyclic graph that is derived from a set of visible tools."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toolcrib.catalog.categories import NO_CATEGORIES, Categories, ways_to
from toolcrib.catalog.grouping import MAX_GROUPS, MAX_READ, grouped, summaries_of
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Node, Path, Tool
from toolcrib.search.index.fields import Document
from toolcrib.search.index.index import Index
from toolcrib.search.index.tokens import terms
from toolcrib.search.index.weights import WEIGHTS

_NAMES_ABOVE = 3
"""How many names of the nearest categories above one are among its searched words."""


@dataclass(slots=True, eq=False)
class Branch:
    """A category in one ontology. Only the ontology creates and changes it; all other code only reads it."""

    name: str
    above: Branch | None
    """The parent on its primary path; None for the root."""
    below: dict[str, Branch] = field(default_factory=dict[str, "Branch"])
    """The children by name."""
    linked: list[Branch] = field(default_factory=list["Branch"])
    """Categories that also appear under this one, and have a different parent."""
    linked_from: list[Branch] = field(default_factory=list["Branch"])
    """The categories that have this one in `linked`."""
    tool_ids: list[str] = field(default_factory=list[str])
    """The ids of the tools directly in it, unordered."""
    count: int = 0
    """The number of tools in or below it. Each tool counts once."""
    primary_count: int = 0
    """The number of those tools whose primary path leads here."""
    is_group: bool = False
    """Whether the ontology created it as a group of the tools of its parent."""

    @property
    def path(self) -> Path:
        """The primary path."""
        names: list[str] = []
        here = self
        while here.above is not None:
            names.append(here.name)
            here = here.above
        return tuple(reversed(names))


class Ontology:
    """The categories above a set of tools. Each has at least one of these tools in or below it.

    The category of a source gets groups if it has more than `MAX_TOOLS` tools that are in no other category. The
    ontology makes groups from the texts of the tools. If the children of the root or of a source's category do not fit
    on a page, it gets groups of all tools below it, listed before its children. A category that a person, a plugin or a
    source defined gets groups only if `Category.group` is set. Groups are made at the first request that needs them.
    """

    def __init__(
        self, tools: Mapping[str, Tool], described: Mapping[Path, Node], categories: Categories = NO_CATEGORIES
    ) -> None:
        """Derive the categories of `tools`. `described` holds descriptions by path, also of empty categories."""
        self.tools = tools
        self._described = described
        self._categories = categories
        self._building = threading.Lock()
        """Held while branches are made, so that several threads cannot make two branches for one category."""
        self._root: Branch | None = None
        self._groups: dict[Branch, tuple[Branch, ...]] = {}
        self._nodes: dict[Branch, Node] = {}

    @property
    def root(self) -> Branch:
        if self._root is None:
            with self._building:
                self._root = self._root or self._built()
        return self._root

    def _built(self) -> Branch:
        root = Branch("", None)
        together: defaultdict[tuple[Path, ...], list[str]] = defaultdict(list)
        for tool_id, tool in self.tools.items():
            together[self._categories.places(tool)].append(tool_id)
        for places, ids in together.items():
            for place in places:
                _planted(root, place).tool_ids += ids
        self._plant_above(root)
        for above, linked in self._categories.links.items():
            for path in linked:
                if (branch := _walk(root, path)) is not None:
                    upper = _planted(root, above)
                    upper.linked.append(branch)
                    branch.linked_from.append(upper)
        for places, ids in together.items():
            for branch in _above([_planted(root, place) for place in places]):
                branch.count += len(ids)
            for branch in _above([_planted(root, places[0])]):
                branch.primary_count += len(ids)
        return root

    def _plant_above(self, root: Branch) -> None:
        """Create the categories to which existing categories are linked, directly or through other links."""
        waiting = [path for path in self._categories.nodes if _walk(root, path) is not None]
        while waiting:
            for above in self._categories.above(waiting.pop()):
                waiting += [way for way in ways_to(above) if _walk(root, way) is None]
                _planted(root, above)

    def find(self, path: Sequence[str]) -> Branch | None:
        """Return the category at `path`, or None. `path` can lead through links. Case matters only if ambiguous."""
        depth, found = self.nearest(path)
        return found if depth == len(path) else None

    def nearest(self, path: Sequence[str]) -> tuple[int, Branch]:
        """Return the last existing category on the way to `path`, after the number of names that lead to it."""
        *_, last = self._followed(path)
        return last

    def children(self, branch: Branch) -> tuple[Branch, ...]:
        """Return the categories under `branch`, sorted by name without regard to case, and its groups.

        Groups come last, or first if there are more than `MAX_GROUPS` other categories. A category in which no tool has
        its primary path is not shown, unless it leads to a configured category. `find` still finds it.
        """
        named, groups = self._named(branch), self._grouped(branch)
        return (*groups, *named) if len(named) > MAX_GROUPS else (*named, *groups)

    def tool_ids(self, branch: Branch) -> tuple[str, ...]:
        """Return the ids of the tools that are directly in `branch` and in none of its groups, sorted."""
        grouped_ids = self._grouped_ids(branch)
        return tuple(sorted(tool_id for tool_id in branch.tool_ids if tool_id not in grouped_ids))

    def grouped_tool_ids(self, branch: Branch) -> tuple[str, ...]:
        """Return the ids of the tools that are directly in `branch` and also in one of its groups, sorted."""
        grouped_ids = self._grouped_ids(branch)
        return tuple(sorted(tool_id for tool_id in branch.tool_ids if tool_id in grouped_ids))

    def within(self, branch: Branch) -> set[str]:
        """Return the ids of all tools in or below `branch`."""
        return {tool_id for each in _below([branch]) for tool_id in each.tool_ids}

    def places(self, tool: Tool) -> tuple[Path, ...]:
        """Return the paths of `tool`, primary path first."""
        return self._categories.places(tool)

    def holders(self, tool_id: str) -> tuple[Branch, ...]:
        """Return the categories that contain the tool directly; if a category has groups, its group."""
        return tuple(self._innermost(branch, tool_id) for branch in self._nodes_of(tool_id))

    def holders_of(self, tool_ids: Iterable[str]) -> Iterator[tuple[str, Branch]]:
        """Yield each tool id with each of its shown `holders`.

        At most `MAX_READ` tools are read to make groups. After that, the category is yielded instead of its group.
        """
        grouped_here, left = set[Branch](), MAX_READ
        for tool_id in tool_ids:
            for branch in (each for each in self._nodes_of(tool_id) if each in self._shown):
                if branch not in grouped_here and len(branch.tool_ids) <= left:
                    grouped_here.add(branch)
                    left -= len(branch.tool_ids)
                yield tool_id, self._innermost(branch, tool_id) if branch in grouped_here else branch

    def _nodes_of(self, tool_id: str) -> Iterator[Branch]:
        tool = self.tools.get(tool_id)
        return (_planted(self.root, place) for place in self.places(tool)) if tool is not None else iter(())

    def described(self, branch: Branch) -> Node:
        """Return the configured description of `branch`; an empty one if it has no description."""
        path = branch.path
        return self._described.get(path, Node(path))

    def node(self, branch: Branch) -> Node:
        """Return the description of `branch`. Without a configured summary, it is made from the tools inside."""
        if (node := self._nodes.get(branch)) is None:
            node = self.described(branch)
            if not node.summary and branch.above is not None:
                self._describe_below(branch.above)
                node = self._nodes[branch]
            self._nodes[branch] = node
        return node

    @cached_property
    def nodes(self) -> Mapping[Path, Branch]:
        """All categories except the root and the groups, by path, sorted by path."""
        found = {branch.path: branch for branch in _below([self.root]) if branch.above is not None}
        return {path: found[path] for path in sorted(found)}

    @cached_property
    def _shown(self) -> frozenset[Branch]:
        """The categories that a client can reach by listing from the root, without the root and the groups."""
        shown, waiting = set[Branch](), [self.root]
        while waiting:
            new = {*self._named(waiting.pop())} - shown
            shown |= new
            waiting += new
        return frozenset(shown)

    def search(self, query: str, *, limit: int, among: Iterable[Path] | None = None) -> list[tuple[Path, float]]:
        """Rank the categories that can be reached from the root, or only those in `among`, by relevance to `query`.

        Returns at most `limit` pairs of path and confidence in [0, 1], best first, ties ordered by path. Only the words
        of the category count, not those of its tools.
        """
        scope = None if among is None else frozenset(self._keys[path] for path in among if path in self._keys)
        hits = self._index.search(query, limit=limit, scope=scope).hits
        paths = list(self._keys)
        return [(paths[int(hit.tool_id)], hit.confidence) for hit in hits]

    @cached_property
    def _keys(self) -> Mapping[Path, str]:
        """The key of each path in the index. Keys are in the order of the paths, so that ties are ordered by path."""
        shown = (path for path, branch in self.nodes.items() if branch in self._shown)
        return {path: f"{number:08}" for number, path in enumerate(shown)}

    @cached_property
    def _index(self) -> Index:
        documents = (self._document(key, self.nodes[path]) for path, key in self._keys.items())
        return Index.build(documents, weights=WEIGHTS.refusing_nothing())

    def _document(self, key: str, branch: Branch) -> Document:
        node = self.described(branch)
        above = node.path[-1 - _NAMES_ABOVE : -1]
        return Document(
            tool_id=key,
            name=tuple(terms(f"{node.name}\n{node.title or ''}", keep_stopwords=True)),
            description=tuple(terms(node.summary)),
            category=tuple(terms("\n".join([*above, *node.tags]))),
        )

    def _describe_below(self, above: Branch) -> None:
        """Make summaries for the children without a description, so that each can be told from its siblings."""
        silent = {b.name: b for b in above.below.values() if not self.described(b).summary}
        inside = {name: [self.tools[tool_id] for tool_id in self.within(b)] for name, b in silent.items()}
        summaries = summaries_of(inside)
        for name, branch in silent.items():
            self._nodes[branch] = replace(self.described(branch), summary=summaries[name])

    def _innermost(self, branch: Branch, tool_id: str) -> Branch:
        """Return the innermost group with a tool that is directly in `branch`, or `branch` itself."""
        while (group := next((g for g in self._grouped(branch) if tool_id in g.tool_ids), None)) is not None:
            branch = group
        return branch

    def _followed(self, path: Sequence[str]) -> Iterator[tuple[int, Branch]]:
        """Yield the categories on the way to `path`, each with its depth, as long as the name is unambiguous."""
        here = [self.root]
        yield 0, self.root
        for depth, name in enumerate(path, start=1):
            exact = [found for branch in here if (found := self._step(branch, name)) is not None]
            folded = name.casefold()
            alike = (child for branch in here for child in self._all_below(branch) if child.name.casefold() == folded)
            here = [*dict.fromkeys(exact or alike)]  # two ways can lead to the same category
            if not here:
                return
            if len(here) == 1:
                yield depth, here[0]

    def _all_below(self, branch: Branch) -> Iterable[Branch]:
        return (*branch.below.values(), *branch.linked, *self._grouped(branch))

    def _step(self, branch: Branch, name: str) -> Branch | None:
        if (child := branch.below.get(name)) is not None:
            return child
        others = (*branch.linked, *self._grouped(branch))
        return next((child for child in others if child.name == name), None)

    def _named(self, branch: Branch) -> list[Branch]:
        shown = [c for c in branch.below.values() if c.primary_count or self._categories.leads_to_one(c.path)]
        return sorted({*shown, *branch.linked}, key=lambda child: (child.name.casefold(), child.name, child.path))

    def _grouped(self, branch: Branch) -> tuple[Branch, ...]:
        if branch not in self._groups:
            with self._building:
                if branch not in self._groups:
                    self._groups[branch] = self._made_groups(branch)
        return self._groups[branch]

    def _grouped_ids(self, branch: Branch) -> set[str]:
        return {tool_id for group in self._grouped(branch) for tool_id in group.tool_ids}

    def _made_groups(self, branch: Branch) -> tuple[Branch, ...]:
        taken = {child.name for child in (*branch.below.values(), *branch.linked)}
        made = grouped({tool_id: self.tools[tool_id] for tool_id in self._to_group(branch)}, taken=taken)
        groups = tuple(
            Branch(
                g.name,
                branch,
                tool_ids=[*g.tool_ids],
                count=len(g.tool_ids),
                primary_count=len(g.tool_ids),
                is_group=True,
            )
            for g in made
        )
        self._nodes |= {at: Node(at.path, summary=group.summary) for group, at in zip(made, groups, strict=True)}
        return groups

    def _to_group(self, branch: Branch) -> Collection[str]:
        """Return the tools for the groups of `branch`: those not put there on purpose, or all if the owner allows."""
        may_group = branch.is_group or self._categories.may_group(branch.path)
        has_many_nodes = len(branch.below) + len(branch.linked) > MAX_GROUPS and len(self._named(branch)) > MAX_GROUPS
        if has_many_nodes and (may_group or branch.above is None or self._is_bare_source(branch)):
            # Above `MAX_READ` tools there are no groups: clients then walk through the categories.
            return self.within(branch) if branch.count <= MAX_READ else ()
        if may_group:
            return branch.tool_ids
        return [i for i in branch.tool_ids if self._categories.is_unclaimed_at(self.tools[i], branch.path)]

    def _is_bare_source(self, branch: Branch) -> bool:
        """Return whether `branch` is the category of a source and is not configured as a category."""
        path = branch.path
        is_set_up = len(path) != 1 or path in self._categories
        return not is_set_up and any(self.tools[i].source == branch.name for i in self.within(branch))


def _planted(root: Branch, path: Path) -> Branch:
    here = root
    for name in path:
        if (child := here.below.get(name)) is None:
            child = here.below[name] = Branch(name, here)
        here = child
    return here


def _walk(root: Branch, path: Path) -> Branch | None:
    here: Branch | None = root
    for name in path:
        here = here.below.get(name) if here is not None else None
    return here


def _above(branches: Iterable[Branch]) -> Iterator[Branch]:
    """Yield `branches` and all categories above them, each once."""
    seen = set(branches)
    waiting = [*seen]
    while waiting:
        branch = waiting.pop()
        yield branch
        uppers = {*branch.linked_from, *((branch.above,) if branch.above is not None else ())} - seen
        seen |= uppers
        waiting += uppers


def _below(branches: Iterable[Branch]) -> Iterator[Branch]:
    """Yield `branches` and all categories below them, each once."""
    seen = set(branches)
    waiting = [*seen]
    while waiting:
        branch = waiting.pop()
        yield branch
        lowers = {*branch.below.values(), *branch.linked} - seen
        seen |= lowers
        waiting += lowers
