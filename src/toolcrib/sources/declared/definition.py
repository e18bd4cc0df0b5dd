"""A declared tool and a declared source, as frozen values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import DECLARATION, EMPTY_SCHEMA, Tool, ToolAnnotations, check_tool
from toolcrib.sources.base import source_name
from toolcrib.sources.declared.command_line import COMMAND_KEYS, CommandLine
from toolcrib.sources.declared.fields import Fields
from toolcrib.sources.declared.http_endpoint import Endpoint
from toolcrib.sources.tool_definitions import read_definition

DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 3_600.0

SOURCE_KEYS: Mapping[str, str] = {
    "title": "The display name of the source.",
    "summary": "One line on what the source is for. Models read it before they search.",
    "tools": "The tools, by name.",
}
"""Every key of a declared source."""

TOOL_KEYS: Mapping[str, str] = {
    "title": "The display name of the tool.",
    "description": "What the tool does and when to use it. Models read it.",
    "input_schema": "The JSON Schema of the arguments. Each property must be used somewhere as `{name}`.",
    "output_schema": "The JSON Schema of the answer, an object. With it, the answer is read as JSON.",
    "annotations": "`read_only`, `destructive`, `idempotent`, `open_world`: `true` or `false`. The defaults are MCP's.",
    "metadata": "Tags, examples and other metadata, as under `toolcrib.tools`.",
    "timeout_s": f"Seconds that a call may take ({DEFAULT_TIMEOUT_S:g}).",
    "http": "The HTTP request to send. Use either this or `command`.",
    **COMMAND_KEYS,
}
"""Every key of a declared tool."""

_HINTS = ("read_only", "destructive", "idempotent", "open_world")
_OPEN_KEYS = ("patternProperties", "unevaluatedProperties")


@dataclass(frozen=True)
class DeclaredTool:
    """A tool as a model sees it, and the action that a call runs."""

    tool: Tool
    action: CommandLine | Endpoint
    timeout_s: float
    wire: Mapping[str, Any]
    """The declaration as it was written, with its environment variables not filled in."""

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object from which `read_declared` makes this tool."""
        return dict(self.wire)


@dataclass(frozen=True)
class DeclaredTools:
    """A declared source: tools under one name."""

    name: str
    title: str | None = None
    summary: str = ""
    tools: tuple[DeclaredTool, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object from which `read_declared_source` makes this source."""
        wire: dict[str, Any] = {} if self.title is None else {"title": self.title}
        wire |= {"summary": self.summary} if self.summary else {}
        return {**wire, "tools": {each.tool.name: each.to_wire() for each in self.tools}}

    def having(self, declared: DeclaredTool) -> Self:
        """Return a copy with `declared`, in place of the tool of the same name or at the end."""
        tools = {each.tool.name: each for each in self.tools} | {declared.tool.name: declared}
        return replace(self, tools=tuple(tools.values()))

    def without(self, tool_name: str) -> Self:
        """Return a copy without a tool. An unknown name is not an error."""
        return replace(self, tools=tuple(each for each in self.tools if each.tool.name != tool_name))


def read_declared_source(name: str, wire: object, *, where: str | None = None) -> DeclaredTools:
    """Read the source that `wire`, an object with the keys of `SOURCE_KEYS`, declares. Errors name its place as
    `where`.

    Raises:
        InvalidTool: the name or the declaration is invalid. The message begins with the place of the problem.
    """
    given = Fields.of(wire, where or name)
    try:
        fitting = source_name(name)
    except InvalidTool as error:
        raise InvalidTool(f"{given.where}: {error.message}") from error
    if fitting != name:
        raise InvalidTool(f"{given.where}: `{name}` is not a valid source name; use `{fitting}`")
    given.only(SOURCE_KEYS)
    tools = given.fields("tools")
    return DeclaredTools(
        name,
        given.text("title") or None,
        given.text("summary"),
        tuple(read_declared(name, each, wire, where=tools.at(each)) for each, wire in tools.values.items()),
    )


def read_declared(source: str, name: str, wire: object, *, where: str | None = None) -> DeclaredTool:
    """Read the tool that `wire`, an object with the keys of `TOOL_KEYS`, declares. Errors name its place as `where`.

    Raises:
        InvalidTool: the declaration is invalid. The message begins with the place of the problem.
    """
    where = where or f"{source}.{name}"
    given = Fields(_plain(Fields.of(wire, where).values, where), where)
    given.only(TOOL_KEYS)
    if ("command" in given) == ("http" in given):
        raise InvalidTool(f"{where}: needs either `command` or `http`, not both")
    if not given.text("description").strip():
        raise given.wrong("description", "must be a string that tells a model what the tool does")
    tool = _tool(source, name, given)
    if "command" in given:
        action = CommandLine.read(given, tool.input_schema)
    else:
        if (stray := next((key for key in COMMAND_KEYS if key in given), None)) is not None:
            raise given.wrong(stray, "only a tool with a `command` can have this key")
        action = Endpoint.read(given.fields("http"), tool.input_schema)
    _check_all_used(given, tool, action.names)
    return DeclaredTool(tool, action, given.seconds("timeout_s", DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S), given.values)


def _tool(source: str, name: str, given: Fields) -> Tool:
    """Return the tool's definition as a model sees it, in the form of MCP."""
    schema = given.fields("input_schema").values or EMPTY_SCHEMA
    if schema.get("additionalProperties", False) is not False or any(key in schema for key in _OPEN_KEYS):
        raise given.wrong(
            "input_schema", "only `properties` are supported, because other arguments could not be used anywhere"
        )
    results = given.values.get("output_schema")
    if results is not None and given.fields("output_schema").values.get("type") != "object":
        raise given.wrong("output_schema", 'must be the schema of an object: `"type": "object"`')
    run = {key: given.values[key] for key in ("http", *COMMAND_KEYS) if key in given}
    wire: dict[str, Any] = {
        "name": name,
        "description": given.text("description"),
        "inputSchema": {**schema, "additionalProperties": False},
        "annotations": _annotations(given).to_wire(),
        "_meta": {DECLARATION: digest(run)},
    }
    wire |= {"title": title} if (title := given.text("title")) else {}
    wire |= {"outputSchema": results} if results is not None else {}
    try:
        metadata = ToolMetadata.from_wire(given.values.get("metadata", {}))
    except InvalidTool as error:
        raise InvalidTool(f"{given.at('metadata')}.{error.message}") from error
    try:
        tool = replace(read_definition(source, wire), metadata=metadata)
        _ = tool.results
        check_tool(tool)
    except InvalidTool as error:
        raise InvalidTool(f"{given.where}: {error.message.removeprefix(f'`{source}.{name}`: ')}") from error
    return tool


def _annotations(given: Fields) -> ToolAnnotations:
    hints = given.fields("annotations")
    hints.only(_HINTS)
    return replace(ToolAnnotations(), **{hint: hints.flag(hint) for hint in _HINTS if hint in hints})


def _check_all_used(given: Fields, tool: Tool, used: frozenset[str]) -> None:
    """Check that every argument is used somewhere, because a model that passes one relies on it."""
    known = [*tool.input_schema.get("properties", {}), *tool.input_schema.get("required", ())]
    for name in known:
        if name not in used:
            raise given.wrong(f"input_schema.properties.{name}", f"it is not used; write `{{{name}}}` where it belongs")


def _plain(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a copy of `values` in JSON types.

    Raises:
        InvalidTool: JSON cannot represent them.
    """
    try:
        text = json.dumps(values, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool(f"{where}: cannot be written as JSON: {error}") from error
    return cast("dict[str, Any]", json.loads(text))
