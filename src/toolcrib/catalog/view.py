"""The view of one principal: a state of the catalog, plus the tools of its session, without what the policy hides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, Self, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

from toolcrib.catalog.access import ALLOW_ALL, EVERYTHING, Access, Permissions, Policy, Subject, something_of
from toolcrib.catalog.catalog_state import CatalogState, SourceEntry, SourceStatus, described
from toolcrib.catalog.categories import Categories, ways_to
from toolcrib.catalog.ontology import Ontology
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.catalog.prompts_and_resources import PromptsAndResources
from toolcrib.core.handles import Handle
from toolcrib.core.metadata import NO_METADATA
from toolcrib.core.names import model_names
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, Tool
from toolcrib.core.uris import spellings
from toolcrib.definitions.drift import Judgement
from toolcrib.search.index.fields import Document, document, embedded_text
from toolcrib.search.index.index import Index, Selection
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import WEIGHTS

if TYPE_CHECKING:
    from toolcrib.search.index.history import History, Places, Recall
    from toolcrib.search.index.meaning import Understood
    from toolcrib.search.index.ranking import Knowledge
    from toolcrib.search.index.searching import Ranking
    from toolcrib.search.index.segment import Part


_V = TypeVar("_V")


@dataclass(frozen=True)
class Overlay:
    """Tools that are added to the catalog for one session or principal. They replace catalog tools with the same id."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools by id."""
    sources: Mapping[str, SourceEntry] = field(default_factory=dict[str, SourceEntry])
    """The sources that run these tools, by name."""

    @cached_property
    def needed(self) -> frozenset[str]:
        """The names of the capabilities that these tools need."""
        return frozenset(name for tool in self.tools.values() for name in tool.metadata.requires_capabilities)


NO_OVERLAY = Overlay()


@dataclass(frozen=True)
class Decisions:
    """The decision on each tool, and what the decisions depend on in addition to the permissions."""

    categories: Categories
    overrides: Overrides
    trusted: frozenset[str]
    """The names of the sources whose claims are trusted."""
    access: Mapping[str, tuple[Tool, Access]] = field(default_factory=dict[str, tuple[Tool, Access]])
    """By tool id, the definition that was judged and the decision."""


