"""What a model sees of a prompt in one state: visible sections, their Markdown, and the tool that opens more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.agent.sections.section import CatalogReader, Section, ToolReference
from toolcrib.agent.sections.section_state import SectionPath, SectionState, SectionVisibility, dotted
from toolcrib.core.tools import Tool, ToolAnnotations

READ_SECTION = Tool(
    source="prompt",
    name="read_section",
    description="Read the full content of a summarized section.",
    input_schema={
        "type": "object",
        "properties": {
            "section_key": {
                "type": "string",
                "description": "the key below the summary; the key of a nested section contains a dot",
            }
        },
        "required": ["section_key"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)
"""The definition that a model sees. Source: dynamic tool registration, "Unified read_section Tool"."""


def suffix(key: str) -> str:
    """Return the end of a summarised section. Source: dynamic tool registration, "Summary Suffix", word for word."""
    return f'---\n[This section is summarized. To view full content, call `{READ_SECTION.name}` with key "{key}".]'


@dataclass(frozen=True, slots=True)
class SectionTool:
    """A tool and its section."""

    path: SectionPath
    tool: ToolReference


@dataclass(frozen=True, slots=True)
class ReadSectionResult:
    """The content of a section. Source: dynamic tool registration, "ReadSectionResult with Tools"."""

    content: str
    """The Markdown with heading and children, as in the prompt once the section is open."""
    expanded_tools: tuple[SectionTool, ...] = ()
    """The tools that were not offered before: those of the section and of sections below it that are now shown in
    full."""


@dataclass(frozen=True, slots=True)
class SectionRead:
    """The answer to `read_section`."""

    success: bool
    message: str
    """The message for the model: what it got, or which key it may have meant."""
    path: SectionPath
    """The path of the requested section, whether it exists or not."""
    value: ReadSectionResult | None = None
    """The content. None if there is no such section."""
    opens: bool = False
    """Whether the section was closed before."""


MAX_HEADING = 6
"""The deepest heading of Markdown. Deeper sections use it too."""


@dataclass(frozen=True, slots=True)
class VisibleSection:
    """A visible section, and how it is shown."""

    section: Section
    path: SectionPath
    params: Any
    """The parameters of the type that the section takes. None if it takes none."""
    is_open: bool
    """Whether the section is shown in full."""
    children: tuple[VisibleSection, ...]
    """The visible children. Empty for a summary, which hides them."""

    def walk(self) -> Iterator[VisibleSection]:
        """Yield the section and all visible sections below it, in the order of the text."""
        yield self
        for child in self.children:
            yield from child.walk()

    def markdown(self, catalog: CatalogReader | None) -> str:
        heading = f"{'#' * min(len(self.path), MAX_HEADING)} {self.section.title.strip()}"
        if not self.is_open:
            return _blocks(heading, self.section.in_short(self.params, catalog), suffix(dotted(self.path)))
        below = (child.markdown(catalog) for child in self.children)
        return _blocks(heading, self.section.content(self.params, catalog), *below)

    @property
    def tools(self) -> Iterator[SectionTool]:
        """Yield the tools that the section offers now, its own first."""
        for entry in self.walk():
            if entry.is_open:
                yield from (SectionTool(entry.path, tool) for tool in entry.section.tools)


def outline(
    sections: Iterable[Section], params: Mapping[type, object], state: SectionState, above: SectionPath = ()
) -> tuple[VisibleSection, ...]:
    """Return the visible ones of `sections`, in their order. Each function of a section is called at most once."""
    entries = (_entry(section, params, state, (*above, section.key)) for section in sections)
    return tuple(entry for entry in entries if entry is not None)


def _entry(
    section: Section, params: Mapping[type, object], state: SectionState, path: SectionPath
) -> VisibleSection | None:
    own: Any = None if section.params is None else params[section.params]
    if not (section.enabled(own, state) if callable(section.enabled) else section.enabled):
        return None
    is_open = _is_open(section, own, state, path)
    children = outline(section.children, params, state, path) if is_open else ()
    return VisibleSection(section, path, own, is_open, children)


def _is_open(section: Section, own: Any, state: SectionState, path: SectionPath) -> bool:
    """The conversation's setting takes precedence over the section's own. A section without a summary is always
    open."""
    if not section.has_summary:
        return True
    said = state.overrides.get(path)
    if said is None:
        said = section.visibility(own, state) if callable(section.visibility) else section.visibility
    return said == SectionVisibility.FULL


def _blocks(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)
