"""The catalog at one moment: tools, where they stand and how they are found, as ONE immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.catalog.capabilities import NO_FINDINGS, Findings
from toolcrib.catalog.categories import NO_CATEGORIES, STANDARD, Categories
from toolcrib.catalog.ontology import Ontology
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.core.names import model_names
from toolcrib.core.nodes import Node
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, Tool
from toolcrib.definitions.drift import Judgement
from toolcrib.search.index.index import Index
from toolcrib.sources.base import NO_EXTRAS, Extras, SetAside, Source


class SourceStatus(StrEnum):
    """How far a source has come."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A source as the catalog knows it."""

    source: Source
    status: SourceStatus = SourceStatus.STARTING
    title: str | None = None
    summary: str = ""
    version: str | None = None
    """Which version it says it is of."""
    reason: str | None = None
    """Why it failed, in words that any caller may read."""
    diagnosis: str = ""
    """What only its owner may read of that."""
    remedy: str = ""
    """What its owner can do about it, as far as that is known. Also for the owner alone."""
    is_lasting: bool = False
    """Whether only its owner can change that it failed."""
    trusted: bool = False
    """Whether its owner vouches for what its tools claim of themselves."""
    identity: str = ""
    """A digest of what is run or where it is reached: two sources of one name are the same where theirs is equal."""
    origin: str = ""
    """The same as its owner wrote it, for whichever principal it is run: what approvals of definitions are bound to."""
    address: str = ""
    """That, fit to be shown to its owner."""
    plain_names: bool = False
    """Whether what it offers keeps its own names where tools, prompts and resources are listed themselves."""
    extras: Extras = NO_EXTRAS
    nodes: tuple[Node, ...] = ()
    """What it says of its own categories; their paths begin with its name."""
    set_aside: tuple[SetAside, ...] = ()
    warnings: tuple[str, ...] = ()
    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    """What becomes of each of its tools, by the name of that; empty where nobody judges them."""
    listed_in_s: float | None = None
    """Seconds from the first attempt to its listing."""

    @property
    def name(self) -> str:
        return self.source.name

    def offered(self, tool: Tool) -> Tool:
        """What is behind `tool`, one of its own that callers see: another where that is shown as it was approved."""
        judgement = self.judgements.get(tool.name)
        if judgement is None or judgement.shown is None or judgement.shown is judgement.tool:
            return tool
        return judgement.tool

    def is_same_server(self, other: SourceEntry) -> bool:
        """Whether both lead to one; where nothing is known of what is behind a source, only it itself is the same."""
        return self.identity == other.identity and (bool(self.identity) or self.source is other.source)


@dataclass(frozen=True)
class CatalogState:
    """What readers see: complete, never changed, numbered. No search can return a tool its state does not hold."""

    version: int = 0
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """By tool id."""
    index: Index = Index.EMPTY
    sources: Mapping[str, SourceEntry] = field(default_factory=dict[str, SourceEntry])
    """By name."""
    categories: Categories = NO_CATEGORIES
    """Those that somebody set up."""
    overrides: Overrides = NO_OVERRIDES
    """What is said of tools besides what their sources say; `tools` are as these have them."""
    offered: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """Those tools of which something is said as their sources have them, by id."""
    findings: Findings = NO_FINDINGS
    """What is known of the capabilities that tools need."""
    needing: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Ids of the tools that need a capability, by its name."""
    fingerprint: int = 0
    """The sum of the fingerprints of its tools: kept up, not made anew, when one of 100,000 comes or goes."""

    @cached_property
    def described(self) -> Mapping[Path, Node]:
        """The nodes that somebody described: sources, their categories, and those that were set up."""
        return described(self.sources, self.categories)

    @cached_property
    def ontology(self) -> Ontology:
        return Ontology(self.tools, self.described, self.categories)

    @cached_property
    def model_names(self) -> Mapping[str, str]:
        """Tool ids by the name under which a tool stands in a model's own tool list."""
        return {name: tool_id for tool_id, name in model_names(self.tools.values(), self.plain_sources).items()}

    @cached_property
    def plain_sources(self) -> frozenset[str]:
        """Names of the sources whose `plain_names` is set."""
        return frozenset(name for name, entry in self.sources.items() if entry.plain_names)


def described(sources: Mapping[str, SourceEntry], categories: Categories) -> Mapping[Path, Node]:
    """What is known of nodes; what was set up stands before what a source says of itself."""
    own = {(entry.name,): Node((entry.name,), entry.title, entry.summary) for entry in sources.values()}
    offered = {node.path: node for entry in sources.values() for node in entry.nodes}
    return {**_STANDARD, **offered, **own, **categories.nodes}


_STANDARD = {node.path: node for node in STANDARD.values()}
