"""The fake editor's answers to an agent: its files (also a real folder), its terminals, its tools, and its person."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from io import StringIO
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import (
    ClientCapabilities,
    CreateTerminalResponse,
    EnvVariable,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from toolcrib.testing.acp.editor_tools import Answer, Offered, Preview, ToolCalled, names_of, result_of, wire_of
from toolcrib.testing.acp.permissions import Permission, PermissionAsked, answered, cancelled
from toolcrib.testing.acp.terminals import FakeTerminal, FakeTerminals, Script, TerminalCommand
from toolcrib.testing.acp.updates import Update, Updates


class Folder(MutableMapping[str, str]):
    """The text files under `root`, by absolute path. Files outside `root` do not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def __getitem__(self, path: str) -> str:
        try:
            return self._inside(path).read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise KeyError(path) from error

    def __setitem__(self, path: str, text: str) -> None:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())

    def __delitem__(self, path: str) -> None:
        try:
            self._inside(path).unlink()
        except OSError as error:
            raise KeyError(path) from error

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(str(path) for path in self.root.rglob("*") if path.is_file()))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _inside(self, path: str) -> Path:
        file = Path(path).resolve()
        if not file.is_relative_to(self.root):
            raise KeyError(path)
        return file


def lines_of(text: str, line: int | None, limit: int | None) -> str:
    """Return `limit` lines of `text` starting at `line`, which counts from 1. Without both, return all lines."""
    lines = [*StringIO(text, newline="")][max((line or 1) - 1, 0) :]  # `splitlines` would also split at form feeds
    return "".join(lines if limit is None else lines[:limit])


