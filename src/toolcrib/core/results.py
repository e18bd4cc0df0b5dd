"""The complete answer of a tool, in MCP's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer of a tool as MCP's `CallToolResult`, including fields that Toolcrib does not know.

    `wire` is passed on unchanged: text, images, embedded resources, `structuredContent`, `isError`, `_meta`.
    """

    wire: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    """Problems with the answer, for people and logs. They never prevent the answer from being returned."""

    @classmethod
    def of(cls, value: Any, *, text: str) -> Self:
        """Make an answer with one JSON value: `text` is for the model, `value` becomes the structured content.

        A value that is not an object becomes `{"result": value}`. None means that there is no structured content.
        """
        wire: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if value is not None:
            wire["structuredContent"] = value if isinstance(value, dict) else {"result": value}
        return cls(wire)

    def to_wire(self) -> Mapping[str, Any]:
        """Return `wire`. Every answer to an operation has a method with this name."""
        return self.wire

    @property
    def is_error(self) -> bool:
        """Whether the tool itself reported an error."""
        return self.wire.get("isError") is True

    @property
    def needs_input(self) -> bool:
        """Whether the tool asks for more input before it answers. The call is then repeated with a `Resumption`."""
        return self.wire.get("resultType") == "input_required"

    @property
    def content(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(self.wire.get("content") or ())

    @property
    def structured_content(self) -> Any:
        """The JSON value of the answer; None if the answer has no structured content."""
        return self.wire.get("structuredContent")

    @property
    def text(self) -> str:
        """All text blocks of the answer, joined by line breaks."""
        return "\n".join(str(block.get("text", "")) for block in self.content if block.get("type") == "text")
