"""One conversation with an editor: it answers prompts and keeps the messages of earlier ones."""

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
from toolcrib.agent.conversation_store import StoredConversation
from toolcrib.agent.session import Session
from toolcrib.core.errors import ToolcribError
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.operations.calling.approver import Approver
from toolcrib.sources.acp.port import CALL_ID
from toolcrib.surfaces.acp_agent.content import model_instructions, prompt_content, replayed, title_of
from toolcrib.surfaces.acp_agent.editor_approval import EditorApprovals
from toolcrib.surfaces.acp_agent.editor_updates import PLAN, CallUpdates, PlanStep, ShownCall, plan_update, progressed
from toolcrib.surfaces.acp_agent.session_sources import SessionSources

logger = logging.getLogger(__name__)

READY_S = 10.0
"""How long the first prompt waits for servers that are starting, in seconds. Then it continues without them."""

MAX_REQUESTS = 100
"""The maximum number of model responses for one prompt."""

Mode = Literal["ask", "read_only"]
"""What happens before a tool that may change something runs: the person is asked, or the call is refused."""

INTERNAL_ERROR = -32603
"""Source: JSON-RPC 2.0, section 5.1."""

Keep = Callable[[StoredConversation], Awaitable[None]]
"""Stores a conversation, so that it survives this program."""


@dataclass(frozen=True)
class SessionFolders:
    """Identifies a conversation and its folders."""

    session_id: str
    cwd: Path
    roots: tuple[Path, ...] = ()
    """Folders in addition to `cwd`."""


@dataclass(frozen=True)
class _RunningPrompt:
    """A prompt that is being answered."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when all updates of the prompt were sent and the conversation was stored."""

    @property
    def is_cancelled(self) -> bool:
        return self.scope.cancel_called


