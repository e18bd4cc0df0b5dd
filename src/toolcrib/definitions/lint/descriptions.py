"""Descriptions from which a model learns nothing, or more than it can read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.definition import Definition
from toolcrib.definitions.lint.findings import Problem
from toolcrib.search.index.tokens import terms

MIN_CHARS = 20
"""Below this, a description has no room for what the tool does and when to use it."""

MAX_CHARS = 1_024
"""The longest description that OpenAI's older models and some compatible endpoints take.

Source: their error "Invalid 'tools[0].function.description': string too long", `string_above_max_length`."""

_PLACEHOLDERS = {
    "todo", "tbd", "fixme", "description", "desc", "n/a", "na", "none", "null", "nil", "undefined", "test", "string",
    "text", "placeholder", "tool", "function", "untitled", "example",
    "no description", "no description available", "no description provided", "no description yet",
    "description not available", "add description", "add description here", "description here", "your description",
    "a tool", "this is a tool", "a function", "lorem ipsum", "coming soon", "to do", "to be done", "tool description",
    "function description", "to be documented", "to be defined", "enter description",
}  # fmt: skip
_UNFINISHED = re.compile(r"\W*(?:todo|fixme|tbd|lorem ipsum)\b", re.IGNORECASE)

_SAYS_NOTHING = frozenset(
    terms(
        "tool function method api endpoint command operation action helper utility description "
        "use used using call calls execute perform performs provide provides allow allows do does make made "
        "given specified simple basic way",
        keep_stopwords=True,
    )
)
"""Stems that say nothing about one tool rather than another."""


def missing(definition: Definition) -> Iterator[Problem]:
    """No description."""
    if not definition.tool.description.strip():
        yield Problem("it has no description", _SAY, ("/description",))


def boilerplate(definition: Definition) -> Iterator[Problem]:
    """One that somebody was going to write."""
    tool = definition.tool
    if _is_placeholder(tool.description):
        yield Problem(f"its description is a placeholder: {_quoted(tool.description)}", _SAY, ("/description",))


def name_again(definition: Definition) -> Iterator[Problem]:
    """One that has nothing beyond the name."""
    tool = definition.tool
    said = set(definition.description_terms)
    # A text without a single term (punctuation, stopwords) says no more than the name either.
    if tool.description.strip() and not _is_placeholder(tool.description) and said <= _known(tool, definition):
        yield Problem(
            f"its description only says its name again: {_quoted(tool.description)}",
            "Say what is not in the name: what it works on, what comes back, when to use it and when not",
            ("/description",),
        )


def short(definition: Definition) -> Iterator[Problem]:
    """One that says little beyond the name."""
    tool = definition.tool
    text = " ".join(tool.description.split())
    # A sign of a script without spaces says as much as some letters do.
    weight = sum(1 if ord(character) < 0x2E80 else 3 for character in text)
    if (
        0 < weight < MIN_CHARS
        and not _is_placeholder(text)
        and not set(definition.description_terms) <= _known(tool, definition)
    ):
        yield Problem(
            f"its description has {len(text)} characters: {_quoted(text)}",
            "Say what comes back, and when to use it and when not",
            ("/description",),
        )


def long(definition: Definition) -> Iterator[Problem]:
    """One that some endpoints refuse and no model reads to its end."""
    length = len(definition.tool.description)
    if length > MAX_CHARS:
        yield Problem(
            f"its description has {length:,} characters; some endpoints refuse more than {MAX_CHARS:,}",
            "Keep what decides whether to use it, move what is about one parameter to that, and drop the rest",
            ("/description",),
        )


_SAY = "Say what it does, what it works on, what comes back, and when to use it"


def _known(tool: Tool, definition: Definition) -> frozenset[str]:
    return definition.name_terms | _SAYS_NOTHING | frozenset(terms(tool.source, keep_stopwords=True))


def _is_placeholder(text: str) -> bool:
    bare = " ".join(text.casefold().split()).strip(" .!-_…*#<>[](){}\"'")
    return bool(text.strip()) and (not bare or bare in _PLACEHOLDERS or _UNFINISHED.match(text) is not None)


def _quoted(text: str, limit: int = 80) -> str:
    line = " ".join(text.split())
    return f'"{line if len(line) <= limit else line[: limit - 1] + "…"}"'
