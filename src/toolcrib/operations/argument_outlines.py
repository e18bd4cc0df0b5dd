"""Outlines of input schemas: one short line for each argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import unquote

from toolcrib.core.untrusted_text import as_id, as_json, on_one_line

MAX_LOOKS = 500
"""The most subschemas that are read; each reference counts again. A schema with more has no outline."""

MAX_NESTED = 12
"""The deepest nesting of subschemas."""

MAX_SAMPLES = 3
"""The most values that are shown of an argument's `examples`."""

_BEYOND_LINES = frozenset(
    {
        "if",
        "then",
        "else",
        "not",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "contains",
        "prefixItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)
"""Keywords that a short line cannot express."""

_JOINED = ("$ref", "allOf", "anyOf", "oneOf", "enum", "const")

_REMARKS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
"""Keywords that can stand next to a reference, and then replace those of its target."""

_LIMITS: Mapping[str, str] = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "multiple of {}",
    "minLength": "length >= {}",
    "maxLength": "length <= {}",
    "pattern": "pattern {}",
    "format": "format {}",
    "minItems": "items >= {}",
    "maxItems": "items <= {}",
    "minProperties": "keys >= {}",
    "maxProperties": "keys <= {}",
}

_Schema = Mapping[str, Any]


class _BeyondLines(Exception):
    """The schema contains something that an outline would lose."""


def outline(schema: Mapping[str, Any]) -> list[str] | None:
    """Return a line for each argument; empty if there are no arguments.

    What is inside an argument follows it, indented by two spaces. Local references are followed. Return None if an
    outline would lose something: conditions, recursion, or alternatives of the arguments as a whole.
    """
    if any(keyword in schema for keyword in _JOINED):
        return None
    try:
        reader = _Reader(schema)
        plain, inside = reader.resolved(schema, ())
        return reader.keys(plain, inside)
    except _BeyondLines:
        return None


@dataclass(slots=True)
class _Reader:
    document: _Schema
    looks: int = 0

    def keys(self, schema: _Schema, inside: tuple[str, ...]) -> list[str]:
        """Return a line for each key of an object, with the lines of what is inside it."""
        properties = _mapping(schema.get("properties", {}))
        required: Any = schema.get("required", [])
        if not isinstance(required, list) or not properties.keys() >= {*map(str, cast("list[object]", required))}:
            raise _BeyondLines
        if schema.get("propertyNames", {}) not in ({}, True, {"type": "string"}):
            raise _BeyondLines
        lines: list[str] = []
        for name, each in properties.items():
            lines += self._key(as_id(name), each, inside, required=name in required)
        others = schema.get("additionalProperties")
        return [*lines, *self._key("any other key", others, inside)] if _is_schema(others) else lines

    def resolved(self, schema: object, inside: tuple[str, ...]) -> tuple[_Schema, tuple[str, ...]]:
        """Return `schema` with its references resolved, and the references that lead there."""
        self.looks += 1
        if self.looks > MAX_LOOKS or len(inside) > MAX_NESTED:
            raise _BeyondLines
        here: _Schema = {} if schema is True else _mapping(schema)
        while "$ref" in here or "allOf" in here:
            if "$ref" in here:
                reference: object = here["$ref"]
                if not isinstance(reference, str) or reference in inside:
                    raise _BeyondLines
                inside = (*inside, reference)
                target, own = self._target(reference), {key: here[key] for key in here if key != "$ref"}
            else:
                several = cast("list[object]", here["allOf"]) if isinstance(here["allOf"], list) else []
                if len(several) != 1:
                    raise _BeyondLines
                target, own = _mapping(several[0]), {key: here[key] for key in here if key != "allOf"}
            if own.keys() & target.keys() - _REMARKS:
                raise _BeyondLines
            here = {**target, **own}
        if here.keys() & _BEYOND_LINES or (here is not self.document and "$id" in here):
            raise _BeyondLines
        return here, inside

    def _key(self, name: str, schema: object, inside: tuple[str, ...], *, required: bool = False) -> list[str]:
        plain, inner = self.resolved(schema, inside)
        kind, lines = self._kind(plain, (*inner, ""))
        marks = [kind]
        if required:
            marks.append("required")
        if plain.get("default") is not None:
            marks.append(f"default {as_json(plain['default'])}")
        samples: Any = plain.get("examples")
        if isinstance(samples, list) and samples:
            marks.append(f"like {', '.join(map(as_json, cast('list[object]', samples)[:MAX_SAMPLES]))}")
        if plain.get("deprecated") is True:
            marks.append("deprecated")
        told = plain.get("description")
        head = f"{name} ({', '.join(marks)})"
        return [f"{head}: {on_one_line(told)}" if isinstance(told, str) and told.strip() else head, *_deeper(lines)]

    def _said(self, schema: object, inside: tuple[str, ...]) -> tuple[str, list[str]]:
        plain, inner = self.resolved(schema, inside)
        return self._kind(plain, (*inner, ""))

    def _kind(self, schema: _Schema, inside: tuple[str, ...]) -> tuple[str, list[str]]:
        """Return the type of a value in a few words, and the lines about what is inside it."""
        if "const" in schema:
            return as_json(schema["const"]), []
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise _BeyondLines
            return " | ".join(map(as_json, cast("list[object]", schema["enum"]))), []
        if "anyOf" in schema or "oneOf" in schema:
            return self._alternatives(schema, inside)
        types: Any = schema.get("type", _implied(schema))
        kinds = [
            self._of_type(each, schema, inside)
            for each in (cast("list[object]", types) if isinstance(types, list) else [types])
        ]
        limits = [
            told.format(on_one_line(str(schema[key])) if key == "format" else as_json(schema[key]))
            for key, told in _LIMITS.items()
            if key in schema
        ] + (["unique"] if schema.get("uniqueItems") is True else [])
        kind = " | ".join(kind for kind, _ in kinds)
        lines = [line for _, inner in kinds for line in inner]
        return ", ".join([kind, *limits]), lines

    def _alternatives(self, schema: _Schema, inside: tuple[str, ...]) -> tuple[str, list[str]]:
        if schema.keys() >= {"anyOf", "oneOf"} or schema.keys() & {"properties", "required", "items", *_LIMITS}:
            raise _BeyondLines
        given: Any = schema.get("anyOf", schema.get("oneOf"))
        if not isinstance(given, list):
            raise _BeyondLines
        said = [self._said(each, inside) for each in cast("list[object]", given)]
        kind = " | ".join(dict.fromkeys(_one(kind, ",") for kind, _ in said))
        structured = [(kind, lines) for kind, lines in said if lines]
        if len(structured) <= 1:
            return kind, [line for _, lines in structured for line in lines]
        told: list[str] = []
        for number, (each, lines) in enumerate(structured):
            told += [f"{'or' if number else 'either'} {each}:", *_deeper(lines)]
        return kind, told

    def _of_type(self, name: object, schema: _Schema, inside: tuple[str, ...]) -> tuple[str, list[str]]:
        match name:
            case "object" if not schema.get("properties") and _is_schema(schema.get("additionalProperties")):
                if schema.get("required") or "propertyNames" in schema:
                    raise _BeyondLines
                kind, lines = self._said(schema["additionalProperties"], inside)
                return f"object of {_one(kind)}", lines
            case "object":
                return "object", self.keys(schema, inside)
            case "array" if _is_schema(schema.get("items")):
                kind, lines = self._said(schema["items"], inside)
                return f"array of {_one(kind)}", lines
            case "array" if schema.get("items") not in (None, True, {}):
                raise _BeyondLines
            case str():
                return on_one_line(name), []
            case _:
                raise _BeyondLines

    def _target(self, reference: str) -> _Schema:
        if reference != "#" and not reference.startswith("#/"):
            raise _BeyondLines
        here: Any = self.document
        for part in reference.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            here = _mapping(here).get(key)
        return _mapping(here)


def _implied(schema: _Schema) -> str:
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema else "any"


def _is_schema(value: object) -> bool:
    """Return whether `value` is a schema that says anything."""
    return isinstance(value, Mapping) and value != {}


def _mapping(value: object) -> _Schema:
    if not isinstance(value, Mapping):
        raise _BeyondLines
    return cast(_Schema, value)


def _one(kind: str, among: str = " ") -> str:
    """Return `kind`, in parentheses if the text next to it could be read as a part of it."""
    return f"({kind})" if among in kind else kind


def _deeper(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
