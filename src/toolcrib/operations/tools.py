"""The operations as tool definitions: what stands in a model's own tool list instead of the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.schema import Schema
from toolcrib.core.tools import ToolAnnotations
from toolcrib.core.values import unknown
from toolcrib.operations.messages import DetailLevel
from toolcrib.operations.rules import TOP_NAMES_BYTES, Top, top_names
from toolcrib.operations.showing import DEFAULT_LIMIT, MAX_EXPANDED, MAX_LIMIT

LOOKING = ("list", "list_categories", "search_tools", "search_tool_by_category", "search_nodes", "expand_tool")
CALLS = ("call_tool", "call_read_only_tool")
OPERATIONS = (*LOOKING, *CALLS)
"""Names of all operations."""

SETS: Mapping[str, Sequence[str]] = {
    "compact": ("list", "search_tools", "expand_tool", "call_tool"),
    "full": ("list", "search_tools", "search_tool_by_category", "search_nodes", "expand_tool", "call_tool"),
    "guarded": ("list", "search_tools", "expand_tool", "call_read_only_tool", "call_tool"),
    "discovery": ("list_categories", "search_tools", "expand_tool", "call_tool"),
}
"""Which of them a model is given, by the name of the set."""

DEFAULT_SET = "compact"

ALL = "all"
"""In the place of a set: the catalog's tools themselves, for clients that search and defer by themselves."""


def chosen(operations: str | Iterable[str]) -> tuple[str, ...]:
    """Names of operations: those of the set that is named, or the named ones, of which a string has several by commas.

    Raises:
        InvalidConfig: there is no set or operation of that name, or nothing is named; the nearest is proposed.
    """
    if isinstance(operations, str):
        if operations in SETS:
            return tuple(SETS[operations])
        operations = [name.strip() for name in operations.split(",")]
    names = tuple(dict.fromkeys(operations))
    for name in names:
        if name not in OPERATIONS:
            known = OPERATIONS if len(names) > 1 else (*SETS, ALL, *OPERATIONS)
            kind = "an operation" if len(names) > 1 else "an operation, or a set of them"
            raise InvalidConfig(f"`{name}` is not {kind}{unknown(name, known)}")
    if not names:
        raise InvalidConfig(f"no operation is named; known: {', '.join(OPERATIONS)}")
    return tuple(name for name in OPERATIONS if name in names)


_LOOKING = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_READING = ToolAnnotations(read_only=True, destructive=False, idempotent=False, open_world=True)

MAX_NAME_CHARS = 1_000
"""Of a name or an id that somebody asks about: far more than any has, and little enough to look for."""

MAX_LEVELS = 2_000
"""Names in a path."""

MAX_TAGS = 100
"""Tags that are asked for at once."""

_NAME: Mapping[str, Any] = {"type": "string", "maxLength": MAX_NAME_CHARS}
_PATH: Mapping[str, Any] = {"type": "array", "items": _NAME, "maxItems": MAX_LEVELS}
_TAGS: Mapping[str, Any] = {
    "type": "array",
    "items": _NAME,
    "maxItems": MAX_TAGS,
    "description": "only what carries all of them",
}
_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_CURSOR: Mapping[str, Any] = {"type": "string", "description": "next_cursor of the page before"}
_PAGE_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
_QUERY: Mapping[str, Any] = {"type": "string", "description": "what you want done"}


@dataclass(frozen=True)
class OperationTool:
    """One operation, as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    annotations: ToolAnnotations

    def to_wire(self) -> dict[str, Any]:
        """Its definition as MCP has it."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": self.annotations.to_wire(),
        }


def operation_tools(
    names: Sequence[str], tops: Sequence[Top] = (), *, room: int = TOP_NAMES_BYTES
) -> tuple[OperationTool, ...]:
    """These operations, in this order; two name the top of the catalog in `room` bytes, or models pass them by."""
    inside = f" Inside: {top_names(tops, room)}." if tops else ""
    known = {tool.name: tool for tool in _all(inside, calls=not {*CALLS}.isdisjoint(names))}
    return tuple(known[name] for name in names)


def operation_schema(name: str) -> Schema:
    """The compiled input schema of an operation."""
    return _COMPILED[name]


