"""Decides whether one JSON Schema accepts every value that a different schema accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema_rs
from jsonschema_rs.canonical import Containment

from toolcrib.core.contracts import TARGETS
from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema
from toolcrib.core.subschemas import IN_PLACE, at_reference

MAX_VALUES = 10_000
"""The largest schema that is compared, in JSON values.

The limits below bound the cost of the comparison itself: a definition from an untrusted server must not keep a
gateway busy or overflow its stack.
"""

MAX_DEPTH = 100
MAX_REFERENCES = 200
MAX_BRANCHES = 64
"""The number of subschemas in lists of choices, under `not`, or in dependencies. A condition counts as `CONDITION`."""

CONDITION = 8
"""How many branches one condition counts as. Ten conditions on one object take as long as hundreds of choices."""

QUICK_BRANCHES = 16
QUICK_VALUES = 2_000
"""A schema up to these sizes can be compared many times."""

MAX_LISTED = 2_000
"""The number of values in all `enum`s together."""

MAX_LISTED_NEGATED = 100
"""The same limit for schemas with negation, because each value then splits the set of all other values."""

_BACKTRACKS = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
_NEGATING = ("not", "oneOf", "if")
_SAYS_WHAT_ELSE = ("additionalProperties", "unevaluatedProperties")
_BY_NAME = ("properties", "patternProperties")
_VALUES = ("items", "prefixItems", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems")
"""Keywords with subschemas for values inside the value that the schema describes."""

Json = Mapping[str, Any]


def covers(wider: Json, narrower: Json) -> bool:
    """Return whether `wider` provably accepts every value that `narrower` accepts.

    Returns False if this cannot be decided: a schema is too large, refers to other documents, or has parts that cannot
    be compared. Formats count as rules, because the code that runs a tool may enforce them.
    """
    if not (_is_small(wider) and _is_small(narrower)):
        return False
    try:
        # A schema that validators refuse has no meaning, for example one that only refers to itself.
        for schema in (wider, narrower):
            Schema(schema)
        return _canonical(wider).covers(_canonical(narrower)) == Containment.YES
    except (InvalidTool, ValueError, TypeError, RecursionError, jsonschema_rs.ReferencingError):
        return False
    except BaseException as error:
        # A bug of the library appears as this exception. The library calls this feature experimental.
        if type(error).__name__ == "PanicException":
            return False
        raise


def _canonical(schema: Json) -> jsonschema_rs.CanonicalSchema:
    return jsonschema_rs.canonicalize(dict(schema), validate_formats=True, pattern_options=_BACKTRACKS, offline=True)


def is_quick(schema: Json) -> bool:
    """Whether `schema` is so small that it can be compared many times."""
    return _is_small(schema, QUICK_VALUES, QUICK_BRANCHES)


def _is_small(schema: Json, max_values: int = MAX_VALUES, max_branches: int = MAX_BRANCHES) -> bool:
    values = listed = branches = references = 0
    can_negate = False
    waiting: list[tuple[Any, int]] = [(schema, 1)]
    while waiting:
        part, depth = waiting.pop()
        values += 1
        if depth > MAX_DEPTH or values > max_values:
            return False
        if isinstance(part, Mapping):
            for key, value in cast("Json", part).items():
                listed += _size(value) if key == "enum" else 0
                branches += CONDITION if key == "if" else _size(value) if key in IN_PLACE else 0
                references += key in {"$ref", "$dynamicRef", "$recursiveRef"}
                can_negate = can_negate or key in _NEGATING
                waiting.append((value, depth + 1))
        elif isinstance(part, list):
            waiting += [(each, depth + 1) for each in cast("list[Any]", part)]
    most = MAX_LISTED_NEGATED if can_negate else MAX_LISTED
    return listed <= most and branches <= max_branches and references <= MAX_REFERENCES


def _size(value: Any) -> int:
    return len(cast("list[Any]", value)) if isinstance(value, list) else 1


def closed(schema: Json, *, with_root: bool = False) -> Json:
    """Return `schema` as a careful caller reads it: an object has only its declared properties.

    An object without declared properties stays open, and so does one whose schema describes further properties. With
    `with_root`, the value itself is closed even without declared properties. This is for arguments: a tool that
    declares no parameters takes none. A schema that is too large to compare is returned unchanged.
    """
    return _Closing(schema).at_value(schema, even_empty=with_root) if _is_small(schema) else schema


class _Closing:
    """Closes each schema where a value begins. Schemas that apply to the same value are closed once, around all of
    them."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._shares_targets = any(_is_mixed(part) and _refers(part) for part in _parts(document))
        """Whether the target of a reference may be only a part of the rules for its value."""

    def at_value(self, part: Any, *, even_empty: bool = False) -> Any:
        schema = _mapping(part)
        if not schema:
            return part
        choices = [key for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
        if not _is_mixed(schema) and (choices or ("$ref" in schema and not self._shares_targets)):
            # Each choice describes the whole value, and the target of a reference is closed at its own place.
            whole = {key: [self.at_value(each) for each in schema[key]] for key in choices}
            return {**self._open({key: value for key, value in schema.items() if key not in whole}), **whole}
        together = list(_in_place(schema, self._document))
        declared = {name for each in together for name in (*_mapping(each.get("properties")), *_required(each))}
        patterns = {name for each in together for name in _mapping(each.get("patternProperties"))}
        says_what_else = any(key in each for each in together for key in _SAYS_WHAT_ELSE)
        inside = self._open(schema)
        if says_what_else or not (even_empty or any(_mapping(each.get("properties")) for each in together)):
            return inside
        closing = {
            "properties": {**dict.fromkeys(sorted(declared), True), **_mapping(inside.get("properties"))},
            "patternProperties": {**dict.fromkeys(sorted(patterns), True), **_mapping(inside.get("patternProperties"))},
            "additionalProperties": False,
        }
        # Older dialects ignore keywords next to `$ref`.
        return {"allOf": [inside], **closing} if "$ref" in inside else {**inside, **closing}

    def _open(self, schema: Any) -> Any:
        """Return `schema` with everything inside it closed, and itself unchanged."""
        return {key: self._inside(key, value) for key, value in schema.items()} if _mapping(schema) else schema

    def _inside(self, key: str, value: Any) -> Any:
        named = _mapping(value)
        if key in _BY_NAME:
            return {name: self.at_value(part) for name, part in named.items()}
        if key in TARGETS or key == "dependentSchemas":
            close = self._open if self._shares_targets or key not in TARGETS else self.at_value
            return {name: close(part) for name, part in named.items()}
        close = self.at_value if key in _VALUES else self._open if key in IN_PLACE else None
        if close is None:
            return value
        return [close(part) for part in cast("list[Any]", value)] if isinstance(value, list) else close(value)


def _is_mixed(schema: Json) -> bool:
    """Whether several schemas together decide which properties an object may have."""
    choices = [key for key in (*IN_PLACE, "$ref") if key in schema]
    alone = len(choices) == 1 and choices[0] in {"anyOf", "oneOf", "$ref"}
    return bool(choices) and not (alone and not schema.get("properties") and not schema.get("required"))


def _refers(schema: Json) -> bool:
    """Whether a reference applies to the same value as `schema`, directly or in a choice."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += cast("list[Any]", part)
        elif isinstance(part, Mapping):
            if "$ref" in part:
                return True
            waiting += [value for key, value in cast("Json", part).items() if key in IN_PLACE]
    return False


def _parts(document: Json) -> Iterator[Json]:
    """Yield every object in `document`, including subschemas."""
    waiting: list[Any] = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            yield (schema := cast("Json", part))
            waiting += schema.values()
        elif isinstance(part, list):
            waiting += cast("list[Any]", part)


def _in_place(schema: Json, document: Json) -> Iterator[Json]:
    """Yield `schema` and every schema that applies to the same value, each once."""
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += cast("list[Any]", part)
        elif isinstance(part, Mapping) and id(cast("Json", part)) not in seen:
            seen.add(id(cast("Json", part)))
            yield (here := cast("Json", part))
            waiting += [value for key, value in here.items() if key in IN_PLACE and key != "dependentSchemas"]
            waiting += _mapping(here.get("dependentSchemas")).values()
            waiting.append(at_reference(document, here.get("$ref")))


def _mapping(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, Mapping) else {}


def _required(schema: Json) -> list[str]:
    names = schema.get("required")
    return [name for name in cast("list[Any]", names) if isinstance(name, str)] if isinstance(names, list) else []
