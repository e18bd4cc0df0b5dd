"""The slips models commonly make with arguments, recognised so that an error can hold the call as it was meant."""

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
"""Unknown keys that are looked into; arguments with more were meant for something else."""

MAX_OUTER = 50
"""Properties that are looked into for keys that should stand inside them."""

MAX_ALTERNATIVES = 200
"""Subschemas of one property that are looked at: itself, what it refers to and its alternatives. One with more is not
looked into."""

MAX_LOOKS = 2_000
"""Subschemas that are looked at for one repair: some milliseconds."""

MAX_KEYS = 1_000
"""Keys of arguments that are looked into at all."""


@dataclass(frozen=True, slots=True)
class Repair:
    """Arguments that match the schema, and the slip that kept the given ones from it."""

    arguments: Mapping[str, Any]
    what: str


def repaired(document: Mapping[str, Any], schema: Schema, given: object) -> Repair | None:
    """What was probably meant by `given`, if undoing common slips makes it valid; None otherwise.

    Only ever proposed, never run: whoever calls decides.
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
    """What a schema says of the keys of arguments. No more than `MAX_LOOKS` subschemas of it are looked at."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._references = References(document)
        self._looks = MAX_LOOKS
        self._alternatives: dict[int, Sequence[Mapping[str, Any]]] = {}
        """By the id of a subschema."""
        self.properties: dict[str, Any] = {}
        """Those of the arguments themselves: of each key the subschema that comes first."""
        for properties in self.properties_in(document):
            for key, part in properties.items():
                self.properties.setdefault(key, part)

    def alternatives(self, part: object) -> Sequence[Mapping[str, Any]]:
        """What a value of the subschema `part` may match: itself, what it refers to and its alternatives, each once.

        Empty where there are too many. A part of them could say that a value is wrong which the others accept.
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
        """The properties that each alternative of `part` declares."""
        for schema in self.alternatives(part):
            if isinstance(properties := schema.get("properties"), Mapping):
                yield cast(Mapping[str, Any], properties)

    def types(self, key: str) -> tuple[str, ...]:
        """The JSON types that the property `key` names, alternatives included; empty where it names none."""
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
    """`{"arguments": {"path": "."}}` for `{"path": "."}`."""
    if len(given) != 1:
        return None
    ((key, value),) = given.items()
    inner = _object(value)
    if key in shape.properties or inner is None or len(inner) > MAX_KEYS:
        return None
    return inner, f"the arguments stand one level too deep, under `{key}`"


def _from_json_text(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """`{"files": "[\\"a\\"]"}` for `{"files": ["a"]}`, and `{"limit": "5"}` for `{"limit": 5}`."""
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
    """`{"tool_id": ["a", "b"]}` for `{"tool_ids": ["a", "b"]}`, where there is a key for several."""
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
    what = ", ".join(f"`{key}` takes one, and `{several}` takes several" for key, several in meant.items())
    return {meant.get(key, key): value for key, value in given.items()}, what


def _from_lone_values(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """`{"path": "git"}` for `{"path": ["git"]}`."""
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
    """`{"filePath": "."}` for `{"file_path": "."}`."""
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
    """`{"x": 1, "y": 2}` for `{"point": {"x": 1, "y": 2}}`."""
    unknown = {key for key in given if key not in shape.properties}
    if not unknown or len(unknown) > MAX_UNKNOWN:
        return None
    not_given = ((name, part) for name, part in shape.properties.items() if name not in given)
    for name, part in islice(not_given, MAX_OUTER):
        known = {key for properties in shape.properties_in(part) for key in unknown if key in properties}
        if known:
            rest = {key: value for key, value in given.items() if key not in known}
            inside = {key: value for key, value in given.items() if key in known}
            return {**rest, name: inside}, f"{_names(inside)} stands inside `{name}`"
    return None


def _from_out_of_range(shape: _Shape, given: dict[str, Any]) -> _Undone:
    """`{"limit": 50}` for `{"limit": 51}`, where 50 is the most."""
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
    return {**given, **meant}, ", ".join(f"`{key}` may be {value} here" for key, value in meant.items())


def _names(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> dict[str, Any] | None:
    """A JSON object, given as itself or as its text; None for anything else."""
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
