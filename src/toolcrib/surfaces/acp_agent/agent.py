"""The agent's side of the protocol: who the editor is, and its sessions, which share nothing but the catalog."""

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

from toolcrib.agent.conversation_store import PAGE, ConversationStore, KeptConversation
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.acp.local import LOCAL_FILES, LocalSource
from toolcrib.sources.acp.port import ClientOffer
from toolcrib.sources.acp.source import EDITOR, TIMEOUT_S, EditorSource
from toolcrib.sources.base import free_name
from toolcrib.sources.mcp.carrier import Carrier
from toolcrib.surfaces.acp_agent.mcp_servers import passed_servers
from toolcrib.surfaces.acp_agent.port import EditorPort, offer_of
from toolcrib.surfaces.acp_agent.roots import Rooted
from toolcrib.surfaces.acp_agent.session import Conversation, Place
from toolcrib.surfaces.acp_agent.sources import SessionSources
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

McpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio

MODES: tuple[SessionMode, ...] = (
    SessionMode(
        id="ask",
        name="Ask",
        description="Whatever may change something is asked about first, unless your policy allows it.",
    ),
    SessionMode(id="read_only", name="Only read", description="Nothing runs that may change something."),
)

CLOSED_S = 5.0
"""How long closing a session waits for its prompt to end, and then for its servers and terminals, in seconds."""

MAX_CURSOR_CHARS = 9


@dataclass
class _Open:
    """A session that is open."""

    conversation: Conversation
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set once its sources have ended."""
    is_closing: bool = False
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set once it is not waited for any longer."""


@dataclass(frozen=True)
class Setup:
    """What the agent of every connection is made of."""

    crib: Toolcrib
    """Entered already."""
    model: Model
    bundle: str | None = None
    """Of the catalog, each session has this alone."""
    store: ConversationStore | None = None
    """Where conversations are kept; without it, none can be loaded."""
    discovery_s: float = TIMEOUT_S
    """How long an editor may take to list its tools, in seconds."""


class CribAgent:
    """Implements the SDK's `Agent` for one connection, which it is told of by `on_connect`."""

    def __init__(self, setup: Setup, tasks: TaskGroup, carrier: Carrier) -> None:
        """Sessions run in `tasks`. `carrier` takes MCP's messages to servers in the editor itself."""
        self.client_info: Implementation | None = None
        """Which editor it is, as it says itself."""
        self.offer = ClientOffer()
        """What it said that it can do."""
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
        raise RequestError.invalid_params({"details": "this agent has no methods of authentication"})

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        conversation = self._begin(uuid.uuid4().hex, cwd, additional_directories, mcp_servers)
        await conversation.be_kept()  # an editor may end its agent before the first prompt, and resume the session then
        return NewSessionResponse(session_id=conversation.place.session_id, modes=_modes(conversation))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[McpServer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse | None:
        conversation = await self._go_on(session_id, cwd, additional_directories, mcp_servers)
        await conversation.tell_again()
        return LoadSessionResponse(modes=_modes(conversation))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[McpServer] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        conversation = await self._go_on(session_id, cwd, additional_directories, mcp_servers)
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
            raise RequestError.invalid_params({"details": f"`{cursor}` is no cursor of this list"})
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
        """Give up what runs in it, and let its servers and terminals end."""
        await self._close(session_id, self._opened(session_id))
        return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse | None:
        conversation = self._opened(session_id).conversation
        match mode_id:
            case "ask" | "read_only":
                conversation.mode = mode_id
                await conversation.be_kept()
            case _:
                there = ", ".join(mode.id for mode in MODES)
                raise RequestError.invalid_params({"details": f"there is no mode `{mode_id}`; there are: {there}"})
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse | None:
        raise RequestError.invalid_params({"details": f"there is no option `{config_id}`"})

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
        """`_toolcrib/tools_changed`; the SDK takes the underscore away. Others are passed over."""
        if method != "toolcrib/tools_changed":
            return
        if (opened := self._open.get(str(params.get("sessionId")))) is not None:
            opened.conversation.sources.tools_changed()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every session, side by side."""
        async with anyio.create_task_group() as tasks:
            for session_id, opened in [*self._open.items()]:
                tasks.start_soon(self._close, session_id, opened)

    async def _close(self, session_id: str, opened: _Open) -> None:
        """Or wait until it is closed, where that has begun. What it said last is kept by then."""
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
            raise RequestError.invalid_params({"details": f"there is no open session `{session_id}`"})
        return opened

    async def _go_on(
        self, session_id: str, cwd: str, more: list[str] | None, mcp_servers: list[McpServer] | None
    ) -> Conversation:
        """The session that was kept under this id, in place of one that is open."""
        kept = await self._kept(session_id)
        while (opened := self._open.get(session_id)) is not None:  # once more, where another request was quicker
            await self._close(session_id, opened)
            kept = await self._kept(session_id)
        return self._begin(session_id, cwd, more, mcp_servers, kept)

    async def _kept(self, session_id: str) -> KeptConversation:
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
        kept: KeptConversation | None = None,
    ) -> Conversation:
        if self._client is None:
            raise RequestError.internal_error({"details": "there is no connection"})
        place = Place(session_id, _absolute(cwd), tuple(_absolute(root) for root in more or ()))
        rooted = Rooted((place.cwd, *place.roots))
        session = self._setup.crib.session(bundle=self._setup.bundle, client=rooted)
        taken = {*session.view().sources}
        tools = self._tools_of(place, self._client, taken)
        wires = [server.model_dump(mode="json", by_alias=True, exclude_none=True) for server in mcp_servers or ()]
        servers = passed_servers(
            wires, cwd=place.cwd, carrier=self._carrier, taken=taken | {tools.name}, client=lambda: rooted
        )
        conversation = Conversation(
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
                raise RequestError.internal_error({"details": f"the session cannot be read: {error}"}) from error
        opened = self._open[session_id] = _Open(conversation)
        self._tasks.start_soon(self._run, opened, name=f"session {session_id}")
        return conversation

    def _tools_of(self, place: Place, client: Client, taken: Container[str]) -> EditorSource | LocalSource:
        """Those of the editor; where it offers none, the agent's own, which never need it."""
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
        """Have a session's sources run; whatever becomes of them, the other sessions go on."""
        try:
            await opened.conversation.sources.run()
        except Exception:
            logger.exception("the sources of a session broke off")
        finally:
            opened.ended.set()


def _absolute(path: str) -> Path:
    if not (folder := Path(path)).is_absolute():
        raise RequestError.invalid_params({"details": f"`{path}` is no absolute path"})
    return folder


def _modes(conversation: Conversation) -> SessionModeState:
    return SessionModeState(current_mode_id=conversation.mode, available_modes=list(MODES))