def _all(inside: str = "", *, calls: bool = True) -> tuple[OperationTool, ...]:
    """`calls`: whether tools can be called beside it."""
    return (
        OperationTool(
            "list",
            "Browse the tools behind this server: the categories and tools at a path, or at the top without one."
            + inside,
            _schema(
                {
                    "path": {**_PATH, "description": 'e.g. ["git"]'},
                    "tags": _TAGS,
                    "query": {
                        "type": "string",
                        "description": "only what matches at the path, and tools below it, best first",
                    },
                    "limit": _PAGE_LIMIT,
                    "cursor": _CURSOR,
                }
            ),
            _LOOKING,
        ),
        OperationTool(
            "list_categories",
            "See what kinds of tools there are: the categories at the top, how many tools each has, and their ids, the "
            "first of each on the first page." + inside,
            _schema({"limit": _PAGE_LIMIT, "cursor": _CURSOR}),
            _LOOKING,
        ),
        OperationTool(
            "search_tools",
            "Find tools by what they do, in plain words: pointers, best first, or what detail_level says."
            + (" Expand one to call it." if calls else "")
            + inside,
            _schema(
                {
                    "query": {**_QUERY, "description": "what you want done; without it, all"},
                    "category": {"anyOf": [_NAME, _PATH], "description": "a name or path to look below"},
                    "tags": _TAGS,
                    "detail_level": {
                        "type": "string",
                        "enum": [level.value for level in DetailLevel],
                        "default": DetailLevel.SUMMARY.value,
                        "description": f"ids, pointers, or each expanded, {MAX_EXPANDED} at most",
                    },
                    "include_unavailable": {"type": "boolean", "default": False},
                    "limit": _LIMIT,
                    "cursor": _CURSOR,
                }
            ),
            _LOOKING,
        ),
        OperationTool(
            "search_tool_by_category",
            "Find tools in one category by what they do: pointers, best first.",
            _schema(
                {
                    "query": _QUERY,
                    "category_path": {**_PATH, "description": "from list or search_nodes"},
                    "limit": _LIMIT,
                    "cursor": _CURSOR,
                },
                required=["query", "category_path"],
            ),
            _LOOKING,
        ),
        OperationTool(
            "search_nodes",
            "Find categories when you do not know where to start. Gives paths for list and search_tool_by_category.",
            _schema({"query": _QUERY, "limit": _LIMIT}, required=["query"]),
            _LOOKING,
        ),
        OperationTool(
            "expand_tool",
            "Get what a tool takes: description, argument and result schemas"
            + (", and its handle for call_tool." if calls else ", and its handle."),
            _schema(
                {
                    "tool_id": {**_NAME, "description": "an id you were shown"},
                    "tool_ids": {
                        "type": "array",
                        "items": _NAME,
                        "minItems": 1,
                        "maxItems": MAX_EXPANDED,
                        "description": "several, instead of tool_id",
                    },
                }
            ),
            _LOOKING,
        ),
        OperationTool("call_tool", "Run a tool that was expanded.", _CALL, ToolAnnotations()),
        OperationTool(
            "call_read_only_tool",
            "Run a tool that was expanded and only reads; refuses any other, which call_tool runs.",
            _CALL,
            _READING,
        ),
    )


def _schema(properties: Mapping[str, Any], required: Sequence[str] = ()) -> Mapping[str, Any]:
    """The schema of an object with `properties`; those that are not `required` may be null."""
    taken = {name: part if name in required else _or_null(part) for name, part in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": taken}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def _or_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """`part`, which also takes null: models and generated clients send null for an argument that is not given."""
    if "anyOf" in part:
        return {**part, "anyOf": [*part["anyOf"], {"type": "null"}]}
    nullable = {**part, "type": [part["type"], "null"]}
    return {**nullable, "enum": [*part["enum"], None]} if "enum" in part else nullable


_CALL = _schema(
    {
        "tool_id": {**_NAME, "description": "the handle from expand_tool"},
        "arguments": {"type": "object", "description": "what its args_schema asks for"},
    },
    required=["tool_id"],
)

_COMPILED = {tool.name: Schema(tool.input_schema) for tool in _all()}