class Editor:
    """The methods that the SDK's connection calls for an agent. Each uses what is offered at that moment."""

    def __init__(
        self,
        *,
        capabilities: ClientCapabilities,
        tools: Iterable[Offered],
        answers: Mapping[str, Answer],
        files: MutableMapping[str, str],
        commands: Script | None,
        permission: Permission,
        previews: Mapping[str, Preview],
    ) -> None:
        self.capabilities = capabilities
        self.tools: list[Any] = wire_of(tools)
        """The catalog in wire form, for sessions without a catalog of their own."""
        self.answers = dict(answers)
        self.previews = dict(previews)
        self.files = files
        self.terminals = FakeTerminals(commands, self.tell)
        self.permission: Permission = permission
        self.permissions_asked: list[PermissionAsked] = []
        self.tools_called: list[ToolCalled] = []
        """The calls of the editor's own tools, in order of arrival."""
        self.happened = asyncio.Event()
        """Set, and replaced by a new event, whenever anything has happened."""
        self._session_tools: dict[str, list[Any]] = {}
        self._updates: defaultdict[str, list[Update]] = defaultdict(list)
        self._cancelled: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def tell(self) -> None:
        """Wake the tasks that wait for an event."""
        self.happened.set()
        self.happened = asyncio.Event()

    @property
    def updates(self) -> Mapping[str, Updates]:
        """The updates of each session so far."""
        return {session_id: Updates(told) for session_id, told in self._updates.items()}

    @property
    def commands(self) -> Script | None:
        """The scripted commands, or None if commands really run."""
        return self.terminals.script

    @commands.setter
    def commands(self, script: Script | None) -> None:
        self.terminals.script = script

    @property
    def open_terminals(self) -> tuple[FakeTerminal, ...]:
        """The terminals that were created and not released."""
        return self.terminals.open

    def offer(self, tools: Iterable[Offered], session_id: str | None = None) -> None:
        """Offer exactly `tools` from now on, in one session or in all, without notifying the agent."""
        if session_id is None:
            self.tools = wire_of(tools)
            self._session_tools.clear()
        else:
            self._session_tools[session_id] = wire_of(tools)

    def cancel_questions(self, session_id: str) -> None:
        """Answer open and future questions of a session with `cancelled`."""
        self._cancelled[session_id].set()

    def questions_open_again(self, session_id: str) -> None:
        """Pass questions of a session to its person again."""
        self._cancelled.pop(session_id, None)

    # The interface that the ACP tool discovery document requires of a client

    async def discover_tools(self, session_id: str, **kwargs: Any) -> dict[str, Any]:
        """Return the catalog of a session in wire form."""
        return {"tools": [*self._session_tools.get(session_id, self.tools)]}

    # Called by the SDK's connection

    async def session_update(self, session_id: str, update: Update, **kwargs: Any) -> None:
        self._updates[session_id].append(update)
        self.tell()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **kwargs: Any
    ) -> RequestPermissionResponse:
        asked = PermissionAsked(session_id, tool_call, tuple(options), kwargs)
        self.permissions_asked.append(asked)
        self.tell()
        answering = asyncio.ensure_future(answered(self.permission, asked))
        ending = asyncio.ensure_future(self._cancelled[session_id].wait())
        try:
            await asyncio.wait((answering, ending), return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else cancelled()
        finally:
            answering.cancel()
            ending.cancel()

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **kwargs: Any
    ) -> ReadTextFileResponse:
        self._check(self._fs("read_text_file"), "fs/read_text_file")
        try:
            return ReadTextFileResponse(content=lines_of(self.files[_absolute(path)], line, limit))
        except KeyError:
            raise RequestError.resource_not_found(path) from None

    async def write_text_file(self, session_id: str, path: str, content: str, **kwargs: Any) -> WriteTextFileResponse:
        self._check(self._fs("write_text_file"), "fs/write_text_file")
        try:
            self.files[_absolute(path)] = content
        except KeyError:
            raise RequestError.invalid_params({"details": f"`{path}` is outside the folder."}) from None
        self.tell()
        return WriteTextFileResponse()

    async def create_terminal(  # noqa: PLR0917  # the SDK's signature
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **kwargs: Any,
    ) -> CreateTerminalResponse:
        self._check(self.capabilities.terminal, "terminal/create")
        variables = {variable.name: variable.value for variable in env or ()}
        commanded = TerminalCommand(session_id, command, tuple(args or ()), variables, cwd, output_byte_limit)
        return CreateTerminalResponse(terminal_id=(await self.terminals.create(commanded)).id)

    async def terminal_output(self, session_id: str, terminal_id: str, **kwargs: Any) -> TerminalOutputResponse:
        self._check(self.capabilities.terminal, "terminal/output")
        return self.terminals.get(session_id, terminal_id).shown

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **kwargs: Any
    ) -> WaitForTerminalExitResponse:
        self._check(self.capabilities.terminal, "terminal/wait_for_exit")
        ended = await self.terminals.get(session_id, terminal_id).wait()
        return WaitForTerminalExitResponse(exit_code=ended.exit_code, signal=ended.signal)

    async def kill_terminal(self, session_id: str, terminal_id: str, **kwargs: Any) -> None:
        self._check(self.capabilities.terminal, "terminal/kill")
        await self.terminals.kill(session_id, terminal_id)

    async def release_terminal(self, session_id: str, terminal_id: str, **kwargs: Any) -> None:
        self._check(self.capabilities.terminal, "terminal/release")
        await self.terminals.release(session_id, terminal_id)

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "toolcrib/discover_tools" if self._discovers:
                return await self.discover_tools(params["sessionId"])
            case "toolcrib/call_tool" if self._discovers:
                return await self._call_tool(params)
            case "toolcrib/preview_tool" if self.previews:
                preview = self.previews.get(params["name"], {"diffs": []})
                return {**(preview if isinstance(preview, Mapping) else preview(params["arguments"]))}
            case _:
                raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ignore notifications of other extensions. They remain in the recorded messages."""

    # Inside

    async def _call_tool(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session_id, name = params["sessionId"], params["name"]
        called = ToolCalled(session_id, name, params.get("arguments") or {}, params.get("toolCallId"))
        if name not in names_of((await self.discover_tools(session_id))["tools"]):
            raise RequestError.invalid_params({"details": f"Tool `{name}` not found."})
        self.tools_called.append(called)
        self.tell()
        return await result_of(self.answers.get(name, dict(called.arguments)), called.arguments)

    @property
    def _discovers(self) -> bool:
        ours: dict[str, Any] = (self.capabilities.field_meta or {}).get("toolcrib") or {}
        return ours.get("discoverTools") is True

    def _fs(self, flag: str) -> bool:
        return bool(self.capabilities.fs and getattr(self.capabilities.fs, flag))

    def _check(self, is_offered: bool | None, method: str) -> None:
        if not is_offered:
            raise RequestError.method_not_found(method)


def _absolute(path: str) -> str:
    if not path.startswith("/") and path[1:3] not in (":\\", ":/"):
        raise RequestError.invalid_params({"details": f"`{path}` must be an absolute path."})
    return path
