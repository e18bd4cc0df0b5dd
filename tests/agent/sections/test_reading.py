"""Reading a section by its key: the content for the model, and suggestions for a wrong key."""

from __future__ import annotations

import pytest

from toolcrib.agent.sections import (
    READ_SECTION,
    CatalogSection,
    MarkdownSection,
    PromptTemplate,
    ReadSectionResult,
    SectionRead,
    SectionState,
    SectionTool,
    SectionVisibility,
    SetVisibilityOverride,
    ToolsInjected,
)
from toolcrib.core.errors import InvalidPrompt

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY
NOTHING_SAID = SectionState()

LEAF = MarkdownSection("Errors", "errors", "What fails.", "In short.", SUMMARY, ["web.errors"])
API = MarkdownSection("API", "api", "Calls.", tools=["web.call"], children=[LEAF])
GUIDE = MarkdownSection("Guide", "guide", "All.", "In short.", SUMMARY, ["web.read"], [API])
HIDDEN = MarkdownSection("Guild", "guild", "Nobody sees it.", enabled=False)
INTRO = MarkdownSection("Intro", "intro", "Hello.", tools=["web.hello"])

PROMPT = PromptTemplate(ns="test", key="guide", sections=[INTRO, GUIDE, HIDDEN]).bind()
OPEN = NOTHING_SAID.after(PROMPT.override_for("guide"))


def test_a_summarized_section_is_read_with_the_tools_of_its_open_subsections() -> None:
    suffix = '[This section is summarized. To view full content, call `read_section` with key "guide.api.errors".]'
    content = f"# Guide\n\nAll.\n\n## API\n\nCalls.\n\n### Errors\n\nIn short.\n\n---\n{suffix}"
    tools = (SectionTool(("guide",), "web.read"), SectionTool(("guide", "api"), "web.call"))
    assert PROMPT.read_section("guide", NOTHING_SAID) == SectionRead(
        True, 'Section "guide":', ("guide",), ReadSectionResult(content, tools), opens=True
    )


def test_a_summarized_subsection_can_be_read_after_its_parent_is_open() -> None:
    read = PROMPT.read_section("guide.api.errors", OPEN)
    tools = (SectionTool(("guide", "api", "errors"), "web.errors"),)
    assert read.value == ReadSectionResult("### Errors\n\nWhat fails.", tools)


@pytest.mark.parametrize(("key", "state"), [("intro", NOTHING_SAID), ("guide.api", OPEN), ("guide", OPEN)])
def test_an_open_section_is_read_without_tools(key: str, state: SectionState) -> None:
    read = PROMPT.read_section(key, state)
    assert read.success
    assert not read.opens
    assert read.message == f'Section "{key}" is already open.'
    assert read.value is not None
    assert read.value.content in PROMPT.render(state).text
    assert read.value.expanded_tools == ()


@pytest.mark.parametrize(
    ("key", "state", "message"),
    [
        ("giude", NOTHING_SAID, 'Section "giude" not found. Did you mean "guide"?'),
        ("guild", NOTHING_SAID, 'Section "guild" not found. Did you mean "guide"?'),
        ("Guide", NOTHING_SAID, 'Section "Guide" not found. Did you mean "guide"?'),
        ("guide.api", NOTHING_SAID, 'Section "guide.api" not found. Did you mean "guide"?'),
        ("guide.none.none", NOTHING_SAID, 'Section "guide.none.none" not found. Did you mean "guide"?'),
        ("guide.appi", OPEN, 'Section "guide.appi" not found. Did you mean "guide.api"?'),
        ("errors", OPEN, 'Section "errors" not found. Did you mean "guide.api.errors"?'),
        ("errors", NOTHING_SAID, 'Section "errors" not found. You can read: "guide".'),
        ("", NOTHING_SAID, 'Section "" not found. You can read: "guide".'),
        ("zzz", OPEN.after(PROMPT.override_for("guide.api.errors")), 'Section "zzz" not found.'),
        ("\ud800" + "x" * 1000, NOTHING_SAID, f'Section "\\ud800{"x" * 79}" not found. You can read: "guide".'),
    ],
)
def test_an_unknown_key_is_answered_with_a_suggestion(key: str, state: SectionState, message: str) -> None:
    read = PROMPT.read_section(key, state)
    assert (read.success, read.message, read.value) == (False, message, None)


def test_a_long_list_of_readable_sections_is_shortened() -> None:
    sections = [MarkdownSection("S", f"s{number}", "", "Short.", SUMMARY) for number in range(10)]
    read = PromptTemplate("test", "many", sections).bind().read_section("xyzzy", NOTHING_SAID)
    assert read.message.endswith('"s6", "s7".')


def test_a_section_that_disappears_when_opened_cannot_be_read() -> None:
    shy = MarkdownSection("Shy", "shy", "All.", "Short.", SUMMARY, enabled=lambda _, state: not state.overrides)
    read = PromptTemplate("test", "shy", [shy]).bind().read_section("shy", NOTHING_SAID)
    assert (read.success, read.message) == (False, 'Section "shy" cannot be read now.')


def test_a_catalog_section_cannot_be_read_without_a_catalog() -> None:
    prompt = PromptTemplate("test", "git", [CatalogSection("Git", "git", ("git",), "Short.")]).bind()
    with pytest.raises(InvalidPrompt, match="`git` shows a category"):
        prompt.read_section("git", NOTHING_SAID)


def test_an_override_requires_a_section_of_the_template() -> None:
    assert PROMPT.override_for("guide.api.errors") == SetVisibilityOverride(("guide", "api", "errors"), FULL)
    with pytest.raises(InvalidPrompt, match=r"no section `guide.appi`. Did you mean `guide.api`\?"):
        PROMPT.override_for("guide.appi")


def test_the_read_section_tool_takes_one_key_and_does_not_mention_tools() -> None:
    assert READ_SECTION.name == "read_section"
    assert READ_SECTION.arguments.is_valid({"section_key": "guide.api"})
    for wrong in ({}, {"section_key": 1}, {"section_key": "guide", "reason": "x"}):
        assert not READ_SECTION.arguments.is_valid(wrong)
    assert "tool" not in f"{READ_SECTION.description} {READ_SECTION.input_schema}"


# -- the state --------------------------------------------------------------------------------------------------------


def test_the_last_override_of_a_section_applies_and_other_events_change_nothing() -> None:
    closed = OPEN.after(SetVisibilityOverride(("guide",), SUMMARY))
    assert closed.overrides == {("guide",): SUMMARY}
    assert OPEN.after(ToolsInjected(("web_read",), "guide", 1.5)) == OPEN
    assert OPEN.overrides == {("guide",): FULL}, "a state stays as it is"


def test_a_saved_state_does_not_depend_on_the_order_of_events() -> None:
    events = [SetVisibilityOverride(("b", "a"), FULL), SetVisibilityOverride(("a",), SUMMARY)]
    ahead, back = NOTHING_SAID, NOTHING_SAID
    for event, other in zip(events, reversed(events), strict=True):
        ahead, back = ahead.after(event), back.after(other)
    assert list(ahead.to_wire()["overrides"].items()) == list(back.to_wire()["overrides"].items())
    assert ahead.to_wire() == {"overrides": {"a": "summary", "b.a": "full"}}


@pytest.mark.parametrize(
    "wire", [None, [], {}, {"overrides": None}, {"overrides": {"a": "wide"}}, {"overrides": {"a": 1}}]
)
def test_an_invalid_saved_state_is_refused(wire: object) -> None:
    with pytest.raises(InvalidPrompt, match="Not a saved state"):
        SectionState.from_wire(wire)
