"""What one principal may see of the catalog: a state, plus tools of its own session, less what policy hides."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from toolcrib.catalog.access import ALLOW_ALL, EVERYTHING, Access, Permissions, Policy, Subject
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.ontology import Ontology
from toolcrib.catalog.shelf import Shelf
from toolcrib.catalog.state import CatalogState, SourceEntry, SourceStatus, described
from toolcrib.core.handles import Handle
from toolcrib.core.names import may_be_model_name, model_names
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Tool
from toolcrib.index.fields import Document, document
from toolcrib.index.index import Index, Ranking, Selection


@dataclass(frozen=True)
class Overlay:
    """Tools that belong to one session; one with the id of a catalog tool stands in its place."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """By id."""
    sources: Mapping[str, SourceEntry] = field(default_factory=dict[str, SourceEntry])
    """By name: where calls to them go."""


NO_OVERLAY = Overlay()


@dataclass(frozen=True)
class Decisions:
    """What was decided on each tool, and on which grounds besides the permissions."""

    categories: Categories
    trusted: frozenset[str]
    """Names of the sources whose claims count."""
    access: Mapping[str, tuple[Tool, Access]] = field(default_factory=dict[str, tuple[Tool, Access]])
    """By tool id, with the definition it was decided on."""


@dataclass(frozen=True)
class Visible:
    """The part of a catalog that whoever has `permissions` may see; all of them share it.

    Counts, groupings and the statistics that ranking uses are those of the visible tools, so a hidden one leaves no
    trace in any of them.
    """

    state: CatalogState
    permissions: Permissions = EVERYTHING
    overlay: Overlay = NO_OVERLAY
    earlier: Decisions | None = None
    """Those of the same permissions over an earlier state: what has not changed is not decided again."""

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """By id."""
        if self.is_everything:
            return self.state.tools
        access = self.decisions.access
        return {tool_id: tool for tool_id, (tool, decided) in access.items() if decided is not Access.HIDDEN}

    @cached_property
    def decisions(self) -> Decisions:
        trusted = frozenset(name for name, entry in self._all_sources.items() if entry.trusted)
        made = Decisions(self.state.categories, trusted)
        same_grounds = self.earlier is not None and (self.earlier.categories, self.earlier.trusted) == (
            made.categories,
            trusted,
        )
        known = self.earlier.access if self.earlier is not None and same_grounds else made.access
        access: dict[str, tuple[Tool, Access]] = {}
        for tool_id, tool in {**self.state.tools, **self.overlay.tools}.items():
            before = known.get(tool_id)
            decided = before if before is not None and before[0] is tool else (tool, self._decide(tool, trusted))
            access[tool_id] = decided
        return Decisions(self.state.categories, trusted, access)

    @cached_property
    def ontology(self) -> Ontology:
        """Where the tools that can be called hang."""
        if self.is_everything and not self.unavailable:
            return self.state.ontology
        tools = {tool_id: tool for tool_id, tool in self.tools.items() if tool_id not in self.unavailable}
        return self._ontology_of(tools)

    @cached_property
    def whole_ontology(self) -> Ontology:
        """Where all of them hang."""
        return self._ontology_of(self.tools) if self.unavailable else self.ontology

    @cached_property
    def unavailable(self) -> Mapping[str, str]:
        """By id, why a tool cannot be called before somebody has done something."""
        failed = {
            name: f"Its source is unavailable: {entry.reason}"
            for name, entry in self._all_sources.items()
            if _is_lost(entry)
        }
        if not failed:
            return {}
        return {i: failed[tool.source] for i, tool in self.tools.items() if tool.source in failed}

    @cached_property
    def sources(self) -> Mapping[str, SourceEntry]:
        """Sources that may be spoken of, by name: those that offer something visible, or that may be known anyway."""
        if self.is_everything:
            return self.state.sources
        if self.permissions is EVERYTHING:
            return self._all_sources
        seen = {tool.source for tool in self.tools.values()}
        return {
            name: entry
            for name, entry in self._all_sources.items()
            if name in seen or self.permissions.may_know(name) or Shelf({name: entry}, self.may_see_item)
        }

    @cached_property
    def shelf(self) -> Shelf:
        """The visible prompts and resources."""
        return Shelf(self.sources, self.may_see_item)

    @cached_property
    def model_names(self) -> Mapping[str, str]:
        """Tool ids by the name under which a tool stands in a model's own tool list."""
        if self.is_everything:
            return self.state.model_names
        plain = frozenset(name for name, entry in self._all_sources.items() if entry.plain_names)
        names = model_names(self.tools.values(), plain)
        return {name: tool_id for tool_id, name in names.items()}

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The same the other way round."""
        return {tool_id: name for name, tool_id in self.model_names.items()}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that listing and searching tell, in hex: equal for two exactly when those are."""
        # A sum does not depend on the order.
        total = self.state.fingerprint if self.is_everything else sum(t.fingerprint for t in self.tools.values())
        told = hashlib.blake2b(f"{len(self.tools)}:{total}:{self.state.categories.digest}".encode(), digest_size=16)
        holding = {tool.source for tool in self.tools.values()} if not self.is_everything else self.state.sources
        for name in sorted(holding):
            if (entry := self.sources.get(name)) is not None:
                failed = entry.reason if _is_lost(entry) else None  # its tools are shown elsewhere, or not at all
                words = (name, entry.title, entry.summary, entry.nodes, failed)
                told.update(repr(words).encode("utf-8", "surrogatepass"))
        return told.hexdigest()

    @cached_property
    def index(self) -> Index:
        if not self.overlay.tools:
            return self.state.index
        categories, sources = self.state.categories, self._all_sources
        documents = (document_of(sources, categories, tool) for tool in self.overlay.tools.values())
        return self.state.index.combined(Index.build(documents))

    @cached_property
    def selection(self) -> Selection | None:
        """The tools of the index that are visible; None where all are."""
        return None if self.permissions is EVERYTHING else self.index.select(self.tools.__contains__)

    @cached_property
    def is_everything(self) -> bool:
        """Whether the state as it is may be seen whole, and nothing more."""
        return self.permissions is EVERYTHING and not self.overlay.sources and not self.overlay.tools

    def access_to(self, tool: Tool) -> Access:
        """What may be done with a visible tool."""
        return Access.CALL if self.permissions is EVERYTHING else self.decisions.access[tool.id][1]

    def access_to_item(self, source: str, own_name: str) -> Access:
        """What may be done with a prompt or resource of this name or URI, listed or not."""
        if self.permissions is EVERYTHING:
            return Access.CALL
        entry = self._all_sources.get(source)
        trusted = entry is not None and entry.trusted
        return self.permissions.decide(Subject(f"{source}.{own_name}", source, ((source,),), trusted=trusted))

    def may_see_item(self, source: str, own_name: str) -> bool:
        return self.access_to_item(source, own_name) is not Access.HIDDEN

    def _ontology_of(self, tools: Mapping[str, Tool]) -> Ontology:
        return Ontology(tools, described(self.sources, self.state.categories), self.state.categories)

    def _decide(self, tool: Tool, trusted: frozenset[str]) -> Access:
        return self.permissions.decide(
            Subject(
                tool.id,
                tool.source,
                self.state.categories.reaches(tool),
                tool.metadata.tags,
                tool.annotations,
                tool.source in trusted,
            )
        )

    @cached_property
    def _all_sources(self) -> Mapping[str, SourceEntry]:
        return {**self.state.sources, **self.overlay.sources} if self.overlay.sources else self.state.sources


