"""The agent's side of ACP: the connection to one editor, and the sessions on it. Sessions share only the catalog."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from acp import PROTOCOL_VERSION, RequestError
from acp.helpers import ContentBlock
from acp.interfaces import Client
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)
from anyio.abc import TaskGroup
from pydantic_ai.models import Model

from toolcrib.agent.conversation_store import PAGE, ConversationStore, StoredConversation
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.acp.editor_source import EDITOR, TIMEOUT_S, EditorSource
from toolcrib.sources.acp.local import LOCAL_FILES, LocalSource
from toolcrib.sources.acp.port import ClientOffer
from toolcrib.sources.base import free_name
from toolcrib.sources.mcp.carrier import Carrier
from toolcrib.surfaces.acp_agent.editor_session import EditorSession, SessionFolders
from toolcrib.surfaces.acp_agent.mcp_servers import SessionRoots, passed_servers
from toolcrib.surfaces.acp_agent.port import EditorPort, offer_of
from toolcrib.surfaces.acp_agent.session_sources import SessionSources
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

McpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

MODES: tuple[SessionMode, ...] = (
    SessionMode(
        id="ask",
        name="Ask",
        description="Asks you before a tool that may change something runs, unless your policy allows it.",
    ),
    SessionMode(id="read_only", name="Read only", description="Does not run tools that may change something."),
)

CLOSED_S = 5.0
"""How long closing a session waits, in seconds: first for its prompt to end, then for its servers and terminals."""

MAX_CURSOR_CHARS = 9


@dataclass
class _Open:
    """An open session."""

    conversation: EditorSession
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when the sources of the session have ended."""
    is_closing: bool = False
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the session is closed and removed from the agent."""


@dataclass(frozen=True)
class Setup:
    """What the agent needs for every connection."""

    crib: Toolcrib
    """The caller enters and exits it."""
    model: Model
    bundle: str | None = None
    """If set, every session sees only the tools of this bundle."""
    store: ConversationStore | None = None
    """Stores conversations. Without it, sessions cannot be listed, loaded or resumed."""
    discovery_s: float = TIMEOUT_S
    """How long an editor may take to list its tools, in seconds."""


class CribAgent:
    """Implements the SDK's `Agent` for one connection. The SDK passes the connection to `on_connect`."""

    def __init__(self, setup: Setup, tasks: TaskGroup, carrier: Carrier) -> None:
        """`tasks` runs the sessions. `carrier` carries MCP messages to servers inside the editor."""
        self.client_info: Implementation | None = None
        """The editor's name and version, as the editor reports them."""
        self.offer = ClientOffer()
        """The capabilities that the editor offered."""
        self._setup = setup
        self._tasks = tasks
        self._carrier = carrier
        self._client: Client | None = None
        self._open: dict[str, _Open] = {}

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    # -- the connection -----------------------------------------------------------------------------------------------

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        self.offer = offer_of(client_capabilities)
        self.client_info = client_info
        who = "an editor" if client_info is None else f"{client_info.name} {client_info.version}"
        logger.info("connected to %s, which offers %s", who, self.offer)
        is_kept = self._setup.store is not None
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="toolcrib", title="Toolcrib", version=VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=is_kept,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True, acp=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities() if is_kept else None,
                    resume=SessionResumeCapabilities() if is_kept else None,
                    close=SessionCloseCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
                field_meta={"toolcrib": {"discoverTools": True}},
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> AuthenticateResponse | None:
        raise RequestError.invalid_params({"details": "this agent has no authentication methods"})

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        conversation = self._begin(uuid.uuid4().hex, cwd, additional_directories, mcp_servers)
        await conversation.store()  # an editor may stop its agent before the first prompt and resume the session later
        return NewSessionResponse(session_id=conversation.place.session_id, modes=_modes(conversation))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse | None:
        conversation = await self._restored(session_id, cwd, additional_directories, mcp_servers)
        await conversation.replay()
        return LoadSessionResponse(modes=_modes(conversation))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        conversation = await self._restored(session_id, cwd, additional_directories, mcp_servers)
        return ResumeSessionResponse(modes=_modes(conversation))

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **kwargs: Any,
    ) -> ForkSessionResponse:
        raise RequestError.method_not_found("session/fork")

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        if self._setup.store is None:
            raise RequestError.method_not_found("session/list")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_CURSOR_CHARS):
            raise RequestError.invalid_params(
                {"details": f"invalid cursor `{cursor}`: use the `nextCursor` of a session list"}
            )
        offset = int(cursor or 0)
        kept = await self._setup.store.list(cwd, offset)
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=each.id,
                    cwd=each.cwd,
                    additional_directories=list(each.roots),
                    title=each.title or None,
                    updated_at=datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
                )
                for each in kept
            ],
            next_cursor=str(offset + PAGE) if len(kept) == PAGE else None,
        )

    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse | None:
        """Cancel the session's prompt, and close its servers and terminals."""
        await self._close(session_id, self._opened(session_id))
        return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse | None:
        conversation = self._opened(session_id).conversation
        match mode_id:
            case "ask" | "read_only":
                conversation.mode = mode_id
                await conversation.store()
            case _:
                there = ", ".join(mode.id for mode in MODES)
                raise RequestError.invalid_params({"details": f"unknown mode `{mode_id}`; the modes are: {there}"})
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse | None:
        raise RequestError.invalid_params({"details": f"unknown option `{config_id}`: this agent has no options"})

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: list[ContentBlock], **kwargs: Any) -> PromptResponse:
        return await self._opened(session_id).conversation.prompt(prompt)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        if (opened := self._open.get(session_id)) is not None:
            opened.conversation.cancel()

    # -- extensions ---------------------------------------------------------------------------------------------------

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Handle `_toolcrib/tools_changed`. The SDK removes the leading underscore. Other notifications are ignored."""
        if method != "toolcrib/tools_changed":
            return
        if (opened := self._open.get(str(params.get("sessionId")))) is not None:
            opened.conversation.sources.tools_changed()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all sessions concurrently."""
        async with anyio.create_task_group() as tasks:
            for session_id, opened in [*self._open.items()]:
                tasks.start_soon(self._close, session_id, opened)

    async def _close(self, session_id: str, opened: _Open) -> None:
        """Close one session, or wait if it is already closing. The conversation is stored before this returns."""
        if opened.is_closing:
            await opened.closed.wait()
            return
        opened.is_closing = True
        try:
            with anyio.move_on_after(CLOSED_S):
                await opened.conversation.end()
            opened.conversation.sources.leave()
            with anyio.move_on_after(CLOSED_S):
                await opened.ended.wait()
        finally:
            del self._open[session_id]
            opened.closed.set()

    # -----------------------------------------------------------------------------------------------------------------

    def _opened(self, session_id: str) -> _Open:
        opened = self._open.get(session_id)
        if opened is None or opened.is_closing:
            raise RequestError.invalid_params({"details": f"session `{session_id}` is not open"})
        return opened

    async def _restored(
        self, session_id: str, cwd: str, more: list[str] | None, mcp_servers: list[McpServer] | None
    ) -> EditorSession:
        """Restore the stored session with this id. If the session is open, it is closed first."""
        kept = await self._stored(session_id)
        while (
            opened := self._open.get(session_id)
        ) is not None:  # loops, because a concurrent request may have reopened it
            await self._close(session_id, opened)
            kept = await self._stored(session_id)
        return self._begin(session_id, cwd, more, mcp_servers, kept)

    async def _stored(self, session_id: str) -> StoredConversation:
        kept = None if self._setup.store is None else await self._setup.store.get(session_id)
        if kept is None:
            raise RequestError.resource_not_found(session_id)
        return kept

    def _begin(
        self,
        session_id: str,
        cwd: str,
        more: Sequence[str] | None,
        mcp_servers: Sequence[McpServer] | None,
        kept: StoredConversation | None = None,
    ) -> EditorSession:
        if self._client is None:
            raise RequestError.internal_error({"details": "the agent is not connected to an editor"})
        place = SessionFolders(session_id, _absolute(cwd), tuple(_absolute(root) for root in more or ()))
        rooted = SessionRoots((place.cwd, *place.roots))
        session = self._setup.crib.session(bundle=self._setup.bundle, client=rooted)
        taken = {*session.view().sources}
        tools = self._tools_of(place, self._client, taken)
        wires = [server.model_dump(mode="json", by_alias=True, exclude_none=True) for server in mcp_servers or ()]
        servers = passed_servers(
            wires, cwd=place.cwd, carrier=self._carrier, taken=taken | {tools.name}, client=lambda: rooted
        )
        conversation = EditorSession(
            place,
            self._client,
            crib=self._setup.crib,
            session=session,
            sources=SessionSources(tools, servers),
            model=self._setup.model,
            keep=None if self._setup.store is None else self._setup.store.keep,
        )
        if kept is not None:
            try:
                conversation.restore(kept)
            except ValueError as error:
                raise RequestError.internal_error({"details": f"the stored session cannot be read: {error}"}) from error
        opened = self._open[session_id] = _Open(conversation)
        self._tasks.start_soon(self._run, opened, name=f"session {session_id}")
        return conversation

    def _tools_of(self, place: SessionFolders, client: Client, taken: Container[str]) -> EditorSource | LocalSource:
        """Return the source of the editor's tools. If the editor offers none, return the agent's own file tools."""
        if not self.offer:
            return LocalSource((place.cwd, *place.roots), name=free_name(LOCAL_FILES, taken))
        info = self.client_info
        return EditorSource(
            EditorPort(client, self.offer),
            place.session_id,
            cwd=str(place.cwd),
            title=None if info is None else info.title or info.name,
            name=free_name(EDITOR, taken),
            timeout_s=self._setup.discovery_s,
            on_terminal=partial(self._show_terminal, place.session_id),
        )

    async def _show_terminal(self, session_id: str, call_id: str | None, terminal_id: str) -> None:
        if (opened := self._open.get(session_id)) is not None:
            await opened.conversation.show_terminal(call_id, terminal_id)

    async def _run(self, opened: _Open) -> None:
        """Run the sources of one session. A failure does not affect the other sessions."""
        try:
            await opened.conversation.sources.run()
        except Exception:
            logger.exception("the sources of a session failed")
        finally:
            opened.ended.set()


def _absolute(path: str) -> Path:
    if not (folder := Path(path)).is_absolute():
        raise RequestError.invalid_params({"details": f"`{path}` must be an absolute path"})
    return folder


def _modes(conversation: EditorSession) -> SessionModeState:
    return SessionModeState(current_mode_id=conversation.mode, available_modes=list(MODES))
