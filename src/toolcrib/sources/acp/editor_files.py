"""Reads and writes files through an editor, with the protocol's own methods."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

import anyio

from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.diffs import Diff, Location, with_files
from toolcrib.sources.acp.port import ClientPort, ClientRefused

MAX_READ_CHARS = 1_000_000
"""How many characters of one file are passed on."""


class Files:
    """The file methods of one session. They raise `ClientRefused` and `ClientGone`."""

    def __init__(self, port: ClientPort, session_id: str, cwd: str, *, before_s: float) -> None:
        """`cwd` is an absolute path. Relative paths start there.

        `before_s` is how long to wait for the old text of a file before it is written. Only the shown diff depends on
        it.
        """
        self._port = port
        self._session_id = session_id
        self._cwd = cwd
        self._before_s = before_s

    async def read(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Read a file. `arguments` match `READ_FILE`."""
        location = self.location(arguments)
        text = await self._port.read_text_file(
            self._session_id, location.path, line=location.line, limit=arguments.get("limit")
        )
        content = [writable(text[:MAX_READ_CHARS])] if text else []
        if (left := len(text) - MAX_READ_CHARS) > 0:
            content.append(f"[{left} more characters were left out; read the rest with `line` and `limit`]")
        wire = {
            "content": [{"type": "text", "text": each} for each in content or ["[The file is empty.]"]],
            "structuredContent": {**location.to_wire(), "text": content[0] if content else "", "is_cut": left > 0},
        }
        return with_files(ToolResult(wire), locations=[location])

    async def write(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Write a file. `arguments` match `WRITE_FILE`."""
        diff = await self.diff(arguments)
        await self._port.write_text_file(self._session_id, diff.path, diff.new_text)
        value = {"path": diff.path, "characters": len(diff.new_text)}
        result = ToolResult.of(value, text=f"Wrote {len(diff.new_text)} characters to {diff.path}.")
        return with_files(result, diffs=[diff], locations=[Location(diff.path)])

    async def diff(self, arguments: Mapping[str, Any]) -> Diff:
        """Return what writing `arguments`, which match `WRITE_FILE`, would change. Raises only `ClientGone`."""
        path = self.location(arguments).path
        old_text = None
        if self._port.offer.read_text_file:
            with anyio.move_on_after(self._before_s):
                try:
                    old_text = await self._port.read_text_file(self._session_id, path)
                except ClientRefused:  # usually the file does not exist yet
                    old_text = None
        return Diff(path, arguments["content"], None if old_text is None else writable(old_text))

    def location(self, arguments: Mapping[str, Any]) -> Location:
        """Return the place that a call with `arguments` works on."""
        return Location(absolute(arguments["path"], self._cwd), arguments.get("line"))


def writable(text: str) -> str:
    """Replace lone surrogates in `text`. They pass JSON parsing but cannot be sent on."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def absolute(path: str, cwd: str) -> str:
    """Return `path` as an absolute path without `.` and `..`. A relative path starts at `cwd`, which is absolute."""
    is_windows = not cwd.startswith("/") and bool(PureWindowsPath(cwd).drive)
    kind = ntpath if is_windows else posixpath
    return kind.normpath(kind.join(cwd, path))
