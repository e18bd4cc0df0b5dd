"""Splits a JSON Schema into its contract, which decides what calls are valid, and the words that explain it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from toolcrib.core.schema import pointer
from toolcrib.core.subschemas import at_reference

WORDS = frozenset({"title", "description", "$comment", "examples"})
"""Keywords that a model reads and that have no effect on validation."""

TARGETS = frozenset({"$defs", "definitions"})
"""Keywords that hold subschemas which apply only if a reference leads to them."""

MAX_DEPTH = 100
"""How deep schemas within schemas are read."""

MAX_PARTS = 100_000
"""How many subschemas of one document are read. A subschema that several references lead to counts each time."""

Json = Mapping[str, Any]

_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"}) | TARGETS
_LISTS = frozenset({"prefixItems", "items", "anyOf", "oneOf", "allOf"})
# fmt: off
_SINGLE = frozenset({
    "items", "additionalItems", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains",
    "propertyNames", "not", "if", "then", "else", "contentSchema",
})
# fmt: on

_NAMED = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"})
"""Keywords that give a reference a meaning other than a JSON Pointer from the root."""

# fmt: off
_SAME_IN_ALL = WORDS | TARGETS | {
    "$schema", "type", "enum", "const", "default", "properties", "patternProperties", "additionalProperties",
    "propertyNames", "required", "minProperties", "maxProperties", "items", "minItems", "maxItems", "uniqueItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "anyOf", "oneOf", "allOf", "not", "$ref",
}
# fmt: on
"""Keywords that mean the same in all `_DIALECTS`, with two exceptions, which `_is_portable` handles: `items` as a list,
and keywords next to a `$ref`."""

_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


class _Opaque(Exception):
    """The schema is too large, or it has references that only a validator can follow."""


def contract_of(schema: Json) -> Any:
    """Return what `schema` accepts, with its defaults, as one JSON value. Schemas with equal contracts accept the same.

    The contract omits words, and targets without a reference. Targets with a reference follow the schema, in the order
    of their first reference. So a swapped target changes the contract, and a renamed target does not. If the schema is
    too large, or has references that only a validator can follow, the contract is the schema without its words.
    """
    plain = without(schema, WORDS)
    followed: dict[str, int] = {}
    waiting: list[Any] = [plain]

    def numbered(part: Json, _place: tuple[str, ...]) -> Json:
        if not _NAMED.isdisjoint(part):
            raise _Opaque
        kept = {key: value for key, value in part.items() if key not in TARGETS}
        if isinstance(ref := kept.get("$ref"), str):
            if ref not in followed:
                target = at_reference(plain, ref)
                if target is None:
                    raise _Opaque
                followed[ref] = len(waiting)
                waiting.append(target)
            kept["$ref"] = followed[ref]
        return kept

    walk = _Walk(numbered)
    try:
        # `numbered` appends to `waiting` while this loop reads it.
        return [walk.through(target) for target in waiting]
    except _Opaque:
        return plain


def without(schema: Json, keywords: frozenset[str]) -> Json:
    """Return `schema` without `keywords` at any depth, and without a `$schema` that has no effect.

    The schema is returned unchanged if it is too large, or if a reference leads into one of `keywords`.
    """
    dialect = schema.get("$schema")
    is_portable = isinstance(dialect, str) and dialect.rstrip("#") in _DIALECTS

    def bare(part: Json, _place: tuple[str, ...]) -> Json:
        nonlocal is_portable
        if isinstance(ref := part.get("$ref"), str) and not keywords.isdisjoint(unquote(ref).split("/")):
            raise _Opaque  # the removed value is used as a schema
        kept = {key: value for key, value in part.items() if key not in keywords}
        is_portable = is_portable and _is_portable(part)
        return kept

    try:
        stripped = _Walk(bare).through(schema)
    except _Opaque:
        return schema
    return {key: value for key, value in stripped.items() if key != "$schema"} if is_portable else stripped


def words_of(schema: Json) -> Iterator[tuple[str, Any]]:
    """Yield the values of `WORDS` in `schema` at any depth, each with its JSON Pointer; nothing if it is too large."""
    found: list[tuple[str, Any]] = []

    def read(part: Json, place: tuple[str, ...]) -> Json:
        found.extend((pointer((*place, key)), part[key]) for key in sorted(WORDS & part.keys()))
        return part

    try:
        _Walk(read).through(schema)
    except _Opaque:
        return iter(())
    return iter(found)


class _Walk:
    """Rebuilds a schema: applies `change` to each subschema, parents before children, with keys in sorted order."""

    def __init__(self, change: Callable[[Json, tuple[str, ...]], Json]) -> None:
        self._change = change
        self._parts = 0

    def through(self, schema: Any, place: tuple[str, ...] = (), depth: int = 0) -> Any:
        """Raises `_Opaque`."""
        if not isinstance(schema, Mapping):
            return schema
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise _Opaque
        changed = self._change(cast("Json", schema), place)
        return {key: self._below(key, changed[key], (*place, key), depth + 1) for key in sorted(changed)}

    def _below(self, key: str, value: Any, place: tuple[str, ...], depth: int) -> Any:
        if key in _BY_NAME and isinstance(value, Mapping):
            named = cast("Json", value)
            return {name: self.through(named[name], (*place, name), depth) for name in sorted(named)}
        if key in _LISTS and isinstance(value, list | tuple):
            parts = cast("Sequence[Any]", value)
            return [self.through(part, (*place, str(position)), depth) for position, part in enumerate(parts)]
        return self.through(value, place, depth) if key in _SINGLE else value


def _is_portable(part: Json) -> bool:
    """Return whether `part` means the same in all `_DIALECTS`."""
    # Draft 7 and older ignore the keywords next to a `$ref`.
    ref_siblings = part.keys() - WORDS - {"$ref", "default", "$schema"} - TARGETS
    is_plain_ref = "$ref" not in part or not ref_siblings
    return part.keys() <= _SAME_IN_ALL and not isinstance(part.get("items"), list) and is_plain_ref
