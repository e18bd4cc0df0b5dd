"""What every model receives before its first request: definitions of operations, rules and top-level categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.operations.rules import TOP_NAMES_BYTES, TOP_SUMMARIES_BYTES, Top, instructions, json_bytes
from toolcrib.operations.tools import OperationTool, operation_tools

MAX_BYTES = 4_800
"""The largest briefing in bytes of JSON, for any size of the catalog: 1,200 tokens by the usual estimate."""


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


_AROUND = 80
"""The bytes around the names of categories, in the instructions and the descriptions."""
