"""Names of tools and parameters that clients and providers refuse, or cannot tell apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolcrib.core.names import full_names, unique_names
from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.definition import INPUT_SCHEMA, Definition, mapping, step
from toolcrib.definitions.lint.findings import Problem

SHOWN = 5
"""Of a list in a sentence."""


@dataclass(frozen=True, slots=True)
class Taker:
    """Who takes only some names."""

    who: str
    characters: re.Pattern[str]
    """One that is taken, after the first."""
    first: re.Pattern[str]
    max_chars: int

    def refuses(self, name: str) -> bool:
        return len(name) > self.max_chars or bool(self.odd_in(name)) or self.first.match(name) is None

    def odd_in(self, name: str) -> set[str]:
        """Its characters that are not taken anywhere."""
        return {character for character in name if self.characters.fullmatch(character) is None}


_ANY, _LETTER = re.compile(r""), re.compile(r"[A-Za-z_]")

TAKERS = (
    Taker("MCP", re.compile(r"[A-Za-z0-9_.-]"), _ANY, 128),
    Taker("Anthropic", re.compile(r"[A-Za-z0-9_-]"), _ANY, 128),
    Taker("OpenAI", re.compile(r"[A-Za-z0-9_-]"), _ANY, 64),
    Taker("Gemini", re.compile(r"[A-Za-z0-9_.:-]"), _LETTER, 64),
)
"""Source: MCP specification 2025-11-25, "Tool Names"; the error of Anthropic's Messages API, `tools.0.custom.name`
(Claude Desktop: 64 characters); OpenAI's API reference, `FunctionObject.name`, which DeepSeek, Qwen and others enforce
as well; Google's reference of `FunctionDeclaration.name` (its versions differ in dots, colons and length: the widest
that all of 64 characters share). All as of November 2026."""

MAX_WITH_SERVER = 59
"""Characters of server and tool name together: of more, Cursor leaves the tool out ("exceeds 60 characters").

Source: the warning in Cursor's settings, as quoted in reports from April 2025 to February 2026."""

_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Source: the error of Anthropic's Messages API and Bedrock's Converse, `input_schema.properties`: the whole request is
refused for one such key. Keys of objects further down are not looked at."""


def rejected(definition: Definition) -> Iterator[Problem]:
    """A name that a provider refuses."""
    tool = definition.tool
    if refusing := [taker for taker in TAKERS if taker.refuses(tool.name)]:
        odd = sorted(set[str]().union(*(taker.odd_in(tool.name) for taker in refusing)))
        reasons = [f"for {listed(odd)} in it"] if odd else []
        if len(tool.name) > min(taker.max_chars for taker in refusing):
            reasons.append(f"for its {len(tool.name)} characters")
        who = " and ".join(taker.who for taker in refusing)
        yield Problem(
            f"its name is refused by {who} {' and '.join(reasons) or 'for its start'}",
            "Use letters, digits, `_` and `-`, at most 64, no digit first; "
            f"Toolcrib makes it `{_called(tool)}` for a model",
            ("/name",),
        )


def long_with_server(definition: Definition) -> Iterator[Problem]:
    """Names that are too long once a client has put the server's before them."""
    tool = definition.tool
    together = len(tool.source) + len(tool.name)
    if together > MAX_WITH_SERVER:
        yield Problem(
            f"its name and that of its source have {together} characters together, and Cursor leaves out what has more "
            f"than {MAX_WITH_SERVER}",
            f"Shorten one of them; Toolcrib makes it `{_called(tool)}` for a model",
            ("/name",),
        )


def parameters_rejected(definition: Definition) -> Iterator[Problem]:
    """Parameters for whose names a provider refuses the whole request."""
    names = map(str, mapping(definition.tool.input_schema.get("properties")) or {})
    odd = [name for name in names if _PARAMETER.fullmatch(name) is None]
    if odd:
        yield Problem(
            f"{listed(odd)} {'is' if len(odd) == 1 else 'are'} no name for a parameter: Anthropic refuses every "
            "request with this definition in it",
            "Use only letters, digits, `_`, `-` and `.`, at most 64",
            tuple(step(INPUT_SCHEMA, "properties", name) for name in odd),
        )


def same_but_for_case(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Tools of one source that a client which ignores case takes for one."""
    groups: defaultdict[str, list[Tool]] = defaultdict(list)
    for tool in tools:
        groups[tool.id.casefold()].append(tool)
    for group in groups.values():
        if len(group) > 1:
            first, *others = group
            yield Problem(
                f"only case sets its name apart from {listed([tool.name for tool in others])}",
                f"Give them names that differ in their words; Toolcrib makes this one `{_called(first)}` for a model",
                ("/name",),
                tool_id=first.id,
                related=tuple(tool.id for tool in others),
            )


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """`names` in backticks, those beyond `shown` only counted."""
    text = ", ".join(f"`{name}`" for name in names[:shown])
    return text + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _called(tool: Tool) -> str:
    """Its name in a model's own list of tools, if no other tool has the same."""
    return unique_names(full_names({tool.id: (tool.source, tool.name)}))[tool.id]
