"""What a source may ask of a client in the middle of a request, and which clients can be asked what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types
from pydantic import BaseModel

from toolcrib.core.errors import ToolFailed

MAX_ROUNDS = 10
"""How often one request may ask for input. The SDKs' clients give up after as many."""

ASKED: Mapping[str, tuple[type[BaseModel], type[BaseModel]]] = {
    "elicitation/create": (mcp_types.ElicitRequest, mcp_types.ElicitResult),
    "roots/list": (mcp_types.ListRootsRequest, mcp_types.ListRootsResult),
    "sampling/createMessage": (mcp_types.CreateMessageRequest, mcp_types.CreateMessageResultWithTools),
}
"""What a client can be asked, with its request and its answer."""


def askable(capabilities: mcp_types.ClientCapabilities | None) -> Mapping[str, Any]:
    """What of a client's capabilities a source may use."""
    if capabilities is None:
        return {}
    return capabilities.model_dump(
        by_alias=True, mode="json", exclude_none=True, include={"elicitation", "roots", "sampling"}
    )


def check_askable(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
    """Pass where a client of these `capabilities` can be asked this.

    Raises:
        ToolFailed: it cannot, or not in this way.

    Source: MCP 2025-11-25 and 2026-07-28, "Elicitation" (modes; `{}` stands for forms) and "Sampling" (`tools`).
    """
    kind = method.partition("/")[0]
    if method not in ASKED or kind not in capabilities:
        raise ToolFailed(f"This asks the client for {method}, which it cannot answer.")
    declared: Mapping[str, Any] = capabilities[kind] or {}
    if kind == "elicitation":
        mode = params.get("mode", "form")
        if mode not in (declared or ("form",)):
            raise ToolFailed(f"This asks the client for {method} in the mode `{mode}`, which it cannot answer.")
    if kind == "sampling" and params.get("tools") and "tools" not in declared:
        raise ToolFailed(f"This asks the client for {method} with tools, which it cannot answer.")
