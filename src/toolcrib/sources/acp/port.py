"""What a source needs of an editor's connection, which a surface holds: small, and in no SDK's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol


class ClientRefused(Exception):
    """The editor answered with an error.

    Source: JSON-RPC 2.0, section 5.1; -32601 says that there is no such method.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ClientGone(Exception):
    """The editor is not connected any more; whether the last request reached it is not known."""


METHOD_NOT_FOUND = -32601

CALL_ID: ContextVar[str | None] = ContextVar("CALL_ID", default=None)
"""Under which id the editor is shown the tool call that runs here; whoever shows it sets this. A port sends it along
as `toolCallId`."""


@dataclass(frozen=True, slots=True)
class ClientOffer:
    """What an editor said it can do when it connected. Source: ACP v1, `ClientCapabilities`."""

    read_text_file: bool = False
    write_text_file: bool = False
    terminal: bool = False
    discovery: bool = False
    """Whether `_meta` of its capabilities has `toolcrib.discoverTools`; see docs/acp-discovery.md."""
    previews: bool = False
    """Whether it has `toolcrib.previewTool` as well: it can tell what a call of its own tools would change."""

    def __bool__(self) -> bool:
        """Whether it can do anything at all."""
        return self.read_text_file or self.write_text_file or self.terminal or self.discovery


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a command ended; neither is set while it runs."""

    code: int | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """What a terminal shows by now."""

    text: str
    is_truncated: bool = False
    """Whether its beginning was dropped."""
    exit: TerminalExit | None = None
    """None while the command runs."""


class ClientPort(Protocol):
    """An editor's connection. Paths are absolute; every method raises `ClientRefused` and `ClientGone`, and waits for
    as long as the editor takes.
    """

    @property
    def offer(self) -> ClientOffer: ...

    async def discover_tools(self, session_id: str) -> Mapping[str, Any]:
        """The answer to `_toolcrib/discover_tools`, as it came: `{"tools": [descriptor, ...]}`."""
        ...

    async def call_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to `_toolcrib/call_tool`, as it came; in the form of MCP's `CallToolResult`."""
        ...

    async def preview_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to `_toolcrib/preview_tool`, as it came: `{"diffs": [...]}`; nothing has run."""
        ...

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """The text as the editor has it, unsaved changes included; `limit` lines from `line` (from 1) on."""
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
        """Start a command; its terminal's id, to be given to the others and to `release_terminal` in the end."""
        ...

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutput: ...

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> TerminalExit: ...

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None: ...

    async def release_terminal(self, session_id: str, terminal_id: str) -> None: ...
