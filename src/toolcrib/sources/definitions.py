"""One MCP tool definition read into a `Tool`, or set aside alone with the reason."""

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
"""The longest definition, as JSON. Compiling, comparing and showing it take time in proportion."""

LARGE_BYTES = 20_000
"""A definition for which the digests of its handle are made when it is read, and not while somebody waits."""

MAX_TAGS = 50
"""Tags of one tool that are read."""

MAX_TAG_CHARS = 50
"""A longer tag is cut: every answer that shows the tool carries its tags."""

MAX_NAME_CHARS = 256
"""The longest name of a tool that is taken: every answer that shows the tool carries its name.

MCP says that names SHOULD have at most 128 characters; twice that is let through, so that a careless server keeps its
tools. Source: MCP 2025-11-25, "Tools", "Tool Names".
"""


def read_definition(source: str, wire: object) -> Tool:
    """The tool that `wire` defines, an object of MCP's `Tool` shape, as one of `source`.

    The name is kept exactly, whatever its characters. A missing or null description is `""`. An input schema that is
    `true` or names no type is read as one of an object, since arguments are always an object. An output schema is
    kept even when it does not compile: it only ever judges an answer, which is no reason to lose the tool.

    Raises:
        InvalidTool: no usable name, description or input schema, or a schema that is nested too deeply; the message is
            the reason, without the tool's name.

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
        raise InvalidTool(f"its name has {len(name)} characters; the longest that is taken has {MAX_NAME_CHARS}")
    description = definition.get("description")
    if description is None:
        description = ""
    if not isinstance(description, str):
        raise InvalidTool(f"its description is {json_kind(description)}, not text")
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
    # Compiled to fail here and not at the first call, and not kept: 100,000 compiled schemas nobody calls are 400 MB.
    Schema(tool.input_schema)
    if size > LARGE_BYTES:
        with suppress(ValueError, TypeError, RecursionError):  # told to whoever expands it
            _ = tool.handle, tool.offer
    return tool


def _size(definition: Mapping[str, Any]) -> int:
    """Of it as JSON, in bytes."""
    try:
        return len(orjson.dumps(definition))
    except TypeError:  # half a surrogate pair, an integer beyond 64 bits, or nested too deeply
        with suppress(RecursionError):  # judged below
            return len(repr(definition))
        return 0


def _tags(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """MCP has none; servers made with FastMCP send theirs like this (as of its version 4)."""
    match definition.get("_meta"):
        case {"fastmcp": {"tags": [*tags]}}:
            return tuple(one_line(tag, MAX_TAG_CHARS) for tag in tags if isinstance(tag, str))[:MAX_TAGS]
        case _:
            return ()


def read_definitions(source: str, wires: Iterable[object]) -> tuple[tuple[Tool, ...], tuple[SetAside, ...]]:
    """All tools that `wires` define, in their order, and what could not be taken.

    Of two definitions with one name the first stays. A definition without a name is set aside as `#` and its position,
    counted from 1.
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
    """What to call a definition that may be broken: its name where it has one."""
    name = cast("Mapping[str, Any]", wire).get("name") if isinstance(wire, Mapping) else None
    return name if isinstance(name, str) and name.strip() else None


def object_schema(schema: object) -> Mapping[str, Any]:
    """`schema` as one of an object: `true` and a missing type are read as that.

    Raises:
        InvalidTool: it is no JSON Schema, or asks for something other than an object.
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
    raise InvalidTool(f"its input schema has the type {declared!r}; arguments are always an object")


def check_text(*texts: str | None) -> None:
    """Half a surrogate pair passes JSON and fails at the first write: on the way out it would take every tool along.

    Raises:
        InvalidTool: there is one.
    """
    for text in texts:
        if text and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidTool("its text holds half a surrogate pair, which is no Unicode text") from error


def json_kind(value: object) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case _:
            return "a list"