@dataclass(frozen=True)
class Visible:
    """The part of a catalog that is visible with `permissions`. Principals with equal permissions share it.

    Counts, groups and the statistics for ranking are computed from the visible tools only, so hidden tools have no
    effect on them.
    """

    state: CatalogState
    permissions: Permissions = EVERYTHING
    overlay: Overlay = NO_OVERLAY
    earlier: Decisions | None = None
    """The decisions of the same permissions on an earlier state. Unchanged tools are not decided again."""
    base: Visible | None = None
    """The visible part with the same permissions and state, but without the overlay. Several overlays can share it."""

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The visible tools by id."""
        if self.is_everything:
            return self.state.tools
        if self._below is not None:
            return _Joined(self._below.tools, self._own_tools)
        if self.permissions is EVERYTHING:
            return {**self.state.tools, **self.overlay.tools}
        return _shown(self.decisions.access)

    @cached_property
    def decisions(self) -> Decisions:
        trusted = frozenset(name for name, entry in self._all_sources.items() if entry.trusted)
        made = Decisions(self.state.categories, self.state.overrides, trusted)
        if self._below is not None:
            own = {tool_id: (tool, self._decide(tool, trusted)) for tool_id, tool in self.overlay.tools.items()}
            return replace(made, access=_Joined(self._below.decisions.access, own))
        earlier = self.earlier
        is_as_before = earlier is not None and replace(earlier, access={}) == made
        known = earlier.access if earlier is not None and is_as_before else made.access
        access: dict[str, tuple[Tool, Access]] = {}
        for tool_id, tool in {**self.state.tools, **self.overlay.tools}.items():
            before = known.get(tool_id)
            decided = before if before is not None and before[0] is tool else (tool, self._decide(tool, trusted))
            access[tool_id] = decided
        return replace(made, access=access)

    @cached_property
    def ontology(self) -> Ontology:
        """The categories of the available tools."""
        if self.is_everything and not self.unavailable:
            return self.state.ontology
        tools = {tool_id: tool for tool_id, tool in self.tools.items() if tool_id not in self.unavailable}
        return self._ontology_of(tools)

    @cached_property
    def whole_ontology(self) -> Ontology:
        """The categories of all visible tools, including unavailable ones."""
        return self._ontology_of(self.tools) if self.unavailable else self.ontology

    @cached_property
    def unavailable(self) -> Mapping[str, str]:
        """By id, why a tool cannot be called until a person acts."""
        failed = {
            name: f"Its source is unavailable: {entry.reason}"
            for name, entry in self._all_sources.items()
            if _is_lost(entry)
        }
        if not failed:
            return self.lacking
        own = {i: failed[tool.source] for i, tool in self._own_tools.items() if tool.source in failed}
        below = self._below.unavailable if self._below is not None else dict[str, str]()
        return {**below, **self.lacking, **own}

    @cached_property
    def lacking(self) -> Mapping[str, str]:
        """By id, why a tool cannot be called, because the system lacks a capability that it needs."""
        state, tools = self.state, self.tools
        needing = {i for name, ids in state.needing.items() if name not in state.findings.there for i in ids}
        needing |= {i for i, tool in self.overlay.tools.items() if tool.metadata.requires_capabilities}
        why = ((i, state.findings.why_not(tools[i].metadata.requires_capabilities)) for i in needing if i in tools)
        return {tool_id: reason for tool_id, reason in why if reason is not None}

    @cached_property
    def available(self) -> Selection | None:
        """The tools of the index that are visible and available; None if all visible tools are available."""
        if not self.unavailable:
            return None
        visible = self.index.whole() if self.selection is None else self.selection
        return visible.without(self.unavailable.keys())

    @cached_property
    def tagged(self) -> Mapping[str, frozenset[str]]:
        """By tag, the ids of the visible tools that have it."""
        carriers: defaultdict[str, list[str]] = defaultdict(list)
        for tool_id, tool in self._own_tools.items():
            for tag in tool.metadata.tags:
                carriers[tag].append(tool_id)
        below = self._below.tagged if self._below is not None else dict[str, frozenset[str]]()
        return {**below, **{tag: below.get(tag, frozenset()).union(ids) for tag, ids in carriers.items()}}

    @cached_property
    def sources(self) -> Mapping[str, SourceEntry]:
        """The sources that answers can mention, by name: a source is included if it offers something visible, or if an
        unknown tool of it would be visible."""
        if self.is_everything:
            return self.state.sources
        if self.permissions is EVERYTHING:
            return self._all_sources
        known = self._below.sources if self._below is not None else dict[str, SourceEntry]()
        return {
            name: entry
            for name, entry in self._all_sources.items()
            if name in known or name in self.holding or self._is_spoken_of(entry)
        }

    @cached_property
    def prompts_and_resources(self) -> PromptsAndResources:
        """The visible prompts and resources."""
        return PromptsAndResources(self.sources, self.may_see_item)

    @cached_property
    def model_names(self) -> Mapping[str, str]:
        """The tool ids by the names that the tools have in a model's own tool list."""
        if self.is_everything:
            return self.state.model_names
        plain = frozenset(name for name, entry in self._all_sources.items() if entry.plain_names)
        names = model_names(self.tools.values(), plain)
        return {name: tool_id for tool_id, name in names.items()}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The names that the tools have in a model's own tool list, by tool id."""
        return {tool_id: name for name, tool_id in self.model_names.items()}

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of everything that list and search results depend on.

        Two views have equal digests if and only if their list and search results are equal.
        """
        hasher = hashlib.blake2b(f"{len(self.tools)}:{self.sum}".encode(), digest_size=16)
        moved = sorted((places, total) for places, total in self.by_places.items() if total)
        hasher.update(repr(moved).encode("utf-8", "surrogatepass"))
        reached = {path for places in self.by_places for path in self.state.categories.reached(places)}
        seen = {way for path in reached for way in ways_to(path)}
        hasher.update(self.state.categories.digest_of(seen).encode())
        for name in sorted(self._all_sources if self.permissions is EVERYTHING else self.holding):
            if (entry := self.sources.get(name)) is not None:
                failed = entry.reason if _is_lost(entry) else None  # its tools are shown elsewhere, or not at all
                words = (
                    name,
                    entry.title,
                    entry.summary,
                    entry.version,
                    [node for node in entry.nodes if node.path in seen],
                    failed,
                )
                hasher.update(repr(words).encode("utf-8", "surrogatepass"))
        if self.lacking:
            hasher.update(repr(sorted(self.lacking.items())).encode("utf-8", "surrogatepass"))
        if (weights := self.state.index.weights) != WEIGHTS:
            hasher.update(repr(weights).encode())
        return hasher.hexdigest()

    @cached_property
    def holding(self) -> frozenset[str]:
        """The names of the sources of the visible tools."""
        own = frozenset(tool.source for tool in self._own_tools.values())
        return own if self._below is None else own | self._below.holding

    @cached_property
    def sum(self) -> int:
        """The sum of the fingerprints of the visible tools, which does not depend on their order."""
        if self.is_everything:
            return self.state.fingerprint
        below = self._below.sum if self._below is not None else 0
        return below + sum(tool.fingerprint for tool in self._own_tools.values())

    @cached_property
    def by_places(self) -> Mapping[tuple[Path, ...], int]:
        """The places of the visible tools, each with a sum of fingerprints of those tools that an owner put there.

        Empty if no category is configured or described.
        """
        categories = self.state.categories
        if not categories.given and not any(entry.nodes for entry in self._all_sources.values()):
            return {}
        by_places = dict(self._below.by_places) if self._below is not None else {}
        for tool in self._own_tools.values():
            places = categories.places(tool)
            is_moved = places != ((tool.source, *tool.own_path),)
            by_places[places] = by_places.get(places, 0) + is_moved * tool.fingerprint
        return by_places

    @cached_property
    def index(self) -> Index:
        if not self.overlay.tools:
            return self.state.index
        categories, sources = self.state.categories, self._all_sources
        documents = (document_of(sources, categories, tool) for tool in self.overlay.tools.values())
        return self.state.index.combined(Index.build(documents))

    @cached_property
    def selection(self) -> Selection | None:
        """The tools of the index that are visible; None if all are."""
        if self.permissions is EVERYTHING:
            return None
        return self.index.select(self.tools.__contains__, known=None if self._below is None else self._below.selection)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the index, limited to the visible tools."""
        return self.index.parts if self.selection is None else self.selection.parts

    def recall(self, history: History) -> Recall:
        """Return the part of `history` that concerns visible tools."""
        from toolcrib.search.index.history import Recall  # noqa: PLC0415  with numpy, which a catalog without tools does without

        if (known := self._recalls.get(history)) is None:
            recall = history.over(self.parts)
            known = None if recall.history is history else recall.history, recall.places
            self._recalls[history] = known
        visible, places = known
        return Recall(history if visible is None else visible, places)

    @cached_property
    def _recalls(self) -> WeakKeyDictionary[History, tuple[History | None, Places]]:
        """The parts of recalls, by history. None stands for the key itself, which the cache must not keep alive."""
        return WeakKeyDictionary()

    @cached_property
    def is_everything(self) -> bool:
        """Whether exactly the whole state is visible, with no overlay."""
        return self.permissions is EVERYTHING and not self.overlay.sources and not self.overlay.tools

    def access_to(self, tool: Tool) -> Access:
        """Return what the principal can do with a visible tool."""
        if self.permissions is EVERYTHING:
            return _most(tool)
        return self.decisions.access[tool.id][1]

    def access_to_item(self, source: str, own_name: str) -> Access:
        """Return the access to the prompt or resource with this name or URI. It need not be listed."""
        if self.permissions is EVERYTHING:
            return Access.CALL
        # A server can treat different spellings of a URI as the same resource, so all spellings must be allowed.
        return min(
            self.permissions.decide(Subject(f"{source}.{spelling}", source, ((source,),), annotations=None))
            for spelling in spellings(own_name)
        )

    def may_see_item(self, source: str, own_name: str) -> bool:
        return self.access_to_item(source, own_name) is not Access.HIDDEN

    def _ontology_of(self, tools: Mapping[str, Tool]) -> Ontology:
        return Ontology(tools, described(self.sources, self.state.categories), self.state.categories)

    def _decide(self, tool: Tool, trusted: frozenset[str]) -> Access:
        state = self.state
        subject = subject_of(tool, state.categories, state.overrides, trusted=tool.source in trusted)
        return min(self.permissions.decide(subject), _most(tool))

    def _is_spoken_of(self, entry: SourceEntry) -> bool:
        """Return whether answers can mention a source that offers no visible tool."""
        may_be_known = self.permissions.decide(something_of(entry.name)) is not Access.HIDDEN
        return may_be_known or bool(PromptsAndResources({entry.name: entry}, self.may_see_item))

    @cached_property
    def _below(self) -> Visible | None:
        """What is visible without the overlay. None if there is no overlay, or if it replaces a part of the catalog."""
        own, known = self.overlay, self.state
        is_disjoint = known.tools.keys().isdisjoint(own.tools) and known.sources.keys().isdisjoint(own.sources)
        if not (own.tools or own.sources) or not is_disjoint:
            return None
        return self.base or Visible(known, self.permissions, earlier=self.earlier)

    @cached_property
    def _own_tools(self) -> Mapping[str, Tool]:
        """The visible tools that are only visible with the overlay."""
        if self._below is None:
            return self.tools
        if self.permissions is EVERYTHING:
            return self.overlay.tools
        access = self.decisions.access
        return _shown({tool_id: access[tool_id] for tool_id in self.overlay.tools})

    @cached_property
    def _all_sources(self) -> Mapping[str, SourceEntry]:
        return {**self.state.sources, **self.overlay.sources} if self.overlay.sources else self.state.sources


