"""What a model is told before its first call: the rules of the protocol and what is inside the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from toolcrib.core.tools import summarize

TOP_NAMES_BYTES = 400
"""Room for the names of top categories in a tool's description, in bytes of JSON."""

TOP_SUMMARIES_BYTES = 1_100
"""Room for their names with summaries in the instructions, in bytes of JSON."""


@dataclass(frozen=True, slots=True)
class Top:
    """A category at the top of the catalog, as the configuration tells of it."""

    name: str
    summary: str = ""


def top_names(tops: Sequence[Top], room: int = TOP_NAMES_BYTES) -> str:
    """As many names as fit into `room` bytes, and how many more there are."""
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
    """The rules for exactly the `operations` that are exposed, then the top of the catalog in `room` bytes.

    The short form is for a place that every request pays for; the full one is for a system prompt of one's own.

    Source: discovery protocol v0.1, "Behavioural rules for models".
    """
    rules = _full_rules(operations) if full else _short_rules(operations)
    text = "\n".join(f"- {rule}" for rule in rules)
    return f"{text}\n\n{_inside(tops, room)}" if tops else text


def _short_rules(operations: Collection[str]) -> list[str]:
    rules = ["Many tools stand behind this server; their schemas are handed out one at a time."]
    if finding := _finding(operations):
        rules.append(f"Do not assume that a tool exists or is missing: look with {_either(finding)}.")
    if {"search_tools", "list"} <= {*operations}:
        rules.append(
            "Browse with list, from the top down, where you do not know what there is; say to search_tools what you "
            "want done."
        )
    elif {"search_tools", "list_categories"} <= {*operations}:
        rules.append(
            "Where you do not know what there is, begin at the top with list_categories, then see a category with "
            "search_tools and no query; else say to search_tools what you want done."
        )
    if "expand_tool" in operations and (calls := _calls(operations)):
        rules.append(f"Expand a tool before you call it: {_either(calls)} takes the handle that expand_tool returns.")
    if {"call_read_only_tool", "call_tool"} <= {*operations}:
        rules.append("Call what only reads with call_read_only_tool, all else with call_tool.")
    rules.append("After an error follow its hints, or send its next_action as it stands.")
    return rules


def _full_rules(operations: Collection[str]) -> list[str]:
    rules = [
        "Many tools stand behind a few operations. You are shown what a tool takes when you ask for it, and not before."
    ]
    if finding := _finding(operations):
        rules.append(
            f"Do not assume that a tool exists, and do not conclude that there is none: look with {_either(finding)}."
        )
    if "list" in operations:
        rules.append(
            "Where you do not know what there is, begin at the top with list() and go down the node whose summary "
            'fits: list(path=["A", "B"]) shows what is in B.'
        )
    elif {"search_tools", "list_categories"} <= {*operations}:
        rules.append(
            "Where you do not know what there is, begin at the top with list_categories() and look into the category "
            'whose summary fits: search_tools(category="A"), without a query, shows all that is in A.'
        )
    if escapes := [name for name in ("search_tools", "search_nodes", "search_tool_by_category") if name in operations]:
        rules.append(
            f"Where no node seems right, or you know what you want done, say it in plain words to {_either(escapes)}. "
            + ("search_nodes finds categories to look into. " if "search_nodes" in operations else "")
            + "Other words find other tools: try again with the thing you act on and what you do to it."
        )
    if "expand_tool" in operations and (calls := _calls(operations)):
        rules.append(
            "Never call a tool that you have not expanded: expand_tool gives its argument schema and a handle, and "
            f"{_either(calls)} takes that handle as tool_id, with arguments that match the schema. Expand several at "
            "once with tool_ids where you compare or combine them."
        )
    if {"call_read_only_tool", "call_tool"} <= {*operations}:
        rules.append(
            "Call what only reads with call_read_only_tool, which people often allow for good; where it refuses, and "
            "for everything else, use call_tool."
        )
    rules += [
        (
            "An error says what is wrong and, as next_action, which operation with which arguments leads on: send it "
            "as it stands, or follow the hints. Try the same again only where retryable is true."
        ),
        "Names under `starting` and `unavailable` are sources that an answer could not speak of: look again later.",
    ]
    if not {"list", "list_categories", "search_tools"}.isdisjoint(operations):
        rules.append("Where next_cursor is not null there is more: send the same request with it as cursor.")
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
    """Bytes of `text` inside compact JSON: what a character costs differs by script, and some are escaped."""
    return json_bytes(text) - 2


def json_bytes(value: object) -> int:
    """UTF-8 bytes of `value` as compact JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
