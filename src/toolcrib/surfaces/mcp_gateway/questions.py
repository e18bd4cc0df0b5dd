"""The questions that a source may ask a client during a request, and the client capabilities that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from pydantic import BaseModel

from toolcrib.core.errors import ToolFailed

MAX_ROUNDS = 10
"""How often one request may ask for input. The clients of the SDKs have the same limit."""

ASKED: Mapping[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (mcp_types.ElicitRequest, mcp_types.ElicitResult),
    "roots/list": (mcp_types.ListRootsRequest, mcp_types.ListRootsResult),
    "sampling/createMessage": (mcp_types.CreateMessageRequest, mcp_types.CreateMessageResultWithTools),
}
"""The methods that a client can be asked with, and the types of their requests and results."""


def askable(capabilities: mcp_types.ClientCapabilities | None) -> Mapping[str, Any]:
    """Return the client's capabilities that a source may use."""
    if capabilities is None:
        return {}
    return capabilities.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"elicitation", "roots", "sampling"}
    )


def check_askable(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Check that a client with these `capabilities` can answer this request.

    Raises:
        ToolFailed: the client does not support the method, or not in this mode.

    Source: MCP 2025-11-25 and 2026-07-28, "Elicitation" (modes; `{}` means forms) and "Sampling" (`tools`).
    """
    kind = method.partition("/")[0]
    if method not in ASKED or kind not in capabilities:
        raise ToolFailed(f"The tool needs {method}, which this client does not support.")
    declared: Mapping[str, Any] = capabilities[kind] or {}
    if kind == "elicitation":
        mode = params.get("mode", "form")
        if mode not in (declared or ("form",)):
            raise ToolFailed(f"The tool needs {method} in the mode `{mode}`, which this client does not support.")
    if kind == "sampling" and params.get("tools") and "tools" not in declared:
        raise ToolFailed(f"The tool needs {method} with tools, which this client does not support.")