class QueryKnowledge(Protocol):
    """What is known about a query in addition to its words. The methods never wait."""

    def understood(self, query: Query) -> Understood | None:
        """Return the meaning of `query`; None if it is not known yet."""
        ...

    def history_for(self, principal: Principal) -> History | None:
        """Return the earlier queries that `principal` may profit from; None without any."""
        ...


class _SteadyKnowledge:
    """Always repeats its first answers, because the wrapped knowledge can grow at any moment."""

    def __init__(self, knowledge: QueryKnowledge) -> None:
        self._knowledge = knowledge
        self._understood: dict[Query, Understood | None] = {}
        self._histories: dict[Principal, History | None] = {}

    def understood(self, query: Query) -> Understood | None:
        if query not in self._understood:
            self._understood[query] = self._knowledge.understood(query)
        return self._understood[query]

    def history_for(self, principal: Principal) -> History | None:
        if principal not in self._histories:
            self._histories[principal] = self._knowledge.history_for(principal)
        return self._histories[principal]


def _of_visible(of: cached_property[_V]) -> cached_property[_V]:
    """Return the property of a `View` that has the value of this property of its `Visible`."""
    return cast("cached_property[_V]", property(attrgetter(f"visible.{of.func.__name__}"), doc=of.__doc__))


@dataclass(frozen=True)
class View:
    """What one principal can see. Operations take a view, never a state: what a view lacks does not exist for them."""

    visible: Visible
    principal: Principal = LOCAL
    knowledge: QueryKnowledge | None = None
    used: frozenset[str] = frozenset()
    """Ids of the tools that the principal expanded or called before in the same trace. They need not be visible."""

    @classmethod
    def of(
        cls,
        state: CatalogState,
        principal: Principal = LOCAL,
        policy: Policy = ALLOW_ALL,
        overlay: Overlay = NO_OVERLAY,
    ) -> Self:
        """Return what `principal` can see of `state` and of the tools of its own session."""
        return cls(Visible(state, policy.permissions(principal), overlay), principal)

    def steady(self) -> Self:
        """Return this view for one operation, with knowledge that does not change.

        So a page and the mark in its cursor are based on the same knowledge.
        """
        return self if self.knowledge is None else replace(self, knowledge=_SteadyKnowledge(self.knowledge))

    tools = _of_visible(Visible.tools)
    ontology = _of_visible(Visible.ontology)
    whole_ontology = _of_visible(Visible.whole_ontology)
    sources = _of_visible(Visible.sources)
    unavailable = _of_visible(Visible.unavailable)
    lacking = _of_visible(Visible.lacking)
    available = _of_visible(Visible.available)
    tagged = _of_visible(Visible.tagged)
    names = _of_visible(Visible.names)
    prompts_and_resources = _of_visible(Visible.prompts_and_resources)
    fingerprint = _of_visible(Visible.fingerprint)

    def find(self, name: str) -> Tool | None:
        """Return the visible tool with this id, or with this name in a model's own tool list, or None."""
        if (tool := self.tools.get(name)) is not None:
            return tool
        if "." in name:  # an id or a handle, which no model name is
            return None
        return self.tools.get(self.visible.model_names.get(name, ""))

    def resolve(self, reference: str) -> tuple[Tool | None, Handle | None]:
        """Return the tool for a handle or for a name that `find` takes, and the handle (None for a name)."""
        if (tool := self.find(reference)) is not None:
            return tool, None
        handle = Handle.parse(reference)
        return (self.find(handle.tool_id) if handle is not None else None), handle

    def judgement_of(self, tool: Tool) -> Judgement | None:
        """Return the judgement of a visible tool against its pin; None if its source is not judged."""
        entry = self.sources.get(tool.source)
        return entry.judgements.get(tool.name) if entry is not None else None

    def takes(self, handle: Handle, tool: Tool) -> bool:
        """Return whether a call with `handle` is still right for `tool`.

        The handle must be for the current definition, or for an earlier one that the current definition covers.
        """
        if f"{tool.id}@{handle.digest}" == tool.handle:
            return True
        judgement, overrides = self.judgement_of(tool), self.visible.state.overrides
        earlier = judgement.covered if judgement is not None else ()
        return any(f"{tool.id}@{handle.digest}" == overrides.applied(each).handle for each in earlier)

    def may_see(self, tool: Tool) -> bool:
        """Return whether `tool`, which need not exist, would be visible if its source were trusted."""
        state = self.visible.state
        subject = subject_of(tool, state.categories, state.overrides, trusted=True)
        return self.visible.permissions.decide(subject) is not Access.HIDDEN

    def access_to(self, tool: Tool) -> Access:
        """Return what the principal can do with a visible tool."""
        return self.visible.access_to(tool)

    def access_to_item(self, source: str, own_name: str) -> Access:
        """Return the access to the prompt or resource with this name or URI. It need not be listed."""
        return self.visible.access_to_item(source, own_name)

    def is_trusted(self, source: str) -> bool:
        """Return whether the owner trusts what the tools of a visible source claim about themselves."""
        return (entry := self.sources.get(source)) is not None and entry.trusted

    def search(
        self, query: str, *, limit: int, offset: int = 0, scope: Selection | Collection[str] | None = None
    ) -> Ranking:
        """Rank the visible tools by relevance to `query`, best first, ties ordered by id.

        With `scope`, only these tools are ranked; they must be visible.
        """
        parsed = Query.parse(query)
        return self.visible.index.search(
            parsed,
            limit=limit,
            offset=offset,
            visible=self.visible.selection,
            scope=scope,
            knowledge=self._known_of(parsed),
        )

    def mark(self, query: str) -> str:
        """Return a digest of what is known about `query` in addition to its words.

        While the digest and the catalog stay the same, the ranking stays the same.
        """
        if self.knowledge is None:
            return ""
        return self._known_of(Query.parse(query)).mark(self.visible.parts)

    def often_next(self, tool: Tool) -> tuple[str, ...]:
        """Return the ids of the visible tools that were often called after `tool`, most often first."""
        weights = self.visible.index.weights
        history = self.knowledge.history_for(self.principal) if self.knowledge is not None and weights.history else None
        return () if history is None else self.visible.recall(history).history.following(tool.id)

    def _known_of(self, query: Query) -> Knowledge:
        from toolcrib.search.index.ranking import NOTHING_KNOWN, Knowledge  # noqa: PLC0415  with numpy, as in `recall`

        if self.knowledge is None:
            return NOTHING_KNOWN
        weights = self.visible.index.weights
        history = self.knowledge.history_for(self.principal) if weights.history else None
        recall = self.visible.recall(history) if history is not None else None
        if recall is not None and self.used and weights.trace:
            recall = replace(recall, used=self.used)
        return Knowledge(self.knowledge.understood(query) if weights.embedding else None, recall)


