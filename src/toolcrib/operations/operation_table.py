"""The table of operations.

Everything that Toolcrib says about an operation comes from here: the tools of the gateway, the HTTP API, the checks of
arguments, the schemas of messages and the documentation. To add an operation, write its function in
`catalog_operations.py`, and add one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.properties import cached_property
from toolcrib.core.schema import Schema
from toolcrib.core.tools import ToolAnnotations
from toolcrib.core.values import unknown
from toolcrib.operations.catalog_operations import DEFAULT_LIMIT, MAX_EXPANDED, MAX_LIMIT, Operations
from toolcrib.operations.message_schemas import (
    CURSOR,
    DIALECT,
    MISSING,
    PARTS,
    SUGGESTION,
    TOOL_RESULT,
    WEAK,
    list_of,
    object_of,
    ref,
    without,
)
from toolcrib.operations.protocol_messages import Answer, DetailLevel

MAX_NAME_CHARS = 1_000
"""The longest name or id in a request: far longer than any real one, and short enough to search for."""

MAX_LEVELS = 2_000
"""The most names in a path."""

MAX_TAGS = 100
"""The most tags in a request."""


@dataclass(frozen=True)
class Operation:
    """One operation: what models and programs are told about it, and the function that answers it."""

    name: str
    description: str
    """The description for models."""
    input_schema: Mapping[str, Any]
    annotations: ToolAnnotations
    response: Mapping[str, Any]
    """The JSON Schema of the answer. It can refer to `PARTS`."""
    answer: Callable[..., Answer] | None = None
    """A method of `Operations`. It takes a view, and the arguments by name. None if the operation runs a tool."""
    description_without_calls: str = ""
    """The description for clients that have no operation that runs tools, if it differs."""
    shows_top: bool = False
    """Whether the description names the top-level categories. A model that does not see them ignores the operation."""

    @cached_property
    def arguments(self) -> Schema:
        """The compiled input schema."""
        return Schema(self.input_schema)

    @property
    def request_name(self) -> str:
        """The name of the request under `$defs`, for example `SearchToolsRequest`."""
        return f"{self._type_name}Request"

    @property
    def response_name(self) -> str:
        """The name of the response under `$defs`, for example `SearchToolsResponse`."""
        return f"{self._type_name}Response"

    @property
    def _type_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))


def _or_null(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `part` that also accepts null, because models and generated clients send null for missing arguments."""
    if "anyOf" in part:
        return {**part, "anyOf": [*part["anyOf"], {"type": "null"}]}
    nullable = {**part, "type": [part["type"], "null"]}
    return {**nullable, "enum": [*part["enum"], None]} if "enum" in part else nullable


def _arguments(properties: Mapping[str, Any], required: Sequence[str] = ()) -> Mapping[str, Any]:
    """Return the schema of an object with `properties`. Those that are not `required` can be null."""
    taken = {name: part if name in required else _or_null(part) for name, part in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": taken}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


_LOOKING = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_READING = ToolAnnotations(read_only=True, destructive=False, idempotent=False, open_world=True)

_NAME: Mapping[str, Any] = {"type": "string", "maxLength": MAX_NAME_CHARS}
_PATH: Mapping[str, Any] = {"type": "array", "items": _NAME, "maxItems": MAX_LEVELS}
_TAGS: Mapping[str, Any] = {
    "type": "array",
    "items": _NAME,
    "maxItems": MAX_TAGS,
    "description": "only what has all of them",
}
_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_AFTER: Mapping[str, Any] = {"type": "string", "description": "next_cursor of the page before"}
_PAGE_LIMIT: Mapping[str, Any] = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}
_QUERY: Mapping[str, Any] = {"type": "string", "description": "what you want done"}

_CALL = _arguments(
    {
        "tool_id": {**_NAME, "description": "the handle from expand_tool"},
        "arguments": {"type": "object", "description": "what its args_schema asks for"},
    },
    required=["tool_id"],
)

