"""Which subschemas a JSON Schema applies to a value, and where its references lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose subschemas apply to the very value their schema applies to, as a `$ref` does."""


def at_reference(document: Mapping[str, Any], ref: object) -> Any:
    """The subschema of `document` that a `$ref` of it names by JSON Pointer; None where it names none."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    node: Any = document
    for step in unquote(ref).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = cast("list[Any]", node)[int(key)] if key.isdecimal() and int(key) < len(node) else None
        else:
            node = cast("Mapping[str, Any]", node).get(key) if isinstance(node, Mapping) else None
    return node
