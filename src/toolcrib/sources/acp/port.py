"""The protocol that a surface implements so that a source can use its connection to an editor, without SDK types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol


class ClientRefused(Exception):
    """The editor answered with an error.

    Source: JSON-RPC 2.0, section 5.1; -32601 means that the method does not exist.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ClientGone(Exception):
    """The editor is no longer connected. It is unknown whether the last request reached it."""


METHOD_NOT_FOUND = -32601

CALL_ID: ContextVar[str | None] = ContextVar("CALL_ID", default=None)
"""The id under which the editor shows the running tool call. The component that shows the call sets it, and a port
sends it as `toolCallId`."""


@dataclass(frozen=True, slots=True)
class ClientOffer:
    """What an editor declared to support when it connected. Source: ACP v1, `ClientCapabilities`."""

    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    discovery: bool = False
    """Whether the `_meta` of its capabilities has `toolcrib.discoverTools`; see docs/acp-discovery.md."""
    previews: bool = False
    """Whether it also has `toolcrib.previewTool`: the editor can tell what a call of its own tools would change."""

    def __bool__(self) -> bool:
        """Return whether the editor supports anything at all."""
        return self.read_text_file or self.write_text_file or self.terminal or self.discovery


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a command ended. A command that still runs has neither value."""

    code: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """The current output of a terminal."""

    text: str
    is_truncated: bool = False
    """Whether the beginning was dropped."""
    exit: TerminalExit | None = None
    """None while the command runs."""


class ClientPort(Protocol):
    """The connection to an editor. Paths are absolute. Every method raises `ClientRefused` and `ClientGone`, and waits
    as long as the editor takes."""

    @property
    def offer(self) -> ClientOffer: ...

    async def discover_tools(self, session_id: str) -> Mapping[str, Any]:
        """Return the unchanged answer to `_toolcrib/discover_tools`: `{"tools": [descriptor, ...]}`."""
        ...

    async def call_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the unchanged answer to `_toolcrib/call_tool`, in the form of MCP's `CallToolResult`."""
        ...

    async def preview_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the unchanged answer to `_toolcrib/preview_tool`: `{"diffs": [...]}`. Nothing runs."""
        ...

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return the text as the editor has it, with unsaved changes: `limit` lines from `line` (counted from 1)."""
        ...

    async def write_text_file(self, session_id: str, path: str, content: str) -> None: ...

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
    ) -> str:
        """Start a command and return the id of its terminal. Release the terminal with `release_terminal` at the
        end."""
        ...

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutput: ...

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> TerminalExit: ...

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None: ...

    async def release_terminal(self, session_id: str, terminal_id: str) -> None: ...
