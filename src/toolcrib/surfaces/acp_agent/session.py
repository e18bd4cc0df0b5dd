"""One conversation with an editor: a prompt until its answer, and what was said and done before."""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
from acp import RequestError
from acp.helpers import (
    ContentBlock,
    SessionUpdate,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
)
from acp.interfaces import Client
from acp.schema import (
    FileEditToolCallContent,
    PromptResponse,
    SessionInfoUpdate,
    StopReason,
    Usage,
)
from pydantic_ai import Agent, RunContext, capture_run_messages
from pydantic_ai import Tool as AgentTool
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    OutputTokenLimitExceeded,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserContent,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import RunUsage, UsageLimits

from toolcrib.adapters.pydantic_ai import CribToolset
from toolcrib.agent.conversation_store import KeptConversation
from toolcrib.agent.session import Session
from toolcrib.core.errors import ToolcribError
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.calling.approving import Approver
from toolcrib.operations.calling.questions import Intent
from toolcrib.sources.acp.port import CALL_ID
from toolcrib.surfaces.acp_agent import plans
from toolcrib.surfaces.acp_agent.content import said, title_of, told_again
from toolcrib.surfaces.acp_agent.instructions import told_to_model
from toolcrib.surfaces.acp_agent.permissions import Permissions
from toolcrib.surfaces.acp_agent.plans import PLAN, PlanStep
from toolcrib.surfaces.acp_agent.showing import Called, Showing, progressed
from toolcrib.surfaces.acp_agent.sources import SessionSources

logger = logging.getLogger(__name__)

READY_S = 10.0
"""How long a first prompt waits for servers that are starting, in seconds; it goes on with what there is."""

MAX_REQUESTS = 100
"""Answers of a model within one prompt."""

Mode = Literal["ask", "read_only"]
"""How freely tools run: whatever may change something is asked about, or refused."""

INTERNAL_ERROR = -32603
"""Source: JSON-RPC 2.0, section 5.1."""

Keep = Callable[[KeptConversation], Awaitable[None]]
"""Has a conversation survive this program."""


@dataclass(frozen=True)
class Place:
    """Where a conversation is held."""

    session_id: str
    cwd: Path
    roots: tuple[Path, ...] = ()
    """Folders besides `cwd` that belong to it."""


@dataclass(frozen=True)
class _Turn:
    """A prompt that is being answered."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set once everything of it has been told and kept."""

    @property
    def is_cancelled(self) -> bool:
        return self.scope.cancel_called


