"""JSON Schemas of all messages of the discovery protocol: requests, responses, and both forms of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.errors import ErrorCode
from toolcrib.core.metadata import Optionality
from toolcrib.operations.showing import MAX_LIMIT, MAX_NAMED_ON_PAGE
from toolcrib.operations.tools import OPERATIONS, operation_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def request_name(operation: str) -> str:
    """Return the name of an operation's request under `$defs`, for example `SearchToolsRequest`."""
    return f"{_camel(operation)}Request"


def response_name(operation: str) -> str:
    """Return the name of an operation's response under `$defs`, for example `SearchToolsResponse`."""
    return f"{_camel(operation)}Response"


def document() -> Mapping[str, Any]:
    """Return the schemas of all messages in one document, by name under `$defs`.

    Every operation can answer with an error instead: `Error` over MCP, in Python and on the command line, `Problem`
    over HTTP. A request accepts no other members. A response can get more members in a later version. No `$ref` has
    other keywords next to it, because several code generators drop either the reference or the keywords.
    """
    requests = {request_name(name): operation_schema(name).document for name in OPERATIONS}
    return {
        "$schema": DIALECT,
        "title": "Discovery protocol",
        "$defs": {**requests, **_RESPONSES, **_PARTS},
    }


def message(name: str) -> Mapping[str, Any]:
    """Return the schema of one message as a separate document."""
    return {"$schema": DIALECT, "$ref": f"#/$defs/{name}", "$defs": document()["$defs"]}


def _camel(operation: str) -> str:
    return "".join(part.capitalize() for part in operation.split("_"))


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def _ref(name: str) -> Mapping[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _described(name: str, description: str) -> Mapping[str, Any]:
    """Return the part `name` with its own description."""
    return {"allOf": [_ref(name)], "description": description}


def _without(name: str, *members: str) -> Mapping[str, Any]:
    """Return the part `name` for objects that have none of `members`."""
    has_one = [{"type": "object", "required": [member]} for member in members]  # strict validators require `type`
    return {"allOf": [_ref(name), {"not": {"anyOf": has_one}}]}


def _list(items: Mapping[str, Any], most: int | None = None) -> Mapping[str, Any]:
    return {"type": "array", "items": items} | ({} if most is None else {"maxItems": most})


_TEXT: Mapping[str, Any] = {"type": "string"}
_TEXTS = _list(_TEXT)
_OBJECT: Mapping[str, Any] = {"type": "object"}
_CONFIDENCE: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_CURSOR: Mapping[str, Any] = {"type": ["string", "null"], "description": "For the next page; null on the last page."}
_OPTIONALITY: Mapping[str, Any] = {
    "type": "string",
    "enum": [each.value for each in Optionality],
    "description": "How much an agent depends on the tool. The default is optional.",
}
_MISSING: Mapping[str, Any] = {
    "starting": {**_TEXTS, "description": "Sources that have not listed their tools yet."},
    "unavailable": {**_TEXTS, "description": "Sources that could not be listed."},
}
_SUGGESTION: Mapping[str, Any] = {
    "hints": {**_TEXTS, "description": "What to try if nothing was found."},
    "next_action": _described("NextAction", "An operation to send if nothing was found."),
}
_NODE: Mapping[str, Any] = {
    "name": _TEXT,
    "path": _ref("Path"),
    "summary": _TEXT,
    "tool_count": {"type": "integer", "minimum": 0},
}
_TOOL_RESULT: Mapping[str, Any] = {
    "type": "object",
    "description": "The tool's unchanged answer: MCP's CallToolResult.",
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
            "category": {**_TEXT, "description": "The name of the category."},
            "path": _ref("Path"),
            "tool_count": {"type": "integer", "minimum": 0},
            "tools": {
                **_list(_TEXT, MAX_NAMED_ON_PAGE),
                "description": "Ids of some of its tools, sorted. Later pages have the others.",
            },
        },
        {"summary": _TEXT, "version": {**_TEXT, "description": "The version that the source reports."}},
    ),
    "ToolId": _object({"tool_id": _TEXT}),
    "ToolPointer": _object(
        {"tool_id": _TEXT, "path": _ref("Path"), "summary": _TEXT},
        {
            "tags": _TEXTS,
            "optionality": _OPTIONALITY,
            "usage_hint": {**_TEXT, "description": "When to use the tool, in one line."},
            "confidence": _CONFIDENCE,
            "unavailable": {**_TEXT, "description": "Why the tool cannot be called until a person acts."},
        },
    ),
    "Expansion": _object(
        {
            "tool_id": _TEXT,
            "handle": {**_TEXT, "description": "The tool_id for call_tool."},
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
            "description": {**_TEXT, "description": "Left out if it equals the summary."},
            "usage_hint": {**_TEXT, "description": "When to use the tool, and when not."},
            "optionality": _OPTIONALITY,
            "condition": {**_TEXT, "description": "When a conditional tool is required."},
            "requires_permission": {"type": "boolean", "description": "A person must approve each call."},
            "cost": _TEXT,
            "risk": _TEXT,
            "result_schema": _OBJECT,
            "examples": _list(_object({"description": _TEXT, "input": _OBJECT}, {"output": _TEXT})),
            "version": {
                **_TEXT,
                "description": "The version of its contract since it was first seen. Major: earlier calls can fail. "
                "Minor: more calls are valid. Patch: any other change.",
            },
            "obstacle": {**_TEXT, "description": "Why a call would be refused or delayed."},
            "warnings": {**_TEXTS, "description": "What a person should know about the definition."},
        },
    ),
    "NextAction": _object(
        {
            "operation": {
                **_TEXT,
                "description": "An operation that the client has. For a client with `--operations all`, the name of a "
                "tool, or `tools/list`.",
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
                "title": {**_TEXT, "description": "The code or the HTTP status in words."},
                "status": {"type": "integer", "description": "The status of the response."},
                "detail": {**_TEXT, "description": "Equal to `message`."},
                "code": {
                    "anyOf": [_ref("ErrorCode"), _TEXT],
                    "description": "If HTTP itself refuses the request: the name of the status, for example "
                    "`NOT_FOUND`.",
                },
                **_ERROR,
            },
            {"next_action": _STEP, **_ERROR_MORE},
        ),
        "description": "An error over HTTP: problem details (RFC 9457, `application/problem+json`) with the members of "
        "`Error` in addition to its own. If HTTP itself refuses the request, there is no `next_action`.",
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
                "description": "With detail_level `name`, only the ids. With `full`, each is also an Expansion.",
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
