"""The visible sections of a prompt in one state, and their Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.agent.sections.events import SectionPath, SectionVisibility, dotted
from toolcrib.agent.sections.reader import CatalogReader
from toolcrib.agent.sections.reading import SectionTool, suffix
from toolcrib.agent.sections.section import Section
from toolcrib.agent.sections.state import SectionState

MAX_HEADING = 6
"""The deepest heading of Markdown. Deeper sections use it too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A visible section, and how it is shown."""

    section: Section
    path: SectionPath
    params: Any
    """The parameters of the type that the section takes. None if it takes none."""
    is_open: bool
    """Whether the section is shown in full."""
    children: tuple[Entry, ...]
    """The visible children. Empty for a summary, which hides them."""

    def walk(self) -> Iterator[Entry]:
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
) -> tuple[Entry, ...]:
    """Return the visible ones of `sections`, in their order. Each function of a section is called at most once."""
    entries = (_entry(section, params, state, (*above, section.key)) for section in sections)
    return tuple(entry for entry in entries if entry is not None)


def _entry(section: Section, params: Mapping[type, object], state: SectionState, path: SectionPath) -> Entry | None:
    own: Any = None if section.params is None else params[section.params]
    if not (section.enabled(own, state) if callable(section.enabled) else section.enabled):
        return None
    is_open = _is_open(section, own, state, path)
    children = outline(section.children, params, state, path) if is_open else ()
    return Entry(section, path, own, is_open, children)


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
