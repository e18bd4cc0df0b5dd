"""Lint rules for names that clients or providers refuse, or cannot tell apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolcrib.core.names import full_names, unique_names
from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.linted_tool import INPUT_SCHEMA, LintedTool, mapping, step

SHOWN = 5
"""How many items of a list a message shows."""


@dataclass(frozen=True, slots=True)
class _Taker:
    """A client or provider that accepts only some names."""

    who: str
    characters: re.Pattern[str]
    """Matches one accepted character, except at the start."""
    first: re.Pattern[str]
    max_chars: int

    def refuses(self, name: str) -> bool:
        return len(name) > self.max_chars or bool(self.odd_in(name)) or self.first.match(name) is None

    def odd_in(self, name: str) -> set[str]:
        """Return the characters of `name` that are accepted nowhere in a name."""
        return {character for character in name if self.characters.fullmatch(character) is None}


_ANY, _LETTER = re.compile(r""), re.compile(r"[A-Za-z_]")

TAKERS = (
    _Taker("MCP", re.compile(r"[A-Za-z0-9_.-]"), _ANY, 128),
    _Taker("Anthropic", re.compile(r"[A-Za-z0-9_-]"), _ANY, 128),
    _Taker("OpenAI", re.compile(r"[A-Za-z0-9_-]"), _ANY, 64),
    _Taker("Gemini", re.compile(r"[A-Za-z0-9_.:-]"), _LETTER, 64),
)
"""Source: MCP specification 2025-11-25, "Tool Names"; the error of Anthropic's Messages API, `tools.0.custom.name`
(Claude Desktop: 64 characters); OpenAI's API reference, `FunctionObject.name`, which DeepSeek, Qwen and others also
enforce; Google's reference of `FunctionDeclaration.name`. Google's versions differ in dots, colons and length: this is
the widest rule that all share with 64 characters. All as of November 2026.
"""

MAX_WITH_SERVER = 59
"""The longest server and tool name together, in characters. Cursor ignores longer ones ("exceeds 60 characters").

Source: the warning in Cursor's settings, as quoted in reports from April 2025 to February 2026.
"""

_PARAMETER = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Source: the error of Anthropic's Messages API and Bedrock's Converse, `input_schema.properties`. One such key makes
them refuse the whole request. They do not check the keys of nested objects.
"""


def rejected(definition: LintedTool) -> Iterator[Problem]:
    """Find names that a provider refuses."""
    tool = definition.tool
    if refusing := [taker for taker in TAKERS if taker.refuses(tool.name)]:
        odd = sorted(set[str]().union(*(taker.odd_in(tool.name) for taker in refusing)))
        reasons = [f"because it contains {listed(odd)}"] if odd else []
        if len(tool.name) > min(taker.max_chars for taker in refusing):
            reasons.append(f"because it has {len(tool.name)} characters")
        who = " and ".join(taker.who for taker in refusing)
        yield Problem(
            f"{who} {'refuses' if len(refusing) == 1 else 'refuse'} the name "
            f"{' and '.join(reasons) or 'because of its first character'}",
            "Use at most 64 letters, digits, `_` and `-`, and do not start with a digit. "
            f"Toolcrib shows it to models as `{_called(tool)}`",
            ("/name",),
        )


def long_with_server(definition: LintedTool) -> Iterator[Problem]:
    """Find names that are too long when a client adds the server name."""
    tool = definition.tool
    together = len(tool.source) + len(tool.name)
    if together > MAX_WITH_SERVER:
        yield Problem(
            f"the names of the tool and its source have {together} characters together. Cursor ignores tools with more "
            f"than {MAX_WITH_SERVER}",
            f"Shorten one of them. Toolcrib shows it to models as `{_called(tool)}`",
            ("/name",),
        )


def parameters_rejected(definition: LintedTool) -> Iterator[Problem]:
    """Find parameters whose names make a provider refuse the whole request."""
    names = map(str, mapping(definition.tool.input_schema.get("properties")) or {})
    odd = [name for name in names if _PARAMETER.fullmatch(name) is None]
    if odd:
        yield Problem(
            f"{listed(odd)} {'is not a valid parameter name' if len(odd) == 1 else 'are not valid parameter names'}: "
            f"Anthropic refuses every "
            "request that contains this definition",
            "Use at most 64 letters, digits, `_`, `-` and `.`",
            tuple(step(INPUT_SCHEMA, "properties", name) for name in odd),
        )


def same_but_for_case(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Find tools of one source that a client which ignores case would treat as one."""
    groups: defaultdict[str, list[Tool]] = defaultdict(list)
    for tool in tools:
        groups[tool.id.casefold()].append(tool)
    for group in groups.values():
        if len(group) > 1:
            first, *others = group
            yield Problem(
                f"its name differs from {listed([tool.name for tool in others])} only in upper and lower case",
                f"Give them clearly different names. Toolcrib shows this one to models as `{_called(first)}`",
                ("/name",),
                tool_id=first.id,
                related=tuple(tool.id for tool in others),
            )


def listed(names: Sequence[str], shown: int = SHOWN) -> str:
    """Format `names` in backticks. Names after the first `shown` are only counted."""
    text = ", ".join(f"`{name}`" for name in names[:shown])
    return text + (f" and {len(names) - shown} more" if len(names) > shown else "")


def _called(tool: Tool) -> str:
    """The name in a model's list of tools, if no other tool has the same name."""
    return unique_names(full_names({tool.id: (tool.source, tool.name)}))[tool.id]
