"""One definition with what several rules ask of it: its words, and every parameter at any depth."""

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
"""Subschemas of one tool that are looked at, shallow ones first."""

MAX_DEPTH = 12
"""How deep below the root of a schema."""

MAX_APPLIED = 200
"""Subschemas that apply to one value and are looked at together: each of many parameters may refer to as many."""

MAX_TOKENS = 1_000
"""What one definition may take of a model's context, in estimated tokens, if nobody says otherwise."""

INPUT_SCHEMA = "/inputSchema"

_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties", "unevaluatedProperties", "contains", "not", "if", "then", "else")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """What rules measure against."""

    max_tokens: int = MAX_TOKENS


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Part:
    """One subschema of an input schema."""

    place: str
    """A JSON Pointer into the definition."""
    schema: Json
    """An empty one where a parameter is given as `true`."""
    parameter: str | None = None
    """Which property it describes, where it does."""
    above: frozenset[str] = frozenset()
    """Properties that the schemas declare which apply to the same value as this one."""


class Definition:
    """What is said of one tool, worked out when first asked for."""

    def __init__(self, tool: Tool, limits: Limits = DEFAULT_LIMITS) -> None:
        self.tool = tool
        self.limits = limits

    @cached_property
    def name_terms(self) -> frozenset[str]:
        """Stemmed words of the name."""
        return frozenset(terms(self.tool.name, keep_stopwords=True))

    @cached_property
    def description_terms(self) -> tuple[str, ...]:
        """Stemmed words of the description without those that say nothing anywhere, in order."""
        return tuple(terms(self.tool.description))

    @cached_property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """What is suspicious in it whatever other tools there are."""
        return suspicions_in(self.tool)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Of the input schema, each once, breadth first; at most `MAX_PARTS`, at most `MAX_DEPTH` deep.

        What nothing refers to is left out: servers send the definitions of all their tools with each.
        """
        return tuple(_parts(self.tool.input_schema))

    @property
    def parameters(self) -> Iterator[Part]:
        return (part for part in self.parts if part.parameter is not None)

    def declared_by(self, schema: Json) -> frozenset[str]:
        """The properties that `schema` declares itself, or in what applies to the same value."""
        return _declared(schema, self.tool.input_schema)

    def texts_of(self, part: Part) -> Iterator[str]:
        """The descriptions of a parameter: its own, and those of what it refers to or may be."""
        texts = (each.get("description") for each in _applied(part.schema, self.tool.input_schema))
        return (text for text in texts if isinstance(text, str) and text.strip())

    def is_mentioned(self, parameter: str) -> bool:
        """Whether the description of the tool explains it: `path: ...`, as docstrings do, or a word in backticks."""
        if parameter not in self.tool.description:
            return False
        name = re.escape(parameter)
        return (
            re.search(rf"`{name}\b|(?<!\w){name}[*`\"']*\s*(?:\([^)\n]{{0,200}}\)\s*)?[:=–—]", self.tool.description)
            is not None
        )


def mapping(value: object) -> Json | None:
    """`value` where it is an object."""
    return cast("Json", value) if isinstance(value, Mapping) else None


def sequence(value: object) -> Sequence[object]:
    """`value` where it is a list; else none of anything."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def spoken(place: str) -> str:
    """A JSON Pointer of the input schema as people write it: `lines[].text`."""
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
    """The JSON Pointer that leads on from `place`."""
    return place + "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)


def _parts(document: Json) -> Iterator[Part]:
    waiting, seen = deque([(Part(INPUT_SCHEMA, document), 0)]), {INPUT_SCHEMA}
    while waiting:
        part, depth = waiting.popleft()
        yield part
        for below in _below(part, document, seen) if depth < MAX_DEPTH else ():
            if below.place not in seen and len(seen) < MAX_PARTS:
                seen.add(below.place)
                waiting.append((below, depth + 1))


def _below(part: Part, document: Json, seen: Set[str]) -> Iterator[Part]:
    """What stands in `part`, and what it refers to unless that is `seen`."""
    schema = part.schema
    shared = part.above | _declared(schema, document) if any(key in schema for key in IN_PLACE) else frozenset[str]()
    for keys, value in _values(schema):
        found: Json | None = {} if value is True and keys[0] == "properties" else mapping(value)
        if found is not None:
            parameter = keys[1] if keys[0] == "properties" else None
            yield Part(step(part.place, *keys), found, parameter, shared if keys[0] in IN_PLACE else frozenset())
    ref = schema.get("$ref")
    if isinstance(ref, str) and (found := mapping(at_reference(document, ref))) is not None:
        place = INPUT_SCHEMA + unquote(ref.removeprefix("#"))
        if place not in seen:
            yield Part(place, found, None, part.above | _declared(schema, document))


def _values(schema: Json) -> Iterator[tuple[tuple[str, ...], object]]:
    """What stands where a schema may stand, each with the keys that lead there."""
    for key in _BY_NAME:
        yield from (((key, str(name)), value) for name, value in (mapping(schema.get(key)) or {}).items())
    for key in _LISTS:
        yield from (((key, str(position)), value) for position, value in enumerate(sequence(schema.get(key))))
    yield from (((key,), schema[key]) for key in _SINGLE if key in schema)


def _declared(schema: Json, document: Json) -> frozenset[str]:
    return frozenset(str(name) for each in _applied(schema, document) for name in mapping(each.get("properties")) or {})


def _applied(schema: Json, document: Json) -> Iterator[Json]:
    """`schema` and all that applies to the same value as it does, each once, at most `MAX_APPLIED`."""
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
