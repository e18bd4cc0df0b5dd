"""The operations as tool definitions, which a model has in its own tool list instead of the catalog."""

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
"""The names of all operations."""

SETS: Mapping[str, Sequence[str]] = {
    "compact": ("list", "search_tools", "expand_tool", "call_tool"),
    "full": ("list", "search_tools", "search_tool_by_category", "search_nodes", "expand_tool", "call_tool"),
    "guarded": ("list", "search_tools", "expand_tool", "call_read_only_tool", "call_tool"),
    "discovery": ("list_categories", "search_tools", "expand_tool", "call_tool"),
}
"""The operations that a model gets, by the name of the set."""

DEFAULT_SET = "compact"

ALL = "all"
"""Used instead of a set for clients that search and defer tools themselves: they get the tools of the catalog."""


def chosen(operations: str | Iterable[str]) -> tuple[str, ...]:
    """Return the operations of a set, or the given ones. A string can be the name of a set, or names with commas.

    Raises:
        InvalidConfig: no set or operation has this name, or no name is given; the message suggests the closest name.
    """
    if isinstance(operations, str):
        if operations in SETS:
            return tuple(SETS[operations])
        operations = [name.strip() for name in operations.split(",")]
    names = tuple(dict.fromkeys(operations))
    for name in names:
        if name not in OPERATIONS:
            known = OPERATIONS if len(names) > 1 else (*SETS, ALL, *OPERATIONS)
            kind = "an operation" if len(names) > 1 else "an operation or a set of operations"
            raise InvalidConfig(f"`{name}` is not {kind}{unknown(name, known)}")
    if not names:
        raise InvalidConfig(f"no operation is given; known: {', '.join(OPERATIONS)}")
    return tuple(name for name in OPERATIONS if name in names)


_LOOKING = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_READING = ToolAnnotations(read_only=True, destructive=False, idempotent=False, open_world=True)

MAX_NAME_CHARS = 1_000
"""The longest name or id in a request: far longer than any real one, and short enough to search for."""

MAX_LEVELS = 2_000
"""The most names in a path."""

MAX_TAGS = 100
"""The most tags in a request."""

_NAME: Mapping[str, Any] = {"type": "string", "maxLength": MAX_NAME_CHARS}
_PATH: Mapping[str, Any] = {"type": "array", "items": _NAME, "maxItems": MAX_LEVELS}
_TAGS: Mapping[str, Any] = {
    "type": "array",
    "items": _NAME,
    "maxItems": MAX_TAGS,
    "description": "only what has all of them",
}
_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_CURSOR: Mapping[str, Any] = {"type": "string", "description": "next_cursor of the page before"}
_PAGE_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
_QUERY: Mapping[str, Any] = {"type": "string", "description": "what you want done"}


@dataclass(frozen=True)
class OperationTool:
    """The definition of one operation, as a model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    annotations: ToolAnnotations

    def to_wire(self) -> dict[str, Any]:
        """Return the definition in MCP's form."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema,
            "annotations": self.annotations.to_wire(),
        }


def operation_tools(
    names: Sequence[str], tops: Sequence[Top] = (), *, room: int = TOP_NAMES_BYTES
) -> tuple[OperationTool, ...]:
    """Return these operations, in this order.

    The descriptions of two of them name the top-level categories in `room` bytes. Without that, models ignore them.
    """
    inside = f" Inside: {top_names(tops, room)}." if tops else ""
    known = {tool.name: tool for tool in _all(inside, calls=not {*CALLS}.isdisjoint(names))}
    return tuple(known[name] for name in names)


def operation_schema(name: str) -> Schema:
    """Return the compiled input schema of an operation."""
    return _COMPILED[name]


def _all(inside: str = "", *, calls: bool = True) -> tuple[OperationTool, ...]:
    """Return all operations. `calls` says whether the client also has an operation that calls tools."""
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
            "See what kinds of tools exist: the top categories, their tool counts, and tool ids, the first of each on "
            "the first page." + inside,
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
                    "category": {"anyOf": [_NAME, _PATH], "description": "a name or path to search in"},
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
            "Find categories if you do not know where to start. Returns paths for list and search_tool_by_category.",
            _schema({"query": _QUERY, "limit": _LIMIT}, required=["query"]),
            _LOOKING,
        ),
        OperationTool(
            "expand_tool",
            "Get a tool's description, argument and result schemas"
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
        OperationTool("call_tool", "Run an expanded tool.", _CALL, ToolAnnotations()),
        OperationTool(
            "call_read_only_tool",
            "Run an expanded tool that only reads. Refuses all others: use call_tool for them.",
            _CALL,
            _READING,
        ),
    )


def _schema(properties: Mapping[str, Any], required: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the schema of an object with `properties`. Those that are not `required` can be null."""
    taken = {name: part if name in required else _or_null(part) for name, part in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": taken}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def _or_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `part` that also accepts null, because models and generated clients send null for missing arguments."""
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
