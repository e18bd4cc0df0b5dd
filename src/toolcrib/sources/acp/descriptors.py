"""What an editor says of its tools: descriptors and their catalog, as values, as JSON and as tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.quoting import on_one_line
from toolcrib.core.schema import Schema, check_nesting
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.sources.base import SetAside
from toolcrib.sources.definitions import check_text, json_kind, label, object_schema

OTHER = "other"

KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", OTHER)
"""Source: ACP v1, `ToolKind`."""

ASKING = ("edit", "delete", "move", "execute")
"""Kinds of tools that a person is asked about, whatever their descriptors say."""

READING = ("read", "search", "think", "fetch")
"""Kinds of tools that change nothing."""

MAX_TOOLS = 2_000
"""Descriptors of one catalog that are read."""

MAX_DESCRIPTOR_BYTES = 100_000
"""Of one descriptor, as JSON."""

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
    """For a model; may be empty."""
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""
    requires_permission: bool = False
    """Whether a person is asked before it runs, whatever its kind."""
    categories: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, value: object) -> Self:
        """Read `{"name", "kind", "description", "parameters", "requiresPermission", "categories"}`.

        A kind that is missing, or not known yet, is `other`; a missing description is `""`. Fields besides these are
        passed over. `requires_permission` is read as well.

        Raises:
            InvalidTool: a field is missing or of another type, the schema cannot be used, or it is too large; the
                message is the reason, without the tool's name.
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
        """The form that `from_wire` reads."""
        return {
            "name": self.name,
            "kind": self.kind,
            "description": self.description,
            "parameters": dict(self.parameters),
            "requiresPermission": self.requires_permission,
            "categories": list(self.categories),
        }

    def as_tool(self, source: str) -> Tool:
        """It as a tool of `source`.

        It hangs below its source in the first two of its categories, and all of them are tags. Its `wire` is an MCP
        definition that has the `kind` besides; see `kind_of`.
        """
        is_read_only = self.kind in READING
        annotations = ToolAnnotations(read_only=is_read_only, destructive=not is_read_only)
        wire = self.to_wire()
        wire["inputSchema"] = wire.pop("parameters")
        wire["annotations"] = annotations.to_wire()
        # A tool has one path of its own, and one more that counts before it.
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
    """What an editor offers. Source: the plan "Dynamic Tool Discovery via ACP", task 2."""

    tools: tuple[ToolDescriptor, ...] = ()
    """In the editor's order."""

    @classmethod
    def from_wire(cls, value: object) -> tuple[Self, tuple[SetAside, ...]]:
        """Read `{"tools": [descriptor, ...]}`; with it, what could not be taken.

        One malformed descriptor is set aside alone. Of two with one name the first stays. One without a name is set
        aside as `#` and its position, counted from 1. At most `MAX_TOOLS` are read; the rest is set aside together.

        Raises:
            InvalidTool: it is no object, or has no list `tools`.
        """
        wires = cast("Mapping[str, object]", value).get("tools") if isinstance(value, Mapping) else None
        if not isinstance(wires, list):
            what = json_kind(value) if not isinstance(value, Mapping) else "an object without a list `tools`"
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
            set_aside.append(SetAside(f"#{MAX_TOOLS + 1}", f"{left} more than the {MAX_TOOLS} that are read"))
        return cls(tuple(tools.values())), tuple(set_aside)

    def to_wire(self) -> dict[str, Any]:
        """The form that `from_wire` reads."""
        return {"tools": [descriptor.to_wire() for descriptor in self.tools]}

    def by_name(self, name: str) -> ToolDescriptor | None:
        return next((each for each in self.tools if each.name == name), None)

    def by_kind(self, kind: str) -> tuple[ToolDescriptor, ...]:
        return tuple(each for each in self.tools if each.kind == kind)

    def by_category(self, category: str) -> tuple[ToolDescriptor, ...]:
        return tuple(each for each in self.tools if category in each.categories)


def parameters_of(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with these properties, by name, and no others."""
    return {
        "type": "object",
        "properties": {name: dict(schema) for name, schema in properties.items()},
        "required": list(required),
        "additionalProperties": False,
    }


def kind_of(tool: Tool) -> str:
    """The one of `KINDS` that a descriptor gave its tool; `other` where it gave no known kind.

    Only for tools of sources that read descriptors. In the definition of an MCP server the key means nothing.
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
        raise InvalidTool(f"its {key} is {json_kind(value)}, not text")
    check_text(value)
    return value


def _flag(key: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InvalidTool(f"its {key} is {json_kind(value)}, not true or false")
    return value is True


def _parameters(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        given = "it has no parameters" if value is None else f"its parameters are {json_kind(value)}, no object"
        raise InvalidTool(given)
    parameters = object_schema(cast("Mapping[str, Any]", value))
    check_nesting(parameters)
    # Compiled to fail here and not at the first call.
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
    """Its texts, and those in its schema, can be written and are not too long."""
    try:
        size_bytes = len(json.dumps(descriptor.to_wire(), ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise InvalidTool("its schema holds half a surrogate pair, which is no Unicode text") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool("its descriptor cannot be written as JSON") from error
    if size_bytes > MAX_DESCRIPTOR_BYTES:
        raise InvalidTool(f"its descriptor is larger than {MAX_DESCRIPTOR_BYTES} bytes")
