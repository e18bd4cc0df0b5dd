"""Lint rules for descriptions that say too little or too much, and for claims about behaviour that cannot be right."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolcrib.core.digests import BYTES_PER_TOKEN, size_of
from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.linted_tool import LintedTool, mapping
from toolcrib.search.index.tokens import terms, words

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


def missing(definition: LintedTool) -> Iterator[Problem]:
    """Find tools without a description."""
    if not definition.tool.description.strip():
        yield Problem("it has no description", _SAY, ("/description",))


def boilerplate(definition: LintedTool) -> Iterator[Problem]:
    """Find placeholder descriptions."""
    tool = definition.tool
    if _is_placeholder(tool.description):
        yield Problem(f"the description is a placeholder: {_quoted(tool.description)}", _SAY, ("/description",))


def name_again(definition: LintedTool) -> Iterator[Problem]:
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


def short(definition: LintedTool) -> Iterator[Problem]:
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


def long(definition: LintedTool) -> Iterator[Problem]:
    """Find descriptions that some endpoints refuse because of their length."""
    length = len(definition.tool.description)
    if length > MAX_CHARS:
        yield Problem(
            f"the description has {length:,} characters. Some endpoints refuse more than {MAX_CHARS:,}",
            "Keep what helps to decide when to use the tool, move details to the parameters, and remove the rest",
            ("/description",),
        )


_SAY = "Describe what the tool does, what it works on, what it returns, and when to use it"


def _known(tool: Tool, definition: LintedTool) -> frozenset[str]:
    return definition.name_terms | _SAYS_NOTHING | frozenset(terms(tool.source, keep_stopwords=True))


def _is_placeholder(text: str) -> bool:
    bare = " ".join(text.casefold().split()).strip(" .!-_…*#<>[](){}\"'")
    return bool(text.strip()) and (not bare or bare in _PLACEHOLDERS or _UNFINISHED.match(text) is not None)


def _quoted(text: str, limit: int = 80) -> str:
    line = " ".join(text.split())
    return f'"{line if len(line) <= limit else line[: limit - 1] + "…"}"'


def over_budget(definition: LintedTool) -> Iterator[Problem]:
    """Find definitions with more than `definition.limits.max_tokens` estimated tokens."""
    tool = definition.tool
    total = estimated_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})
    if total > definition.limits.max_tokens:
        described, schema = estimated_tokens(tool.description), estimated_tokens(tool.input_schema)
        yield Problem(
            f"the definition has about {total:,} tokens ({described:,} for the description, {schema:,} for the input "
            f"schema). The limit is {definition.limits.max_tokens:,}",
            "Shorten descriptions, remove parameters that are never used, or split the tool",
            ("/description" if described > schema else "/inputSchema",),
        )


def estimated_tokens(value: object) -> int:
    """Estimate the tokens of a JSON value, with the same estimate as everywhere in Toolcrib."""
    return size_of(value) // BYTES_PER_TOKEN


_CHANGING = {
    "delete", "remove", "drop", "erase", "destroy", "purge", "wipe", "truncate", "uninstall", "revoke", "overwrite",
}  # fmt: skip
_CONSIDERED = 2
"""How many words at the start of a name may be its verb: `delete_file`, `repo_delete`. Later words are nouns."""


def contradictory(definition: LintedTool) -> Iterator[Problem]:
    """Find tools that claim to be read-only and also destructive."""
    claims = mapping(definition.tool.wire.get("annotations")) or {}
    if claims.get("readOnlyHint") is True and claims.get("destructiveHint") is True:
        yield Problem(
            "it is marked read-only and destructive",
            "Remove `destructiveHint` if the tool only reads, or set `readOnlyHint` to false",
            ("/annotations",),
        )


def doubtful(definition: LintedTool) -> Iterator[Problem]:
    """Find tools that claim to be read-only, but whose name says that they change something."""
    tool = definition.tool
    verbs = [word for word in list(words(tool.name))[:_CONSIDERED] if word in _CHANGING]
    if tool.annotations.read_only and verbs:
        yield Problem(
            f"it is marked read-only, but its name says `{verbs[0]}`. Clients may run it without asking",
            "Set `readOnlyHint` to false, or rename the tool",
            ("/annotations/readOnlyHint",),
        )
