"""Every message of the discovery protocol as JSON Schema: requests, responses, and errors in both their forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.errors import ErrorCode
from toolcrib.core.metadata import Optionality
from toolcrib.operations.showing import MAX_LIMIT, MAX_NAMED_ON_PAGE
from toolcrib.operations.tools import OPERATIONS, operation_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def request_name(operation: str) -> str:
    """The name under `$defs` of what an operation takes: `SearchToolsRequest`."""
    return f"{_camel(operation)}Request"


def response_name(operation: str) -> str:
    """The name under `$defs` of what it answers."""
    return f"{_camel(operation)}Response"


def document() -> Mapping[str, Any]:
    """All of them in one document, by name under `$defs`.

    Every operation can answer with an error instead: `Error` over MCP, in Python and on the command line, `Problem`
    over HTTP. A request takes no other members than these. A response may get more members in a later version.
    No `$ref` has other keywords next to it, because several code generators drop either the one or the others.
    """
    requests = {request_name(name): operation_schema(name).document for name in OPERATIONS}
    return {
        "$schema": DIALECT,
        "title": "Discovery protocol",
        "$defs": {**requests, **_RESPONSES, **_PARTS},
    }


def message(name: str) -> Mapping[str, Any]:
    """One of them as a schema of its own."""
    return {"$schema": DIALECT, "$ref": f"#/$defs/{name}", "$defs": document()["$defs"]}


def _camel(operation: str) -> str:
    return "".join(part.capitalize() for part in operation.split("_"))


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def _ref(name: str) -> Mapping[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _described(name: str, description: str) -> Mapping[str, Any]:
    """The part `name` with a description of its own."""
    return {"allOf": [_ref(name)], "description": description}


def _without(name: str, *members: str) -> Mapping[str, Any]:
    """The part `name` for objects that have none of `members`."""
    has_one = [{"type": "object", "required": [member]} for member in members]  # validators may be strict about `type`
    return {"allOf": [_ref(name), {"not": {"anyOf": has_one}}]}


def _list(items: Mapping[str, Any], most: int | None = None) -> Mapping[str, Any]:
    return {"type": "array", "items": items} | ({} if most is None else {"maxItems": most})


_TEXT: Mapping[str, Any] = {"type": "string"}
_TEXTS = _list(_TEXT)
_OBJECT: Mapping[str, Any] = {"type": "object"}
_CONFIDENCE: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_CURSOR: Mapping[str, Any] = {"type": ["string", "null"], "description": "For the next page; null on the last."}
_OPTIONALITY: Mapping[str, Any] = {
    "type": "string",
    "enum": [each.value for each in Optionality],
    "description": "How much an agent depends on it; optional where it is left out.",
}
_MISSING: Mapping[str, Any] = {
    "starting": {**_TEXTS, "description": "Sources that have not listed their tools yet."},
    "unavailable": {**_TEXTS, "description": "Sources that could not be listed."},
}
_SUGGESTION: Mapping[str, Any] = {
    "hints": {**_TEXTS, "description": "Where nothing was found: what to try."},
    "next_action": _described("NextAction", "Where nothing was found: an operation, ready to send."),
}
_NODE: Mapping[str, Any] = {
    "name": _TEXT,
    "path": _ref("Path"),
    "summary": _TEXT,
    "tool_count": {"type": "integer", "minimum": 0},
}
_TOOL_RESULT: Mapping[str, Any] = {
    "type": "object",
    "description": "The tool's answer as it came: MCP's CallToolResult.",
    "properties": {"content": _list(_OBJECT), "structuredContent": {}, "isError": {"type": "boolean"}},
}

_STEP = _described("NextAction", "The next request, ready to send.")
_ERROR: Mapping[str, Any] = {
    "message": {**_TEXT, "minLength": 1},
    "retryable": {"type": "boolean", "description": "Whether the same request can succeed later without harm."},
}
_ERROR_MORE: Mapping[str, Any] = {"hints": _TEXTS, "details": _OBJECT}

_PARTS: Mapping[str, Any] = {
    "Path": {**_TEXTS, "description": "The names from the root down; empty for the root."},
    "NodePointer": _object(_NODE, {"title": _TEXT, "tags": _TEXTS, "confidence": _CONFIDENCE}),
    "FoundNode": _object({**_NODE, "confidence": _CONFIDENCE}, {"title": _TEXT, "tags": _TEXTS}),
    "CategoryPointer": _object(
        {
            "category": {**_TEXT, "description": "Its name."},
            "path": _ref("Path"),
            "tool_count": {"type": "integer", "minimum": 0},
            "tools": {
                **_list(_TEXT, MAX_NAMED_ON_PAGE),
                "description": "Ids of some of them, sorted. Later pages have the others.",
            },
        },
        {"summary": _TEXT, "version": {**_TEXT, "description": "Which version its source says it is of."}},
    ),
    "ToolId": _object({"tool_id": _TEXT}),
    "ToolPointer": _object(
        {"tool_id": _TEXT, "path": _ref("Path"), "summary": _TEXT},
        {
            "tags": _TEXTS,
            "optionality": _OPTIONALITY,
            "usage_hint": {**_TEXT, "description": "When to use it, in one line."},
            "confidence": _CONFIDENCE,
            "unavailable": {**_TEXT, "description": "Why it cannot be called before somebody has done something."},
        },
    ),
    "Expansion": _object(
        {
            "tool_id": _TEXT,
            "handle": {**_TEXT, "description": "What call_tool takes."},
            "path": _ref("Path"),
            "summary": _TEXT,
            "args_schema": _OBJECT,
            "annotations": _object(
                {
                    name: {"type": "boolean"}
                    for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
                }
            ),
        },
        {
            "description": {**_TEXT, "description": "Left out where it is the summary."},
            "usage_hint": {**_TEXT, "description": "When to use it, and when not."},
            "optionality": _OPTIONALITY,
            "condition": {**_TEXT, "description": "When a conditional tool is required."},
            "requires_permission": {"type": "boolean", "description": "A person is asked before it runs."},
            "cost": _TEXT,
            "risk": _TEXT,
            "result_schema": _OBJECT,
            "examples": _list(_object({"description": _TEXT, "input": _OBJECT}, {"output": _TEXT})),
            "version": {
                **_TEXT,
                "description": "Of its contract since it was first seen: major where calls may fail, minor where more "
                "are right, else patch.",
            },
            "obstacle": {**_TEXT, "description": "Why a call would be refused or put off."},
            "warnings": {**_TEXTS, "description": "What a person should know of the definition."},
        },
    ),
    "NextAction": _object(
        {
            "operation": {
                **_TEXT,
                "description": "An operation that the client has. For a client that has the tools themselves instead "
                "(`--operations all`), the name of a tool, or `tools/list`.",
            },
            "arguments": _OBJECT,
        }
    ),
    "ErrorCode": {"type": "string", "enum": [code.value for code in ErrorCode]},
    "Error": {
        **_object({"error": _object({"code": _ref("ErrorCode"), **_ERROR, "next_action": _STEP}, _ERROR_MORE)}),
        "description": "An error over MCP (the text and the `structuredContent` of a result with `isError`), in Python "
        "(`ToolcribError.to_wire`) and on the command line with `--json`.",
    },
    "FailedExpansion": {"allOf": [_ref("Error"), _ref("ToolId")]},
    "Problem": {
        **_object(
            {
                "type": {**_TEXT, "description": "`urn:toolcrib:error:` with the code, or `about:blank`."},
                "title": {**_TEXT, "description": "The code, or the phrase of the status, in words."},
                "status": {"type": "integer", "description": "The status of the response."},
                "detail": {**_TEXT, "description": "Equal to `message`."},
                "code": {
                    "anyOf": [_ref("ErrorCode"), _TEXT],
                    "description": "What HTTP itself refuses has the name of the status, as `NOT_FOUND`.",
                },
                **_ERROR,
            },
            {"next_action": _STEP, **_ERROR_MORE},
        ),
        "description": "An error over HTTP: problem details (RFC 9457, `application/problem+json`) with the members of "
        "`Error` next to its own. What HTTP itself refuses has no `next_action`.",
    },
}

_RESPONSES: Mapping[str, Any] = {
    "ListResponse": _object(
        {
            "path": _ref("Path"),
            "nodes": _list(_ref("NodePointer"), MAX_LIMIT),
            "tools": _list(_ref("ToolPointer"), MAX_LIMIT),
            "next_cursor": _CURSOR,
        },
        _MISSING,
    ),
    "ListCategoriesResponse": _object(
        {"categories": _list(_ref("CategoryPointer"), MAX_LIMIT), "next_cursor": _CURSOR}, _MISSING
    ),
    "SearchToolsResponse": _object(
        {
            "results": {
                **_list(
                    {
                        "anyOf": [
                            _without("ToolId", "path", "summary"),
                            _without("ToolPointer", "handle", "args_schema", "annotations"),
                            {"allOf": [_ref("ToolPointer"), _ref("Expansion")]},
                        ]
                    },
                    MAX_LIMIT,
                ),
                "description": "With detail_level `name` their ids alone; with `full` each is an Expansion too.",
            },
            "next_cursor": _CURSOR,
        },
        _MISSING | _SUGGESTION,
    ),
    "SearchToolByCategoryResponse": _object(
        {"category_path": _ref("Path"), "results": _list(_ref("ToolPointer"), MAX_LIMIT), "next_cursor": _CURSOR},
        _MISSING,
    ),
    "SearchNodesResponse": _object({"results": _list(_ref("FoundNode"), MAX_LIMIT)}, _MISSING | _SUGGESTION),
    "ExpandToolResponse": {
        "anyOf": [
            _ref("Expansion"),
            _object(
                {"tools": _list(_ref("Expansion"))},
                {"errors": _list(_ref("FailedExpansion"))},
            ),
        ]
    },
    "CallToolResponse": _TOOL_RESULT,
    "CallReadOnlyToolResponse": _TOOL_RESULT,
}
