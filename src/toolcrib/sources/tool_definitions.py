"""Reads MCP tool definitions into `Tool` values. An invalid definition is ignored, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

import orjson

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.schema import Schema, check_nesting
from toolcrib.core.tools import Tool, ToolAnnotations, one_line
from toolcrib.sources.aside import breathe
from toolcrib.sources.base import SetAside

MAX_BYTES = 1_000_000
"""The maximum size of a definition, in bytes of JSON. The time to compile, compare and show it grows with its size."""

LARGE_BYTES = 20_000
"""For larger definitions the digests of the handle are computed on reading, and not during a request."""

MAX_TAGS = 50
"""How many tags of one tool are read."""

MAX_TAG_CHARS = 50
"""A longer tag is cut, because every answer that shows the tool contains its tags."""

MAX_NAME_CHARS = 256
"""The maximum length of a tool's name, because every answer that shows the tool contains its name.

MCP says that names SHOULD have at most 128 characters. Twice that is accepted, so that a careless server keeps its
tools. Source: MCP 2025-11-25, "Tools", "Tool Names".
"""


def read_definition(source: str, wire: object) -> Tool:
    """Return the tool that `wire`, an object in the form of MCP's `Tool`, defines for `source`.

    The name is kept exactly, with all its characters. A missing or null description counts as `""`. An input schema
    that is `true` or has no type is read as the schema of an object, because arguments are always an object. An output
    schema is kept even if it does not compile: it only validates answers, so a broken one is no reason to drop the
    tool.

    Raises:
        InvalidTool: the name, description or input schema is not usable, or a schema is nested too deeply. The message
            is the reason, without the tool's name.

    Source: MCP specification 2025-11-25, "Tools", data type `Tool`.
    """
    if not isinstance(wire, Mapping):
        raise InvalidTool(f"its definition is {json_kind(wire)}, not an object")
    definition = cast("Mapping[str, Any]", wire)
    if (size := _size(definition)) > MAX_BYTES:
        raise InvalidTool(f"its definition has {size:,} bytes as JSON, more than {MAX_BYTES:,}")
    name = definition.get("name")
    if not isinstance(name, str) or not name.strip():
        is_missing = name is None or isinstance(name, str)
        raise InvalidTool("it has no name" if is_missing else f"its name is {json_kind(name)}")
    if len(name) > MAX_NAME_CHARS:
        raise InvalidTool(f"its name has {len(name)} characters, more than {MAX_NAME_CHARS}")
    description = definition.get("description")
    if description is None:
        description = ""
    if not isinstance(description, str):
        raise InvalidTool(f"its description is {json_kind(description)}, not a string")
    title = definition.get("title")
    output_schema = definition.get("outputSchema")
    if output_schema is not None and not isinstance(output_schema, Mapping):
        raise InvalidTool(f"its output schema is {json_kind(output_schema)}, not an object")
    input_schema = definition.get("inputSchema")
    if input_schema is None:
        raise InvalidTool("it has no input schema")
    annotations = ToolAnnotations.from_wire(definition.get("annotations"))
    tool = Tool(
        source=source,
        name=name,
        description=description,
        input_schema=object_schema(input_schema),
        output_schema=cast("Mapping[str, Any] | None", output_schema),
        title=title if isinstance(title, str) else annotations.title,
        annotations=annotations,
        metadata=ToolMetadata(tags=_tags(definition)),
        wire=definition,
    )
    check_text(name, description, tool.title)
    check_nesting(tool.input_schema)
    check_nesting(tool.output_schema)
    # Compile here, so that an error shows now and not at the first call. The compiled schema is dropped, because
    # 100,000 unused compiled schemas take 400 MB.
    Schema(tool.input_schema)
    if size > LARGE_BYTES:
        with suppress(ValueError, TypeError, RecursionError):  # `expand_tool` reports the error
            _ = tool.handle, tool.offer
    return tool


def _size(definition: Mapping[str, Any]) -> int:
    """Return the size of the definition as JSON, in bytes."""
    try:
        return len(orjson.dumps(definition))
    except TypeError:  # a lone surrogate, an integer beyond 64 bits, or nested too deeply
        with suppress(RecursionError):  # `check_nesting` reports this
            return len(repr(definition))
        return 0


def _tags(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tags that FastMCP servers send in `_meta` (as of FastMCP 4). MCP itself has no tags."""
    match definition.get("_meta"):
        case {"fastmcp": {"tags": [*tags]}}:
            return tuple(one_line(tag, MAX_TAG_CHARS) for tag in tags if isinstance(tag, str))[:MAX_TAGS]
        case _:
            return ()


def read_definitions(source: str, wires: Iterable[object]) -> tuple[tuple[Tool, ...], tuple[SetAside, ...]]:
    """Return all tools that `wires` define, in their order, and the definitions that are ignored.

    If two definitions have the same name, the first one is used. An ignored definition without a name is listed as `#`
    and its position, counted from 1.
    """
    tools: dict[str, Tool] = {}
    set_aside: list[SetAside] = []
    for position, wire in enumerate(wires, start=1):
        breathe()
        try:
            tool = read_definition(source, wire)
        except InvalidTool as error:
            set_aside.append(SetAside(one_line(label(wire) or "", MAX_NAME_CHARS) or f"#{position}", error.message))
            continue
        if tool.name in tools:
            set_aside.append(SetAside(tool.name, "an earlier definition has the same name"))
        else:
            tools[tool.name] = tool
    return tuple(tools.values()), tuple(set_aside)


def label(wire: object) -> str | None:
    """Return a name for a definition that may be invalid: its own name if it has one, else None."""
    name = cast("Mapping[str, Any]", wire).get("name") if isinstance(wire, Mapping) else None
    return name if isinstance(name, str) and name.strip() else None


def object_schema(schema: object) -> Mapping[str, Any]:
    """Return `schema` as the schema of an object: `true` and a missing type count as an object schema.

    Raises:
        InvalidTool: it is not a JSON Schema, or it requires something other than an object.
    """
    if schema is True:
        return {"type": "object"}
    if not isinstance(schema, Mapping):
        raise InvalidTool(f"its input schema is {json_kind(schema)}, not an object")
    document = cast("Mapping[str, Any]", schema)
    declared = document.get("type")
    if declared is None:
        return {**document, "type": "object"}
    if declared == "object" or (isinstance(declared, list) and "object" in cast("list[object]", declared)):
        return document
    raise InvalidTool(f"its input schema has the type {declared!r}, but must have the type `object`")


def check_text(*texts: str | None) -> None:
    """Check that the strings contain no lone surrogate.

    A lone surrogate passes JSON parsing but fails at the first write. A single one would break the listing of all
    tools.

    Raises:
        InvalidTool: a string contains a lone surrogate.
    """
    for text in texts:
        if text and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidTool("its text contains half a surrogate pair, which is not valid Unicode") from error


def json_kind(value: object) -> str:
    """Return the JSON type of a value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "a list"
