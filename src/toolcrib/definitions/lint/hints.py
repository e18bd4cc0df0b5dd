"""Lint rules for claims about a tool's behaviour that cannot be right."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.definitions.lint.definition import Definition, mapping
from toolcrib.definitions.lint.findings import Problem
from toolcrib.search.index.tokens import words

_CHANGING = {
    "delete", "remove", "drop", "erase", "destroy", "purge", "wipe", "truncate", "uninstall", "revoke", "overwrite",
}  # fmt: skip
_CONSIDERED = 2
"""How many words at the start of a name may be its verb: `delete_file`, `repo_delete`. Later words are nouns."""


def contradictory(definition: Definition) -> Iterator[Problem]:
    """Find tools that claim to be read-only and also destructive."""
    claims = mapping(definition.tool.wire.get("annotations")) or {}
    if claims.get("readOnlyHint") is True and claims.get("destructiveHint") is True:
        yield Problem(
            "it is marked read-only and destructive",
            "Remove `destructiveHint` if the tool only reads, or set `readOnlyHint` to false",
            ("/annotations",),
        )


def doubtful(definition: Definition) -> Iterator[Problem]:
    """Find tools that claim to be read-only, but whose name says that they change something."""
    tool = definition.tool
    verbs = [word for word in list(words(tool.name))[:_CONSIDERED] if word in _CHANGING]
    if tool.annotations.read_only and verbs:
        yield Problem(
            f"it is marked read-only, but its name says `{verbs[0]}`. Clients may run it without asking",
            "Set `readOnlyHint` to false, or rename the tool",
            ("/annotations/readOnlyHint",),
        )
