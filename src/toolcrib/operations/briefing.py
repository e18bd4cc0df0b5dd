"""What every model receives before its first request: definitions of operations, rules and top-level categories."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.core.tools import ToolAnnotations, summarize
from toolcrib.operations.operation_table import CALLS, OPERATION_TABLE

MAX_BYTES = 4_800
"""The largest briefing in bytes of JSON, for any size of the catalog: 1,200 tokens by the usual estimate."""

TOP_NAMES_BYTES = 400
"""The room for names of top-level categories in the description of an operation, in bytes of JSON."""

TOP_SUMMARIES_BYTES = 1_100
"""The room for names and summaries of top-level categories in the instructions, in bytes of JSON."""

_AROUND = 80
"""The bytes around the names of categories, in the instructions and the descriptions."""


@dataclass(frozen=True, slots=True)
class Top:
    """A top-level category, as the configuration describes it."""

    name: str
    summary: str = ""


@dataclass(frozen=True)
class OperationTool:
    """The definition of one operation, as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    annotations: ToolAnnotations

    def to_wire(self) -> dict[str, Any]:
        """Return the definition in MCP's form."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": self.annotations.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class Briefing:
    """The operations and instructions that every model receives at the beginning."""

    tools: tuple[OperationTool, ...]
    instructions: str

    @property
    def size(self) -> int:
        """The size in bytes of JSON."""
        return sum(json_bytes(tool.to_wire()) + 1 for tool in self.tools) + json_bytes(self.instructions)


def briefing(operations: Sequence[str], tops: Sequence[Top]) -> Briefing:
    """Make the briefing. The more operations there are, the less room is left for the top-level categories `tops`."""
    left = MAX_BYTES - Briefing(operation_tools(operations), instructions(operations, ())).size
    return Briefing(
        operation_tools(operations, tops, room=min(TOP_NAMES_BYTES, left // 5)),
        instructions(operations, tops, room=min(TOP_SUMMARIES_BYTES, left // 2 - _AROUND)),
    )


def operation_tools(
    names: Sequence[str], tops: Sequence[Top] = (), *, room: int = TOP_NAMES_BYTES
) -> tuple[OperationTool, ...]:
    """Return these operations, in this order. Some descriptions name the top-level categories in `room` bytes."""
    inside = f" Inside: {top_names(tops, room)}." if tops else ""
    calls = not {*CALLS}.isdisjoint(names)
    tools: list[OperationTool] = []
    for name in names:
        operation = OPERATION_TABLE[name]
        description = operation.description if calls else operation.description_without_calls or operation.description
        description += inside if operation.shows_top else ""
        tools.append(OperationTool(name, description, operation.input_schema, operation.annotations))
    return tuple(tools)


def top_names(tops: Sequence[Top], room: int = TOP_NAMES_BYTES) -> str:
    """Return as many names as fit into `room` bytes, and the number of further ones."""
    shown: list[str] = []
    for top in tops:
        room -= _size(top.name) + 2
        if room < 0:
            break
        shown.append(top.name)
    rest = len(tops) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest and shown else f"{rest} sources" if rest else "")


def instructions(
    operations: Collection[str], tops: Sequence[Top], *, full: bool = False, room: int = TOP_SUMMARIES_BYTES
) -> str:
    """Return the rules for exactly these `operations`, then the top-level categories in at most `room` bytes.

    The short form is for a place that every request pays for. The full form is for your own system prompt.

    Source: discovery protocol v0.1, "Behavioural rules for models".
    """
    rules = _full_rules(operations) if full else _short_rules(operations)
    text = "\n".join(f"- {rule}" for rule in rules)
    return f"{text}\n\n{_inside(tops, room)}" if tops else text


def _short_rules(operations: Collection[str]) -> list[str]:
    rules = ["This server has many tools. You get their schemas one at a time."]
    if finding := _finding(operations):
        rules.append(f"Do not assume that a tool exists or is missing: look with {_either(finding)}.")
    if {"search_tools", "list"} <= {*operations}:
        rules.append(
            "If you do not know what exists, browse with list from the top down. Otherwise tell search_tools what you "
            "want done."
        )
    elif {"search_tools", "list_categories"} <= {*operations}:
        rules.append(
            "If you do not know what exists, start at the top with list_categories, then see a category with "
            "search_tools and no query. Otherwise tell search_tools what you want done."
        )
    if "expand_tool" in operations and (calls := _calls(operations)):
        rules.append(f"Expand a tool before you call it: {_either(calls)} takes the handle that expand_tool returns.")
    if {"call_read_only_tool", "call_tool"} <= {*operations}:
        rules.append("Call read-only tools with call_read_only_tool, others with call_tool.")
    rules.append("After an error, follow its hints or send its next_action unchanged.")
    return rules


def _full_rules(operations: Collection[str]) -> list[str]:
    rules = ["A few operations give access to many tools. You only see the arguments of a tool when you ask for them."]
    if finding := _finding(operations):
        rules.append(f"Do not assume that a tool exists or is missing: look with {_either(finding)}.")
    if "list" in operations:
        rules.append(
            "If you do not know what exists, start at the top with list() and go down the category whose summary "
            'fits: list(path=["A", "B"]) shows what is in B.'
        )
    elif {"search_tools", "list_categories"} <= {*operations}:
        rules.append(
            "If you do not know what exists, start at the top with list_categories() and look into the category "
            'whose summary fits: search_tools(category="A"), without a query, shows all tools in A.'
        )
    if escapes := [name for name in ("search_tools", "search_nodes", "search_tool_by_category") if name in operations]:
        rules.append(
            f"If no category fits, or you know what you want done, say it in plain words to {_either(escapes)}. "
            + ("search_nodes finds categories to look into. " if "search_nodes" in operations else "")
            + "Different words find different tools: try again with what you act on and what you do to it."
        )
    if "expand_tool" in operations and (calls := _calls(operations)):
        rules.append(
            "Never call a tool that you have not expanded: expand_tool gives its argument schema and a handle, and "
            f"{_either(calls)} takes that handle as tool_id, with arguments that match the schema. Expand several at "
            "once with tool_ids to compare or combine them."
        )
    if {"call_read_only_tool", "call_tool"} <= {*operations}:
        rules.append(
            "Call read-only tools with call_read_only_tool, which people often allow permanently. If it refuses, and "
            "for all others, use call_tool."
        )
    rules += [
        (
            "An error says what is wrong. Its next_action is an operation with its arguments: send it unchanged, or "
            "follow the hints. Repeat the same request only if retryable is true."
        ),
        "`starting` and `unavailable` name sources that an answer does not cover: look again later.",
    ]
    if not {"list", "list_categories", "search_tools"}.isdisjoint(operations):
        rules.append("If next_cursor is not null, there is more: send the same request with it as cursor.")
    return rules


def _finding(operations: Collection[str]) -> list[str]:
    finding = ("search_tools", "search_tool_by_category", "list", "list_categories")
    return [name for name in finding if name in operations]


def _calls(operations: Collection[str]) -> list[str]:
    return [name for name in ("call_tool", "call_read_only_tool") if name in operations]


def _inside(tops: Sequence[Top], room: int) -> str:
    lines = ["Inside:"]
    for position, top in enumerate(tops):
        line = f"- {top.name}" + (f": {summarize(top.summary, 80)}" if top.summary else "")
        room -= _size(line) + 2
        if room < 0:
            lines.append(f"- and {len(tops) - position} more")
            break
        lines.append(line)
    return "\n".join(lines)


def _size(text: str) -> int:
    """Return the bytes of `text` inside compact JSON. Characters have different sizes, and some are escaped."""
    return json_bytes(text) - 2


def json_bytes(value: object) -> int:
    """Return the size of `value` as compact JSON, in UTF-8 bytes."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
