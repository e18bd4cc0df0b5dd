"""An in-memory editor for tests of its callers. It does not use the wire protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from toolcrib.sources.acp.editor_source import EditorSource
from toolcrib.sources.acp.editor_terminals import TerminalListener, ignore_terminal
from toolcrib.sources.acp.port import (
    CALL_ID,
    METHOD_NOT_FOUND,
    ClientGone,
    ClientOffer,
    ClientRefused,
    TerminalExit,
    TerminalOutput,
)

ALL = ClientOffer(read_text_file=True, write_text_file=True, terminal=True)
DISCOVERING = ClientOffer(read_text_file=True, write_text_file=True, terminal=True, discovery=True)

SESSION = "session-1"


def descriptor(name: str, kind: str = "other", /, **fields: Any) -> dict[str, Any]:
    """Return a descriptor in its wire form."""
    return {"name": name, "kind": kind, "description": f"Does {name}.", "parameters": {"type": "object"}, **fields}


def described(required: Sequence[str] = (), /, **types: str) -> dict[str, Any]:
    """Return an object schema with properties of these types."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(required),
    }


@dataclass
class Running:
    """A terminal of the editor."""

    command: Sequence[str]
    cwd: str | None
    env: Mapping[str, str] | None
    limit: int | None
    exit: TerminalExit | None
    ended: anyio.Event = field(default_factory=anyio.Event)
    is_killed: bool = False


@dataclass
class Editor:
    """A `ClientPort`. A method in `hanging` is never answered. A method in `failing` raises the given exception."""

    offer: ClientOffer = ALL
    catalog: object = field(default_factory=lambda: {"tools": []})
    files: dict[str, str] = field(default_factory=dict[str, str])
    answer: Callable[[str, Mapping[str, Any]], Any] = lambda name, arguments: {"content": []}
    preview: object = field(default_factory=lambda: {"diffs": []})
    exit: TerminalExit | None = field(default_factory=lambda: TerminalExit(0))
    """How every command ends at once; None if it runs until it is killed."""
    output: str = ""
    is_truncated: bool = False
    hanging: set[str] = field(default_factory=set[str])
    failing: dict[str, Exception] = field(default_factory=dict[str, Exception])
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    """Every request: the method and its subject."""
    reached: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    let_go: dict[str, anyio.Event] = field(default_factory=dict[str, anyio.Event])
    """Events that a method waits for before it answers."""
    terminals: dict[str, Running] = field(default_factory=dict[str, Running])
    """Terminals that are not released."""
    call_ids: list[str | None] = field(default_factory=list[str | None])

    @property
    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    async def _asked(self, method: str, session_id: str, about: object) -> None:
        assert session_id == SESSION
        self.asked.append((method, about))
        self.reached.setdefault(method, anyio.Event()).set()
        await anyio.lowlevel.checkpoint()
        if method in self.hanging:
            await anyio.sleep_forever()
        if method in self.let_go:
            await self.let_go[method].wait()
        if method in self.failing:
            raise self.failing[method]

    async def until(self, method: str) -> None:
        """Wait until the request has arrived."""
        await self.reached.setdefault(method, anyio.Event()).wait()

    async def discover_tools(self, session_id: str) -> Any:
        await self._asked("discover_tools", session_id, None)
        return self.catalog

    async def call_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Any:
        self.call_ids.append(CALL_ID.get())
        await self._asked("call_tool", session_id, (name, dict(arguments)))
        return self.answer(name, arguments)

    async def preview_tool(self, session_id: str, name: str, arguments: Mapping[str, Any]) -> Any:
        await self._asked("preview_tool", session_id, (name, dict(arguments)))
        return self.preview

    async def read_text_file(
        self, session_id: str, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        await self._asked("read_text_file", session_id, (path, line, limit))
        if path not in self.files:
            raise ClientRefused(-32002, f"no such file: {path}")
        lines = self.files[path].splitlines(keepends=True)[(line or 1) - 1 :]
        return "".join(lines[:limit])

    async def write_text_file(self, session_id: str, path: str, content: str) -> None:
        await self._asked("write_text_file", session_id, path)
        self.files[path] = content

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
        await self._asked("create_terminal", session_id, command)
        terminal_id = f"t{self.methods.count('create_terminal')}"
        self.terminals[terminal_id] = Running([command, *args], cwd, env, output_byte_limit, self.exit)
        return terminal_id

    async def terminal_output(self, session_id: str, terminal_id: str) -> TerminalOutput:
        await self._asked("terminal_output", session_id, terminal_id)
        return TerminalOutput(self.output, self.is_truncated, self._terminal(terminal_id).exit)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> TerminalExit:
        await self._asked("wait_for_terminal_exit", session_id, terminal_id)
        running = self._terminal(terminal_id)
        if running.exit is None:
            await running.ended.wait()
        assert running.exit is not None
        return running.exit

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        await self._asked("kill_terminal", session_id, terminal_id)
        running = self._terminal(terminal_id)
        running.is_killed = True
        running.exit = running.exit or TerminalExit(signal="SIGKILL")
        running.ended.set()

    async def release_terminal(self, session_id: str, terminal_id: str) -> None:
        await self._asked("release_terminal", session_id, terminal_id)
        self._terminal(terminal_id)
        del self.terminals[terminal_id]

    def _terminal(self, terminal_id: str) -> Running:
        if terminal_id not in self.terminals:
            raise ClientRefused(-32602, f"no such terminal: {terminal_id}")
        return self.terminals[terminal_id]

    def source(
        self,
        *,
        cwd: str = "/project",
        timeout_s: float = 30.0,
        grace_s: float = 30.0,
        on_terminal: TerminalListener = ignore_terminal,
    ) -> EditorSource:
        """Return the tools of a session with this editor. Only a failing test waits for the full timeouts."""
        return EditorSource(self, SESSION, cwd=cwd, timeout_s=timeout_s, grace_s=grace_s, on_terminal=on_terminal)


NO_METHOD = ClientRefused(METHOD_NOT_FOUND, "Method not found")
GONE = ClientGone("the connection is closed")
