"""Lint rules for descriptions that tell a model nothing, or that are too long."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.definition import Definition
from toolcrib.definitions.lint.findings import Problem
from toolcrib.search.index.tokens import terms

MIN_CHARS = 20
"""The minimum length in characters. A shorter description cannot say what the tool does and when to use it."""

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
"""Stems that say nothing about a specific tool."""


def missing(definition: Definition) -> Iterator[Problem]:
    """Find tools without a description."""
    if not definition.tool.description.strip():
        yield Problem("it has no description", _SAY, ("/description",))


def boilerplate(definition: Definition) -> Iterator[Problem]:
    """Find placeholder descriptions."""
    tool = definition.tool
    if _is_placeholder(tool.description):
        yield Problem(f"the description is a placeholder: {_quoted(tool.description)}", _SAY, ("/description",))


def name_again(definition: Definition) -> Iterator[Problem]:
    """Find descriptions that only repeat the name."""
    tool = definition.tool
    said = set(definition.description_terms)
    # A text without terms (only punctuation or stop words) also adds nothing to the name.
    if tool.description.strip() and not _is_placeholder(tool.description) and said <= _known(tool, definition):
        yield Problem(
            f"the description repeats the name: {_quoted(tool.description)}",
            "Describe what the name does not say: what the tool works on, what it returns, and when to use it",
            ("/description",),
        )


def short(definition: Definition) -> Iterator[Problem]:
    """Find descriptions that are too short."""
    tool = definition.tool
    text = " ".join(tool.description.split())
    # A character of a script without spaces carries about as much meaning as three letters.
    weight = sum(1 if ord(character) < 0x2E80 else 3 for character in text)
    if (
        0 < weight < MIN_CHARS
        and not _is_placeholder(text)
        and not set(definition.description_terms) <= _known(tool, definition)
    ):
        yield Problem(
            f"the description has only {len(text)} characters: {_quoted(text)}",
            "Describe what the tool returns, and when to use it",
            ("/description",),
        )


def long(definition: Definition) -> Iterator[Problem]:
    """Find descriptions that some endpoints refuse because of their length."""
    length = len(definition.tool.description)
    if length > MAX_CHARS:
        yield Problem(
            f"the description has {length:,} characters. Some endpoints refuse more than {MAX_CHARS:,}",
            "Keep what helps to decide when to use the tool, move details to the parameters, and remove the rest",
            ("/description",),
        )


_SAY = "Describe what the tool does, what it works on, what it returns, and when to use it"


def _known(tool: Tool, definition: Definition) -> frozenset[str]:
    return definition.name_terms | _SAYS_NOTHING | frozenset(terms(tool.source, keep_stopwords=True))


def _is_placeholder(text: str) -> bool:
    bare = " ".join(text.casefold().split()).strip(" .!-_…*#<>[](){}\"'")
    return bool(text.strip()) and (not bare or bare in _PLACEHOLDERS or _UNFINISHED.match(text) is not None)


def _quoted(text: str, limit: int = 80) -> str:
    line = " ".join(text.split())
    return f'"{line if len(line) <= limit else line[: limit - 1] + "…"}"'