@dataclass(frozen=True, eq=False)
class _Joined(Mapping[str, _V]):
    """Two mappings without a common key as one mapping, without copying them."""

    one: Mapping[str, _V]
    other: Mapping[str, _V]

    def __getitem__(self, key: str) -> _V:
        return self.other[key] if key in self.other else self.one[key]

    def __iter__(self) -> Iterator[str]:
        return chain(self.one, self.other)

    def __len__(self) -> int:
        return len(self.one) + len(self.other)


def _shown(access: Mapping[str, tuple[Tool, Access]]) -> dict[str, Tool]:
    return {tool_id: tool for tool_id, (tool, decided) in access.items() if decided is not Access.HIDDEN}


def subject_of(
    tool: Tool, categories: Categories, overrides: Overrides = NO_OVERRIDES, *, trusted: bool = False
) -> Subject:
    """Return `tool` as the subject of rules. What `overrides` say about it is trusted, because its owner says it."""
    metadata, paths = tool.metadata, categories.reaches(tool)
    if trusted or not (metadata.tags or metadata.category or tool.own_path):
        return Subject(tool.id, tool.source, paths, metadata.tags, tool.annotations, trusted, aliases=metadata.aliases)
    said = overrides.said_of(tool) or NO_METADATA
    sure = categories.reaches(Tool(tool.source, tool.name, metadata=said))
    return Subject(
        tool.id, tool.source, paths, metadata.tags, tool.annotations, trusted, sure, said.tags, metadata.aliases
    )


