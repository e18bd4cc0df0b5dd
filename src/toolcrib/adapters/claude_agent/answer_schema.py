"""Conversion of the final answer's schema to the form that the program accepts, and of the answer back.

The program gives the model a tool that takes the answer. The tool's input must be an object. The program's validator
(Ajv, strict) refuses schemas with unknown keywords or regular expressions. So keywords that it may not know are left
out. The loop still validates the answer against the complete schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

TOOL = "StructuredOutput"
"""The program's own tool. A call of it is the final answer."""

_WRAP = "answer"

_KEYWORDS = (
    "$ref const default description enum exclusiveMaximum exclusiveMinimum format maxItems maxLength maxProperties "
    "maximum minItems minLength minProperties minimum multipleOf required title type uniqueItems"
)
_VALUES = frozenset(_KEYWORDS.split())
_SCHEMAS = frozenset({"items", "additionalProperties"})
_LISTS = {"anyOf": "anyOf", "allOf": "allOf", "oneOf": "anyOf"}
"""`oneOf` becomes `anyOf`, because alternatives may overlap when keywords are left out."""
_MAPS = frozenset({"properties", "$defs", "definitions"})


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """One schema in the form that the program accepts."""

    schema: Mapping[str, Any]
    is_wrapped: bool
    """Whether the answer is wrapped in an object under one key, because it is not an object."""

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Self:
        taken = cast("dict[str, Any]", _accepted(schema))
        if taken.get("type") == "object" and not taken.keys() & set(_LISTS):
            return cls(taken, is_wrapped=False)
        apart = {key: taken.pop(key) for key in ("$defs", "definitions") if key in taken}
        return cls({"type": "object", "properties": {_WRAP: taken}, "required": [_WRAP], **apart}, is_wrapped=True)

    def text(self, output: Any) -> str:
        """Return the answer as JSON that fits the original schema."""
        return json.dumps(output[_WRAP] if self.is_wrapped else output, ensure_ascii=False)


def _accepted(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    given = cast("Mapping[str, Any]", schema)
    taken: dict[str, Any] = {}
    for key, value in given.items():
        if key in _VALUES:
            taken[key] = value
        elif key in _SCHEMAS and "prefixItems" not in given:
            taken[key] = _accepted(value)
        elif key in _MAPS:
            taken[key] = {name: _accepted(part) for name, part in value.items()}
        elif key in _LISTS:
            taken[_LISTS[key]] = [_accepted(part) for part in value]
    return taken