@dataclass(frozen=True)
class View:
    """Everything downstream takes a view, never a state: what it does not hold does not exist."""

    visible: Visible
    principal: Principal = LOCAL

    @classmethod
    def of(
        cls,
        state: CatalogState,
        principal: Principal = LOCAL,
        policy: Policy = ALLOW_ALL,
        overlay: Overlay = NO_OVERLAY,
    ) -> Self:
        """What `principal` may see of `state` and of the tools of its own session."""
        return cls(Visible(state, policy.permissions(principal), overlay), principal)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The visible tools, by id."""
        return self.visible.tools

    @property
    def ontology(self) -> Ontology:
        """Where those that can be called hang."""
        return self.visible.ontology

    @property
    def whole_ontology(self) -> Ontology:
        """Where all of them hang."""
        return self.visible.whole_ontology

    @property
    def sources(self) -> Mapping[str, SourceEntry]:
        """Sources that may be spoken of, by name."""
        return self.visible.sources

    @property
    def unavailable(self) -> Mapping[str, str]:
        """By id, why a visible tool cannot be called before somebody has done something."""
        return self.visible.unavailable

    @property
    def names(self) -> Mapping[str, str]:
        """Under which name each visible tool stands in a model's own tool list, by tool id."""
        return self.visible.names

    @property
    def shelf(self) -> Shelf:
        """The visible prompts and resources."""
        return self.visible.shelf

    @property
    def fingerprint(self) -> str:
        """A digest of all that listing and searching tell, in hex."""
        return self.visible.fingerprint

    def find(self, name: str) -> Tool | None:
        """The visible tool with this id, or standing in a model's tool list under this name; None if there is none."""
        if (tool := self.tools.get(name)) is not None:
            return tool
        return self.tools.get(self.visible.model_names.get(name, "")) if may_be_model_name(name) else None

    def resolve(self, reference: str) -> tuple[Tool | None, Handle | None]:
        """What a name that `find` takes, or a handle, stands for; and the handle, unless it was a name."""
        if (tool := self.find(reference)) is not None:
            return tool, None
        handle = Handle.parse(reference)
        return (self.find(handle.tool_id) if handle is not None else None), handle

    def access_to(self, tool: Tool) -> Access:
        """What may be done with a visible tool."""
        return self.visible.access_to(tool)

    def access_to_item(self, source: str, own_name: str) -> Access:
        """What may be done with a prompt or resource of this name or URI, listed or not."""
        return self.visible.access_to_item(source, own_name)

    def is_trusted(self, source: str) -> bool:
        """Whether what the tools of a visible source claim of themselves may be relied on."""
        return (entry := self.sources.get(source)) is not None and entry.trusted

    def search(self, query: str, *, limit: int, offset: int = 0, scope: Collection[str] | None = None) -> Ranking:
        """Rank the visible tools, or those of `scope`, ids of some of them, against `query`; best first, ties by id."""
        return self.visible.index.search(query, limit=limit, offset=offset, visible=self.visible.selection, scope=scope)


def _is_lost(entry: SourceEntry) -> bool:
    return entry.status is SourceStatus.FAILED and entry.is_lasting


def document_of(sources: Mapping[str, SourceEntry], categories: Categories, tool: Tool) -> Document:
    """What the index holds of a tool: its own texts, the names of the nodes above it and the words of its source."""
    entry = sources.get(tool.source)
    words = (tool.source, entry.title or "", entry.summary) if entry is not None else (tool.source,)
    names: dict[str, None] = {}
    for place in categories.places(tool):
        names |= dict.fromkeys(place if place[0] != tool.source else place[1:])
    return document(tool, category=tuple(names), source_text=" ".join(words))
