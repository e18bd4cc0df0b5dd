"""Random values for a schema, most of them valid, and variants of them with one change."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from typing import Any, cast

_TEXTS = ("", "a", "main.go", "2024-02-29", "12:30:00Z", 'say "hi"\\\n', "ünï😀\x00", "https://example.org/x?y=1")
_DEPTH = 6
_UUID = "123e4567-e89b-12d3-a456-426614174000"
_FORMATS = {
    "date": "2024-02-29",
    "time": "23:59:59Z",
    "date-time": "2023-12-31T00:00:00+01:00",
    "uuid": _UUID,
    "uri": "https://example.org/",
    "email": "a@example.org",
}


class Maker:
    """Makes values for one schema. Keys are in the order in which the schema declares them."""

    def __init__(self, schema: Mapping[str, Any], source: random.Random) -> None:
        self._document = schema
        self._source = source

    def value(self) -> Any:
        return self._of(self._document, 0)

    def _of(self, schema: Any, depth: int) -> Any:
        merged = self._merged(schema, 0)
        if "const" in merged:
            return copy.deepcopy(merged["const"])
        if merged.get("enum"):
            return copy.deepcopy(self._source.choice(merged["enum"]))
        kinds = _names(merged.get("type") or self._implied(merged))
        return getattr(self, f"_{self._source.choice(kinds)}")(merged, depth)

    def _merged(self, schema: Any, depth: int) -> dict[str, Any]:
        """Merge `schema`, its references, all parts of `allOf` and one branch of each choice into one object."""
        if isinstance(schema, bool) or depth > 20:
            return {}
        parts: list[dict[str, Any]] = [schema]
        if "$ref" in schema:
            parts.append(self._merged(self._at(schema["$ref"]), depth + 1))
        parts += [self._merged(part, depth + 1) for part in schema.get("allOf", ())]
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                parts.append(self._merged(self._source.choice(schema[key]), depth + 1))
        found: dict[str, Any] = {}
        for part in parts:
            for key, said in part.items():
                if key in {"properties", "$defs", "definitions"}:
                    found[key] = {**found.get(key, {}), **said}
                elif key == "required":
                    found[key] = [*found.get(key, ()), *said]
                elif key == "type" and key in found:
                    both = [name for name in _names(found[key]) if name in _names(said)]
                    found[key] = both[0] if both else found[key]
                elif key == "enum" and key in found:
                    found[key] = [value for value in found[key] if value in said] or found[key]
                else:
                    found[key] = said
        return found

    def _at(self, ref: str) -> Any:
        return at(self._document, ref)

    def _implied(self, schema: Mapping[str, Any]) -> str:
        for keyword, kind in (
            ("properties", "object"),
            ("required", "object"),
            ("items", "array"),
            ("pattern", "string"),
        ):
            if keyword in schema:
                return kind
        return self._source.choice(("object", "array", "string", "number", "integer", "boolean", "null"))

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        found: dict[str, Any] = {}
        for name, inner in schema.get("properties", {}).items():
            if name in required or (depth < _DEPTH and self._source.random() < 0.5):
                found[name] = self._of(inner, depth + 1)
        for name in required:
            if name not in found:
                found[name] = self._of(schema.get("additionalProperties", {}), depth + 1)
        more = schema.get("additionalProperties", "properties" not in schema)
        if more is not False and depth < _DEPTH:
            for name in self._source.sample(("other", "x y", '"', "漢"), self._source.choice((0, 0, 1, 2))):
                found.setdefault(name, self._of(more, depth + 1))
        return found

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        ahead = schema.get("prefixItems", ())
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", least + 3), least + 3)
        count = self._source.randint(least, max(most, least)) if depth < _DEPTH else least
        items = schema.get("items", {})
        return [self._of(ahead[at] if at < len(ahead) else items, depth + 1) for at in range(count)]

    def _string(self, schema: Mapping[str, Any], _: int) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = self._source.choice(_TEXTS)
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        text += "x" * max(0, least - len(text))
        return text if most is None else text[:most]

    def _number(self, schema: Mapping[str, Any], depth: int) -> float:
        if self._source.random() < 0.4:
            return self._integer(schema, depth)
        low, high = _range(schema)
        return round(self._source.uniform(low, min(high, low + 1_000)), 3)

    def _integer(self, schema: Mapping[str, Any], _: int) -> int:
        low, high = _range(schema)
        return self._source.choice(
            (
                int(-(-low // 1)),
                int(high // 1),
                self._source.randint(int(-(-low // 1)), max(int(high), int(-(-low // 1)))),
            )
        )

    def _boolean(self, *_: Any) -> bool:
        return self._source.random() < 0.5

    def _null(self, *_: Any) -> None:
        return None


def at(document: Any, ref: str) -> Any:
    """Return the part of `document` at a JSON Pointer reference."""
    for step in ref.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        document = document[int(key) if type(document) is list else key]
    return document


def _names(said: Any) -> list[str]:
    return [said] if isinstance(said, str) else list(said)


def _range(schema: Mapping[str, Any]) -> tuple[float, float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None:
        low = -1_000 if high is None else high - 1_000
    return low, low + 100_000 if high is None else high


def changed(value: Any, source: random.Random) -> Iterator[Any]:
    """Yield one changed copy of `value` for each path in it."""
    for path in _paths(value):
        copied = copy.deepcopy(value)
        holder: Any = copied
        for step in path[:-1]:
            holder = holder[step]
        old = holder[path[-1]] if path else copied
        new = _other(old, source)
        if not path:
            yield new
            continue
        if new is _GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = new
        yield copied


_GONE = object()


def _other(old: Any, source: random.Random) -> Any:
    any_value = source.choice((None, True, 0, -1, 1.5, "", "other", [], {}, [None], {"other": 1}, 10**12))
    choices: list[Any] = [_GONE, any_value]
    match old:
        case bool() | None:
            pass
        case int() | float():
            choices += [
                old + 1,
                old - 1,
                -old,
                old + 0.5 if abs(old) < 10**6 else old,
                old * 1_000 if abs(old) < 10**12 else 0,
            ]
        case str():
            choices += [old + "x", old[:-1], old.upper(), old + '"', "\\" + old]
        case list():
            choices += [[*old, *old], old[:1], [*old, any_value]]
        case _:
            choices += [{**old, "other": any_value}, {}]
    return source.choice(choices)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key in _keys(value):
        yield from _paths(value[key], (*path, key))


def _keys(value: Any) -> list[Any]:
    match value:
        case dict():
            return list(cast("dict[str, Any]", value))
        case list():
            return list(range(len(cast("list[Any]", value))))
        case _:
            return []
