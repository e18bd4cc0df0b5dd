"""Lint rules for texts that look like an attack on the model, and for names that look like other names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from toolcrib.core.tools import Tool
from toolcrib.definitions.drift.suspicions import Neighbours, Suspicion, suspicions_in
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.linted_tool import LintedTool


def hidden_characters(definition: LintedTool) -> Iterator[Problem]:
    """Find invisible characters."""
    return _problems(definition.suspicions, "hidden-characters", "Remove them, or write them as an escape")


def tag_characters(definition: LintedTool) -> Iterator[Problem]:
    """Find text in invisible tag characters."""
    return _problems(
        definition.suspicions, "tag-characters", "Remove them. If you did not write them, stop using the tool"
    )


def bidi_controls(definition: LintedTool) -> Iterator[Problem]:
    """Find text that is shown in a different order than a model reads it."""
    return _problems(definition.suspicions, "bidi-controls", "Remove them")


def instructions(definition: LintedTool) -> Iterator[Problem]:
    """Find instructions that go beyond the tool."""
    return _problems(
        definition.suspicions,
        "instructions-to-model",
        "Describe only what the tool does, and do not instruct the model otherwise",
    )


def secrets(definition: LintedTool) -> Iterator[Problem]:
    """Find places that hold secrets."""
    return _problems(
        definition.suspicions, "secrets-named", "Remove the places of secrets, unless the tool works with them"
    )


def credentials(definition: LintedTool) -> Iterator[Problem]:
    """Find passwords and keys in URLs."""
    return _problems(
        definition.suspicions, "url-credentials", "Change the password or key, and write `user:password` instead"
    )


def other_tools(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Find names of tools of other sources."""
    return _in_catalog(tools, "other-tool-named", "Do not refer to tools of other sources")


def lookalikes(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Find names that look like other names."""
    return _in_catalog(tools, "lookalike-name", "Use letters of only one script, and a name that is clearly different")


def _in_catalog(tools: Sequence[Tool], rule: str, change: str) -> Iterator[Problem]:
    neighbours = Neighbours.of(tools)
    for tool in tools:
        yield from _problems(suspicions_in(tool, neighbours, rules=(rule,)), rule, change, tool.id)


def _problems(suspicions: Iterable[Suspicion], rule: str, change: str, tool_id: str = "") -> Iterator[Problem]:
    """Yield one problem for everything that a rule found, with the reason of the first."""
    found = [each for each in suspicions if each.rule == rule]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        places = tuple(dict.fromkeys(each.place for each in found))
        yield Problem(f'{found[0].why}: "{found[0].excerpt}"{more}', change, places, tool_id)
