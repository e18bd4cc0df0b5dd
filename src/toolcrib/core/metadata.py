"""What the owner of a tool says of it beyond its schema, as a frozen value and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.values import check_string, read_choice, read_flag, read_path, read_string, read_strings, unknown


class Optionality(StrEnum):
    """How much an agent depends on a tool. Source: ADR-001, `ToolOptionality`."""

    REQUIRED = "required"
    """Without it the agent cannot do its work."""
    OPTIONAL = "optional"
    """It makes the work better."""
    CONDITIONAL = "conditional"
    """It is required under a condition, which is stated."""


def read_optionality(value: object) -> Optionality:
    """The member that `value` is, or is the value of.

    Raises:
        InvalidTool: it is neither; the message names the values.
    """
    return read_choice(value, "optionality", {each.value: each for each in Optionality}, InvalidTool)


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
    """What a tool's owner says of it beyond its schema. Source: ADR-001, `ToolMetadata`.

    Values are read as `mcp.json` has them: a lone string counts as a list of one, `"code/refactoring"` as a path, and
    `"required"` as a member of `Optionality`.

    Raises:
        InvalidTool: a value cannot be read like this; the message begins with the name of the field.
    """

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

    def __post_init__(self) -> None:
        for key, default in _DEFAULTS.items():
            if (given := getattr(self, key)) != default or type(given) is not type(default):
                object.__setattr__(self, key, default if given is None else _read(key, given))

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read the keys that `to_wire` writes; those that are not there keep their defaults.

        A lone text serves where a list of texts belongs, and as a path with `/` between its names.

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


_DEFAULTS = {field.name: field.default for field in fields(ToolMetadata)}

NO_METADATA = ToolMetadata()

KEYS: Mapping[str, str] = {
    "category": 'The node it hangs in besides below its source, from the top: `"vcs"`, `["code", "refactoring"]`.',
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
            raise InvalidTool(f"{key}: there is no such key{unknown(key, KEYS)}")
    for key, value in given.items():
        _check_strings(key, value)
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
        case "category":
            return read_path(value, key, InvalidTool)
        case "optionality":
            return read_optionality(value)
        case "requires_permission":
            return read_flag(value, key, InvalidTool)
        case "examples":
            if not isinstance(value, list | tuple):
                raise InvalidTool(f"{key}: a list of objects is expected here")
            each = enumerate(cast("Sequence[object]", value))
            return tuple(_example(f"{key}.{position}", example) for position, example in each)
        case "condition" | "usage_hint" | "cost" | "risk":
            return read_string(value, key, InvalidTool)
        case _:
            return read_strings(value, key, InvalidTool)


def _check_strings(key: str, value: object) -> None:
    """Pass where no string in `value` is blank; those in examples may be."""
    if isinstance(value, str):
        check_string(value, key, InvalidTool)
    elif isinstance(value, list | tuple) and key != "examples":
        for position, each in enumerate(cast("Sequence[object]", value)):
            if isinstance(each, str):
                check_string(each, f"{key}.{position}", InvalidTool)


_EXAMPLE_KEYS = {"description", "input", "output"}


def _example(place: str, wire: object) -> ToolExample:
    if isinstance(wire, ToolExample):
        return wire
    if isinstance(wire, Mapping):
        example = cast("Mapping[str, object]", wire)
        described, given, output = example.get("description"), example.get("input"), example.get("output")
        is_known = example.keys() <= _EXAMPLE_KEYS and isinstance(output, str | None)
        if is_known and isinstance(described, str) and isinstance(given, Mapping):
            for key, part in example.items():
                check_string(json.dumps(part, ensure_ascii=False, default=str), f"{place}.{key}", InvalidTool)
            return ToolExample(described, cast("Mapping[str, Any]", given), cast("str | None", output))
    raise InvalidTool(f"{place}: `description` (a text), `input` (an object) and perhaps `output` (a text) belong here")


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
