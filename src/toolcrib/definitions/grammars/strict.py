"""Converts a schema to the subset that the strict modes of providers accept, and reports what is lost.

The subset is what both OpenAI's structured outputs and Anthropic's strict tool use accept. As of November 2026, they
require closed objects that list all their keys. They refuse recursion (Anthropic), `allOf`, `oneOf`, conditions,
defaults (OpenAI) and bounds of numbers, lengths and counts (Anthropic).

Sources: OpenAI, "Structured model outputs", "Supported schemas"; Anthropic, "Structured outputs", "JSON Schema
limitations".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema, type_name
from toolcrib.definitions.grammars.regular_expressions import UnheldPattern, parsed
from toolcrib.definitions.grammars.schema_places import (
    TYPES,
    Leaf,
    PlacedSchema,
    Places,
    TooLarge,
    Unenforced,
    fits_type,
)

MAX_PROPERTIES = 5_000
"""The number of properties in one schema. This is OpenAI's limit."""

MAX_DEPTH = 10
"""The nesting depth of objects and arrays. This is OpenAI's limit."""

MAX_VALUES = 1_000
"""The number of values in all enumerations of one schema. This is OpenAI's limit."""

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""The formats that both providers accept."""

_MAX_ALTERNATIVES = 50
_TOLD = ("title", "description")
_BOUNDS = {
    "object": ("minProperties", "maxProperties", "propertyNames", "patternProperties", "unevaluatedProperties"),
    "array": ("maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems", "unevaluatedItems"),
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_CONDITIONS = ("not", "if", "dependentRequired", "dependentSchemas", "dependencies")
_REFUSED = "strict modes do not accept it"


@dataclass(frozen=True, slots=True)
class StrictSchema:
    """A schema for strict modes. The model must write every key.

    If the tool does not require a key, null means that the key is absent. `arguments` removes such nulls.
    """

    schema: Mapping[str, Any] | None
    """None if no strict schema allows a valid call."""
    lost: tuple[Unenforced, ...]
    """The rules of the original that are missing here, and the values that it allows but this does not. By pointer."""
    _absent: frozenset[tuple[str, ...]] = frozenset()

    def arguments(self, written: Any) -> Any:
        """Convert output that follows the strict schema to arguments for the tool: remove nulls of absent keys."""
        return self._restored(written, ())

    def _restored(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value).items()
            kept = ((key, inner) for key, inner in pairs if inner is not None or (*path, key) not in self._absent)
            return {key: self._restored(inner, (*path, key)) for key, inner in kept}
        if isinstance(value, list):
            return [self._restored(inner, (*path, "*")) for inner in cast("list[Any]", value)]
        return value


def strict_schema(schema: Mapping[str, Any]) -> StrictSchema:
    """Return the strict form of an input schema: every key required, optional keys nullable, every object closed.

    A key that cannot be expressed is left out if it is optional. If it is required, the object that requires it is left
    out too.
    """
    writer = _Writer(Places(schema))
    try:
        Schema(schema)
        found = writer.place(("",), (), frozenset(), only_object=True)
    except (InvalidTool, TooLarge, RecursionError) as error:
        why = error.message if isinstance(error, InvalidTool) else "it is too large"
        return StrictSchema(None, (Unenforced("", "$schema", why),))
    return StrictSchema(found, tuple(writer.places.unenforced.values()), frozenset(writer.absent))


@dataclass
class _Writer:
    places: Places
    absent: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    _properties: int = 0
    _values: int = 0

    def place(
        self,
        pointers: Sequence[str],
        path: tuple[str, ...],
        above: frozenset[tuple[str, ...]],
        *,
        only_object: bool = False,
    ) -> dict[str, Any] | None:
        """Return the strict schema of the place where the schemas at all `pointers` apply. None if it cannot be
        expressed.

        `path` consists of keys, with `*` for items. `above` are the places around this one; recursion cannot be
        expressed.
        """
        parts = self.places.flat(pointers).parts
        key = tuple(part.pointer for part in parts if part.schema.keys() - {"$ref", *_TOLD})
        if key and key in above:
            self._lose(key[0], "$ref", "strict modes do not accept recursion")
            return None
        if len(path) > MAX_DEPTH:
            self._lose(pointers[0], "type", f"strict modes accept at most {MAX_DEPTH} levels")
            return None
        branches: list[dict[str, Any]] = []
        for leaf in self.places.leaves(pointers, _MAX_ALTERNATIVES):
            types = leaf.types & {"object"} if only_object else leaf.types
            branches += self._leaf(leaf, types, path, above | {key})
        self._lose_defaults(parts)
        if not branches:
            return None
        told = _told(parts)
        distinct = [branch for at, branch in enumerate(branches) if branch not in branches[:at]]
        if len(distinct) == 1:
            return told | distinct[0]
        if only_object:
            self._lose(pointers[0], "anyOf", "strict modes require a single object at the top")
            return None
        return told | {"anyOf": distinct}

    def _lose_defaults(self, parts: Sequence[PlacedSchema]) -> None:
        for part in parts:
            if "default" in part.schema:
                self._lose(part.pointer, "default", _REFUSED)

    def _lose(self, pointer: str, keyword: str, why: str) -> None:
        self.places.report(pointer, keyword, why)

    def _leaf(
        self, leaf: Leaf, types: frozenset[str], path: tuple[str, ...], above: frozenset[tuple[str, ...]]
    ) -> list[dict[str, Any]]:
        self._lose_all(leaf, _CONDITIONS)
        if leaf.values is not None:
            return self._enumerated(*leaf.values, types)
        found: list[dict[str, Any]] = []
        for name in TYPES:
            if name not in types or (name == "integer" and "number" in types):
                continue
            self._lose_all(leaf, _BOUNDS.get("number" if name == "integer" else name, ()))
            match name:
                case "object":
                    said = self._object(leaf, path, above)
                case "array":
                    said = self._array(leaf, path, above)
                case "string":
                    said = self._string(leaf)
                case _:
                    said = {"type": name}
            if said is not None:
                found.append(said)
        return found

    def _enumerated(self, part: PlacedSchema, values: Sequence[Any], types: frozenset[str]) -> list[dict[str, Any]]:
        plain = [value for value in values if fits_type(value, types) and not isinstance(value, Mapping | list)]
        if len(plain) < len(values):
            self._lose(part.pointer, "enum", "strict modes accept only strings, numbers, booleans and null as values")
        self._values += len(plain)
        if self._values > MAX_VALUES:
            raise TooLarge
        by_type: dict[str, list[Any]] = {}
        for value in plain:
            by_type.setdefault(type_name(value), []).append(value)
        return [{"type": name, "enum": listed} for name, listed in by_type.items()]

    def _object(self, leaf: Leaf, path: tuple[str, ...], above: frozenset[tuple[str, ...]]) -> dict[str, Any] | None:
        required = leaf.required()
        properties: dict[str, Any] = {}
        if not leaf.closes():
            self._lose(leaf.parts[0].pointer, "additionalProperties", "strict modes accept only declared keys")
            if not leaf.declared():
                return None
        for name, pointers in leaf.declared().items():
            self._properties += 1
            if self._properties > MAX_PROPERTIES:
                raise TooLarge
            value = self.place(pointers, (*path, name), above) if pointers else None
            if value is None and name in required:
                self._lose(leaf.parts[0].pointer, "required", "a strict schema cannot express a required key")
                return None
            if value is None:
                self._lose(leaf.parts[0].pointer, "properties", "a strict schema cannot express an optional key")
                continue
            if name not in required:
                self.absent.add((*path, name))
                value = _nullable(value)
            properties[name] = value
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def _array(self, leaf: Leaf, path: tuple[str, ...], above: frozenset[tuple[str, ...]]) -> dict[str, Any] | None:
        items = [f"{part.pointer}/items" for part in leaf.parts if "items" in part.schema]
        if not items or any(isinstance(part.schema.get("items"), list) for part in leaf.parts):
            self._lose(leaf.parts[0].pointer, "items", "strict modes require one schema for all items")
            return None
        said = self.place(items, (*path, "*"), above)
        if said is None:
            return None
        least = max(part.get("minItems", int) or 0 for part in leaf.parts)
        if least > 1:
            self._lose(leaf.parts[0].pointer, "minItems", "strict modes accept only 0 and 1")
        return {"type": "array", "items": said} | ({"minItems": 1} if least else {})

    def _string(self, leaf: Leaf) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "string"}
        for part in leaf.parts:
            for keyword in ("pattern", "format"):
                said = part.get(keyword, str)
                if said is None:
                    continue
                if keyword not in found and (said in FORMATS if keyword == "format" else _is_plain(said)):
                    found[keyword] = said
                else:
                    self._lose(part.pointer, keyword, _REFUSED)
        return found

    def _lose_all(self, leaf: Leaf, keywords: Sequence[str]) -> None:
        for part in leaf.parts:
            for keyword in keywords:
                if keyword in part.schema and not _says_nothing(part, keyword):
                    self._lose(part.pointer, keyword, _REFUSED)


def _told(parts: Sequence[PlacedSchema]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        for keyword in _TOLD:
            if isinstance(part.schema.get(keyword), str):
                found.setdefault(keyword, part.schema[keyword])
    return found


def _says_nothing(part: PlacedSchema, keyword: str) -> bool:
    said: object = part.schema[keyword]
    return said is False or said in ({}, {"type": "string"})


def _is_plain(pattern: str) -> bool:
    try:
        parsed(pattern)
    except UnheldPattern:
        return False
    return True


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` or null. Title and description stay outside the choice."""
    told = {key: said for key, said in schema.items() if key in _TOLD}
    rest = {key: said for key, said in schema.items() if key not in _TOLD}
    branches = cast("list[dict[str, Any]]", rest.get("anyOf", [rest]))
    if any(branch.get("type") == "null" for branch in branches):
        return schema
    return told | {"anyOf": [*branches, {"type": "null"}]}
