"""Contract checks and fakes for authors of sources, stores and surfaces. It can be imported without pytest."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.testing.acp.fake_client import FakeAcpClient
    from toolcrib.testing.acp.mcp_server import McpTool
    from toolcrib.testing.acp.permissions import PermissionAsked

__all__ = ["FakeAcpClient", "McpTool", "PermissionAsked"]

_MODULES = {"FakeAcpClient": "acp.fake_client", "McpTool": "acp.mcp_server", "PermissionAsked": "acp.permissions"}


def __getattr__(name: str) -> Any:
    """Import a fake when it is first used, because it needs the SDK of its protocol."""
    if (module := _MODULES.get(name)) is not None:
        return getattr(import_module(f"toolcrib.testing.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
