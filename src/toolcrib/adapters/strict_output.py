"""The final answer under a vendor's structured output: the schema for the request, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from toolcrib.agent.conversation.messages import ModelTurn, Stop
from toolcrib.definitions.grammars.strict import StrictSchema, strict_schema

NAME = "answer"
"""The name of the schema in requests to the vendor."""


@dataclass(frozen=True, slots=True)
class StrictOutput:
    """The schema of a final answer in the form that vendors accept."""

    schema: Mapping[str, Any]
    strict: StrictSchema | None
    """None if strict mode cannot express the whole schema.

    Then the model only reads it, and the vendor enforces nothing.
    """

    @classmethod
    def of(cls, schema: Mapping[str, Any] | None) -> Self | None:
        """Create it for `schema`.

        Returns None without a schema, or if vendors do not accept it because it is not an object.
        """
        if schema is None:
            return None
        strict = strict_schema(schema)
        loses_keys = any(lost.keyword == "properties" for lost in strict.lost)
        if strict.schema is not None and not loses_keys:
            return cls(strict.schema, strict)
        return cls(schema, None) if schema.get("type") == "object" else None

    def to_wire(self) -> dict[str, Any]:
        """Return the parts under OpenAI's keys."""
        return {"name": NAME, "schema": dict(self.schema), "strict": self.strict is not None}

    def restored(self, turn: ModelTurn) -> ModelTurn:
        """Return the turn with text that fits the original schema: nulls that mean an absent key are removed."""
        if self.strict is None or turn.stop is not Stop.END:
            return turn
        try:
            written = json.loads(turn.message.text)
        except (ValueError, RecursionError):
            return turn
        meant = self.strict.arguments(written)
        if meant == written:
            return turn
        return replace(turn, message=replace(turn.message, text=json.dumps(meant, ensure_ascii=False)))
