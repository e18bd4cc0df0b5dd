"""What of a JSON Schema binds a call, told from its words; and the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from toolcrib.core.schema import pointer
from toolcrib.core.subschemas import at_reference

WORDS = frozenset({"title", "description", "$comment", "examples"})
"""Keywords that a model reads and that bind nobody."""

TARGETS = frozenset({"$defs", "definitions"})
"""Where subschemas stand that apply only where something refers to them."""

MAX_DEPTH = 100
"""Schemas within schemas that are looked into."""

MAX_PARTS = 100_000
"""Subschemas of one document, those that references lead to counted each time."""

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
"""Keywords by which a reference means something else than a JSON Pointer from the root."""

# fmt: off
_SAME_IN_ALL = WORDS | TARGETS | {
    "$schema", "type", "enum", "const", "default", "properties", "patternProperties", "additionalProperties",
    "propertyNames", "required", "minProperties", "maxProperties", "items", "minItems", "maxItems", "uniqueItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "anyOf", "oneOf", "allOf", "not", "$ref",
}
# fmt: on
"""Keywords that `_DIALECTS` read alike, but for lists of `items` and what stands beside a `$ref`."""

_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-06/schema",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


class _Opaque(Exception):
    """It is too large, or refers to its parts in ways that only a validator could follow."""


def contract_of(schema: Json) -> Any:
    """What `schema` accepts, and what it says of defaults, as one JSON value: equal ones bind alike.

    Words and targets of no reference are left out; those of references follow in the order in which they are met, so
    that a swapped one shows and a renamed one does not. The whole schema where that cannot be said: it is too large, or
    names its parts in ways that only a validator could follow.
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
        # The list grows while it is read.
        return [walk.through(target) for target in waiting]
    except _Opaque:
        return plain


def without(schema: Json, keywords: frozenset[str]) -> Json:
    """`schema` without `keywords` at any depth, and without a `$schema` that changes nothing.

    As it is where it is too large, or refers to what such a keyword holds.
    """
    dialect = schema.get("$schema")
    is_portable = isinstance(dialect, str) and dialect.rstrip("#") in _DIALECTS

    def bare(part: Json, _place: tuple[str, ...]) -> Json:
        nonlocal is_portable
        if isinstance(ref := part.get("$ref"), str) and not keywords.isdisjoint(unquote(ref).split("/")):
            raise _Opaque  # what is left out would be a schema
        kept = {key: value for key, value in part.items() if key not in keywords}
        is_portable = is_portable and _is_portable(part)
        return kept

    try:
        stripped = _Walk(bare).through(schema)
    except _Opaque:
        return schema
    return {key: value for key, value in stripped.items() if key != "$schema"} if is_portable else stripped


def words_of(schema: Json) -> Iterator[tuple[str, Any]]:
    """The values of `WORDS` anywhere in `schema`, each with a JSON Pointer; none of one that is too large."""
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
    """Rebuilds schemas with `change` done to each subschema before what is below it, in the order of keys."""

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
    """Whether all `_DIALECTS` read it alike."""
    beside = part.keys() - WORDS - {"$ref", "default", "$schema"} - TARGETS
    return part.keys() <= _SAME_IN_ALL and not isinstance(part.get("items"), list) and not ("$ref" in part and beside)
