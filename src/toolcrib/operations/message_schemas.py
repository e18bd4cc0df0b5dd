"""JSON Schemas of the parts that several messages of the discovery protocol have, and builders of such schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.errors import ErrorCode
from toolcrib.core.metadata import Optionality
from toolcrib.operations.catalog_operations import MAX_NAMED_ON_PAGE, MAX_OFTEN_NEXT

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def object_of(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required]}


def ref(name: str) -> Mapping[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def described(name: str, description: str) -> Mapping[str, Any]:
    """Return the part `name` with its own description."""
    return {"allOf": [ref(name)], "description": description}


def without(name: str, *members: str) -> Mapping[str, Any]:
    """Return the part `name` for objects that have none of `members`."""
    has_one = [{"type": "object", "required": [member]} for member in members]  # strict validators require `type`
    return {"allOf": [ref(name), {"not": {"anyOf": has_one}}]}


def list_of(items: Mapping[str, Any], most: int | None = None) -> Mapping[str, Any]:
    return {"type": "array", "items": items} | ({} if most is None else {"maxItems": most})


STRING: Mapping[str, Any] = {"type": "string"}
STRINGS = list_of(STRING)
OBJECT: Mapping[str, Any] = {"type": "object"}
_CONFIDENCE: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
CURSOR: Mapping[str, Any] = {"type": ["string", "null"], "description": "For the next page; null on the last page."}
_OPTIONALITY: Mapping[str, Any] = {
    "type": "string",
    "enum": [each.value for each in Optionality],
    "description": "How much an agent depends on the tool. The default is optional.",
}
MISSING: Mapping[str, Any] = {
    "starting": {**STRINGS, "description": "Sources that have not listed their tools yet."},
    "unavailable": {**STRINGS, "description": "Sources that could not be listed."},
}
WEAK: Mapping[str, Any] = {
    "weak": {"const": True, "description": "None of the results fits the query well: they are the closest ones."}
}
SUGGESTION: Mapping[str, Any] = {
    "hints": {**STRINGS, "description": "What to try if nothing fits."},
    "next_action": described("NextAction", "An operation to send if nothing fits."),
}
_NODE: Mapping[str, Any] = {
    "name": STRING,
    "path": ref("Path"),
    "summary": STRING,
    "tool_count": {"type": "integer", "minimum": 0},
}
TOOL_RESULT: Mapping[str, Any] = {
    "type": "object",
    "description": "The tool's unchanged answer: MCP's CallToolResult.",
    "properties": {"content": list_of(OBJECT), "structuredContent": {}, "isError": {"type": "boolean"}},
}

_STEP = described("NextAction", "The next request, ready to send.")
_ERROR: Mapping[str, Any] = {
    "message": {**STRING, "minLength": 1},
    "retryable": {"type": "boolean", "description": "Whether the same request can succeed later without harm."},
}
_ERROR_MORE: Mapping[str, Any] = {"hints": STRINGS, "details": OBJECT}

PARTS: Mapping[str, Any] = {
    "Path": {**STRINGS, "description": "The names from the root down; empty for the root."},
    "NodePointer": object_of(_NODE, {"title": STRING, "tags": STRINGS, "confidence": _CONFIDENCE}),
    "FoundNode": object_of({**_NODE, "confidence": _CONFIDENCE}, {"title": STRING, "tags": STRINGS}),
    "CategoryPointer": object_of(
        {
            "category": {**STRING, "description": "The name of the category."},
            "path": ref("Path"),
            "tool_count": {"type": "integer", "minimum": 0},
            "tools": {
                **list_of(STRING, MAX_NAMED_ON_PAGE),
                "description": "Ids of some of its tools, sorted. Later pages have the others.",
            },
        },
        {"summary": STRING, "version": {**STRING, "description": "The version that the source reports."}},
    ),
    "ToolId": object_of({"tool_id": STRING}),
    "ToolPointer": object_of(
        {"tool_id": STRING, "path": ref("Path"), "summary": STRING},
        {
            "tags": STRINGS,
            "optionality": _OPTIONALITY,
            "usage_hint": {**STRING, "description": "When to use the tool, in one line."},
            "confidence": _CONFIDENCE,
            "unavailable": {**STRING, "description": "Why the tool cannot be called until a person acts."},
        },
    ),
    "Expansion": object_of(
        {
            "tool_id": STRING,
            "handle": {**STRING, "description": "The tool_id for call_tool."},
            "path": ref("Path"),
            "summary": STRING,
            "args_schema": OBJECT,
            "annotations": object_of(
                {
                    name: {"type": "boolean"}
                    for name in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
                }
            ),
        },
        {
            "description": {**STRING, "description": "Left out if it equals the summary."},
            "usage_hint": {**STRING, "description": "When to use the tool, and when not."},
            "optionality": _OPTIONALITY,
            "condition": {**STRING, "description": "When a conditional tool is required."},
            "requires_permission": {"type": "boolean", "description": "A person must approve each call."},
            "cost": STRING,
            "risk": STRING,
            "result_schema": OBJECT,
            "examples": list_of(object_of({"description": STRING, "input": OBJECT}, {"output": STRING})),
            "version": {
                **STRING,
                "description": "The version of its contract since it was first seen. Major: earlier calls can fail. "
                "Minor: more calls are valid. Patch: any other change.",
            },
            "obstacle": {**STRING, "description": "Why a call would be refused or delayed."},
            "warnings": {**STRINGS, "description": "What a person should know about the definition."},
            "often_next": {
                **list_of(STRING, MAX_OFTEN_NEXT),
                "description": "Ids of tools that were often called after this one, most often first.",
            },
        },
    ),
    "NextAction": object_of(
        {
            "operation": {
                **STRING,
                "description": "An operation that the client has. For a client with `--operations all`, the name of a "
                "tool, or `tools/list`.",
            },
            "arguments": OBJECT,
        }
    ),
    "ErrorCode": {"type": "string", "enum": [code.value for code in ErrorCode]},
    "Error": {
        **object_of({"error": object_of({"code": ref("ErrorCode"), **_ERROR, "next_action": _STEP}, _ERROR_MORE)}),
        "description": "An error over MCP (the text and the `structuredContent` of a result with `isError`), in Python "
        "(`ToolcribError.to_wire`) and on the command line with `--json`.",
    },
    "FailedExpansion": {"allOf": [ref("Error"), ref("ToolId")]},
    "Problem": {
        **object_of(
            {
                "type": {**STRING, "description": "`urn:toolcrib:error:` with the code, or `about:blank`."},
                "title": {**STRING, "description": "The code or the HTTP status in words."},
                "status": {"type": "integer", "description": "The status of the response."},
                "detail": {**STRING, "description": "Equal to `message`."},
                "code": {
                    "anyOf": [ref("ErrorCode"), STRING],
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
