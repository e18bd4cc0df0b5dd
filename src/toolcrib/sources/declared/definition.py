"""A declared tool and a declared source, as frozen values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, cast

from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.json_settings import Before, Flag, Reader, Settings, String, errors_at, read_settings, seconds
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import DECLARATION, EMPTY_SCHEMA, Tool, ToolAnnotations, check_tool
from toolcrib.core.values import unknown
from toolcrib.sources.base import source_name
from toolcrib.sources.declared.command_line import CommandLine
from toolcrib.sources.declared.http_endpoint import Endpoint
from toolcrib.sources.declared.template import Template
from toolcrib.sources.tool_definitions import read_definition

MAX_TIMEOUT_S = 3_600.0

_HINTS = ("read_only", "destructive", "idempotent", "open_world")
_OPEN_KEYS = ("patternProperties", "unevaluatedProperties")
_COMMAND_KEYS = ("command", "stdin", "cwd", "env", "allow_options")


def _check_hints(value: object, _: str) -> object:
    for key in cast("Mapping[str, object]", value) if isinstance(value, Mapping) else ():
        if key not in _HINTS:
            raise ValueError(f"unknown key `{key}`{unknown(key, _HINTS)}")
    return cast("object", value)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeclaredSourceSettings(Settings):
    """The settings under `toolcrib.declared.SOURCE`."""

    title: String = ""
    """The display name of the source."""
    summary: String = ""
    """One line on what the source is for. Models read it before they search."""
    tools: dict[str, Any] = field(default_factory=dict)
    """The tools, by name."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeclaredToolSettings(Settings):
    """The settings under `toolcrib.declared.SOURCE.tools.NAME`."""

    title: String = ""
    """The display name of the tool."""
    description: String = ""
    """What the tool does and when to use it. Models read it."""
    input_schema: dict[str, Any] = field(default_factory=dict)
    """The JSON Schema of the arguments. Each property must be used somewhere as `{name}`."""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of the answer, an object. With it, the answer is read as JSON."""
    annotations: Annotated[dict[str, Flag], Before(_check_hints)] = field(default_factory=dict)
    """`read_only`, `destructive`, `idempotent`, `open_world`: `true` or `false`. The defaults are MCP's."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Tags, examples and other metadata, as under `toolcrib.tools`."""
    timeout_s: Annotated[float, seconds(MAX_TIMEOUT_S)] = 60.0
    """Seconds that a call may take."""
    http: Any = None
    """The HTTP request to send. Use either this or `command`."""
    command: Any = None
    """The program and its arguments, as a list. A nested list is passed completely or not at all."""
    stdin: Annotated[Template | None, Reader(Template.read)] = None
    """What the program reads from standard input. Without this key, standard input is closed."""
    cwd: String = ""
    """The folder in which it runs: an absolute path, or one that begins with `~`."""
    env: dict[str, String] = field(default_factory=dict)
    """Environment variables, in addition to the few that every program inherits."""
    allow_options: Flag = False
    """`true`: an argument may begin with `-` at every position."""

    def __post_init__(self) -> None:
        schema, results = self.input_schema, self.output_schema
        if schema.get("additionalProperties", False) is not False or any(key in schema for key in _OPEN_KEYS):
            raise ValueError(
                ".input_schema: only `properties` are supported, because other arguments could not be used anywhere"
            )
        if results is not None and results.get("type") != "object":
            raise ValueError('.output_schema: must be the schema of an object: `"type": "object"`')


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
    """Read the source that `wire`, an object with the keys of `DeclaredSourceSettings`, declares. Errors name its place
    as `where`.

    Raises:
        InvalidTool: the name or the declaration is invalid. The message begins with the place of the problem.
    """
    where = where or name
    with errors_at(where, InvalidTool):
        given = read_settings(DeclaredSourceSettings, wire, "")
        with errors_at(": ", InvalidTool):
            fitting = source_name(name)
        if fitting != name:
            raise InvalidTool(f": `{name}` is not a valid source name; use `{fitting}`")
    tools = (read_declared(name, each, tool, where=f"{where}.tools.{each}") for each, tool in given.tools.items())
    return DeclaredTools(name, given.title or None, given.summary, tuple(tools))


def read_declared(source: str, name: str, wire: object, *, where: str | None = None) -> DeclaredTool:
    """Read the tool that `wire`, an object with the keys of `DeclaredToolSettings`, declares. Errors name its place as
    `where`.

    Raises:
        InvalidTool: the declaration is invalid. The message begins with the place of the problem.
    """
    with errors_at(where or f"{source}.{name}", InvalidTool):
        wire = _plain(wire)
        given = read_settings(DeclaredToolSettings, wire, "")
        if ("command" in wire) == ("http" in wire):
            raise InvalidTool(": needs either `command` or `http`, not both")
        if not given.description.strip():
            raise InvalidTool(".description: must be a string that tells a model what the tool does")
        tool = _tool(source, name, given, digest({key: wire[key] for key in ("http", *_COMMAND_KEYS) if key in wire}))
        action = _action(given, wire)
        action.check(tool.input_schema)
        _check_all_used(tool.input_schema, action.names)
        return DeclaredTool(tool, action, given.timeout_s, wire)


def _action(given: DeclaredToolSettings, wire: Mapping[str, Any]) -> CommandLine | Endpoint:
    if "command" in wire:
        return replace(
            CommandLine.read(given.command, ".command"),
            stdin=given.stdin,
            cwd=given.cwd or None,
            env=given.env,
            allows_options=given.allow_options,
        )
    if (stray := next((key for key in _COMMAND_KEYS if key in wire), None)) is not None:
        raise InvalidTool(f".{stray}: only a tool with a `command` can have this key")
    return read_settings(Endpoint, given.http, ".http")


def _tool(source: str, name: str, given: DeclaredToolSettings, declaration: str) -> Tool:
    """Return the definition that a model sees, in the form of MCP. `declaration` is the digest of the tool's action."""
    hints: dict[str, Any] = {**given.annotations}
    wire: dict[str, Any] = {
        "name": name,
        "description": given.description,
        "inputSchema": {**(given.input_schema or EMPTY_SCHEMA), "additionalProperties": False},
        "annotations": ToolAnnotations(**hints).to_wire(),
        "_meta": {DECLARATION: declaration},
    }
    wire |= {"title": given.title} if given.title else {}
    wire |= {"outputSchema": given.output_schema} if given.output_schema is not None else {}
    with errors_at(".metadata.", InvalidTool):
        metadata = ToolMetadata.from_wire(given.metadata)
    try:
        tool = replace(read_definition(source, wire), metadata=metadata)
        _ = tool.results
        check_tool(tool)
    except InvalidTool as error:
        raise InvalidTool(f": {error.message.removeprefix(f'`{source}.{name}`: ')}") from error
    return tool


def _check_all_used(input_schema: Mapping[str, Any], used: frozenset[str]) -> None:
    """Check that every argument is used somewhere, because a model that passes one relies on it."""
    for name in [*input_schema.get("properties", {}), *input_schema.get("required", ())]:
        if name not in used:
            raise InvalidTool(f".input_schema.properties.{name}: it is not used; write `{{{name}}}` where it belongs")


def _plain(values: object) -> dict[str, Any]:
    """Return a copy of `values` in JSON types.

    Raises:
        InvalidTool: they are not an object, or JSON cannot represent them.
    """
    if not isinstance(values, Mapping):
        raise InvalidTool(": must be an object")
    try:
        text = json.dumps(values, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidTool(f": cannot be written as JSON: {error}") from error
    return cast("dict[str, Any]", json.loads(text))
