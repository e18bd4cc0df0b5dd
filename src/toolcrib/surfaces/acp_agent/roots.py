"""Whom MCP servers of a session ask for its folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolcrib.core.errors import ToolFailed


class Rooted:
    """Implements `toolcrib.core.client.Client`: knows the folders of a session, and can be asked nothing else."""

    capabilities: Mapping[str, Any] = {"roots": {}}
    log_level: str | None = None

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method != "roots/list":
            raise ToolFailed("Of an editor nothing but its folders can be asked.")
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in self._folders]}

    def log(self, params: Mapping[str, Any]) -> None:
        """Nobody listens."""
