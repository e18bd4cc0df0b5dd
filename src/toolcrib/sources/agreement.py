"""Whether a schema that was written by hand and the callable behind it speak of the same arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

_NUMBERS = frozenset({"integer", "number"})


def disagreements(declared: Mapping[str, Any], accepted: Mapping[str, Any]) -> Iterator[str]:
    """Each argument that `declared` promises a model and a call would then refuse, or lack, in words.

    `accepted` is the schema that was read from the signature; `declared` may well say more of each argument, and may
    leave out what has a default. Types are compared where both say them in words: `type`, `enum`, `const`, `anyOf`.
    """
    promised, taken = _properties(declared), _properties(accepted)
    takes_any = accepted.get("additionalProperties") is not False
    for name in promised:
        if name not in taken and not takes_any:
            yield f"the schema has `{name}`, which the callable does not take"
    for name in accepted.get("required", ()):
        if name not in promised:
            yield f"the callable needs `{name}`, which the schema does not have"
        elif name not in declared.get("required", ()):
            yield f"the callable needs `{name}`, which the schema does not require"
    for name in promised.keys() & taken.keys():
        sent, wanted = _types(promised[name], declared), _types(taken[name], accepted)
        if sent is None or wanted is None:
            continue
        if "number" in wanted:
            wanted |= _NUMBERS
        if strange := sorted(sent - wanted):
            has = " or ".join(sorted(wanted))
            yield f"the schema lets `{name}` be {' or '.join(strange)}, and the callable takes {has}"


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return cast("Mapping[str, Any]", properties) if isinstance(properties, Mapping) else {}


def _types(schema: object, root: Mapping[str, Any], depth: int = 8) -> frozenset[str] | None:
    """The JSON types that values of `schema` can have; None where it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return None
    part = cast("Mapping[str, Any]", schema)
    if isinstance(reference := part.get("$ref"), str):
        return _types(_at(reference, root), root, depth - 1)
    match part:
        case {"type": str(kind)}:
            return frozenset({kind})
        case {"type": [*kinds]}:
            return frozenset(str(kind) for kind in kinds)
        case {"const": value}:
            return frozenset({_type_of(value)})
        case {"enum": [*values]}:
            return frozenset(_type_of(value) for value in values)
        case {"anyOf": [*parts]} | {"oneOf": [*parts]}:
            found = [_types(each, root, depth - 1) for each in parts]
            return None if None in found else frozenset(kind for kinds in found if kinds for kind in kinds)
        case _:
            return None


def _at(reference: str, root: Mapping[str, Any]) -> object:
    """What a reference inside the document leads to; None where it leads elsewhere."""
    value: object = root
    first, *steps = reference.split("/")
    if first != "#":
        return None
    for step in steps:
        if not isinstance(value, Mapping):
            return None
        value = cast("Mapping[str, object]", value).get(step.replace("~1", "/").replace("~0", "~"))
    return value


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"
