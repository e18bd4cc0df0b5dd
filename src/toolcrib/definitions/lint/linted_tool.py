"""One tool definition, prepared for the lint rules: its words, and every parameter at any depth."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from urllib.parse import unquote

from toolcrib.core.subschemas import IN_PLACE, at_reference
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift.suspicions import Suspicion, suspicions_in
from toolcrib.search.index.tokens import terms

MAX_PARTS = 2_000
"""The number of subschemas of one tool that are checked. Shallow ones come first."""

MAX_DEPTH = 12
"""The depth below the root of a schema at which the check stops."""

MAX_APPLIED = 200
"""The number of subschemas that apply to one value and are checked together.

Without a limit, a schema could make this very slow: each of many parameters may refer to as many subschemas.
"""

MAX_TOKENS = 1_000
"""The default limit of one definition in a model's context, in estimated tokens."""

INPUT_SCHEMA = "/inputSchema"

_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties", "unevaluatedProperties", "contains", "not", "if", "then", "else")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that rules measure against."""

    max_tokens: int = MAX_TOKENS


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Subschema:
    """One subschema of an input schema."""

    place: str
    """A JSON Pointer into the definition."""
    schema: Json
    """The subschema. Empty for a parameter that is declared as `true`."""
    parameter: str | None = None
    """The name of the property that the subschema describes. None if it describes no property."""
    above: frozenset[str] = frozenset()
    """Properties that are declared by other schemas that apply to the same value."""


class LintedTool:
    """One tool with derived facts. Each fact is computed when a rule first asks for it."""

    def __init__(self, tool: Tool, limits: Limits = DEFAULT_LIMITS) -> None:
        self.tool = tool
        self.limits = limits

    @cached_property
    def name_terms(self) -> frozenset[str]:
        """The stemmed words of the name."""
        return frozenset(terms(self.tool.name, keep_stopwords=True))

    @cached_property
    def description_terms(self) -> tuple[str, ...]:
        """The stemmed words of the description without stop words, in order."""
        return tuple(terms(self.tool.description))

    @cached_property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """The suspicious texts of the definition, independent of other tools."""
        return suspicions_in(self.tool)

    @cached_property
    def parts(self) -> tuple[Subschema, ...]:
        """The subschemas of the input schema, each once, breadth first. At most `MAX_PARTS`, at most `MAX_DEPTH` deep.

        Definitions that no reference uses are left out, because some servers send the definitions of all tools with
        each.
        """
        return tuple(_parts(self.tool.input_schema))

    @property
    def parameters(self) -> Iterator[Subschema]:
        return (part for part in self.parts if part.parameter is not None)

    def declared_by(self, schema: Json) -> frozenset[str]:
        """Return the properties that `schema` declares, itself or through schemas that apply to the same value."""
        return _declared(schema, self.tool.input_schema)

    def texts_of(self, part: Subschema) -> Iterator[str]:
        """Yield the descriptions of a parameter: its own, and those of the schemas it refers to or may match."""
        texts = (each.get("description") for each in _applied(part.schema, self.tool.input_schema))
        return (text for text in texts if isinstance(text, str) and text.strip())

    def is_mentioned(self, parameter: str) -> bool:
        """Whether the tool's description explains the parameter: `path: ...`, as in docstrings, or its name in
        backticks."""
        if parameter not in self.tool.description:
            return False
        name = re.escape(parameter)
        return (
            re.search(rf"`{name}\b|(?<!\w){name}[*`\"']*\s*(?:\([^)\n]{{0,200}}\)\s*)?[:=–—]", self.tool.description)
            is not None
        )


def mapping(value: object) -> Json | None:
    """Return `value` if it is an object, else None."""
    return cast("Json", value) if isinstance(value, Mapping) else None


def sequence(value: object) -> Sequence[object]:
    """Return `value` if it is a list, else an empty sequence."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def spoken(place: str) -> str:
    """Turn a JSON Pointer into the input schema into a path for people: `lines[].text`."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in place.removeprefix(INPUT_SCHEMA).split("/")[1:]]
    text, waits_for_name = "", False
    for key in keys:
        if waits_for_name or key not in {"properties", "$defs", "definitions", "items"}:
            text += f".{key}" if text else key
            waits_for_name = False
        elif key == "items":
            text += "[]"
        else:
            waits_for_name = True
    return text


def step(place: str, *keys: str) -> str:
    """Append keys to the JSON Pointer `place`."""
    return place + "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def _parts(document: Json) -> Iterator[Subschema]:
    waiting, seen = deque([(Subschema(INPUT_SCHEMA, document), 0)]), {INPUT_SCHEMA}
    while waiting:
        part, depth = waiting.popleft()
        yield part
        for below in _below(part, document, seen) if depth < MAX_DEPTH else ():
            if below.place not in seen and len(seen) < MAX_PARTS:
                seen.add(below.place)
                waiting.append((below, depth + 1))


def _below(part: Subschema, document: Json, seen: Set[str]) -> Iterator[Subschema]:
    """Yield the direct subschemas of `part`, and the schema it refers to unless that is in `seen`."""
    schema = part.schema
    shared = part.above | _declared(schema, document) if any(key in schema for key in IN_PLACE) else frozenset[str]()
    for keys, value in _values(schema):
        found: Json | None = {} if value is True and keys[0] == "properties" else mapping(value)
        if found is not None:
            parameter = keys[1] if keys[0] == "properties" else None
            yield Subschema(step(part.place, *keys), found, parameter, shared if keys[0] in IN_PLACE else frozenset())
    ref = schema.get("$ref")
    if isinstance(ref, str) and (found := mapping(at_reference(document, ref))) is not None:
        place = INPUT_SCHEMA + unquote(ref.removeprefix("#"))
        if place not in seen:
            yield Subschema(place, found, None, part.above | _declared(schema, document))


def _values(schema: Json) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the values at all keywords that hold subschemas, each with its path of keys."""
    for key in _BY_NAME:
        yield from (((key, str(name)), value) for name, value in (mapping(schema.get(key)) or {}).items())
    for key in _LISTS:
        yield from (((key, str(position)), value) for position, value in enumerate(sequence(schema.get(key))))
    yield from (((key,), schema[key]) for key in _SINGLE if key in schema)


def _declared(schema: Json, document: Json) -> frozenset[str]:
    return frozenset(str(name) for each in _applied(schema, document) for name in mapping(each.get("properties")) or {})


def _applied(schema: Json, document: Json) -> Iterator[Json]:
    """Yield `schema` and all schemas that apply to the same value, each once, at most `MAX_APPLIED`."""
    waiting, seen = deque([schema]), {id(schema)}
    while waiting:
        yield (here := waiting.popleft())
        values = [value for key in ("allOf", "anyOf", "oneOf") for value in sequence(here.get(key))]
        values += [here.get(key) for key in ("if", "then", "else")]
        values.append(at_reference(document, here.get("$ref")))
        for value in values:
            if (branch := mapping(value)) is not None and id(branch) not in seen and len(seen) < MAX_APPLIED:
                seen.add(id(branch))
                waiting.append(branch)
