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


def instructions(operations: Collection[str], tops: Sequence[Top]) -> str:
    """The rules for exactly the `operations` that are exposed, then the top of the catalog.

    Source: discovery protocol v0.1, "Behavioural rules for models".
    """
    rules = [
        "Many tools stand behind this server; their schemas are handed out one at a time.",
    ]
    finding = [name for name in ("search_tools", "list") if name in operations]
    if finding:
        rules.append(f"Do not assume that a tool exists or is missing: look with {_either(finding)}.")
    if {"search_tools", "list"} <= {*operations}:
        rules.append("Say to search_tools what you want done; browse with list when no search fits.")
    if {"expand_tool", "call_tool"} <= {*operations}:
        rules.append("Expand a tool before you call it: call_tool takes the handle that expand_tool returns.")
    rules.append("After an error follow its hints, or send its next_action as it stands.")
    text = "\n".join(f"- {rule}" for rule in rules)
    return f"{text}\n\n{_inside(tops)}" if tops else text


def _inside(tops: Sequence[Top]) -> str:
    room = TOP_SUMMARIES_BYTES
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
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)
