"""Tool descriptors of an editor and their catalog: as values, as JSON and as tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.schema import Schema, check_nesting
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.core.untrusted_text import on_one_line
from toolcrib.sources.base import SetAside
from toolcrib.sources.tool_definitions import check_text, json_kind, label, object_schema

OTHER = "other"

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", OTHER)
"""Source: ACP v1, `ToolKind`."""

ASKING = ("edit", "delete", "move", "execute")
"""Kinds of tools that always need a person's approval, whatever their descriptors say."""

READING = ("read", "search", "think", "fetch")
"""Kinds of tools that change nothing."""

MAX_TOOLS = 2_000
"""How many descriptors of one catalog are read."""

MAX_DESCRIPTOR_BYTES = 100_000
"""The maximum size of one descriptor, in bytes of JSON."""

MAX_NAME_CHARS = 200
MAX_CATEGORIES = 20

_LABEL_CHARS = 80


@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """One tool of an editor. Source: the plan "Dynamic Tool Discovery via ACP", task 2."""

    name: str
    kind: str
    """One of `KINDS`."""
    description: str
    """The description for a model. It may be empty."""
    parameters: Mapping[str, Any]
    """The JSON Schema of an object."""
    requires_permission: bool = False
    """Whether a person must approve each call, whatever the kind."""
    categories: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read `{"name", "kind", "description", "parameters", "requiresPermission", "categories"}`.

        A missing or unknown kind counts as `other`, and a missing description as `""`. Other fields are ignored.
        `requires_permission` is also accepted.

        Raises:
            InvalidTool: a field is missing or has the wrong type, the schema is not usable, or the descriptor is too
                large. The message is the reason, without the tool's name.
        """
        if not isinstance(value, Mapping):
            raise InvalidTool(f"its descriptor is {json_kind(value)}, not an object")
        wire = cast("Mapping[str, object]", value)
        descriptor = cls(
            name=_name(wire.get("name")),
            kind=_known_kind(wire.get("kind")),
            description=_text("description", wire.get("description")),
            parameters=_parameters(wire.get("parameters")),
            requires_permission=any(_flag(key, wire.get(key)) for key in ("requiresPermission", "requires_permission")),
            categories=_categories(wire.get("categories")),
        )
        _check_size(descriptor)
        return descriptor

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object that `from_wire` reads."""
        return {
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "parameters": dict(self.parameters),
            "requiresPermission": self.requires_permission,
            "categories": list(self.categories),
        }

    def as_tool(self, source: str) -> Tool:
        """Return the descriptor as a tool of `source`.

        The first two categories are the tool's path below its source, and all categories are its tags. Its `wire` is an
        MCP definition with an additional `kind`; see `kind_of`.
        """
        is_read_only = self.kind in READING
        annotations = ToolAnnotations(read_only=is_read_only, destructive=not is_read_only)
        wire = self.to_wire()
        wire["inputSchema"] = wire.pop("parameters")
        wire["annotations"] = annotations.to_wire()
        # A tool has one path of its own, and one category that comes before it.
        first, *second = self.categories[:2] or ("",)
        return Tool(
            source=source,
            name=self.name,
            description=self.description,
            input_schema=self.parameters,
            annotations=annotations,
            metadata=ToolMetadata(
                category=(source, first) if second else (),
                tags=self.categories,
                requires_permission=self.requires_permission or self.kind in ASKING,
            ),
            own_path=tuple(second or filter(None, [first])),
            wire=wire,
        )


