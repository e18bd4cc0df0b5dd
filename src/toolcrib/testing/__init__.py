"""Contract checks and fakes for whoever writes a source, a store or a surface; importable without pytest."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolcrib.testing.acp_client import FakeAcpClient

__all__ = ["FakeAcpClient"]


def __getattr__(name: str) -> Any:
    """Import a fake when it is first used: it needs the SDK of its protocol."""
    if name == "FakeAcpClient":
        return import_module("toolcrib.testing.acp_client").FakeAcpClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