class EditorSession:
    """One ACP session. It answers one prompt at a time. After a cancelled prompt, the next one continues from there."""

    def __init__(
        self,
        place: SessionFolders,
        client: Client,
        *,
        crib: Toolcrib,
        session: Session,
        sources: SessionSources,
        model: Model,
        keep: Keep | None = None,
    ) -> None:
        """`session` belongs to `crib`. It has the tools of `sources` in addition to those of the catalog."""
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
        self._showing = CallUpdates(session.view, place.cwd)
        self._permissions = EditorApprovals(client, place.session_id, self._about, self._diffs, self._forbids)
        self._instructions: str | None = None
        self._turn: _RunningPrompt | None = None
        self._is_ready = False
        self._keeping = anyio.Lock()
        """Allows one write at a time, so that the newest state is stored last."""
        self._open_calls: dict[str, None] = {}
        """Ids of the calls that the editor was shown as started and not yet as ended."""
        session.own.follow(sources.registry)

    # -- what an editor asks for --------------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[ContentBlock]) -> PromptResponse:
        """Answer a prompt. The editor receives text, calls and results as they happen.

        Raises:
            RequestError: another prompt is being answered, or the model failed. The messages so far are kept.
        """
        if self._turn is not None:
            raise RequestError.invalid_request({"details": "another prompt is being answered in this session"})
        content = prompt_content(blocks)
        response = PromptResponse(stop_reason="cancelled")
        turn = self._turn = _RunningPrompt()
        try:
            with turn.scope:
                try:
                    response = await self._answered(content)
                except Exception:
                    if not turn.is_cancelled:
                        raise
                    logger.info("a cancelled prompt failed", exc_info=True)
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await self._ended(content)
            finally:  # last: updates of the next prompt must not mix with these
                self._turn = None
                turn.over.set()
        return response

    def cancel(self) -> None:
        """Cancel the prompt that is being answered, if there is one."""
        if self._turn is not None:
            self._turn.scope.cancel()

    async def end(self) -> None:
        """Cancel the prompt that is being answered, and wait until it has ended."""
        if self._turn is not None:
            self._turn.scope.cancel()
            await self._turn.over.wait()

    async def replay(self) -> None:
        """Send the whole conversation to the editor again."""
        self._showing = CallUpdates(self._session.view, self.place.cwd)
        for update in replayed(self._messages, self._showing):
            await self._send(update)

    # -- storage ------------------------------------------------------------------------------------------------------

    def restore(self, kept: StoredConversation) -> None:
        """Continue from a stored conversation.

        Raises:
            ValueError: its messages cannot be read.
        """
        self._messages = ModelMessagesTypeAdapter.validate_json(kept.messages)
        self.title = kept.title
        if kept.mode == "read_only":
            self.mode = "read_only"
        for _ in replayed(self._messages, self._showing):  # assigns the ids by which the editor knows the calls
            pass

    async def store(self) -> None:
        """Store the conversation as it is now. If that fails, the conversation continues without it."""
        if self._keep is None:
            return
        place = self.place
        async with self._keeping:
            try:
                await self._keep(
                    StoredConversation(
                        place.session_id,
                        str(place.cwd),
                        tuple(str(root) for root in place.roots),
                        self.title,
                        self.mode,
                        time.time(),
                        ModelMessagesTypeAdapter.dump_json(self._messages),
                    )
                )
            except (OSError, sqlite3.Error, ValueError) as error:  # ValueError: a lone surrogate cannot be encoded
                logger.warning("the conversation %s was not stored: %s", place.session_id, error)

    # -- one prompt ---------------------------------------------------------------------------------------------------

    async def _answered(self, content: Sequence[UserContent]) -> PromptResponse:
        try:
            await self.sources.list_editor_tools()
            await self._ready()
        except BaseException:  # cancelled before the model was asked: keep the prompt
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
                logger.warning("the model request failed: %s", error)
                raise RequestError(INTERNAL_ERROR, f"The model request failed: {error}") from error
            finally:
                if messages:  # providers refuse a history in which a call has no result
                    self._messages = repair_messages(messages)
        return PromptResponse(stop_reason=reason, usage=_usage(usage))

    async def _ready(self) -> None:
        """At the first prompt, wait briefly for starting sources: a resumed conversation may need their tools."""
        if self._is_ready:
            return
        with anyio.move_on_after(READY_S):
            await self.sources.ready()
            await self._crib.ready()
        self._is_ready = True

    def _agent(self) -> Agent[object, str]:
        if self._instructions is None:
            # Built once per conversation: a changed prefix would invalidate the providers' prompt caches.
            place = self.place
            self._instructions = model_instructions(self._session, place.cwd, place.roots, PLAN)
        tools = CribToolset[object](
            self._session,
            approver=self._approver,
            only_read=lambda: self.mode == "read_only",
            call_timeout_s=math.inf,  # no limit: the person sees a slow call and can cancel it
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
                    await self._send(update_agent_message_text(text))
                case (
                    PartStartEvent(part=ThinkingPart(content=str() as text))
                    | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str() as text))
                ) if text:
                    await self._send(update_agent_thought_text(text))
                case FunctionToolCallEvent(part=part) if part.tool_name != PLAN:
                    begun = self._showing.begun(part)
                    self._open_calls[begun.tool_call_id] = None
                    await self._send(begun)
                case FunctionToolResultEvent(part=part) if part.tool_name != PLAN:
                    ended = self._showing.ended(part)
                    self._open_calls.pop(ended.tool_call_id, None)
                    await self._send(ended)
                case _:
                    continue

    async def _ended(self, content: Sequence[UserContent]) -> None:
        """Finish a prompt, however it ended: store the conversation, and report calls without a result as failed."""
        is_new, self.title = not self.title, self.title or title_of(content)
        await self.store()
        with suppress(ConnectionError):  # a lost connection may be why the prompt ended
            for call_id in [*self._open_calls]:
                del self._open_calls[call_id]
                await self._send(progressed(call_id, status="failed"))
            if is_new and self.title:
                await self._send(SessionInfoUpdate(session_update="session_info_update", title=self.title))

    async def show_terminal(self, call_id: str | None, terminal_id: str) -> None:
        """Tell the editor that the call runs in a terminal, which the editor can show."""
        if call_id in self._open_calls:
            await self._send(self._showing.runs_in(call_id, terminal_id))

    # -- approval -----------------------------------------------------------------------------------------------------

    def _approver(self, ctx: RunContext[object]) -> Approver:
        return self._permissions.of(self._showing.id_of(ctx.tool_call_id or ""))

    def _forbids(self) -> str | None:
        """Return why no call may run now, even if the person allows it, or None if calls may run."""
        if self._turn is None or self._turn.is_cancelled:
            return "the prompt was cancelled"
        return "the session is now in read-only mode" if self.mode == "read_only" else None

    def _about(self, intent: Intent) -> ShownCall:
        return self._showing.about(intent.subject, intent.arguments or {})

    async def _diffs(self, called: ShownCall) -> list[FileEditToolCallContent]:
        if called.tool is None:
            return []
        diffs = await self.sources.diffs(called.tool, called.arguments)
        return [tool_diff_content(diff.path, diff.new_text, diff.old_text) for diff in diffs]

    # -- updates ------------------------------------------------------------------------------------------------------

    async def _update_plan(self, steps: list[PlanStep]) -> str:
        """Show the person your plan: all of its steps, each with its current status.

        Args:
            steps: every step in order, in a few words each.
        """
        await self._send(plan_update(steps))
        return "The plan was shown."

    async def _send(self, update: SessionUpdate) -> None:
        await self._client.session_update(session_id=self.place.session_id, update=update)


@dataclass
class _Numbered(WrapperToolset[object]):
    """Tells sources under which id the editor knows the call that they run."""

    showing: CallUpdates

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        CALL_ID.set(None if ctx.tool_call_id is None else self.showing.id_of(ctx.tool_call_id))
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


def _stop_reason(messages: Sequence[ModelMessage]) -> StopReason:
    """Return ACP's reason why the last answer ended."""
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
