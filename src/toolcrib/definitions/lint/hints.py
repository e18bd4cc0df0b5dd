"""What a tool claims of its behaviour, where that cannot be right."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.definitions.lint.definition import Definition, mapping
from toolcrib.definitions.lint.findings import Problem
from toolcrib.search.index.tokens import words

_CHANGING = {
    "delete", "remove", "drop", "erase", "destroy", "purge", "wipe", "truncate", "uninstall", "revoke", "overwrite",
}  # fmt: skip
_CONSIDERED = 2
"""Words at the beginning of a name in which its verb stands: `delete_file`, `repo_delete`. Further on it is a noun."""


def contradictory(definition: Definition) -> Iterator[Problem]:
    """Read-only and destructive, both said."""
    claims = mapping(definition.tool.wire.get("annotations")) or {}
    if claims.get("readOnlyHint") is True and claims.get("destructiveHint") is True:
        yield Problem(
            "it claims to be read-only and destructive",
            "Leave `destructiveHint` out of what only reads, or set `readOnlyHint` to false",
            ("/annotations",),
        )


def doubtful(definition: Definition) -> Iterator[Problem]:
    """Read-only, by a name that says otherwise."""
    tool = definition.tool
    verbs = [word for word in list(words(tool.name))[:_CONSIDERED] if word in _CHANGING]
    if tool.annotations.read_only and verbs:
        yield Problem(
            f"it claims to be read-only, and its name says `{verbs[0]}`: clients may run it without asking anybody",
            "Set `readOnlyHint` to false, or name it for what it reads",
            ("/annotations/readOnlyHint",),
        )