class Conversation:
    """A session of the protocol. One prompt at a time; it can be cancelled, and the next goes on from there."""

    def __init__(
        self,
        place: Place,
        client: Client,
        *,
        crib: Toolcrib,
        session: Session,
        sources: SessionSources,
        model: Model,
        keep: Keep | None = None,
    ) -> None:
        """`session` is one of `crib`, and has the tools of `sources` besides those of the catalog."""
        self.place = place
        self.mode: Mode = "ask"
        self.title = ""
        self.sources = sources
        self._client = client
        self._crib = crib
        self._session = session
        self._model = model
        self._keep = keep
        self._messages: list[ModelMessage] = []
        self._showing = Showing(session.view, place.cwd)
        self._permissions = Permissions(client, place.session_id, self._about, self._diffs, self._forbids)
        self._instructions: str | None = None
        self._turn: _Turn | None = None
        self._is_ready = False
        self._keeping = anyio.Lock()
        """One at a time: what is kept last has to be the latest."""
        self._open_calls: dict[str, None] = {}
        """Ids of those that an editor was shown and not told the end of."""
        session.own.follow(sources.registry)

    # -- what an editor asks for --------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[ContentBlock]) -> PromptResponse:
        """Answer a prompt: everything that is said and done on the way is told as it happens.

        Raises:
            RequestError: another prompt is being answered, or the model failed; what was said stays.
        """
        if self._turn is not None:
            raise RequestError.invalid_request({"details": "another prompt is being answered in this session"})
        content = said(blocks)
        response = PromptResponse(stop_reason="cancelled")
        turn = self._turn = _Turn()
        try:
            with turn.scope:
                try:
                    response = await self._answered(content)
                except Exception:
                    if not turn.is_cancelled:
                        raise
                    logger.info("what was given up failed", exc_info=True)
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._ended(content)
            finally:  # only now: what the next prompt says and opens must not get in between
                self._turn = None
                turn.over.set()
        return response

    def cancel(self) -> None:
        """Give up the prompt that is being answered; nothing happens where there is none."""
        if self._turn is not None:
            self._turn.scope.cancel()

    async def end(self) -> None:
        """Give up the prompt that is being answered, and wait until it has ended."""
        if self._turn is not None:
            self._turn.scope.cancel()
            await self._turn.over.wait()

    async def tell_again(self) -> None:
        """Tell the editor of everything that was said and done."""
        self._showing = Showing(self._session.view, self.place.cwd)
        for update in told_again(self._messages, self._showing):
            await self._tell(update)

    # -- what is kept of it -------------------------------------------------------------------------------------------

    def restore(self, kept: KeptConversation) -> None:
        """Go on from what was kept.

        Raises:
            ValueError: its messages cannot be read.
        """
        self._messages = ModelMessagesTypeAdapter.validate_json(kept.messages)
        self.title = kept.title
        if kept.mode == "read_only":
            self.mode = "read_only"
        for _ in told_again(self._messages, self._showing):  # by which an editor that was told knows the calls
            pass

    async def be_kept(self) -> None:
        """Have it survive this program as it is by now; where that fails, it goes on without."""
        if self._keep is None:
            return
        place = self.place
        async with self._keeping:
            try:
                await self._keep(
                    KeptConversation(
                        place.session_id,
                        str(place.cwd),
                        tuple(str(root) for root in place.roots),
                        self.title,
                        self.mode,
                        time.time(),
                        ModelMessagesTypeAdapter.dump_json(self._messages),
                    )
                )
            except (OSError, sqlite3.Error, ValueError) as error:  # a text with half a surrogate pair cannot be written
                logger.warning("the conversation %s is not kept: %s", place.session_id, error)

    # -- one prompt ---------------------------------------------------------------------------------------------------

    async def _answered(self, content: Sequence[UserContent]) -> PromptResponse:
        try:
            await self.sources.look()
            await self._ready()
        except BaseException:  # given up before the model was asked: it was said all the same
            self._messages = [*self._messages, ModelRequest([UserPromptPart(content)])]
            raise
        usage = RunUsage()
        with capture_run_messages() as messages:
            try:
                result = await self._agent().run(
                    content,
                    message_history=self._messages,
                    usage=usage,
                    usage_limits=UsageLimits(request_limit=MAX_REQUESTS),
                    event_stream_handler=self._show,
                )
                reason = _stop_reason(result.all_messages())
            except UsageLimitExceeded:
                reason = "max_turn_requests"
            except ContentFilterError:
                reason = "refusal"
            except OutputTokenLimitExceeded:
                reason = "max_tokens"
            except (AgentRunError, UserError, ToolcribError) as error:
                logger.warning("the model failed: %s", error)
                raise RequestError(INTERNAL_ERROR, f"The model failed: {error}") from error
            finally:
                if messages:  # calls that were given up have to be answered, or no provider takes another prompt
                    self._messages = repair_messages(messages)
        return PromptResponse(stop_reason=reason, usage=_usage(usage))

    async def _ready(self) -> None:
        """Wait a little for what is starting, at the first prompt: what was opened before has to be there again."""
        if self._is_ready:
            return
        with anyio.move_on_after(READY_S):
            await self.sources.ready()
            await self._crib.ready()
        self._is_ready = True

    def _agent(self) -> Agent[object, str]:
        if self._instructions is None:
            # Once for the whole conversation: what stands before it is what providers keep in their caches.
            place = self.place
            self._instructions = told_to_model(self._session, place.cwd, place.roots, PLAN)
        tools = CribToolset[object](
            self._session,
            approver=self._approver,
            only_read=lambda: self.mode == "read_only",
            call_timeout_s=math.inf,  # the person sees what takes long, and can cancel it
            id="toolcrib",
        )
        plan = FunctionToolset[object]([AgentTool(self._update_plan, name=PLAN)], id="plan")
        return Agent(self._model, instructions=self._instructions, toolsets=[_Numbered(tools, self._showing), plan])

    async def _show(self, _: RunContext[object], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ) if text:
                    await self._tell(update_agent_message_text(text))
                case (
                    PartStartEvent(part=ThinkingPart(content=str() as text))
                    | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str() as text))
                ) if text:
                    await self._tell(update_agent_thought_text(text))
                case FunctionToolCallEvent(part=part) if part.tool_name != PLAN:
                    begun = self._showing.begun(part)
                    self._open_calls[begun.tool_call_id] = None
                    await self._tell(begun)
                case FunctionToolResultEvent(part=part) if part.tool_name != PLAN:
                    ended = self._showing.ended(part)
                    self._open_calls.pop(ended.tool_call_id, None)
                    await self._tell(ended)
                case _:
                    continue

    async def _ended(self, content: Sequence[UserContent]) -> None:
        """However it ended: what was said is kept, and calls that were given up have ended, too."""
        is_new, self.title = not self.title, self.title or title_of(content)
        await self.be_kept()
        with suppress(ConnectionError):  # it may be why the prompt ends
            for call_id in [*self._open_calls]:
                del self._open_calls[call_id]
                await self._tell(progressed(call_id, status="failed"))
            if is_new and self.title:
                await self._tell(SessionInfoUpdate(session_update="session_info_update", title=self.title))

    async def show_terminal(self, call_id: str | None, terminal_id: str) -> None:
        """A call runs in a terminal, which the editor can show from now on."""
        if call_id in self._open_calls:
            await self._tell(self._showing.runs_in(call_id, terminal_id))

    # -- asking -------------------------------------------------------------------------------------------------------

    def _approver(self, ctx: RunContext[object]) -> Approver:
        return self._permissions.of(self._showing.id_of(ctx.tool_call_id or ""))

    def _forbids(self) -> str | None:
        """Why nothing that is asked about may run any more, whatever the person answers; None where it may."""
        if self._turn is None or self._turn.is_cancelled:
            return "the prompt was cancelled"
        return "by now nothing may run that is not known to only read" if self.mode == "read_only" else None

    def _about(self, intent: Intent) -> Called:
        return self._showing.about(intent.subject, intent.arguments or {})

    async def _diffs(self, called: Called) -> list[FileEditToolCallContent]:
        if called.tool is None:
            return []
        diffs = await self.sources.diffs(called.tool, called.arguments)
        return [tool_diff_content(diff.path, diff.new_text, diff.old_text) for diff in diffs]

    # -- telling ------------------------------------------------------------------------------------------------------

    async def _update_plan(self, steps: list[PlanStep]) -> str:
        """Tell the person of your plan: all of its steps, each time with what has become of them.

        Args:
            steps: every step in order, in a few words each.
        """
        await self._tell(plans.shown(steps))
        return "The person sees it."

    async def _tell(self, update: SessionUpdate) -> None:
        await self._client.session_update(session_id=self.place.session_id, update=update)


@dataclass
class _Numbered(WrapperToolset[object]):
    """Sources learn under which id the editor knows the call that they run."""

    showing: Showing

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        CALL_ID.set(None if ctx.tool_call_id is None else self.showing.id_of(ctx.tool_call_id))
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


def _stop_reason(messages: Sequence[ModelMessage]) -> StopReason:
    """Why the last answer ended, in the protocol's words."""
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    match last:
        case ModelResponse(finish_reason="length"):
            return "max_tokens"
        case ModelResponse(finish_reason="content_filter"):
            return "refusal"
        case _:
            return "end_turn"


def _usage(usage: RunUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_read_tokens=usage.cache_read_tokens or None,
        cached_write_tokens=usage.cache_write_tokens or None,
    )
