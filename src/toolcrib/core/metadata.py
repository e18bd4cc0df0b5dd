"""What the owner of a tool says of it beyond its schema, as a frozen value and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import nearest


class Optionality(StrEnum):
    """How much an agent depends on a tool. Source: ADR-001, `ToolOptionality`."""

    REQUIRED = "required"
    """Without it the agent cannot do its work."""
    OPTIONAL = "optional"
    """It makes the work better."""
    CONDITIONAL = "conditional"
    """It is required under a condition, which is stated."""


@dataclass(frozen=True, slots=True)
class ToolExample:
    """One sample invocation. Source: ADR-001, `ToolExample`."""

    description: str
    input: Mapping[str, Any]
    """Arguments as a call has them; they match the tool's input schema."""
    output: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"description": self.description, "input": dict(self.input)}
        return wire if self.output is None else {**wire, "output": self.output}


@dataclass(frozen=True, slots=True)
class ToolMetadata:
    """What a tool's owner says of it beyond its schema. Source: ADR-001, `ToolMetadata`."""

    category: tuple[str, ...] = ()
    """The node it hangs in besides below its source, as a path from the top of the catalog; empty for none."""
    tags: tuple[str, ...] = ()
    optionality: Optionality = Optionality.OPTIONAL
    condition: str | None = None
    """When a conditional tool is required, in words."""
    usage_hint: str | None = None
    """When to use it, and when not."""
    examples: tuple[ToolExample, ...] = ()
    requires_capabilities: tuple[str, ...] = ()
    """Names of what the system must offer; without one of them the tool is unavailable."""
    requires_permission: bool = False
    """Whether a person is asked before it runs, whatever the policy allows."""
    aliases: tuple[str, ...] = ()
    """Other names that people and bundles know it by."""
    intents: tuple[str, ...] = ()
    """What somebody may say who wants what it does; searched, and never shown."""
    cost: str | None = None
    risk: str | None = None

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read the keys that `to_wire` writes; those that are not there keep their defaults.

        A lone text serves where a list of texts belongs.

        Raises:
            InvalidTool: a key or a value is none of those; the message begins with its place.
        """
        return cls(**read_members(wire))

    def to_wire(self) -> dict[str, Any]:
        """What differs from the defaults, under the names of the fields."""
        wire: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                wire[field.name] = _written(value)
        return wire


NO_METADATA = ToolMetadata()

KEYS: Mapping[str, str] = {
    "category": 'The node it hangs in besides below its source, from the top: `["vcs"]`.',
    "tags": "What it is about, in single words.",
    "optionality": "`required`, `optional` (the default) or `conditional`.",
    "condition": "When a conditional tool is required, in words.",
    "usage_hint": "When to use it, and when not.",
    "examples": "Sample calls: `description`, `input`, and `output` if you like; the input must match the schema.",
    "requires_capabilities": "What the system must offer, by the names of `toolcrib.capabilities`.",
    "requires_permission": "`true`: a person is asked before it runs, whatever the policy allows.",
    "aliases": "Other names that people and bundles know it by.",
    "intents": "What somebody may say who wants what it does; searched, and never shown.",
    "cost": "What a call costs, in words.",
    "risk": "What can go wrong, in words.",
}
"""Every key of metadata, with what it says."""

EXPANDED = ("usage_hint", "optionality", "condition", "requires_permission", "cost", "risk", "examples")
"""What of it a model reads where the tool is expanded, in that order."""

ADDING = ("tags", "aliases", "intents", "requires_capabilities")
"""Members whose values add up where several speak of one tool; of all others the last word counts.

Who says how much depends on a tool says with it under which condition, if any.
"""


def read_members(wire: object) -> dict[str, Any]:
    """The members of a `ToolMetadata` that `wire` speaks of; raises as `ToolMetadata.from_wire` does."""
    if not isinstance(wire, Mapping):
        raise InvalidTool("an object is expected here")
    given = cast("Mapping[str, object]", wire)
    for key in given:
        if key not in KEYS:
            near = nearest(key, KEYS)
            meant = f" (did you mean `{near}`?)" if near else f"; known are: {', '.join(KEYS)}"
            raise InvalidTool(f"{key}: there is no such key{meant}")
    return {key: _read(key, value) for key, value in given.items() if value is not None}


def with_members(metadata: ToolMetadata, members: Mapping[str, Any]) -> ToolMetadata:
    """`metadata` with what `members` say on top of it; see `ADDING`."""
    said = {
        key: tuple(dict.fromkeys((*getattr(metadata, key), *value))) if key in ADDING else value
        for key, value in members.items()
    }
    if "optionality" in said:
        said.setdefault("condition", None)
    return replace(metadata, **said)


def _read(key: str, value: object) -> Any:
    match key:
        case "optionality":
            known = [each.value for each in Optionality]
            if value not in known:
                raise InvalidTool(f"{key}: one of {', '.join(known)} is expected here")
            return Optionality(value)
        case "requires_permission":
            if not isinstance(value, bool):
                raise InvalidTool(f"{key}: true or false is expected here")
            return value
        case "examples":
            if not isinstance(value, list):
                raise InvalidTool(f"{key}: a list of objects is expected here")
            return tuple(
                _example(f"{key}.{position}", example) for position, example in enumerate(cast("list[object]", value))
            )
        case "condition" | "usage_hint" | "cost" | "risk":
            return _text(key, value)
        case _:
            if isinstance(value, str):
                return (_text(key, value),)
            if not isinstance(value, list):
                raise InvalidTool(f"{key}: a list of texts is expected here")
            return tuple(_text(f"{key}.{position}", text) for position, text in enumerate(cast("list[object]", value)))


_EXAMPLE_KEYS = {"description", "input", "output"}


def _example(place: str, wire: object) -> ToolExample:
    if isinstance(wire, Mapping):
        example = cast("Mapping[str, object]", wire)
        described, given, output = example.get("description"), example.get("input"), example.get("output")
        is_known = example.keys() <= _EXAMPLE_KEYS and isinstance(output, str | None)
        if is_known and isinstance(described, str) and isinstance(given, Mapping):
            for key, part in example.items():
                _check_unicode(f"{place}.{key}", json.dumps(part, ensure_ascii=False, default=str))
            return ToolExample(described, cast("Mapping[str, Any]", given), cast("str | None", output))
    raise InvalidTool(f"{place}: `description` (a text), `input` (an object) and perhaps `output` (a text) belong here")


def _text(place: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidTool(f"{place}: a text is expected here, and not an empty one")
    _check_unicode(place, value)
    return value


def _check_unicode(place: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidTool(f"{place}: the text holds half a surrogate pair, which is no Unicode text") from error


def _written(value: object) -> Any:
    match value:
        case StrEnum():
            return value.value
        case ToolExample():
            return value.to_wire()
        case tuple():
            return [_written(each) for each in cast("Sequence[object]", value)]
        case _:
            return value