_ENTRIES = (
    Operation(
        "list",
        "Browse the tools behind this server: the categories and tools at a path, or at the top without one.",
        _arguments(
            {
                "path": {**_PATH, "description": 'e.g. ["git"]'},
                "tags": _TAGS,
                "query": {
                    "type": "string",
                    "description": "only what matches at the path, and tools below it, best first",
                },
                "limit": _PAGE_LIMIT,
                "cursor": _AFTER,
            }
        ),
        _LOOKING,
        response=object_of(
            {
                "path": ref("Path"),
                "nodes": list_of(ref("NodePointer"), MAX_LIMIT),
                "tools": list_of(ref("ToolPointer"), MAX_LIMIT),
                "next_cursor": CURSOR,
            },
            MISSING,
        ),
        answer=Operations.list,
        shows_top=True,
    ),
    Operation(
        "list_categories",
        "See what kinds of tools exist: the top categories, their tool counts, and tool ids, the first of each on the "
        "first page.",
        _arguments({"limit": _PAGE_LIMIT, "cursor": _AFTER}),
        _LOOKING,
        response=object_of({"categories": list_of(ref("CategoryPointer"), MAX_LIMIT), "next_cursor": CURSOR}, MISSING),
        answer=Operations.list_categories,
        shows_top=True,
    ),
    Operation(
        "search_tools",
        "Find tools by what they do, in plain words: pointers, best first, or what detail_level says. Expand one to "
        "call it.",
        _arguments(
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
                "cursor": _AFTER,
            }
        ),
        _LOOKING,
        response=object_of(
            {
                "results": {
                    **list_of(
                        {
                            "anyOf": [
                                without("ToolId", "path", "summary"),
                                without("ToolPointer", "handle", "args_schema", "annotations"),
                                {"allOf": [ref("ToolPointer"), ref("Expansion")]},
                            ]
                        },
                        MAX_LIMIT,
                    ),
                    "description": "With detail_level `name`, only the ids. With `full`, each is also an Expansion.",
                },
                "next_cursor": CURSOR,
            },
            {**MISSING, **WEAK, **SUGGESTION},
        ),
        answer=Operations.search_tools,
        description_without_calls="Find tools by what they do, in plain words: pointers, best first, or what "
        "detail_level says.",
        shows_top=True,
    ),
    Operation(
        "search_tool_by_category",
        "Find tools in one category by what they do: pointers, best first.",
        _arguments(
            {
                "query": _QUERY,
                "category_path": {**_PATH, "description": "from list or search_nodes"},
                "limit": _LIMIT,
                "cursor": _AFTER,
            },
            required=["query", "category_path"],
        ),
        _LOOKING,
        response=object_of(
            {"category_path": ref("Path"), "results": list_of(ref("ToolPointer"), MAX_LIMIT), "next_cursor": CURSOR},
            MISSING,
        ),
        answer=Operations.search_tool_by_category,
    ),
    Operation(
        "search_nodes",
        "Find categories if you do not know where to start. Returns paths for list and search_tool_by_category.",
        _arguments({"query": _QUERY, "limit": _LIMIT}, required=["query"]),
        _LOOKING,
        response=object_of({"results": list_of(ref("FoundNode"), MAX_LIMIT)}, {**MISSING, **SUGGESTION}),
        answer=Operations.search_nodes,
    ),
    Operation(
        "expand_tool",
        "Get a tool's description, argument and result schemas, and its handle for call_tool.",
        _arguments(
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
        response={
            "anyOf": [
                ref("Expansion"),
                object_of({"tools": list_of(ref("Expansion"))}, {"errors": list_of(ref("FailedExpansion"))}),
            ]
        },
        answer=Operations.expand,
        description_without_calls="Get a tool's description, argument and result schemas, and its handle.",
    ),
    Operation("call_tool", "Run an expanded tool.", _CALL, ToolAnnotations(), response=TOOL_RESULT),
    Operation(
        "call_read_only_tool",
        "Run an expanded tool that only reads. Refuses all others: use call_tool for them.",
        _CALL,
        _READING,
        response=TOOL_RESULT,
    ),
)

OPERATION_TABLE: Mapping[str, Operation] = {entry.name: entry for entry in _ENTRIES}
"""All operations by name."""

OPERATIONS = tuple(OPERATION_TABLE)
"""The names of all operations."""

LOOKING = tuple(name for name, operation in OPERATION_TABLE.items() if operation.answer is not None)
"""The operations that show the catalog."""

CALLS = tuple(name for name, operation in OPERATION_TABLE.items() if operation.answer is None)
"""The operations that run a tool."""

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


def message_document() -> Mapping[str, Any]:
    """Return the schemas of all messages in one document, by name under `$defs`.

    Every operation can answer with an error instead: `Error` over MCP, in Python and on the command line, `Problem`
    over HTTP. A request accepts no other members. A response can get more members in a later version. No `$ref` has
    other keywords next to it, because several code generators drop either the reference or the keywords.
    """
    operations = OPERATION_TABLE.values()
    requests = {operation.request_name: operation.input_schema for operation in operations}
    responses = {operation.response_name: operation.response for operation in operations}
    return {"$schema": DIALECT, "title": "Discovery protocol", "$defs": {**requests, **responses, **PARTS}}


def message_schema(name: str) -> Mapping[str, Any]:
    """Return the schema of one message as a separate document."""
    return {"$schema": DIALECT, "$ref": f"#/$defs/{name}", "$defs": message_document()["$defs"]}
