"""The descriptors of the seven tools that ACP itself provides, and which of them an editor can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from toolcrib.sources.acp.descriptors import ASKING, OTHER, ToolCatalog, ToolDescriptor, parameters_of
from toolcrib.sources.acp.port import ClientOffer

DEFAULT_TIMEOUT_S = 240
"""Less than the usual time limit of a call, so that the answer with the output still arrives in time."""

MAX_TIMEOUT_S = 86_400

DEFAULT_OUTPUT_BYTES = 100_000
MAX_OUTPUT_BYTES = 1_000_000

_PATH = {"type": "string", "minLength": 1, "description": "The file, as an absolute path."}
_TERMINAL_ID = {"type": "string", "minLength": 1, "description": "The id that run_command returned."}
_TIMEOUT_S = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S, "default": DEFAULT_TIMEOUT_S}


READ_FILE = ToolDescriptor(
    name="read_file",
    kind="read",
    description=(
        "Read a text file as the editor has it, unsaved changes included. "
        "Give `line` and `limit` to read only a part of it."
    ),
    parameters=parameters_of(
        ("path",),
        path=_PATH,
        line={"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
        limit={"type": "integer", "minimum": 1, "description": "How many lines to read at most."},
    ),
    categories=("files",),
)

WRITE_FILE = ToolDescriptor(
    name="write_file",
    kind="edit",
    description="Write a text file through the editor: the content replaces an existing file, or creates a new one.",
    parameters=parameters_of(
        ("path", "content"),
        path=_PATH,
        content={"type": "string", "description": "The whole text of the file."},
    ),
    categories=("files",),
)

RUN_COMMAND = ToolDescriptor(
    name="run_command",
    kind="execute",
    description=(
        "Run a program in a terminal of the editor, wait for its end, and get its output and exit code. "
        "No shell reads the command. With `background`, it keeps running, and the answer is a terminal id for "
        "get_terminal_output, wait_for_terminal_exit and kill_terminal. Release it with release_terminal at the end."
    ),
    parameters=parameters_of(
        ("command",),
        command={"type": "string", "minLength": 1, "description": "The program, without its arguments."},
        args={"type": "array", "items": {"type": "string"}, "description": "Its arguments, one string each."},
        cwd={
            "type": "string",
            "minLength": 1,
            "description": "The folder to run in. Default: the folder of the session.",
        },
        env={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Additional environment variables.",
        },
        output_byte_limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_OUTPUT_BYTES,
            "default": DEFAULT_OUTPUT_BYTES,
            "description": "How many bytes of the end of its output to keep.",
        },
        timeout_s={**_TIMEOUT_S, "description": "Kill it after this many seconds. Not used with `background`."},
        background={"type": "boolean", "default": False, "description": "Return immediately and keep it running."},
    ),
    categories=("terminal",),
)


def _terminal_tool(name: str, kind: str, description: str, **parameters: Mapping[str, Any]) -> ToolDescriptor:
    """Return the descriptor of a tool for a command in the background."""
    return ToolDescriptor(
        name=name,
        kind=kind,
        description=description,
        parameters=parameters_of(("terminal_id",), terminal_id=_TERMINAL_ID, **parameters),
        categories=("terminal",),
    )


GET_TERMINAL_OUTPUT = _terminal_tool(
    "get_terminal_output",
    "read",
    "Get the output so far of a command that runs in the background, and how it ended if it has ended.",
)

WAIT_FOR_TERMINAL_EXIT = _terminal_tool(
    "wait_for_terminal_exit",
    "read",
    "Wait for the end of a command that runs in the background, and get its exit code.",
    timeout_s={**_TIMEOUT_S, "description": "How many seconds to wait at most. The command keeps running after that."},
)

KILL_TERMINAL = _terminal_tool(
    "kill_terminal", "execute", "Kill a command that runs in the background. Its output can still be read."
)

RELEASE_TERMINAL = _terminal_tool(
    "release_terminal",
    OTHER,
    "Release a terminal whose output is no longer needed. A command that still runs is killed.",
)

FILE_TOOLS = (READ_FILE, WRITE_FILE)
TERMINAL_TOOLS = (RUN_COMMAND, GET_TERMINAL_OUTPUT, WAIT_FOR_TERMINAL_EXIT, KILL_TERMINAL, RELEASE_TERMINAL)

PROTOCOL_TOOLS: Mapping[str, ToolDescriptor] = {tool.name: tool for tool in (*FILE_TOOLS, *TERMINAL_TOOLS)}
"""The descriptors by tool name."""


def lack(name: str, offer: ClientOffer) -> str | None:
    """Return why an editor with this offer cannot run the protocol's tool `name`. None if it can, or if `name` is a
    different tool."""
    if name == READ_FILE.name and not offer.read_text_file:
        return "the editor does not support reading files (`fs.readTextFile`)"
    if name == WRITE_FILE.name and not offer.write_text_file:
        return "the editor does not support writing files (`fs.writeTextFile`)"
    if name in PROTOCOL_TOOLS and PROTOCOL_TOOLS[name] in TERMINAL_TOOLS and not offer.terminal:
        return "the editor does not support terminals (`terminal`)"
    return None


def catalog_of(offer: ClientOffer) -> ToolCatalog:
    """Return the tools of an editor that only has the protocol's own methods."""
    return ToolCatalog(tuple(tool for name, tool in PROTOCOL_TOOLS.items() if lack(name, offer) is None))


