"""What one principal may see of the catalog: a state, plus tools of its own session, less what policy hides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from toolcrib.catalog.access import ALLOW_ALL, Access, Policy
from toolcrib.catalog.ontology import Ontology, primary_path
from toolcrib.catalog.shelf import Shelf
from toolcrib.catalog.state import CatalogState, SourceEntry
from toolcrib.core.names import may_be_model_name, model_names
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import ROOT, Path, Tool
from toolcrib.index.fields import Document, document
from toolcrib.index.index import Index, Ranking, Selection


@dataclass(frozen=True)
class Overlay:
    """Tools that belong to one session; one with the id of a catalog tool stands in its place."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """By id."""
    sources: Mapping[str, SourceEntry] = field(default_factory=dict[str, SourceEntry])
    """By name: where calls to them go."""

    @cached_property
    def index(self) -> Index:
        return Index.build(document_of(self.sources, tool) for tool in self.tools.values())


NO_OVERLAY = Overlay()


@dataclass(frozen=True)
class View:
    """Everything downstream takes a view, never a state: what it does not hold does not exist.

    Counts, groupings and the statistics that ranking uses are those of the visible tools, so a hidden one leaves no
    trace in any of them.
    """

    state: CatalogState
    principal: Principal = LOCAL
    policy: Policy = ALLOW_ALL
    overlay: Overlay = NO_OVERLAY

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The visible tools, by id."""
        if self._everything:
            return self.state.tools
        both = {**self.state.tools, **self.overlay.tools}
        return {i: tool for i, tool in both.items() if self.policy.decide(self.principal, tool) is not Access.HIDDEN}

    @cached_property
    def ontology(self) -> Ontology:
        return self.state.ontology if self._everything else Ontology(self.state.described, self.tools)

    @cached_property
    def sources(self) -> Mapping[str, SourceEntry]:
        """Sources that may be spoken of, by name: all where nothing is hidden, else those with a visible tool."""
        if self._everything:
            return self.state.sources
        both = {**self.state.sources, **self.overlay.sources}
        if self.policy is ALLOW_ALL:
            return both
        seen = {tool.source for tool in self.tools.values()}
        return {name: entry for name, entry in both.items() if name in seen}

    def find(self, name: str) -> Tool | None:
        """The visible tool with this id, or standing in a model's tool list under this name; None if there is none."""
        if (tool := self.tools.get(name)) is not None:
            return tool
        return self.tools.get(self._model_names.get(name, "")) if may_be_model_name(name) else None

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Under which name each visible tool stands in a model's own tool list, by tool id."""
        return {tool_id: name for name, tool_id in self._model_names.items()}

    @cached_property
    def shelf(self) -> Shelf:
        """The prompts and resources of the visible sources."""
        return Shelf(self.sources)

    def may_call(self, tool: Tool) -> bool:
        """Whether a visible tool may be called as well."""
        return self.policy.decide(self.principal, tool) is Access.CALL

    def may_use(self, source: str) -> bool:
        """Whether something of a visible source may be called, and with it what that offers besides tools be read."""
        if self.policy is ALLOW_ALL:
            return True
        return any(self.may_call(tool) for tool in self.tools.values() if tool.source == source)

    def search(self, query: str, *, limit: int, offset: int = 0, within: Path = ROOT) -> Ranking:
        """Rank the visible tools at or below `within` against `query`, best first, ties by id."""
        scope = None if within == ROOT else frozenset(self.ontology.within(within))
        return self._index.search(query, limit=limit, offset=offset, visible=self._selection, scope=scope)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what can be seen, in hex: equal for two views exactly when their tools are."""
        # A sum does not depend on the order.
        total = self.state.fingerprint if self._everything else sum(t.fingerprint for t in self.tools.values())
        return hashlib.blake2b(f"{len(self.tools)}:{total}".encode(), digest_size=16).hexdigest()

    @cached_property
    def _everything(self) -> bool:
        return self.policy is ALLOW_ALL and not self.overlay.tools

    @cached_property
    def _model_names(self) -> Mapping[str, str]:
        if self._everything:
            return self.state.model_names
        names = model_names(self.tools.values(), self.state.plain_sources)
        return {name: tool_id for tool_id, name in names.items()}

    @cached_property
    def _index(self) -> Index:
        return self.state.index.combined(self.overlay.index) if self.overlay.tools else self.state.index

    @cached_property
    def _selection(self) -> Selection | None:
        return None if self.policy is ALLOW_ALL else self._index.select(self.tools.__contains__)


def document_of(sources: Mapping[str, SourceEntry], tool: Tool) -> Document:
    """What the index holds of a tool: its own texts, its category and the words of its source."""
    entry = sources.get(tool.source)
    words = (tool.source, entry.title or "", entry.summary) if entry is not None else (tool.source,)
    return document(tool, category=primary_path(tool)[1:], source_text=" ".join(words))
