"""The state of the catalog at one moment, as one immutable value: tools, sources, categories and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from toolcrib.catalog.capabilities import NO_FINDINGS, Findings
from toolcrib.catalog.categories import NO_CATEGORIES, STANDARD, Categories
from toolcrib.catalog.ontology import Ontology
from toolcrib.catalog.overrides import NO_OVERRIDES, Overrides
from toolcrib.core.names import model_names
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Node, Path, Tool
from toolcrib.definitions.drift import Judgement
from toolcrib.search.index.index import Index
from toolcrib.sources.base import NO_EXTRAS, Extras, SetAside, Source


class SourceStatus(StrEnum):
    """The status of a source."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A source, with everything that the catalog knows about it."""

    source: Source
    status: SourceStatus = SourceStatus.STARTING
    title: str | None = None
    summary: str = ""
    version: str | None = None
    """The version that the source reports."""
    reason: str | None = None
    """Why the source failed. Any caller can read it."""
    diagnosis: str = ""
    """Details about the failure, only for the owner."""
    remedy: str = ""
    """What the owner can do about the failure, if Toolcrib knows. Only for the owner."""
    is_lasting: bool = False
    """Whether the failure is permanent until the owner fixes it."""
    needs_sign_in: bool = False
    """Whether a person has to sign in before the source works. The tools of an earlier listing can still be found."""
    trusted: bool = False
    """Whether the owner trusts what the tools claim about themselves."""
    identity: str = ""
    """A digest of the command or address. Two sources with one name are the same server if their identity is equal."""
    origin: str = ""
    """A digest of the command or address as the owner wrote it, equal for all principals. Pins are bound to it."""
    address: str = ""
    """The command or address in a form that can be shown to the owner."""
    plain_names: bool = False
    """Whether tools, prompts and resources keep their own names when they are listed directly."""
    extras: Extras = NO_EXTRAS
    nodes: tuple[Node, ...] = ()
    """The source's descriptions of its own categories. Their paths begin with the name of the source."""
    set_aside: tuple[SetAside, ...] = ()
    warnings: tuple[str, ...] = ()
    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    """The judgements of its tools, by tool name; empty if they are not judged."""
    listed_in_s: float | None = None
    """How many seconds the first listing took, from the first attempt."""

    @property
    def name(self) -> str:
        return self.source.name

    def offered(self, tool: Tool) -> Tool:
        """Return what the source really offers for `tool`, which callers see.

        The result differs from `tool` if callers see the pinned definition.
        """
        judgement = self.judgements.get(tool.name)
        if judgement is None or judgement.shown is None or judgement.shown is judgement.tool:
            return tool
        return judgement.tool

    def is_same_server(self, other: SourceEntry) -> bool:
        """Return whether both entries lead to the same server. Without an identity, only the same object does."""
        return self.identity == other.identity and (bool(self.identity) or self.source is other.source)


@dataclass(frozen=True)
class CatalogState:
    """A complete, immutable and numbered state of the catalog. A search can only return tools of its own state."""

    version: int = 0
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The tools by id, with the overrides applied."""
    index: Index = Index.EMPTY
    sources: Mapping[str, SourceEntry] = field(default_factory=dict[str, SourceEntry])
    """The sources by name."""
    categories: Categories = NO_CATEGORIES
    """The configured categories."""
    overrides: Overrides = NO_OVERRIDES
    """The metadata overrides, which `tools` already contain."""
    offered: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """The definitions without overrides, by id, of those tools to which an override applies."""
    findings: Findings = NO_FINDINGS
    """What is known about the capabilities that tools need."""
    needing: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By the name of a capability, the ids of the tools that need it."""
    fingerprint: int = 0
    """The sum of the fingerprints of all tools. A change updates it, because a new sum over 100,000 tools is slow."""

    @cached_property
    def described(self) -> Mapping[Path, Node]:
        """The descriptions of categories, by path: of sources, of their own categories, and of configured ones."""
        return described(self.sources, self.categories)

    @cached_property
    def ontology(self) -> Ontology:
        return Ontology(self.tools, self.described, self.categories)

    @cached_property
    def model_names(self) -> Mapping[str, str]:
        """The tool ids by the names that the tools have in a model's own tool list."""
        return {name: tool_id for tool_id, name in model_names(self.tools.values(), self.plain_sources).items()}

    @cached_property
    def plain_sources(self) -> frozenset[str]:
        """The names of the sources with `plain_names`."""
        return frozenset(name for name, entry in self.sources.items() if entry.plain_names)


def described(sources: Mapping[str, SourceEntry], categories: Categories) -> Mapping[Path, Node]:
    """Return the descriptions of categories, by path. Configured ones take precedence over those from a source."""
    own = {(entry.name,): Node((entry.name,), entry.title, entry.summary) for entry in sources.values()}
    offered = {node.path: node for entry in sources.values() for node in entry.nodes}
    return {**_STANDARD, **offered, **own, **categories.nodes}


_STANDARD = {node.path: node for node in STANDARD.values()}
