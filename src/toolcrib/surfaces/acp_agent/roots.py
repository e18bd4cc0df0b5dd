"""The client that answers MCP servers of a session when they ask for its folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolcrib.core.errors import ToolFailed


class Rooted:
    """Implements `toolcrib.core.client.Client`.

    It answers `roots/list` with the folders of a session, and nothing else.
    """

    capabilities: Mapping[str, Any] = {"roots": {}}
    log_level: str | None = None

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method != "roots/list":
            raise ToolFailed("An editor's session only answers `roots/list`.")
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in self._folders]}

    def log(self, params: Mapping[str, Any]) -> None:
        """Discard the message. Editors do not show logs of MCP servers."""
