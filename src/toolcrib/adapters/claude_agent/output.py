"""The final answer's schema, as the program takes it, and the way back.

It has the model call a tool of its own with the answer, whose input has to be an object, and it stops at a schema with
a keyword or a regular expression that its validator (Ajv, strict) does not know. So keywords are left out that it may
not know; what a schema then takes too much of, the loop still refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

TOOL = "StructuredOutput"
"""The program's own tool; a call of it is the final answer."""

_WRAP = "answer"

_KEYWORDS = (
    "$ref const default description enum exclusiveMaximum exclusiveMinimum format maxItems maxLength maxProperties "
    "maximum minItems minLength minProperties minimum multipleOf required title type uniqueItems"
)
_VALUES = frozenset(_KEYWORDS.split())
_SCHEMAS = frozenset({"items", "additionalProperties"})
_LISTS = {"anyOf": "anyOf", "allOf": "allOf", "oneOf": "anyOf"}
"""Alternatives of which keywords are left out may come to overlap."""
_MAPS = frozenset({"properties", "$defs", "definitions"})


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """One schema in the program's form."""

    schema: Mapping[str, Any]
    is_wrapped: bool
    """Whether the answer stands under a key, for it is no object."""

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Self:
        taken = cast("dict[str, Any]", _taken(schema))
        if taken.get("type") == "object" and not taken.keys() & set(_LISTS):
            return cls(taken, is_wrapped=False)
        apart = {key: taken.pop(key) for key in ("$defs", "definitions") if key in taken}
        return cls({"type": "object", "properties": {_WRAP: taken}, "required": [_WRAP], **apart}, is_wrapped=True)

    def text(self, output: Any) -> str:
        """The answer as JSON of the schema that was asked for."""
        return json.dumps(output[_WRAP] if self.is_wrapped else output, ensure_ascii=False)


def _taken(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    given = cast("Mapping[str, Any]", schema)
    taken: dict[str, Any] = {}
    for key, value in given.items():
        if key in _VALUES:
            taken[key] = value
        elif key in _SCHEMAS and "prefixItems" not in given:
            taken[key] = _taken(value)
        elif key in _MAPS:
            taken[key] = {name: _taken(part) for name, part in value.items()}
        elif key in _LISTS:
            taken[_LISTS[key]] = [_taken(part) for part in value]
    return taken
