"""Recognizes common mistakes in arguments, so that an error can contain the call that was probably meant."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

from toolcrib.core.schema import Comparisons, Schema, nearest, pointer
from toolcrib.core.subschemas import References

MAX_UNKNOWN = 16
"""The most unknown keys. Arguments with more unknown keys were meant for a different tool, and are not repaired."""

MAX_OUTER = 50
"""How many properties are searched for keys that belong inside them."""

MAX_ALTERNATIVES = 200
"""The most subschemas of one property: itself, its references and its alternatives. A property with more is skipped."""

MAX_LOOKS = 2_000
"""The most subschemas that are read for one repair, which takes some milliseconds."""

MAX_KEYS = 1_000
"""The most keys of arguments. Arguments with more keys are not repaired."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Arguments that match the schema, and the mistake in the given ones."""

    arguments: Mapping[str, Any]
    what: str


def repaired(document: Mapping[str, Any], schema: Schema, given: object) -> Repair | None:
    """Return what was probably meant by `given`, if correcting common mistakes makes it valid; otherwise None.

    The repair is only proposed in an error and never runs by itself. The caller decides.
    """
    said: list[str] = []
    meant = _object(given)
    if meant is None or len(meant) > MAX_KEYS:
        return None
    if isinstance(given, str):
        said.append("the arguments were sent as a JSON string")
    shape = _Shape(document)
    for undo in (
        _from_wrapper,
        _from_json_text,
        _from_several,
        _from_lone_values,
        _from_misspelt_keys,
        _from_flattened,
        _from_out_of_range,
        partial(_from_misspelt_values, schema),
    ):
        if said and schema.is_valid(meant):
            break
        attempt = undo(shape, meant)
        if attempt is not None:
            meant, what = attempt
            said.append(what)
    if not said or not schema.is_valid(meant):
        return None
    told = "; ".join(said)
    return Repair(meant, f"{told[0].upper()}{told[1:]}.")


class _Shape:
    """What a schema says about the keys of arguments. It reads at most `MAX_LOOKS` subschemas."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._references = References(document)
        self._looks = MAX_LOOKS
        self._alternatives: dict[int, Sequence[Mapping[str, Any]]] = {}
        """The alternatives by the `id()` of a subschema."""
        self.properties: dict[str, Any] = {}
        """The properties of the arguments. If a key is declared several times, the first subschema counts."""
        for properties in self.properties_in(document):
            for key, part in properties.items():
                self.properties.setdefault(key, part)

    def alternatives(self, part: object) -> Sequence[Mapping[str, Any]]:
        """Return the subschemas that a value of `part` can match: `part`, its references and its alternatives.

        Return none if there are too many, because a part of them could refuse a value that the others accept.
        """
        if id(part) not in self._alternatives:
            self._alternatives[id(part)] = self._alternatives_of(part)
        return self._alternatives[id(part)]

    def _alternatives_of(self, part: object) -> Sequence[Mapping[str, Any]]:
        waiting: deque[object] = deque([part])
        seen: dict[int, Mapping[str, Any]] = {}
        while waiting:
            if not self._looks or len(seen) > MAX_ALTERNATIVES:
                return ()
            self._looks -= 1
            found = waiting.popleft()
            if not isinstance(found, Mapping) or id(cast(object, found)) in seen:
                continue
            schema = cast(Mapping[str, Any], found)
            seen[id(schema)] = schema
            waiting.append(self._references.target(schema.get("$ref")))
            for key in ("allOf", "anyOf", "oneOf"):
                branches = schema.get(key)
                if isinstance(branches, list):
                    waiting.extend(cast(list[object], branches)[: MAX_ALTERNATIVES + 1])
        return tuple(seen.values())

    def properties_in(self, part: object) -> Iterator[Mapping[str, Any]]:
        """Yield the properties that each alternative of `part` declares."""
        for schema in self.alternatives(part):
            if isinstance(properties := schema.get("properties"), Mapping):
                yield cast(Mapping[str, Any], properties)

    def types(self, key: str) -> tuple[str, ...]:
        """Return the JSON types that the property `key` allows, including alternatives; empty if it names no types."""
        names: list[str] = []
        for schema in self.alternatives(self.properties[key]):
            declared = schema.get("type")
            if isinstance(declared, str):
                names.append(declared)
            elif isinstance(declared, list):
                names += map(str, cast(list[Any], declared))
        return tuple(names)


_Undone = tuple[dict[str, Any], str] | None


def _from_wrapper(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"arguments": {"path": "."}}` to `{"path": "."}`."""
    if len(given) != 1:
        return None
    ((key, value),) = given.items()
    inner = _object(value)
    if key in shape.properties or inner is None or len(inner) > MAX_KEYS:
        return None
    return inner, f"the arguments are nested one level too deep, under `{key}`"


