"""Runs the calls of one turn. Each call runs once, in parallel with others, and has exactly one answer."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio

from toolcrib.agent.answering import arguments_of, error_within, json_text, result_text, run_call, sendable
from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import CallAnswered, ConversationEvent, Offer, RestartRequired, ToolsOffered
from toolcrib.agent.conversation.messages import ToolCall, ToolMessage
from toolcrib.agent.loop.provider import InnerLoopConfig, VisibilityExpansionRequired
from toolcrib.agent.loop.toolbox import NO_DELIVERY, Toolbox, ToolDelivery, usable, usable_from_now
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
from toolcrib.operations.calling.source_requests import NOT_KNOWN
from toolcrib.operations.next_actions import answer_within
from toolcrib.operations.protocol_messages import Answer, DetailLevel, SearchPage, expanded_by

logger = logging.getLogger(__name__)

_ECHO_CHARS = 80

_OPENING = (READ_SECTION.name, "expand_tool")
"""The operations that deliver tools."""


@dataclass(frozen=True, slots=True)
class _ToolExecutionOutcome:
    """The result of one call. Source: dynamic tool registration, "ToolExecutionOutcome"."""

    message: ToolMessage
    expanded_tools: ToolDelivery = NO_DELIVERY
    """The tools that the call opened, on their way to the model."""
    opened: SectionPath | None = None
    """The section that was read, if it was closed before."""
    requires_restart: bool = False
    """Whether the section opens when the evaluation restarts."""

    @property
    def tool_call_id(self) -> str:
        return self.message.call_id

    @property
    def success(self) -> bool:
        return not self.message.is_error


@dataclass(frozen=True)
class ToolExecutor:
    """Runs the calls of a model on behalf of the session."""

    session: Session
    prompt: Prompt[Any]
    toolbox: Toolbox
    catalog: CatalogReader
    config: InnerLoopConfig
    is_dynamic: bool
    """Whether tools can be delivered without restarting the evaluation."""
    deadline: float | None = None
    """The end of the evaluation's time, on the clock of `time.monotonic`."""
    provider: str = ""
    """The adapter's name, for telemetry."""

    async def execute_all(self) -> None:
        """Answer every open call of the last turn.

        Calls that open something run first, in order. The others run in parallel. Other calls of the same turn cannot
        use what a call opens. On cancellation, running calls get an answer that says so, and their own answers are
        dropped.

        Raises:
            VisibilityExpansionRequired: every call is answered, and a section with tools must be opened by a restart.
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
                f"The evaluation restarts with these sections open: {', '.join(map(dotted, pending))}.",
                requested_overrides=dict.fromkeys(pending, SectionVisibility.FULL),
                reason="the adapter cannot deliver tools in the middle of a conversation",
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

    async def _execute(self, call: ToolCall, offered: Mapping[str, Offer]) -> _ToolExecutionOutcome:
        async def run() -> _ToolExecutionOutcome:
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

    def _answered(self, call: ToolCall, answer: Answer | ToolResult) -> _ToolExecutionOutcome:
        if isinstance(answer, ToolResult):
            return _ToolExecutionOutcome(self._message(call, result_text(answer), is_error=answer.is_error))
        delivered = self.toolbox.expanded(expanded_by(answer), self._state)
        wire = answer.to_wire()
        if delivered.names:  # their definitions reach the model in a different way
            if isinstance(answer, SearchPage):
                rest = replace(answer, detail_level=DetailLevel.SUMMARY).to_wire()
            else:
                rest = {key: wire[key] for key in ("errors",) if key in wire}
            wire = {"callable_by_now": [*delivered.names], **rest}
        return _ToolExecutionOutcome(self._message(call, json_text(wire), revealed=delivered), delivered)

    def _read(self, call: ToolCall, given: Mapping[str, Any]) -> _ToolExecutionOutcome:
        """Return the content of a section. The section is open from now on."""
        if problems := READ_SECTION.arguments.violations(given):
            raise InvalidArguments(f"`{READ_SECTION.name}`: {problems[0].message}.")
        read = self.prompt.read_section(given["section_key"], self._sections, self.catalog)
        if read.value is None:
            return _ToolExecutionOutcome(self._message(call, read.message, is_error=True))
        if read.value.expanded_tools and not self.is_dynamic:
            told = f'Section "{dotted(read.path)}" is open. The prompt contains it, with its tools.'
            return _ToolExecutionOutcome(self._message(call, told), opened=read.path, requires_restart=True)
        delivered = self.toolbox.deliver(read.value.expanded_tools, self._state)
        content = "\n\n".join(part for part in (read.message, read.value.content, delivered.text) if part)
        message = self._message(call, content, revealed=delivered)
        return _ToolExecutionOutcome(message, delivered, read.path if read.opens else None)

    @property
    def _sections(self) -> SectionState:
        """The current state of the sections, including those that the next restart opens."""
        state = self._state.sections
        for path in self._state.pending:
            state = state.after(SetVisibilityOverride(path, SectionVisibility.FULL))
        return state

    def _not_offered(self, call: ToolCall, offered: Mapping[str, Offer]) -> ToolcribError:
        name = call.name[:_ECHO_CHARS]
        if call.name in usable_from_now(self._state):
            return NotExpanded(
                f"`{name}` was not available yet when you called it. It is available now. Call it again."
            )
        if self._state.pending:
            return NotExpanded(
                f"`{name}` was not available when you called it. If it is in your list of tools now, call it again."
            )
        near = nearest(call.name, offered)
        hints = [f"Did you mean `{near}`?"] if near else [f"Your tools are: {', '.join(offered)}."] if offered else []
        return ToolNotFound(f"Tool {json.dumps(name)} not found.", hints=hints)

    def _message(
        self, call: ToolCall, content: str, *, is_error: bool = False, revealed: ToolDelivery = NO_DELIVERY
    ) -> ToolMessage:
        told = sendable(content, self.config.max_result_chars)
        return ToolMessage(call.id, call.name, told, is_error, revealed.revealed)

    def _failed(self, call: ToolCall, error: ToolcribError) -> _ToolExecutionOutcome:
        told = error_within(error, usable_from_now(self._state))
        return _ToolExecutionOutcome(self._message(call, json_text(told), is_error=True))

    def _finish(self, outcome: _ToolExecutionOutcome) -> None:
        """Record the answer and the opened tools in one step, so that a killed program does not separate them.

        Source: dynamic tool registration, "InnerLoop Tool Registry Update".
        """
        delivered, path = outcome.expanded_tools, outcome.opened
        events: list[ConversationEvent] = [CallAnswered(outcome.message), *delivered.collided]
        if delivered.offers:
            events.append(ToolsOffered(delivered.offers))
        if path is not None:
            is_later = outcome.requires_restart
            events.append(RestartRequired(path) if is_later else SetVisibilityOverride(path, SectionVisibility.FULL))
        if delivered.names:
            events.append(ToolsInjected(delivered.names, dotted(path or ()), time.time()))
        self.session.dispatch(*events)
        if delivered.names or delivered.text:
            self._report(delivered, dotted(path or ()))

    def _report(self, delivered: ToolDelivery, key: str) -> None:
        delivery = self.toolbox.delivery.value
        count_injected(len(delivered.names), section=key, delivery=delivery, provider=self.provider)
        if delivered.names:
            told = {
                "section": key,
                "tool_names": delivered.names,
                "tool_count": len(delivered.names),
                "delivery": delivery,
                "provider": self.provider,
            }
            names = ", ".join(delivered.names)
            logger.info("injected %d tools of section `%s`: %s", len(delivered.names), key, names, extra=told)