def is_protocols_own(descriptor: ToolDescriptor) -> bool:
    """Return whether the protocol's own method can make every call that fits `descriptor`.

    It can if the descriptor has the name of such a tool, every parameter exists in the method with the same type, and
    all required parameters of the method are required. A descriptor without parameters means the parameters of the
    method.
    """
    known = PROTOCOL_TOOLS.get(descriptor.name)
    if known is None:
        return False
    if _says_nothing(descriptor.parameters):
        return True
    theirs, ours = _properties(descriptor.parameters), _properties(known.parameters)
    required = cast("list[str]", descriptor.parameters.get("required", []))
    return (
        theirs.keys() <= ours.keys()
        and set(known.parameters["required"]) <= set(required)
        and all(_fits(schema, ours[name]) for name, schema in theirs.items())
    )


def as_shown(descriptor: ToolDescriptor) -> ToolDescriptor:
    """Return `descriptor`, corrected where the protocol knows its own tools better.

    A tool whose name means writing or executing gets that kind, whatever its descriptor says. Missing values are filled
    in if the protocol's own method will run the tool.
    """
    known = PROTOCOL_TOOLS.get(descriptor.name)
    if known is None:
        return descriptor
    if known.kind in ASKING:
        descriptor = replace(descriptor, kind=known.kind)
    if not is_protocols_own(descriptor):
        return descriptor
    return replace(
        descriptor,
        kind=known.kind if descriptor.kind == OTHER else descriptor.kind,
        description=descriptor.description if descriptor.description.strip() else known.description,
        parameters=known.parameters if _says_nothing(descriptor.parameters) else descriptor.parameters,
    )


def _says_nothing(parameters: Mapping[str, Any]) -> bool:
    return parameters.keys() <= {"type", "properties", "$schema"} and not _properties(parameters)


def _properties(parameters: Mapping[str, Any]) -> Mapping[str, object]:
    return cast("Mapping[str, object]", parameters.get("properties", {}))


def _fits(theirs: object, ours: object) -> bool:
    types = _types(theirs) - {"null"}
    allowed = _types(ours)
    if "number" in allowed:
        allowed |= {"integer"}
    return bool(types) and types <= allowed


def _types(schema: object) -> set[str]:
    """Return the types that a value of `schema` may have; empty if the schema does not state them in a simple way."""
    if not isinstance(schema, Mapping):
        return set()
    said = cast("Mapping[str, Any]", schema)
    names, choices = said.get("type"), said.get("anyOf", said.get("oneOf"))
    if names is not None:
        return {names} if isinstance(names, str) else {*names}
    each = [_types(choice) for choice in choices or ()]
    return set[str]().union(*each) if all(each) else set()
