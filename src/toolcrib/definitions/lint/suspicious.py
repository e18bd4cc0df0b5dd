"""Texts in which a person would find an attempt on the model, and names that pass for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from toolcrib.core.tools import Tool
from toolcrib.definitions.drift.suspicions import Neighbours, Suspicion, suspicions_in
from toolcrib.definitions.lint.definition import Definition
from toolcrib.definitions.lint.findings import Problem


def hidden_characters(definition: Definition) -> Iterator[Problem]:
    """Characters that nobody sees."""
    return _problems(definition.suspicions, "hidden-characters", "Take them out, or write them as an escape")


def tag_characters(definition: Definition) -> Iterator[Problem]:
    """A text in characters that nobody sees."""
    return _problems(
        definition.suspicions, "tag-characters", "Take them out; if they are not yours, stop using the tool"
    )


def bidi_controls(definition: Definition) -> Iterator[Problem]:
    """A text that is shown in another order than it is read in."""
    return _problems(definition.suspicions, "bidi-controls", "Take them out")


def instructions(definition: Definition) -> Iterator[Problem]:
    """Instructions that go beyond the tool."""
    return _problems(
        definition.suspicions,
        "instructions-to-model",
        "Say what the tool does and leave to the model what it does else",
    )


def secrets(definition: Definition) -> Iterator[Problem]:
    """Places in which secrets are kept."""
    return _problems(definition.suspicions, "secrets-named", "Leave out where secrets are, unless the tool is for them")


def credentials(definition: Definition) -> Iterator[Problem]:
    """Passwords and keys in addresses."""
    return _problems(
        definition.suspicions, "url-credentials", "Change the password or key, and write `user:password` in its place"
    )


def other_tools(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Names of tools of other sources."""
    return _in_catalog(tools, "other-tool-named", "Leave it to the catalog which tool comes next")


def lookalikes(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Names that pass for others."""
    return _in_catalog(tools, "lookalike-name", "Write it in the letters of one script, and unlike any other")


def _in_catalog(tools: Sequence[Tool], rule: str, change: str) -> Iterator[Problem]:
    neighbours = Neighbours.of(tools)
    for tool in tools:
        yield from _problems(suspicions_in(tool, neighbours, rules=(rule,)), rule, change, tool.id)


def _problems(suspicions: Iterable[Suspicion], rule: str, change: str, tool_id: str = "") -> Iterator[Problem]:
    """One for all that a rule found, told of the first."""
    found = [each for each in suspicions if each.rule == rule]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        places = tuple(dict.fromkeys(each.place for each in found))
        yield Problem(f'{found[0].why}: "{found[0].excerpt}"{more}', change, places, tool_id)
