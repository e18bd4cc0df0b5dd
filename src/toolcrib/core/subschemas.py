"""Finds which subschemas a JSON Schema applies to a value, and where its references lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose subschemas apply to the same value as their schema, as a `$ref` does."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def references_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the references of `schema` itself, without those of its subschemas."""
    for keyword in _REFERENCES:
        if isinstance(reference := schema.get(keyword), str):
            # The validator ignores the value of `$recursiveRef` (jsonschema-rs 0.60): draft 2019-09 allows only `#`.
            yield "#" if keyword == "$recursiveRef" else reference


def has_embedded_resources(document: Mapping[str, Any]) -> bool:
    """Return whether a part of `document` can have its own base URI, so that `#/...` inside it does not mean the root.

    An `$id` outside of a schema, for example in a default, counts too. `id` counts if the document names draft 4.

    Source: JSON Schema 2020-12 core, section 9.3.1, "Bundling"; draft 4 core, section 7.2.
    """
    names_draft_4, has_id = False, False
    waiting: list[object] = [document]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += cast("list[object]", found)
        elif isinstance(found, Mapping):
            schema = cast("Mapping[str, object]", found)
            waiting += schema.values()
            if isinstance(dialect := schema.get("$schema"), str) and "draft-04" in dialect:
                names_draft_4 = True
            if schema is not document:
                if isinstance(schema.get("$id"), str):
                    return True
                has_id = has_id or isinstance(schema.get("id"), str)
    return names_draft_4 and has_id


def at_reference(document: Mapping[str, Any], ref: object) -> Any:
    """Return the subschema of `document` that a `$ref` names by JSON Pointer; None if it names none."""
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


class References:
    """The targets of the references in one document. Each reference is followed once: 100 kB takes about 20 ms."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._targets: dict[str, Any] = {}

    def target(self, reference: object) -> Any:
        """Return what `at_reference` finds for `reference`."""
        if not isinstance(reference, str):
            return None
        if reference not in self._targets:
            self._targets[reference] = at_reference(self._document, reference)
        return self._targets[reference]
