"""The final answer under a vendor's structured output: the schema that it is asked for with, and the way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from toolcrib.agent.conversation.messages import ModelTurn, Stop
from toolcrib.definitions.grammars.strict import StrictSchema, strict_schema

NAME = "answer"
"""What the schema is called to the vendor."""


@dataclass(frozen=True, slots=True)
class StrictOutput:
    """A final answer's schema, as vendors take it."""

    schema: Mapping[str, Any]
    strict: StrictSchema | None
    """None where strict modes cannot say all of it: then the schema is for the model to read, and nothing holds it."""

    @classmethod
    def of(cls, schema: Mapping[str, Any] | None) -> Self | None:
        """None where no vendor takes the schema: what is asked for is no object, or nothing is."""
        if schema is None:
            return None
        strict = strict_schema(schema)
        loses_keys = any(lost.keyword == "properties" for lost in strict.lost)
        if strict.schema is not None and not loses_keys:
            return cls(strict.schema, strict)
        return cls(schema, None) if schema.get("type") == "object" else None

    def to_wire(self) -> dict[str, Any]:
        """As OpenAI names its parts."""
        return {"name": NAME, "schema": dict(self.schema), "strict": self.strict is not None}

    def restored(self, turn: ModelTurn) -> ModelTurn:
        """The turn with the text that its asker's schema takes: without the nulls that stand for absent keys."""
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
