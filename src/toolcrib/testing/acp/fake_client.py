"""A fake editor for tests of agents that speak the Agent Client Protocol, over a real byte stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

import anyio
from acp import PROTOCOL_VERSION, Agent, connect_to_agent, text_block
from acp.schema import (
    AcpMcpServer,
    AudioContentBlock,
    ClientCapabilities,
    CloseSessionResponse,
    EmbeddedResourceContentBlock,
    FileSystemCapabilities,
    HttpMcpServer,
    ImageContentBlock,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    McpServerStdio,
    NewSessionResponse,
    ResourceContentBlock,
    ResumeSessionResponse,
    SetSessionModeResponse,
    SseMcpServer,
    TextContentBlock,
)

from toolcrib.testing.acp.agents import AgentGone, AgentHere, AgentProgram, Serve
from toolcrib.testing.acp.editor import Editor, Folder
from toolcrib.testing.acp.editor_tools import Answer, Offered, Preview, ToolCalled
from toolcrib.testing.acp.faults import Fault
from toolcrib.testing.acp.mcp_server import FakeMcpServers, McpForm, McpServer
from toolcrib.testing.acp.permissions import Permission, PermissionAsked
from toolcrib.testing.acp.recorded_wire import Frame, RecordedWire
from toolcrib.testing.acp.terminals import FakeTerminal, Script
from toolcrib.testing.acp.updates import PromptTurn, Updates

T = TypeVar("T")

Block = TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
Server = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class FakeAcpClient(Editor):
    """An editor that follows a test's instructions, and records the agent's requests and notifications.

    It offers what the flags say: reading and writing `files` (a mapping of absolute path to text, or a real folder),
    terminals (`commands` that are scripted, or None for real ones) and, with `discovery`, its own `tools`. By default
    it offers discovery if it has tools. With `previews`, it returns what its tools would change. It refuses requests of
    the agent for other features with -32601. `faults` are keyed by the method's name on the wire.

    Everything can be changed while it is connected: each parameter is an attribute of the same name, the flags are in
    `capabilities`, and the servers over ACP are in `mcp`. `initialize` and new sessions send the values of that moment.
    Connect it with `connected_to` or `started`, once at a time. Its records are kept across connections.
    """

    def __init__(
        self,
        *,
        read_text_file: bool = False,
        write_text_file: bool = False,
        terminal: bool = False,
        discovery: bool | None = None,
        capabilities: ClientCapabilities | None = None,
        info: Implementation | None = None,
        tools: Iterable[Offered] = (),
        answers: Mapping[str, Answer] = _NOTHING,
        previews: Mapping[str, Preview] = _NOTHING,
        files: Mapping[str, str] | Path = _NOTHING,
        commands: Script | None = None,
        permission: Permission = "allow_once",
        mcp_servers: Mapping[str, McpServer] = _NOTHING,
        mcp_form: McpForm = "connections",
        faults: Mapping[str, Fault] = _NOTHING,
        grace_s: float = 10.0,
    ) -> None:
        """`capabilities`, if given, are sent unchanged and replace the flags.

        `grace_s` is how long an agent may take to end after its stream has ended. Then it is killed or cancelled.
        """
        tools = [*tools]
        if capabilities is None:
            capabilities = _capabilities(
                read_text_file,
                write_text_file,
                terminal,
                discovery=bool(tools) if discovery is None else discovery,
                previews=bool(previews),
            )
        kept: MutableMapping[str, str] = Folder(files) if isinstance(files, Path) else dict(files)
        super().__init__(
            capabilities=capabilities,
            tools=tools,
            answers=answers,
            files=kept,
            commands=commands,
            permission=permission,
            previews=previews,
        )
        self.info = info or Implementation(name="fake-editor", version="1")
        self.faults: dict[str, Fault] = dict(faults)
        self.mcp = FakeMcpServers(mcp_servers, mcp_form, lambda: self._open_stream)
        self.grace_s = grace_s
        self.wire: list[Frame] = []
        """Every message in both directions, in the order in which it was read or written."""
        self.sessions: list[str] = []
        """The agent's ids of the open sessions."""
        self.response: InitializeResponse | None = None
        """The agent's response to `initialize`."""
        self._connection: Agent | None = None
        self._stream: RecordedWire | None = None
        self._running: AgentHere | AgentProgram | None = None
        self._program: AgentProgram | None = None

    # Connecting

    def connected_to(self, serve: Serve) -> AbstractAsyncContextManager[Self, None]:
        """Connect to an agent in this process, over a pair of sockets.

        On leaving, the stream ends, and an agent that does not end by itself is cancelled. Errors of the agent are
        raised here, unless another error is already being raised.
        """
        return self._over(AgentHere(serve, grace_s=self.grace_s))

    def started(
        self, command: Sequence[str], *, env: Mapping[str, str] = _NOTHING, cwd: str | Path | None = None
    ) -> AbstractAsyncContextManager[Self, None]:
        """Start an agent's program and speak over its standard streams. `env` is added to this environment.

        On leaving, its standard input ends, and a program that does not end by itself is killed.
        """
        program = self._program = AgentProgram(command, env=env, cwd=cwd, grace_s=self.grace_s)
        return self._over(program)

    @property
    def is_connected(self) -> bool:
        return self._stream is not None and self._stream.is_open

    @property
    def stderr(self) -> str:
        """The standard error of the program that was started last, so far."""
        return self._program.stderr if self._program else ""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the program that was started last.

        None while it runs. A negative code is the signal that ended it.
        """
        return self._program.exit_code if self._program else None

    # Requests of an editor to an agent

    async def initialize(self, protocol_version: int = PROTOCOL_VERSION) -> InitializeResponse:
        response = self.response = await self._answer_to(
            self._agent.initialize(
                protocol_version=protocol_version, client_capabilities=self.capabilities, client_info=self.info
            )
        )
        return response

    async def new_session(
        self, cwd: str | Path, *, mcp_servers: Iterable[Server] = (), additional_directories: Iterable[str] = ()
    ) -> str:
        """Open a session and return its id. The agent gets `mcp_servers` in addition to the servers over ACP."""
        return (await self.new_session_response(cwd, mcp_servers, additional_directories)).session_id

    async def new_session_response(
        self, cwd: str | Path, mcp_servers: Iterable[Server] = (), additional_directories: Iterable[str] = ()
    ) -> NewSessionResponse:
        """Open a session and return the agent's complete response, including the modes."""
        response = await self._answer_to(
            self._agent.new_session(
                cwd=str(cwd),
                mcp_servers=self._servers(mcp_servers),
                additional_directories=[*additional_directories] or None,
            )
        )
        self.sessions.append(response.session_id)
        return response

    async def load_session(
        self, session_id: str, cwd: str | Path, *, mcp_servers: Iterable[Server] = ()
    ) -> LoadSessionResponse | None:
        response = await self._answer_to(
            self._agent.load_session(cwd=str(cwd), session_id=session_id, mcp_servers=self._servers(mcp_servers))
        )
        self._opened(session_id)
        return response

    async def resume_session(
        self, session_id: str, cwd: str | Path, *, mcp_servers: Iterable[Server] = ()
    ) -> ResumeSessionResponse:
        response = await self._answer_to(
            self._agent.resume_session(session_id=session_id, cwd=str(cwd), mcp_servers=self._servers(mcp_servers))
        )
        self._opened(session_id)
        return response

    async def close_session(self, session_id: str) -> CloseSessionResponse | None:
        response = await self._answer_to(self._agent.close_session(session_id=session_id))
        self.sessions.remove(session_id)
        return response

    async def set_mode(self, session_id: str, mode_id: str) -> SetSessionModeResponse | None:
        return await self._answer_to(self._agent.set_session_mode(session_id=session_id, mode_id=mode_id))

    async def prompt(self, session_id: str, prompt: str | Sequence[Block]) -> PromptTurn:
        """Send a prompt, and wait for the agent's response.

        The result contains the updates of the session since the prompt.

        Raises:
            RequestError: the agent answered with an error.
            AgentGone: the connection was lost.
        """
        before = len(self.updates.get(session_id, ()))
        self.questions_open_again(session_id)
        blocks: list[Block] = [text_block(prompt)] if isinstance(prompt, str) else [*prompt]
        response = await self._answer_to(self._agent.prompt(session_id=session_id, prompt=blocks))
        return PromptTurn(response.stop_reason, Updates(self.updates.get(session_id, ())[before:]), response)

    async def cancel(self, session_id: str, *, answering: bool = True) -> None:
        """Cancel the running prompt of a session.

        Open questions of the session are answered with `cancelled`, as the protocol requires. Without `answering` they
        stay open until the permission's function answers.
        """
        await self._answer_to(self._agent.cancel(session_id=session_id))
        if answering:
            self.cancel_questions(session_id)

    async def change_tools(self, tools: Iterable[Offered], *, session_id: str | None = None) -> None:
        """Offer exactly `tools` from now on, in one session or in all, and notify the agent for each session."""
        self.offer(tools, session_id)
        for told in [session_id] if session_id is not None else self.sessions:
            await self._answer_to(self._agent.ext_notification("toolcrib/tools_changed", {"sessionId": told}))

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request with any method, and wait for its result in wire form.

        Raises:
            RequestError: the agent answered with an error.
            AgentGone: the connection was lost.
        """
        return await self._answer_to(self._open_stream.request(method, params))

    async def send_line(self, line: bytes) -> None:
        """Send a line unchanged, whether or not it is a message."""
        await self._open_stream.send_line(line)

    def drop(self) -> None:
        """Drop the connection immediately and without notice."""
        self._open_stream.drop()

    # What the agent sent

    def received(self, method: str) -> list[Any]:
        """Return the params of each request and notification of the agent with this `method`, in order."""
        return [frame.params for frame in self.wire if frame.sender == "agent" and frame.method == method]

    @property
    def asked(self) -> list[str]:
        """The method of each request of the agent, in order."""
        return [
            frame.message["method"]
            for frame in self.wire
            if frame.sender == "agent" and frame.message and "method" in frame.message and "id" in frame.message
        ]

    async def until(self, met: Callable[[], T | None]) -> T:
        """Wait until `met()` returns a true value, and return that value. It is called after each event.

        Raises:
            AgentGone: the connection was lost first.
        """
        while not (found := met()):
            happened = self.happened
            if not self.is_connected:
                raise await self._gone()
            await happened.wait()
        return found

    # Inside

    def _over(self, agent: AgentHere | AgentProgram) -> AbstractAsyncContextManager[Self, None]:
        # Type checkers assume that an `asynccontextmanager` may swallow errors. This one does not. With this return
        # type, they know that variables of its body are assigned after it.
        return cast("AbstractAsyncContextManager[Self, None]", self._connected(agent))

    @asynccontextmanager
    async def _connected(self, agent: AgentHere | AgentProgram) -> AsyncGenerator[Self]:
        if self._running is not None:
            raise RuntimeError("This client is already connected.")
        async with agent:
            reader, writer = agent.streams
            stream = RecordedWire(
                reader, writer, frames=self.wire, faults=self.faults, takes=self.mcp.takes, changed=self.tell
            )
            connection: Any = connect_to_agent(cast(Any, self), stream)
            self._running, self._stream, self._connection = agent, stream, connection
            try:
                yield self
            finally:
                with anyio.CancelScope(shield=True):
                    await self.mcp.close()
                    await connection.close()
                    await self.terminals.end()
                self._running = self._stream = self._connection = None
                self.sessions.clear()

    @property
    def _agent(self) -> Agent:
        if self._connection is None:
            raise RuntimeError("This client is not connected.")
        return self._connection

    @property
    def _open_stream(self) -> RecordedWire:
        if self._stream is None:
            raise RuntimeError("This client is not connected.")
        return self._stream

    async def _answer_to(self, request: Awaitable[T]) -> T:
        try:
            return await request
        except ConnectionError:
            gone = await self._gone()
        raise gone

    async def _gone(self) -> AgentGone:
        if self._running is None or self._open_stream.was_dropped:
            return AgentGone("The editor dropped the connection.")
        return await self._running.gone()

    def _servers(self, servers: Iterable[Server]) -> list[Server]:
        return [*servers, *self.mcp.entries()]

    def _opened(self, session_id: str) -> None:
        if session_id not in self.sessions:
            self.sessions.append(session_id)


def _capabilities(read: bool, write: bool, terminal: bool, *, discovery: bool, previews: bool) -> ClientCapabilities:
    ours = {"discoverTools": discovery, "previewTool": previews}
    return ClientCapabilities(
        fs=FileSystemCapabilities(read_text_file=read, write_text_file=write),
        terminal=terminal,
        field_meta={"toolcrib": {name: True for name, is_offered in ours.items() if is_offered}} if discovery else None,
    )


__all__ = [
    "AgentGone",
    "Answer",
    "FakeAcpClient",
    "FakeTerminal",
    "Permission",
    "PermissionAsked",
    "PromptTurn",
    "ToolCalled",
    "Updates",
]
