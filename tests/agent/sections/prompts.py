"""Prompts drawn by Hypothesis, each with a plan of its sections, so that a test knows what must be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from toolcrib.agent.sections import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Section,
    SectionPath,
    SectionState,
    SectionVisibility,
    SetVisibilityOverride,
    dotted,
)

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY


@dataclass(frozen=True)
class Part:
    """The plan of one section. Its texts and tools contain its unique path."""

    visibility: SectionVisibility
    enabled: bool
    can_close: bool
    """Whether it has a summary."""
    decides: bool
    """Whether visibility and `enabled` are functions."""
    tools: int
    parts: tuple[Part, ...] = ()


def _part(visibility: SectionVisibility, rest: tuple[bool, bool, bool], tools: int, parts: Sequence[Part]) -> Part:
    enabled, can_close, decides = rest
    return Part(visibility, enabled, can_close or decides or visibility is SUMMARY, decides, tools, tuple(parts))


_REST = st.tuples(st.sampled_from([True, True, True, False]), st.booleans(), st.booleans())


def _parts(inner: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    return st.builds(_part, st.sampled_from([FULL, SUMMARY]), _REST, st.integers(0, 2), st.lists(inner, max_size=3))


_LEAF = st.builds(_part, st.sampled_from([FULL, SUMMARY]), _REST, st.integers(0, 2), st.just(()))

PLANS = st.lists(st.recursive(_LEAF, _parts, max_leaves=6), min_size=1, max_size=3).map(tuple)


def paths(parts: Sequence[Part], above: SectionPath = ()) -> Iterator[tuple[SectionPath, Part]]:
    """Iterate over all sections of a plan, in the order of the text."""
    for number, part in enumerate(parts):
        path = (*above, f"s{number}")
        yield path, part
        yield from paths(part.parts, path)


def body(path: SectionPath) -> str:
    return f"<body of {dotted(path)}>"


def summary(path: SectionPath) -> str:
    return f"<summary of {dotted(path)}>"


def tools(path: SectionPath, part: Part) -> list[str]:
    return [f"{dotted(path)}/{number}" for number in range(part.tools)]


def made(parts: Sequence[Part]) -> Prompt[str]:
    return PromptTemplate(ns="test", key="drawn", sections=_sections(parts)).bind()


def _sections(parts: Sequence[Part], above: SectionPath = ()) -> list[Section]:
    return [_section(part, (*above, f"s{number}")) for number, part in enumerate(parts)]


def _section(part: Part, path: SectionPath) -> MarkdownSection:
    return MarkdownSection(
        title=f"Title {dotted(path)}",
        key=path[-1],
        template=body(path),
        summary=summary(path) if part.can_close else None,
        visibility=(lambda params, state: part.visibility) if part.decides else part.visibility,
        tools=tools(path, part),
        children=_sections(part.parts, path),
        enabled=(lambda params, state: part.enabled) if part.decides else part.enabled,
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[tuple[Part, ...], SectionState]:
    """Draw a plan, and a state with overrides for some of its sections and for unknown sections."""
    plan = draw(PLANS)
    known = [path for path, _ in paths(plan)] + [("gone",), ("s0", "gone")]
    said = st.builds(SetVisibilityOverride, st.sampled_from(known), st.sampled_from([FULL, SUMMARY]))
    state = SectionState()
    for event in draw(st.lists(said, max_size=5)):
        state = state.after(event)
    return plan, state
