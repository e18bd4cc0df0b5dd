"""A declared tool and a declared source, as frozen values and as the JSON that they are written in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcrib.core.checks import check_tool
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import DECLARATION, EMPTY_SCHEMA, Tool, ToolAnnotations
from toolcrib.sources.base import source_name
from toolcrib.sources.declared.command import COMMAND_KEYS, CommandLine
from toolcrib.sources.declared.endpoint import Endpoint
from toolcrib.sources.declared.fields import Fields
from toolcrib.sources.definitions import read_definition

DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 3_600.0

SOURCE_KEYS: Mapping[str, str] = {
    "title": "What people call the source.",
    "summary": "One line on what it is for; models read it before they search.",
    "tools": "Its tools, by name.",
}
"""Every key of a declared source."""

TOOL_KEYS: Mapping[str, str] = {
    "title": "What people call the tool.",
    "description": "What it does, and when to use it; models read it.",
    "input_schema": "The JSON Schema of its arguments. Each property has to stand somewhere as `{name}`.",
    "output_schema": "The JSON Schema of its answer, an object; then the answer is read as JSON.",
    "annotations": "`read_only`, `destructive`, `idempotent`, `open_world`: `true` or `false`; MCP's defaults.",
    "metadata": "Tags, examples and the like, as under `toolcrib.tools`.",
    "timeout_s": f"Seconds it may take ({DEFAULT_TIMEOUT_S:g}).",
    "http": "The HTTP request that it is; or else a `command`.",
    **COMMAND_KEYS,
}
"""Every key of a declared tool."""

_HINTS = ("read_only", "destructive", "idempotent", "open_world")
_OPEN_KEYS = ("patternProperties", "unevaluatedProperties")


@dataclass(frozen=True)
class DeclaredTool:
    """A tool as a model sees it, and what is done when it is called."""

    tool: Tool
    action: CommandLine | Endpoint
    timeout_s: float
    wire: Mapping[str, Any]
    """How it was declared; variables of the environment in it are not filled in."""

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that `read_declared` makes it of."""
        return dict(self.wire)


@dataclass(frozen=True)
class DeclaredTools:
    """A declared source: tools under one name."""

    name: str
    title: str | None = None
    summary: str = ""
    tools: tuple[DeclaredTool, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that `read_declared_source` makes it of."""
        wire: dict[str, Any] = {} if self.title is None else {"title": self.title}
        wire |= {"summary": self.summary} if self.summary else {}
        return {**wire, "tools": {each.tool.name: each.to_wire() for each in self.tools}}

    def having(self, declared: DeclaredTool) -> Self:
        """The same with `declared`, in the place of a tool of its name or as the last."""
        tools = {each.tool.name: each for each in self.tools} | {declared.tool.name: declared}
        return replace(self, tools=tuple(tools.values()))

    def without(self, tool_name: str) -> Self:
        """The same without one; no error where there is none of this name."""
        return replace(self, tools=tuple(each for each in self.tools if each.tool.name != tool_name))


def read_declared_source(name: str, wire: object, *, where: str | None = None) -> DeclaredTools:
    """The source that `wire` declares, an object with the keys of `SOURCE_KEYS`; `where` names its place in errors.

    Raises:
        InvalidTool: the name is none for a source, or something is wrong; the message begins with its place.
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
    """The tool that `wire` declares, an object with the keys of `TOOL_KEYS`; `where` names its place in errors.

    Raises:
        InvalidTool: something is wrong; the message begins with its place.
    """
    where = where or f"{source}.{name}"
    given = Fields(_plain(Fields.of(wire, where).values, where), where)
    given.only(TOOL_KEYS)
    if ("command" in given) == ("http" in given):
        raise InvalidTool(f"{where}: a tool is either a `command` or an `http` request")
    if not given.text("description").strip():
        raise given.wrong("description", "must be a string that tells a model what the tool does")
    tool = _tool(source, name, given)
    if "command" in given:
        action = CommandLine.read(given, tool.input_schema)
    else:
        if (stray := next((key for key in COMMAND_KEYS if key in given), None)) is not None:
            raise given.wrong(stray, "this is for a tool that is a `command`")
        action = Endpoint.read(given.fields("http"), tool.input_schema)
    _check_all_used(given, tool, action.names)
    return DeclaredTool(tool, action, given.seconds("timeout_s", DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S), given.values)


def _tool(source: str, name: str, given: Fields) -> Tool:
    """What a model is shown, as MCP writes it."""
    schema = given.fields("input_schema").values or EMPTY_SCHEMA
    if schema.get("additionalProperties", False) is not False or any(key in schema for key in _OPEN_KEYS):
        raise given.wrong("input_schema", "only `properties` are read, since others could not be used for anything")
    results = given.values.get("output_schema")
    if results is not None and given.fields("output_schema").values.get("type") != "object":
        raise given.wrong("output_schema", 'it has to be one of an object: `"type": "object"`')
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
    """Pass where every argument goes somewhere: a model that gives one may rely on it."""
    known = [*tool.input_schema.get("properties", {}), *tool.input_schema.get("required", ())]
    for name in known:
        if name not in used:
            raise given.wrong(
                f"input_schema.properties.{name}", f"nothing is done with it; it belongs somewhere as `{{{name}}}`"
            )


def _plain(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`values` as JSON has them, nobody else's to change.

    Raises:
        InvalidTool: JSON cannot hold them.
    """
    try:
        text = json.dumps(values, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool(f"{where}: this cannot be written as JSON: {error}") from error
    return cast("dict[str, Any]", json.loads(text))
