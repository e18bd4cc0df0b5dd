"""Creating and rendering the sections of a prompt, and refused sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_type

import pytest

from toolcrib.agent.sections import (
    CatalogSection,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionState,
    SectionTool,
    SectionVisibility,
    SetVisibilityOverride,
)
from toolcrib.core.errors import InvalidPrompt, UnknownPath
from toolcrib.core.tools import Path, Tool, ToolPointer

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY
NOTHING_SAID = SectionState()


@dataclass(frozen=True)
class Question:
    topic: str
    depth: int = 1


@dataclass(frozen=True)
class Reader:
    name: str


@dataclass
class Draft:
    topic: str


@dataclass(frozen=True)
class Answer:
    text: str


class Shelves:
    """A catalog with one category that has tools and one that is empty."""

    def summary(self, category: Path) -> str:
        return "History of\nfiles." if self._is_git(category) else ""

    def pointers(self, category: Path) -> list[ToolPointer]:
        if not self._is_git(category):
            return []
        return [
            ToolPointer("git.push", category, "Send commits\n## away."),
            ToolPointer("git.log", category, "Show commits."),
        ]

    def _is_git(self, category: Path) -> bool:
        if category not in {("git",), ("attic",)}:
            raise UnknownPath("There is none.")
        return category == ("git",)


def prompt(*sections: MarkdownSection[Any] | CatalogSection, params: tuple[object, ...] = ()) -> Prompt[str]:
    return PromptTemplate(ns="test", key="prompt", sections=sections).bind(*params)


def text(*sections: MarkdownSection[Any] | CatalogSection, params: tuple[object, ...] = ()) -> str:
    return prompt(*sections, params=params).render(NOTHING_SAID, Shelves()).text


# -- texts ------------------------------------------------------------------------------------------------------------


def test_sections_are_markdown_with_headings_by_depth() -> None:
    leaf = MarkdownSection("Leaf", "leaf", "\n    Indented code.\n")
    inner = MarkdownSection("Inner", "inner", "", children=[leaf])
    assert text(MarkdownSection("Outer", "outer", "Words.", children=[inner]), MarkdownSection("Next", "next", "")) == (
        "# Outer\n\nWords.\n\n## Inner\n\n### Leaf\n\nIndented code.\n\n# Next"
    )


def test_headings_have_at_most_six_levels() -> None:
    section = MarkdownSection("Deepest", "k", "")
    for _ in range(7):
        section = MarkdownSection("Around", "k", "", children=[section])
    assert text(section).endswith("\n\n###### Around\n\n###### Deepest")


def test_a_summary_hides_the_section_and_says_how_to_read_it() -> None:
    child = MarkdownSection("API", "api", "Calls.", tools=["web.call"])
    guide = MarkdownSection("Guide", "guide", "All.", "In short.", SUMMARY, ["web.read"], [child])
    rendered = prompt(guide).render(NOTHING_SAID)
    assert rendered.text == (
        "# Guide\n\nIn short.\n\n---\n"
        '[This section is summarized. To view full content, call `read_section` with key "guide".]'
    )
    assert rendered.tools == ()
    assert rendered.summarized == (("guide",),)


def test_the_key_of_a_summarized_subsection_is_its_dotted_path() -> None:
    child = MarkdownSection("API", "api", "Calls.", "In short.", SUMMARY)
    rendered = prompt(MarkdownSection("Guide", "guide", "All.", children=[child])).render(NOTHING_SAID)
    assert rendered.text.endswith('call `read_section` with key "guide.api".]')
    assert rendered.summarized == (("guide", "api"),)


def test_tools_of_any_kind_are_returned_with_the_path_of_their_section() -> None:
    def look() -> str:
        return ""

    own = Tool("git", "log")
    child = MarkdownSection("API", "api", "Calls.", tools=["web.call"])
    guide = MarkdownSection("Guide", "guide", "All.", tools=[own, look], children=[child])
    assert prompt(guide).render(NOTHING_SAID).tools == (
        SectionTool(("guide",), own),
        SectionTool(("guide",), look),
        SectionTool(("guide", "api"), "web.call"),
    )


# -- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_fill_templates_and_summaries_and_are_not_expanded_again() -> None:
    told = MarkdownSection("On", "on", "${topic}, ${depth} deep", params=Question)
    short = MarkdownSection("For", "for", "", "For ${name}", SUMMARY, params=Reader)
    assert text(told, short, params=(Reader("Ada"), Question("${depth} $$", 2))).startswith(
        "# On\n\n${depth} $$, 2 deep\n\n# For\n\nFor Ada\n\n---"
    )


def test_a_dollar_sign_is_literal_and_two_are_an_escape() -> None:
    section = MarkdownSection("S", "s", "$5, $HOME, $${topic}, $$${topic}", params=Question)
    assert text(section, params=(Question("9"),)) == "# S\n\n$5, $HOME, ${topic}, $9"


def test_two_sections_may_use_the_same_parameters() -> None:
    sections = [MarkdownSection("S", key, "${topic}", params=Question) for key in "ab"]
    assert text(*sections, params=(Question("x"),)) == "# S\n\nx\n\n# S\n\nx"


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ((), "needs a value for `Question`, `Reader`"),
        ((Question("x"),), "needs a value for `Reader`"),
        ((Question("x"), Question("y"), Reader("z")), "Two values were given for `Question`"),
        ((Question("x"), Reader("z"), Answer("")), "takes a `Answer`"),
    ],
)
def test_binding_requires_exactly_one_value_for_each_parameter_type(params: tuple[object, ...], named: str) -> None:
    child = MarkdownSection("Child", "child", "", params=Reader, enabled=False)
    template = PromptTemplate("test", "prompt", [MarkdownSection("S", "s", "", params=Question, children=[child])])
    with pytest.raises(InvalidPrompt, match=named):
        template.bind(*params)


def test_a_template_has_the_type_of_its_answer() -> None:
    asking = PromptTemplate[Answer](ns="test", key="answer", sections=[])
    telling = PromptTemplate(ns="test", key="text", sections=[])

    assert assert_type(asking.output_type, type[Answer]) is Answer
    assert assert_type(asking.bind().output_type, type[Answer]) is Answer
    assert assert_type(telling.bind().output_type, type[str]) is str
    assert PromptTemplate[list[int]]("test", "numbers").output_type == list[int]
    assert asking == PromptTemplate[Answer](ns="test", key="answer")
    assert asking != PromptTemplate[Reader](ns="test", key="answer")


# -- decisions at rendering time --------------------------------------------------------------------------------------


def test_functions_of_parameters_and_state_are_called_at_each_rendering() -> None:
    def depth(question: Question, state: SectionState) -> SectionVisibility:
        return FULL if question.depth > 1 or ("other",) in state.overrides else SUMMARY

    section = MarkdownSection("S", "s", "All.", "Short.", depth, ["a.b"], params=Question)
    other = MarkdownSection("Other", "other", "More.", enabled=lambda _, state: ("other",) in state.overrides)
    opened = NOTHING_SAID.after(SetVisibilityOverride(("other",), FULL))
    shallow, deep = prompt(section, other, params=(Question("x"),)), prompt(section, other, params=(Question("x", 2),))

    assert shallow.render(NOTHING_SAID).summarized == (("s",),)
    assert deep.render(NOTHING_SAID).text == "# S\n\nAll."
    assert shallow.render(opened).text == deep.render(opened).text == "# S\n\nAll.\n\n# Other\n\nMore."


def test_an_override_has_priority_over_the_visibility_of_the_section() -> None:
    section = MarkdownSection("S", "s", "All.", "Short.", lambda _, __: FULL)
    assert prompt(section).render(NOTHING_SAID).text == "# S\n\nAll."
    closed = NOTHING_SAID.after(SetVisibilityOverride(("s",), SUMMARY))
    assert prompt(section).render(closed).summarized == (("s",),)


def test_a_section_without_a_summary_cannot_be_closed() -> None:
    closed = NOTHING_SAID.after(SetVisibilityOverride(("s",), SUMMARY))
    assert prompt(MarkdownSection("S", "s", "All.")).render(closed).text == "# S\n\nAll."


# -- categories -------------------------------------------------------------------------------------------------------


def test_an_open_category_lists_one_pointer_per_line() -> None:
    section = CatalogSection("Git", "git", ("git",), visibility=FULL)
    assert text(section) == "# Git\n\n- git.log: Show commits.\n- git.push: Send commits ## away."


def test_a_category_is_summarized_by_default() -> None:
    assert text(CatalogSection("Git", "git", ("git",))).startswith("# Git\n\nHistory of files.\n\n---\n")
    assert text(CatalogSection("Git", "git", ("git",), "Own words.")).startswith("# Git\n\nOwn words.\n\n---\n")
    assert text(CatalogSection("Attic", "a", ("attic",))).startswith("# Attic\n\nTools of the category attic.\n\n---\n")


@pytest.mark.parametrize("visibility", [FULL, SUMMARY])
def test_a_missing_category_is_shown_as_having_no_tools(visibility: SectionVisibility) -> None:
    shown = text(CatalogSection("Gone", "gone", ("gone",), visibility=visibility))
    assert shown.startswith("# Gone\n\nThere are currently no tools in the category gone.")


def test_an_empty_category_is_shown_as_having_no_tools() -> None:
    shown = text(CatalogSection("Attic", "attic", ("attic",), visibility=FULL))
    assert shown == "# Attic\n\nThere are currently no tools in the category attic."


def test_a_category_needs_a_catalog_unless_it_has_a_summary() -> None:
    with pytest.raises(InvalidPrompt, match="`git` shows a category"):
        prompt(CatalogSection("Git", "git", ("git",))).render(NOTHING_SAID)
    rendered = prompt(CatalogSection("Git", "git", ("git",), "Own words.")).render(NOTHING_SAID)
    assert rendered.summarized == (("git",),)


# -- refused sections -------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("Invalid section key `a.b`", lambda: MarkdownSection("S", "a.b", "")),
    ("Invalid section key ``", lambda: CatalogSection("S", "", ())),
    ("`s`: the title must be one line", lambda: MarkdownSection("A\n# B", "s", "")),
    ("`s`: the title must be one line", lambda: CatalogSection(" ", "s", ())),
    ("`s`: it may be shown as a summary", lambda: MarkdownSection("S", "s", "", visibility=SUMMARY)),
    ("`s`: it may be shown as a summary", lambda: MarkdownSection("S", "s", "", " ", SUMMARY)),
    ("`s`: it may be shown as a summary", lambda: MarkdownSection("S", "s", "", visibility=lambda _, __: FULL)),
    (r"fills `\$\{topic\}`. There are no fields", lambda: MarkdownSection("S", "s", "${topic}")),
    (
        r"fills `\$\{tpoic\}`. The fields are `topic`, `depth`",
        lambda: MarkdownSection("S", "s", "", "${tpoic}", params=Question),
    ),
    (r"fills `\$\{topic`", lambda: MarkdownSection("S", "s", "${topic", params=Question)),
    (r"fills `\$\{__class__\}`", lambda: MarkdownSection("S", "s", "${__class__}", params=Question)),
    ("`s`: `params` must be a frozen dataclass", lambda: MarkdownSection("S", "s", "", params=Draft)),
    ("`s`: `params` must be a frozen dataclass", lambda: MarkdownSection("S", "s", "", params=str)),
    ("`s`: `tools` must be a sequence", lambda: MarkdownSection("S", "s", "", tools="git.log")),
    (
        "`s`: duplicate section key `a`",
        lambda: MarkdownSection("S", "s", "", children=[MarkdownSection("A", "a", ""), CatalogSection("A", "a", ())]),
    ),
    (
        "`test/p`: duplicate section key `a`",
        lambda: PromptTemplate("test", "p", [MarkdownSection("A", "a", ""), MarkdownSection("B", "a", "")]),
    ),
    ("a namespace and a key", lambda: PromptTemplate("", "p")),
    ("a namespace and a key", lambda: PromptTemplate("test", " ")),
]


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_an_invalid_section_or_template_is_refused_when_it_is_created(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidPrompt, match=message):
        make()


def test_the_same_key_may_be_used_at_different_paths() -> None:
    inner = MarkdownSection("A", "a", "Inner.")
    assert text(MarkdownSection("A", "a", "Outer.", children=[inner])) == "# A\n\nOuter.\n\n## A\n\nInner."