def _most(tool: Tool) -> Access:
    """Return the most that any permissions allow for `tool`."""
    return Access.ASK if tool.metadata.requires_permission else Access.CALL


def _is_lost(entry: SourceEntry) -> bool:
    return entry.status is SourceStatus.FAILED and entry.is_lasting


def document_of(sources: Mapping[str, SourceEntry], categories: Categories, tool: Tool) -> Document:
    """Return the document of a tool for the index: its texts, its categories' names and the words of its source."""
    return document(tool, **_surroundings(sources, categories, tool))


def embedded_text_of(sources: Mapping[str, SourceEntry], categories: Categories, tool: Tool) -> str:
    """Return the text of a tool for an embedding model, made from the same parts as `document_of`."""
    return embedded_text(tool, **_surroundings(sources, categories, tool))


class _Surroundings(TypedDict):
    category: Sequence[str]
    source_text: str


def _surroundings(sources: Mapping[str, SourceEntry], categories: Categories, tool: Tool) -> _Surroundings:
    entry = sources.get(tool.source)
    words = (tool.source, entry.title or "", entry.summary) if entry is not None else (tool.source,)
    names: dict[str, None] = {}
    for place in categories.places(tool):
        names |= dict.fromkeys(place if place[0] != tool.source else place[1:])
    return {"category": tuple(names), "source_text": " ".join(words)}
