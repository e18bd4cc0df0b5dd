"""The slips models commonly make with arguments, recognised so that an error can hold the call as it was meant."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolcrib.core.schema import Comparisons, Schema, nearest
from toolcrib.core.subschemas import at_reference

MAX_MISSPELT = 16
"""Unknown keys that are looked into; arguments with more were meant for something else."""

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
    for undo in (
        _from_wrapper,
        _from_json_text,
        _from_several,
        _from_lone_values,
        _from_misspelt_keys,
        _from_flattened,
        _from_out_of_range,
    ):
        if said and schema.is_valid(meant):
            break
        attempt = undo(document, meant)
        if attempt is not None:
            meant, what = attempt
            said.append(what)
    if not said or not schema.is_valid(meant):
        return None
    told = "; ".join(said)
    return Repair(meant, f"{told[0].upper()}{told[1:]}.")


_Undone = tuple[dict[str, Any], str] | None


def _from_wrapper(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"arguments": {"path": "."}}` for `{"path": "."}`."""
    if len(given) != 1:
        return None
    ((key, value),) = given.items()
    inner = _object(value)
    if key in _properties(document, document) or inner is None:
        return None
    return inner, f"the arguments stand one level too deep, under `{key}`"


def _from_json_text(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"files": "[\\"a\\"]"}` for `{"files": ["a"]}`, and `{"limit": "5"}` for `{"limit": 5}`."""
    meant: dict[str, Any] = {}
    properties = _properties(document, document)
    for key, value in given.items():
        types = _types(document, properties[key]) if key in properties else ()
        if isinstance(value, str) and types and "string" not in types:
            inner = _parsed(value)
            if any(isinstance(inner, _PYTHON_TYPES.get(name, ())) for name in types):
                meant[key] = inner
    if not meant:
        return None
    return {**given, **meant}, f"{_names(meant)} was sent as a string"


def _from_several(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"tool_id": ["a", "b"]}` for `{"tool_ids": ["a", "b"]}`, where there is a key for several."""
    properties = _properties(document, document)
    meant: dict[str, str] = {}
    for key, value in given.items():
        several = f"{key}s"
        if (
            isinstance(value, list)
            and key in properties
            and several in properties
            and several not in given
            and "array" not in _types(document, properties[key])
            and "array" in _types(document, properties[several])
        ):
            meant[key] = several
    if not meant:
        return None
    what = ", ".join(f"`{key}` takes one, and `{several}` takes several" for key, several in meant.items())
    return {meant.get(key, key): value for key, value in given.items()}, what


def _from_lone_values(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"path": "git"}` for `{"path": ["git"]}`."""
    properties = _properties(document, document)
    meant = {
        key: [value]
        for key, value in given.items()
        if key in properties and value is not None and not isinstance(value, list)
        if {*_types(document, properties[key])} - {"null"} == {"array"}
    }
    if not meant:
        return None
    return {**given, **meant}, f"{_names(meant)} takes a list"


def _from_misspelt_keys(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"filePath": "."}` for `{"file_path": "."}`."""
    known = _properties(document, document)
    free = [key for key in known if key not in given]
    renamed: dict[str, str] = {}
    unknown = [key for key in given if key not in known]
    if len(unknown) > MAX_MISSPELT:
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


def _from_flattened(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"x": 1, "y": 2}` for `{"point": {"x": 1, "y": 2}}`."""
    outer = _properties(document, document)
    for name, part in outer.items():
        inner = _properties(document, part)
        inside = {key: value for key, value in given.items() if key in inner and key not in outer}
        if name not in given and inside:
            rest = {key: value for key, value in given.items() if key not in inside}
            return {**rest, name: inside}, f"{_names(inside)} stands inside `{name}`"
    return None


def _from_out_of_range(document: Mapping[str, Any], given: dict[str, Any]) -> _Undone:
    """`{"limit": 50}` for `{"limit": 51}`, where 50 is the most."""
    properties = _properties(document, document)
    meant: dict[str, Any] = {}
    for key, value in given.items():
        if key not in properties or not isinstance(value, int | float) or isinstance(value, bool):
            continue
        for schema in _alternatives(document, properties[key]):
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


def _alternatives(document: Mapping[str, Any], part: object) -> Iterator[Mapping[str, Any]]:
    """What a value of the subschema `part` may match: itself, what it refers to and its alternatives, each once."""
    waiting: deque[object] = deque([part])
    seen: set[int] = set()
    while waiting:
        found = waiting.popleft()
        if not isinstance(found, Mapping) or id(cast(object, found)) in seen:
            continue
        schema = cast(Mapping[str, Any], found)
        seen.add(id(schema))
        yield schema
        waiting.append(at_reference(document, schema.get("$ref")))
        for key in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(key)
            waiting.extend(cast(list[object], branches) if isinstance(branches, list) else ())


def _properties(document: Mapping[str, Any], part: object) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for schema in _alternatives(document, part):
        properties = schema.get("properties")
        if isinstance(properties, Mapping):
            found = {**cast(Mapping[str, Any], properties), **found}
    return found


def _types(document: Mapping[str, Any], part: object) -> tuple[str, ...]:
    """The JSON types a subschema names, alternatives included; empty where it names none."""
    names: list[str] = []
    for schema in _alternatives(document, part):
        declared = schema.get("type")
        if isinstance(declared, str):
            names.append(declared)
        elif isinstance(declared, list):
            names += map(str, cast(list[Any], declared))
    return tuple(names)


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
