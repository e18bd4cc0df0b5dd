"""What a tool answered, whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ToolResult:
    """An answer in the form MCP gives it (`CallToolResult`), fields Toolcrib does not know included.

    `wire` is passed on as it came: text, images, embedded resources, `structuredContent`, `isError`, `_meta`.
    """

    wire: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """What is odd about the answer, for people and logs; never a reason to lose it."""

    @classmethod
    def of(cls, value: Any, *, text: str) -> Self:
        """An answer with one JSON value: `text` for a model, the value as structured content."""
        wire: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if value is not None:
            wire["structuredContent"] = value if isinstance(value, dict) else {"result": value}
        return cls(wire)

    def to_wire(self) -> Mapping[str, Any]:
        """`wire`; the name that every answer to an operation has for it."""
        return self.wire

    @property
    def is_error(self) -> bool:
        """Whether the tool itself reported failure."""
        return self.wire.get("isError") is True

    @property
    def needs_input(self) -> bool:
        """Whether this is no answer yet: the tool asks for more, and is to be called again with it (`Resumption`)."""
        return self.wire.get("resultType") == "input_required"

    @property
    def content(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.wire.get("content") or ())

    @property
    def structured_content(self) -> Any:
        """The JSON value of the answer; None where there is none."""
        return self.wire.get("structuredContent")

    @property
    def text(self) -> str:
        """All text of the answer, blocks joined by a line break."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")