def _from_json_text(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"files": "[\\"a\\"]"}` to `{"files": ["a"]}`, and `{"limit": "5"}` to `{"limit": 5}`."""
    meant: dict[str, Any] = {}
    properties = shape.properties
    for key, value in given.items():
        types = shape.types(key) if isinstance(value, str) and key in properties else ()
        if types and "string" not in types:
            inner = _parsed(value)
            if any(isinstance(inner, _PYTHON_TYPES.get(name, ())) for name in types):
                meant[key] = inner
    if not meant:
        return None
    return {**given, **meant}, f"{_names(meant)} was sent as a string"


def _from_several(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"tool_id": ["a", "b"]}` to `{"tool_ids": ["a", "b"]}`, if the schema has a plural key."""
    properties = shape.properties
    meant: dict[str, str] = {}
    for key, value in given.items():
        several = f"{key}s"
        if (
            isinstance(value, list)
            and key in properties
            and several in properties
            and several not in given
            and "array" not in shape.types(key)
            and "array" in shape.types(several)
        ):
            meant[key] = several
    if not meant:
        return None
    what = ", ".join(f"`{key}` takes one value, and `{several}` takes several" for key, several in meant.items())
    return {meant.get(key, key): value for key, value in given.items()}, what


def _from_lone_values(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"path": "git"}` to `{"path": ["git"]}`."""
    properties = shape.properties
    meant = {
        key: [value]
        for key, value in given.items()
        if key in properties and value is not None and not isinstance(value, list)
        if {*shape.types(key)} - {"null"} == {"array"}
    }
    if not meant:
        return None
    return {**given, **meant}, f"{_names(meant)} takes a list"


def _from_misspelt_keys(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"filePath": "."}` to `{"file_path": "."}`."""
    known = shape.properties
    free = [key for key in known if key not in given]
    renamed: dict[str, str] = {}
    unknown = [key for key in given if key not in known]
    if len(unknown) > MAX_UNKNOWN:
        return None
    compared = Comparisons()
    for key in unknown:
        if (near := nearest(key, free, compared)) is not None:
            renamed[key] = near
            free.remove(near)
    if not renamed:
        return None
    what = ", ".join(f"`{key}` is called `{near}`" for key, near in renamed.items())
    return {renamed.get(key, key): value for key, value in given.items()}, what


def _from_misspelt_values(schema: Schema, _: _Shape, given: dict[str, Any]) -> _Undone:
    """`{"detail_level": "ful"}` for `{"detail_level": "full"}`."""
    meant: dict[str, Any] = {}
    for violation in schema.violations(given):
        key = next((key for key in given if pointer([key]) == violation.place), None)
        if violation.keyword == "enum" and violation.nearest is not None and key is not None:
            meant[key] = next(value for value in violation.allowed if str(value) == violation.nearest)
    if not meant:
        return None
    return {**given, **meant}, ", ".join(f"`{key}` may be `{value}`" for key, value in meant.items())


def _from_flattened(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"x": 1, "y": 2}` to `{"point": {"x": 1, "y": 2}}`."""
    unknown = {key for key in given if key not in shape.properties}
    if not unknown or len(unknown) > MAX_UNKNOWN:
        return None
    not_given = ((name, part) for name, part in shape.properties.items() if name not in given)
    for name, part in islice(not_given, MAX_OUTER):
        known = {key for properties in shape.properties_in(part) for key in unknown if key in properties}
        if known:
            rest = {key: value for key, value in given.items() if key not in known}
            inside = {key: value for key, value in given.items() if key in known}
            return {**rest, name: inside}, f"{_names(inside)} must be inside `{name}`"
    return None


def _from_out_of_range(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """Correct `{"limit": 51}` to `{"limit": 50}`, if 50 is the maximum."""
    properties = shape.properties
    meant: dict[str, Any] = {}
    for key, value in given.items():
        if key not in properties or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        for schema in shape.alternatives(properties[key]):
            least, most = schema.get("minimum"), schema.get("maximum")
            if isinstance(least, int | float) and value < least:
                meant[key] = least
            elif isinstance(most, int | float) and value > most:
                meant[key] = most
    if not meant:
        return None
    return {**given, **meant}, ", ".join(f"the closest allowed `{key}` is {value}" for key, value in meant.items())


def _names(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> dict[str, Any] | None:
    """Return `value` if it is a JSON object, or the object that it encodes if it is a string; otherwise None."""
    inner = _parsed(value) if isinstance(value, str) else value
    if not isinstance(inner, dict) or not all(isinstance(key, str) for key in cast("dict[Any, Any]", inner)):
        return None
    return cast("dict[str, Any]", inner)


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