@dataclass(frozen=True, slots=True)
class ToolCatalog:
    """All tools that an editor offers. Source: the plan "Dynamic Tool Discovery via ACP", task 2."""

    tools: tuple[ToolDescriptor, ...] = ()
    """The tools in the editor's order."""

    @classmethod
    def from_wire(cls, value: object) -> tuple[Self, tuple[SetAside, ...]]:
        """Read `{"tools": [descriptor, ...]}`, and return the catalog with the descriptors that are ignored.

        A malformed descriptor is ignored, and the others are used. If two have the same name, the first one is used. An
        ignored descriptor without a name is listed as `#` and its position, counted from 1. At most `MAX_TOOLS` are
        read; one entry stands for the rest.

        Raises:
            InvalidTool: it is not an object, or has no list `tools`.
        """
        wires = cast("Mapping[str, object]", value).get("tools") if isinstance(value, Mapping) else None
        if not isinstance(wires, list):
            what = json_kind(value) if not isinstance(value, Mapping) else "an object without a list under `tools`"
            raise InvalidTool(f"the catalog is {what}")
        tools: dict[str, ToolDescriptor] = {}
        set_aside: list[SetAside] = []
        descriptors = cast("list[object]", wires)
        for position, wire in enumerate(descriptors[:MAX_TOOLS], start=1):
            try:
                descriptor = ToolDescriptor.from_wire(wire)
            except InvalidTool as error:
                called = on_one_line(label(wire) or f"#{position}")[:_LABEL_CHARS]
                set_aside.append(SetAside(called, error.message))
                continue
            if descriptor.name in tools:
                set_aside.append(SetAside(descriptor.name, "an earlier descriptor has the same name"))
            else:
                tools[descriptor.name] = descriptor
        if (left := len(descriptors) - MAX_TOOLS) > 0:
            set_aside.append(SetAside(f"#{MAX_TOOLS + 1}", f"{left} more than the maximum of {MAX_TOOLS}"))
        return cls(tuple(tools.values())), tuple(set_aside)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object that `from_wire` reads."""
        return {"tools": [descriptor.to_wire() for descriptor in self.tools]}

    def by_name(self, name: str) -> ToolDescriptor | None:
        return next((each for each in self.tools if each.name == name), None)

    def by_kind(self, kind: str) -> tuple[ToolDescriptor, ...]:
        return tuple(each for each in self.tools if each.kind == kind)

    def by_category(self, category: str) -> tuple[ToolDescriptor, ...]:
        return tuple(each for each in self.tools if category in each.categories)


def parameters_of(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, by name."""
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def kind_of(tool: Tool) -> str:
    """Return the kind, one of `KINDS`, that a descriptor gave its tool; `other` if it gave no known kind.

    Use this only for tools of sources that read descriptors. In the definition of an MCP server the key has no meaning.
    """
    kind = tool.wire.get("kind")
    return kind if isinstance(kind, str) and kind in KINDS else OTHER


def _name(value: object) -> str:
    name = _text("name", value)
    if not name.strip():
        raise InvalidTool("it has no name")
    if len(name) > MAX_NAME_CHARS:
        raise InvalidTool(f"its name is longer than {MAX_NAME_CHARS} characters")
    return name


def _known_kind(value: object) -> str:
    kind = _text("kind", value)
    return kind if kind in KINDS else OTHER


def _text(key: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidTool(f"its {key} is {json_kind(value)}, not a string")
    check_text(value)
    return value


def _flag(key: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InvalidTool(f"its {key} is {json_kind(value)}, not true or false")
    return value is True


def _parameters(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        given = "it has no parameters" if value is None else f"its parameters are {json_kind(value)}, not an object"
        raise InvalidTool(given)
    parameters = object_schema(cast("Mapping[str, Any]", value))
    check_nesting(parameters)
    # Compile here, so that an error shows now and not at the first call.
    Schema(parameters)
    return parameters


def _categories(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    categories = cast("Iterable[object]", value) if isinstance(value, list) else () if value is None else (None,)
    read: dict[str, None] = {}
    for category in categories:
        if not isinstance(category, str) or not category.strip():
            raise InvalidTool("its categories are not a list of strings")
        check_text(category)
        read[category] = None
    if len(read) > MAX_CATEGORIES:
        raise InvalidTool(f"it has more than {MAX_CATEGORIES} categories")
    return tuple(read)


def _check_size(descriptor: ToolDescriptor) -> None:
    """Check that the strings, including those in the schema, can be written, and that the descriptor is not too
    large."""
    try:
        size_bytes = len(json.dumps(descriptor.to_wire(), ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise InvalidTool("its schema contains half a surrogate pair, which is not valid Unicode") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool("its descriptor cannot be written as JSON") from error
    if size_bytes > MAX_DESCRIPTOR_BYTES:
        raise InvalidTool(f"its descriptor is larger than {MAX_DESCRIPTOR_BYTES} bytes")
