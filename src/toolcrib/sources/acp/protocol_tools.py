"""The seven tools that the protocol itself has: their descriptors, and which of them an editor can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from toolcrib.sources.acp.descriptors import ASKING, OTHER, ToolCatalog, ToolDescriptor, parameters_of
from toolcrib.sources.acp.port import ClientOffer

DEFAULT_TIMEOUT_S = 240
"""Less than what a call has as a rule, so that its answer still comes with the output."""

MAX_TIMEOUT_S = 86_400

DEFAULT_OUTPUT_BYTES = 100_000
MAX_OUTPUT_BYTES = 1_000_000

_PATH = {"type": "string", "minLength": 1, "description": "The file, as an absolute path."}
_TERMINAL_ID = {"type": "string", "minLength": 1, "description": "The id that run_command gave."}
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
    description="Write a text file through the editor: the whole content replaces what is there, or makes a new file.",
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
        "No shell reads the command. With `background`, it goes on running: the answer is a terminal id for "
        "get_terminal_output, wait_for_terminal_exit and kill_terminal, to be let go of by release_terminal."
    ),
    parameters=parameters_of(
        ("command",),
        command={"type": "string", "minLength": 1, "description": "The program, without its arguments."},
        args={"type": "array", "items": {"type": "string"}, "description": "Its arguments, one each."},
        cwd={"type": "string", "minLength": 1, "description": "The folder it runs in; else that of the session."},
        env={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Environment variables to be set besides.",
        },
        output_byte_limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_OUTPUT_BYTES,
            "default": DEFAULT_OUTPUT_BYTES,
            "description": "How much of the end of its output is kept, in bytes.",
        },
        timeout_s={**_TIMEOUT_S, "description": "After how many seconds it is killed, unless it is in the background."},
        background={"type": "boolean", "default": False, "description": "Do not wait for its end."},
    ),
    categories=("terminal",),
)

GET_TERMINAL_OUTPUT = ToolDescriptor(
    name="get_terminal_output",
    kind="read",
    description="What a command that runs in the background has written so far, and how it ended if it has.",
    parameters=parameters_of(("terminal_id",), terminal_id=_TERMINAL_ID),
    categories=("terminal",),
)

WAIT_FOR_TERMINAL_EXIT = ToolDescriptor(
    name="wait_for_terminal_exit",
    kind="read",
    description="Wait for the end of a command that runs in the background, and get its exit code.",
    parameters=parameters_of(
        ("terminal_id",),
        terminal_id=_TERMINAL_ID,
        timeout_s={**_TIMEOUT_S, "description": "How many seconds to wait at most; the command runs on."},
    ),
    categories=("terminal",),
)

KILL_TERMINAL = ToolDescriptor(
    name="kill_terminal",
    kind="execute",
    description="End a command that runs in the background. Its output can still be read.",
    parameters=parameters_of(("terminal_id",), terminal_id=_TERMINAL_ID),
    categories=("terminal",),
)

RELEASE_TERMINAL = ToolDescriptor(
    name="release_terminal",
    kind=OTHER,
    description="Let go of a terminal whose output is not needed any more; a command that still runs is ended.",
    parameters=parameters_of(("terminal_id",), terminal_id=_TERMINAL_ID),
    categories=("terminal",),
)

FILE_TOOLS = (READ_FILE, WRITE_FILE)
TERMINAL_TOOLS = (RUN_COMMAND, GET_TERMINAL_OUTPUT, WAIT_FOR_TERMINAL_EXIT, KILL_TERMINAL, RELEASE_TERMINAL)

PROTOCOL_TOOLS: Mapping[str, ToolDescriptor] = {tool.name: tool for tool in (*FILE_TOOLS, *TERMINAL_TOOLS)}
"""By name."""


def lack(name: str, offer: ClientOffer) -> str | None:
    """Why an editor that offers this cannot run the tool of the protocol that is called so; None where it can, or where
    `name` is none of those.
    """
    if name == READ_FILE.name and not offer.read_text_file:
        return "the editor said that it does not read files (`fs.readTextFile`)"
    if name == WRITE_FILE.name and not offer.write_text_file:
        return "the editor said that it does not write files (`fs.writeTextFile`)"
    if name in PROTOCOL_TOOLS and PROTOCOL_TOOLS[name] in TERMINAL_TOOLS and not offer.terminal:
        return "the editor said that it has no terminals (`terminal`)"
    return None


def catalog_of(offer: ClientOffer) -> ToolCatalog:
    """What an editor can do by the protocol alone."""
    return ToolCatalog(tuple(tool for name, tool in PROTOCOL_TOOLS.items() if lack(name, offer) is None))


def is_protocols_own(descriptor: ToolDescriptor) -> bool:
    """Whether every call that fits `descriptor` can be made by the protocol's own method.

    That is so where it bears the name of one, every parameter is one of that method's and of its type, and what the
    method needs is required. A descriptor that speaks of no parameter means those of the method.
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
    """`descriptor`, with what the protocol knows better of the tools that it has itself.

    A tool that writes or executes by its name does so whatever kind it is said to be of. What a descriptor leaves open
    is filled in where the protocol's own method will run it.
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
    """The types that a value of `schema` may have; empty where it does not say so in a simple way."""
    if not isinstance(schema, Mapping):
        return set()
    said = cast("Mapping[str, Any]", schema)
    names, choices = said.get("type"), said.get("anyOf", said.get("oneOf"))
    if names is not None:
        return {names} if isinstance(names, str) else {*names}
    each = [_types(choice) for choice in choices or ()]
    return set[str]().union(*each) if all(each) else set()
