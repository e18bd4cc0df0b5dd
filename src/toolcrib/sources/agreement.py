"""Checks whether a schema written by hand agrees with the callable behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolcrib.core.schema import type_name
from toolcrib.core.subschemas import IN_PLACE, at_reference

_NUMBERS = frozenset({"integer", "number"})


def disagreements(declared: Mapping[str, Any], accepted: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each argument where `declared` and the callable disagree.

    They disagree if `declared` offers an argument that a call would refuse, or lacks one that a call needs. `accepted`
    is the schema read from the signature. `declared` may say more about each argument, and may leave out arguments with
    a default. Types are compared if both schemas state them with `type`, `enum`, `const` or `anyOf`. If `declared`
    describes its arguments in another way (`allOf`, `if`), no argument counts as missing.
    """
    declared = _followed(declared)
    promised, taken, others = _properties(declared), _properties(accepted), accepted.get("additionalProperties")
    for name in promised:
        if name not in taken and others is False:
            yield f"the schema has `{name}`, which the callable does not accept"
    for name in accepted.get("required", ()) if declared.keys().isdisjoint(IN_PLACE) else ():
        if name not in promised:
            yield f"the callable needs `{name}`, which the schema does not have"
        elif name not in declared.get("required", ()):
            yield f"the callable needs `{name}`, which the schema does not require"
    for name in promised:
        sent, wanted = _types(promised[name], declared), _types(taken.get(name, others), accepted)
        if sent is None or wanted is None:
            continue
        if "number" in wanted:
            wanted |= _NUMBERS
        if strange := sorted(sent - wanted):
            has = " or ".join(sorted(wanted))
            yield f"the schema lets `{name}` be {' or '.join(strange)}, but the callable accepts {has}"


def _followed(schema: Mapping[str, Any], depth: int = 8) -> Mapping[str, Any]:
    """Return `schema` with its own `$ref` resolved. Its definitions stay in place for other references."""
    target = at_reference(schema, schema.get("$ref"))
    if depth == 0 or not isinstance(target, Mapping):
        return schema
    own = {key: value for key, value in schema.items() if key != "$ref"}
    return _followed({**cast("Mapping[str, Any]", target), **own}, depth - 1)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}


def _types(schema: object, root: Mapping[str, Any], depth: int = 8) -> frozenset[str] | None:
    """Return the JSON types that values of `schema` can have, or None if the schema does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    part = cast("Mapping[str, Any]", schema)
    if isinstance(reference := part.get("$ref"), str):
        return _types(at_reference(root, reference), root, depth - 1)
    match part:
        case {"const": value}:
            return frozenset({_type_of(value)})
        case {"enum": [*values]}:
            return frozenset(map(_type_of, values))
        case {"type": str(kind)}:
            return frozenset({kind})
        case {"type": [*kinds]}:
            return frozenset(str(kind) for kind in kinds)
        case {"anyOf": [*parts]} | {"oneOf": [*parts]}:
            found = [_types(each, root, depth - 1) for each in parts]
            return None if None in found else frozenset(kind for kinds in found if kinds for kind in kinds)
        case _:
            return None


def _type_of(value: object) -> str:
    """Return the JSON Schema type of `value`. In JSON Schema, 1.0 is an integer."""
    return "integer" if isinstance(value, float) and value.is_integer() else type_name(value)
