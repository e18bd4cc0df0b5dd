"""All that a model is shown before its first request: some operations, the rules, and the top of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.operations.rules import TOP_NAMES_BYTES, TOP_SUMMARIES_BYTES, Top, instructions, json_bytes
from toolcrib.operations.tools import OperationTool, operation_tools

MAX_BYTES = 4_800
"""Of JSON for all of it, 1,200 tokens by the usual estimate, whatever the size of the catalog."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """What goes to every model at the beginning."""

    tools: tuple[OperationTool, ...]
    instructions: str

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return sum(json_bytes(tool.to_wire()) + 1 for tool in self.tools) + json_bytes(self.instructions)


def briefing(operations: Sequence[str], tops: Sequence[Top]) -> Briefing:
    """The more operations there are, the less is told of the catalog's top."""
    left = MAX_BYTES - Briefing(operation_tools(operations), instructions(operations, ())).size
    return Briefing(
        operation_tools(operations, tops, room=min(TOP_NAMES_BYTES, left // 5)),
        instructions(operations, tops, room=min(TOP_SUMMARIES_BYTES, left // 2 - _AROUND)),
    )


_AROUND = 80
"""What stands around the names, in the instructions and the descriptions."""
