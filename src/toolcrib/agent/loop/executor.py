"""The calls of one turn: each is run once, side by side, and has exactly one answer, however it ends."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from toolcrib.agent.answering import arguments_of, json_text, result_text, run_call, sendable
from toolcrib.agent.conversation.events import CallAnswered, ConversationEvent, Offer, RestartRequired, ToolsOffered
from toolcrib.agent.conversation.messages import ToolCall, ToolMessage
from toolcrib.agent.conversation.state import ConversationState
from toolcrib.agent.errors import error_within
from toolcrib.agent.loop.config import InnerLoopConfig
from toolcrib.agent.loop.provider import VisibilityExpansionRequired
from toolcrib.agent.loop.toolbox import NOTHING_BROUGHT, Brought, Toolbox, usable, usable_from_now
from toolcrib.agent.sections import (
    READ_SECTION,
    CatalogReader,
    Prompt,
    SectionPath,
    SectionState,
    SectionVisibility,
    SetVisibilityOverride,
    ToolsInjected,
    dotted,
)
from toolcrib.agent.session import Session
from toolcrib.agent.telemetry import count_injected
from toolcrib.core.errors import InvalidArguments, NotExpanded, SourceUnavailable, ToolcribError, ToolNotFound
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import nearest
from toolcrib.operations.calling.under_way import NOT_KNOWN
from toolcrib.operations.messages import Answer, DetailLevel, SearchPage, expanded_by
from toolcrib.operations.steps import answer_within

logger = logging.getLogger(__name__)

_ECHO_CHARS = 80

_OPENING = (READ_SECTION.name, "expand_tool")
"""What brings in tools."""


@dataclass(frozen=True, slots=True)
class ToolExecutionOutcome:
    """What came of one call. Source: dynamic tool registration, "ToolExecutionOutcome"."""

    message: ToolMessage
    expanded_tools: Brought = NOTHING_BROUGHT
    """Those that it opened, on their way to the model."""
    opened: SectionPath | None = None
    """The section that was read, where that was closed."""
    requires_restart: bool = False
    """Whether it opens with the next beginning of the evaluation."""

    @property
    def tool_call_id(self) -> str:
        return self.message.call_id

    @property
    def success(self) -> bool:
        return not self.message.is_error


@dataclass(frozen=True)
class ToolExecutor:
    """Runs what a model calls, each on behalf of the session, through the one calling path."""

    session: Session
    prompt: Prompt[Any]
    toolbox: Toolbox
    catalog: CatalogReader
    config: InnerLoopConfig
    is_dynamic: bool
    """Whether tools can be brought in without beginning the evaluation anew."""
    deadline: float | None = None
    """Of the evaluation, on the clock of `time.monotonic`."""
    provider: str = ""
    """The adapter's name, for what is counted."""

    async def execute_all(self) -> None:
        """Answer every open call of the last turn. Those that open something go first, in order; the others run side by
        side. What one call opens, another one of the same turn cannot use yet.

        When it is cancelled, calls that are under way are answered by that, and their own answers dropped.

        Raises:
            VisibilityExpansionRequired: every call is answered, and a section with tools is to open by a restart.
        """
        offered = usable(self._state)
        calls = self._state.open_calls
        try:
            for call in calls:
                if call.name in _OPENING:
                    self._finish(await self._execute(call, offered))
            await self._run_all([call for call in calls if call.name not in _OPENING], offered)
        finally:
            for call in self._state.open_calls:
                cancelled = SourceUnavailable(f"`{call.name[:_ECHO_CHARS]}` was cancelled. {NOT_KNOWN}")
                self._finish(self._failed(call, cancelled))
        if pending := self._state.pending:
            raise VisibilityExpansionRequired(
                f"The evaluation begins anew with {', '.join(map(dotted, pending))} open.",
                requested_overrides=dict.fromkeys(pending, SectionVisibility.FULL),
                reason="the adapter cannot bring in tools in the middle of a conversation",
            )

    @property
    def _state(self) -> ConversationState:
        return self.session.conversation.state

    async def _run_all(self, calls: list[ToolCall], offered: Mapping[str, Offer]) -> None:
        places = anyio.CapacityLimiter(self.config.parallel_calls)

        async def run(call: ToolCall) -> None:
            async with places:
                self._finish(await self._execute(call, offered))

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run, call)

    async def _execute(self, call: ToolCall, offered: Mapping[str, Offer]) -> ToolExecutionOutcome:
        async def run() -> ToolExecutionOutcome:
            offer = offered.get(call.name)
            if offer is None:
                raise self._not_offered(call, offered)
            arguments = arguments_of(call)
            if offer.handle is not None:
                return self._answered(call, await self.session.call_tool(offer.handle, arguments))
            if offer.name == READ_SECTION.name:
                return self._read(call, arguments)
            answer = await self.session.perform(offer.name, arguments)
            return self._answered(call, answer_within(answer, usable_from_now(self._state)))

        try:
            return await run_call(call, run, timeout_s=self._timeout_s())
        except ToolcribError as error:
            return self._failed(call, error)

    def _timeout_s(self) -> float:
        left_s = self.config.call_timeout_s
        return left_s if self.deadline is None else max(0.0, min(left_s, self.deadline - time.monotonic()))

    def _answered(self, call: ToolCall, answer: Answer | ToolResult) -> ToolExecutionOutcome:
        if isinstance(answer, ToolResult):
            return ToolExecutionOutcome(self._message(call, result_text(answer), is_error=answer.is_error))
        brought = self.toolbox.expanded(expanded_by(answer), self._state)
        wire = answer.to_wire()
        if brought.names:  # their definitions reach the model another way
            if isinstance(answer, SearchPage):
                rest = replace(answer, detail_level=DetailLevel.SUMMARY).to_wire()
            else:
                rest = {key: wire[key] for key in ("errors",) if key in wire}
            wire = {"callable_by_now": [*brought.names], **rest}
        return ToolExecutionOutcome(self._message(call, json_text(wire), revealed=brought), brought)

    def _read(self, call: ToolCall, given: Mapping[str, Any]) -> ToolExecutionOutcome:
        """What a section holds; it is open from here on."""
        if problems := READ_SECTION.arguments.violations(given):
            raise InvalidArguments(f"`{READ_SECTION.name}`: {problems[0].message}.")
        read = self.prompt.read_section(given["section_key"], self._sections, self.catalog)
        if read.value is None:
            return ToolExecutionOutcome(self._message(call, read.message, is_error=True))
        if read.value.expanded_tools and not self.is_dynamic:
            told = f'Section "{dotted(read.path)}" is open: it stands in the prompt, with what belongs to it.'
            return ToolExecutionOutcome(self._message(call, told), opened=read.path, requires_restart=True)
        brought = self.toolbox.brought(read.value.expanded_tools, self._state)
        content = "\n\n".join(part for part in (read.message, read.value.content, brought.text) if part)
        message = self._message(call, content, revealed=brought)
        return ToolExecutionOutcome(message, brought, read.path if read.opens else None)

    @property
    def _sections(self) -> SectionState:
        """As they are, and will be after the restart to come."""
        state = self._state.sections
        for path in self._state.pending:
            state = state.after(SetVisibilityOverride(path, SectionVisibility.FULL))
        return state

    def _not_offered(self, call: ToolCall, offered: Mapping[str, Offer]) -> ToolcribError:
        name = call.name[:_ECHO_CHARS]
        if call.name in usable_from_now(self._state):
            return NotExpanded(f"`{name}` was not offered yet when it was called. It is now: call it again.")
        if self._state.pending:
            return NotExpanded(f"`{name}` was not offered when it was called. If it is now, call it again.")
        near = nearest(call.name, offered)
        hints = [f"Did you mean `{near}`?"] if near else [f"There are: {', '.join(offered)}."] if offered else []
        return ToolNotFound(f"There is no tool {json.dumps(name)}.", hints=hints)

    def _message(
        self, call: ToolCall, content: str, *, is_error: bool = False, revealed: Brought = NOTHING_BROUGHT
    ) -> ToolMessage:
        told = sendable(content, self.config.max_result_chars)
        return ToolMessage(call.id, call.name, told, is_error, revealed.revealed)

    def _failed(self, call: ToolCall, error: ToolcribError) -> ToolExecutionOutcome:
        told = error_within(error, usable_from_now(self._state))
        return ToolExecutionOutcome(self._message(call, json_text(told), is_error=True))

    def _finish(self, outcome: ToolExecutionOutcome) -> None:
        """Have the model have the answer and what the call opened, in one: a program that is killed must not part them.

        Source: dynamic tool registration, "InnerLoop Tool Registry Update".
        """
        brought, path = outcome.expanded_tools, outcome.opened
        events: list[ConversationEvent] = [CallAnswered(outcome.message), *brought.collided]
        if brought.offers:
            events.append(ToolsOffered(brought.offers))
        if path is not None:
            is_later = outcome.requires_restart
            events.append(RestartRequired(path) if is_later else SetVisibilityOverride(path, SectionVisibility.FULL))
        if brought.names:
            events.append(ToolsInjected(brought.names, dotted(path or ()), time.time()))
        self.session.dispatch(*events)
        if brought.names or brought.text:
            self._tell(brought, dotted(path or ()))

    def _tell(self, brought: Brought, key: str) -> None:
        delivery = self.toolbox.delivery.value
        count_injected(len(brought.names), section=key, delivery=delivery, provider=self.provider)
        if brought.names:
            told = {
                "section": key,
                "tool_names": brought.names,
                "tool_count": len(brought.names),
                "delivery": delivery,
                "provider": self.provider,
            }
            names = ", ".join(brought.names)
            logger.info("injected %d tools of section `%s`: %s", len(brought.names), key, names, extra=told)
