"""Metadata that a tool's owner adds to its schema, as a frozen value and as JSON."""

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
    """Without the tool, the agent cannot do its work."""
    OPTIONAL = "optional"
    """The tool makes the work better."""
    CONDITIONAL = "conditional"
    """The tool is required under a condition, which the metadata states."""


def read_optionality(value: object) -> Optionality:
    """Return `value` if it is a member, or the member that has this value.

    Raises:
        InvalidTool: `value` is neither; the message names the values.
    """
    return read_choice(value, "optionality", {each.value: each for each in Optionality}, InvalidTool)


@dataclass(frozen=True, slots=True)
class ToolExample:
    """One sample invocation. Source: ADR-001, `ToolExample`."""

    description: str
    input: Mapping[str, Any]
    """The arguments of the call; they match the tool's input schema."""
    output: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"description": self.description, "input": dict(self.input)}
        return wire if self.output is None else {**wire, "output": self.output}


@dataclass(frozen=True, slots=True)
class ToolMetadata:
    """What a tool's owner says about it in addition to its schema. Source: ADR-001, `ToolMetadata`.

    The constructor reads values as in `mcp.json`: a lone string counts as a list of one, `"code/refactoring"` as a
    path, and `"required"` as a member of `Optionality`.

    Raises:
        InvalidTool: a value has the wrong form; the message begins with the name of the field.
    """

    category: tuple[str, ...] = ()
    """An additional category of the tool, as a path from the root; empty for none. The source's category is always one.
    """
    tags: tuple[str, ...] = ()
    optionality: Optionality = Optionality.OPTIONAL
    condition: str | None = None
    """When a conditional tool is required, in words."""
    usage_hint: str | None = None
    """When to use it, and when not."""
    examples: tuple[ToolExample, ...] = ()
    requires_capabilities: tuple[str, ...] = ()
    """Names of capabilities that the system must have. If one is missing, the tool is unavailable."""
    requires_permission: bool = False
    """Whether a person must approve each call, even if the policy allows the tool."""
    aliases: tuple[str, ...] = ()
    """Other names for the tool, which people and bundles can use."""
    intents: tuple[str, ...] = ()
    """Phrases with which a user may ask for what the tool does. They are searched and never shown."""
    cost: str | None = None
    risk: str | None = None

    def __post_init__(self) -> None:
        for key, default in _DEFAULTS.items():
            if (given := getattr(self, key)) != default or type(given) is not type(default):
                object.__setattr__(self, key, default if given is None else _read(key, given))

    @classmethod
    def from_wire(cls, wire: object) -> Self:
        """Read the keys that `to_wire` writes. Missing keys get their defaults.

        A lone string counts as a list of one string. As a category, it is a path with `/` between the names.

        Raises:
            InvalidTool: a key is unknown or a value has the wrong form; the message begins with its place.
        """
        return cls(**read_members(wire))

    def to_wire(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON."""
        wire: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                wire[field.name] = _written(value)
        return wire


_DEFAULTS = {field.name: field.default for field in fields(ToolMetadata)}

NO_METADATA = ToolMetadata()

KEYS: Mapping[str, str] = {
    "category": 'An additional category of the tool, from the root: `"vcs"`, `["code", "refactoring"]`.',
    "tags": "What the tool is about, in single words.",
    "optionality": "`required`, `optional` (the default) or `conditional`.",
    "condition": "When a conditional tool is required, in words.",
    "usage_hint": "When to use the tool, and when not.",
    "examples": "Sample calls: `description`, `input`, and optionally `output`. The input must match the input schema.",
    "requires_capabilities": "What the system must have, by the names in `toolcrib.capabilities`.",
    "requires_permission": "`true`: a person must approve each call, even if the policy allows the tool.",
    "aliases": "Other names for the tool, which people and bundles can use.",
    "intents": "Phrases with which a user may ask for what the tool does. They are searched and never shown.",
    "cost": "What a call costs, in words.",
    "risk": "What can go wrong, in words.",
}
"""Every key of the metadata, with its meaning."""

EXPANDED = ("usage_hint", "optionality", "condition", "requires_permission", "cost", "risk", "examples")
"""The keys that a model reads when the tool is expanded, in this order."""

ADDING = ("tags", "aliases", "intents", "requires_capabilities")
"""Keys whose values are joined if several settings apply to one tool. For all other keys the last setting counts.

A setting that contains `optionality` also replaces `condition`, which becomes empty if the setting has none.
"""


def read_members(wire: object) -> dict[str, Any]:
    """Return the fields of a `ToolMetadata` that `wire` contains.

    Raises:
        InvalidTool: a key is unknown or a value has the wrong form; the message begins with its place.
    """
    if not isinstance(wire, Mapping):
        raise InvalidTool("must be an object")
    given = cast("Mapping[str, object]", wire)
    for key in given:
        if key not in KEYS:
            raise InvalidTool(f"{key}: unknown key{unknown(key, KEYS)}")
    for key, value in given.items():
        _check_strings(key, value)
    return {key: _read(key, value) for key, value in given.items() if value is not None}


def with_members(metadata: ToolMetadata, members: Mapping[str, Any]) -> ToolMetadata:
    """Return `metadata` with `members` applied to it; see `ADDING`."""
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
                raise InvalidTool(f"{key}: must be a list of objects")
            each = enumerate(cast("Sequence[object]", value))
            return tuple(_example(f"{key}.{position}", example) for position, example in each)
        case "condition" | "usage_hint" | "cost" | "risk":
            return read_string(value, key, InvalidTool)
        case _:
            return read_strings(value, key, InvalidTool)


def _check_strings(key: str, value: object) -> None:
    """Refuse blank strings in `value`. Strings in examples can be blank."""
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
    raise InvalidTool(
        f"{place}: needs `description` (a string), `input` (an object) and optionally `output` (a string)"
    )


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
