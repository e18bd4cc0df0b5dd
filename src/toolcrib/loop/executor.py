"""The calls of one turn: each is run once, side by side, and has exactly one answer, however it ends."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import orjson

from toolcrib.conversation.events import CallAnswered, Offer, ToolsOffered
from toolcrib.conversation.messages import ToolCall, ToolMessage
from toolcrib.conversation.state import ConversationState
from toolcrib.core.errors import InvalidArguments, NotExpanded, SourceUnavailable, ToolcribError, ToolNotFound
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import nearest
from toolcrib.counter import Session
from toolcrib.disclosure.messages import Answer, Expansions
from toolcrib.loop.config import InnerLoopConfig
from toolcrib.loop.provider import VisibilityExpansionRequired
from toolcrib.loop.toolbox import NOTHING_BROUGHT, Brought, Toolbox, usable
from toolcrib.sections import (
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

logger = logging.getLogger(__name__)

_ECHO_CHARS = 80


@dataclass(frozen=True, slots=True)
class ToolExecutionOutcome:
    """What came of one call. Source: dynamic tool registration, "ToolExecutionOutcome"."""

    message: ToolMessage
    expanded_tools: Brought = NOTHING_BROUGHT
    """Those that it opened, on their way to the model."""
    opened: SectionPath | None = None
    """The section that was read, where that was closed."""

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
    _pending: dict[SectionPath, SectionVisibility] = field(default_factory=dict[SectionPath, SectionVisibility])
    """Sections that open with the restart to come."""

    async def execute_all(self) -> None:
        """Answer every open call of the last turn. Sections are read first, in order; the others run side by side.

        When it is cancelled, calls that are under way are answered by that, and their own answers dropped.

        Raises:
            VisibilityExpansionRequired: every call is answered, and a section with tools is to open by a restart.
        """
        offered = usable(self._state)
        calls = self._state.open_calls
        self._pending.clear()
        try:
            for call in calls:
                if call.name == READ_SECTION.name and call.name in offered:
                    self._finish(self._read(call))
            others = [call for call in calls if not (call.name == READ_SECTION.name and call.name in offered)]
            await self._run_all(others, offered)
        finally:
            for call in self._state.open_calls:
                self._finish(_failed(call, SourceUnavailable(f"`{call.name[:_ECHO_CHARS]}` was cancelled. {_UNKNOWN}")))
        if self._pending:
            keys = ", ".join(map(dotted, self._pending))
            raise VisibilityExpansionRequired(
                f"The evaluation begins anew with {keys} open.",
                requested_overrides=dict(self._pending),
                reason="the adapter cannot bring in tools in the middle of a conversation",
            )

    @property
    def _state(self) -> ConversationState:
        return self.session.conversation.state

    async def _run_all(self, calls: list[ToolCall], offered: Mapping[str, Offer]) -> None:
        places = anyio.CapacityLimiter(self.config.parallel_calls)
        outcomes: dict[str, ToolExecutionOutcome] = {}

        async def run(call: ToolCall) -> None:
            async with places:
                outcomes[call.id] = outcome = await self._execute(call, offered)
            self._dispatch_answer(outcome)

        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run, call)
        for call in calls:  # in their order, whichever ended first
            self._bring(outcomes[call.id])

    async def _execute(self, call: ToolCall, offered: Mapping[str, Offer]) -> ToolExecutionOutcome:
        try:
            offer = offered.get(call.name)
            if offer is None:
                raise self._not_offered(call, offered)
            arguments = _parsed(call)
            with anyio.fail_after(self._timeout_s()):
                if offer.handle is not None:
                    return self._answered(call, await self.session.call_tool(offer.handle, arguments))
                return self._answered(call, await self.session.perform(offer.name, arguments))
        except ToolcribError as error:
            return _failed(call, error)
        except TimeoutError:
            told = f"`{call.name}` was given up after {self._timeout_s():g} seconds. {_UNKNOWN}"
            return _failed(call, SourceUnavailable(told))
        except Exception:
            logger.exception("a call of `%s` failed in Toolcrib itself", call.name)
            return _failed(call, SourceUnavailable(f"`{call.name}` failed for a reason that lies in Toolcrib."))

    def _timeout_s(self) -> float:
        left_s = self.config.call_timeout_s
        return left_s if self.deadline is None else max(0.0, min(left_s, self.deadline - time.monotonic()))

    def _answered(self, call: ToolCall, answer: Answer | ToolResult) -> ToolExecutionOutcome:
        if isinstance(answer, ToolResult):
            return ToolExecutionOutcome(self._message(call, _text_of(answer), is_error=answer.is_error))
        if not isinstance(answer, Expansions):
            return ToolExecutionOutcome(self._message(call, orjson.dumps(answer.to_wire()).decode()))
        brought = self.toolbox.expanded(answer.tools, self._state) if self.is_dynamic else NOTHING_BROUGHT
        if not brought.names:
            return ToolExecutionOutcome(self._message(call, orjson.dumps(answer.to_wire()).decode()), brought)
        wire: dict[str, Any] = {"callable_by_now": [*brought.names]}
        if answer.errors:
            wire |= {key: told for key, told in answer.to_wire().items() if key == "errors"}
        return ToolExecutionOutcome(self._message(call, orjson.dumps(wire).decode(), revealed=brought), brought)

    def _read(self, call: ToolCall) -> ToolExecutionOutcome:
        """What a section holds; it is open from here on."""
        try:
            given = _parsed(call)
            if problems := READ_SECTION.arguments.violations(given):
                raise InvalidArguments(f"`{READ_SECTION.name}`: {problems[0].message}.")
            state = self._sections
            read = self.prompt.read_section(given["section_key"], state, self.catalog)
            if read.value is None:
                return ToolExecutionOutcome(self._message(call, read.message, is_error=True))
        except ToolcribError as error:
            return _failed(call, error)
        if read.value.expanded_tools and not self.is_dynamic:
            self._pending[read.path] = SectionVisibility.FULL
            told = f'Section "{dotted(read.path)}" is open: it stands in the prompt, with what belongs to it.'
            return ToolExecutionOutcome(self._message(call, told))
        brought = self.toolbox.brought(read.value.expanded_tools, self._state)
        content = "\n\n".join(part for part in (read.message, read.value.content, brought.text) if part)
        message = self._message(call, content, revealed=brought)
        return ToolExecutionOutcome(message, brought, read.path if read.opens else None)

    @property
    def _sections(self) -> SectionState:
        """As they are, and will be after the restart to come."""
        state = self._state.sections
        for path, visibility in self._pending.items():
            state = state.after(SetVisibilityOverride(path, visibility))
        return state

    def _not_offered(self, call: ToolCall, offered: Mapping[str, Offer]) -> ToolcribError:
        name = call.name[:_ECHO_CHARS]
        if call.name in usable(self._state):
            return NotExpanded(f"`{name}` was not offered yet when it was called. It is now: call it again.")
        near = nearest(call.name, offered)
        hints = [f"Did you mean `{near}`?"] if near else [f"There are: {', '.join(offered)}."] if offered else []
        return ToolNotFound(f"There is no tool {json.dumps(name)}.", hints=hints)

    def _message(
        self, call: ToolCall, content: str, *, is_error: bool = False, revealed: Brought = NOTHING_BROUGHT
    ) -> ToolMessage:
        most = self.config.max_result_chars
        if len(content) > most:
            content = f"{content[:most]}\n[{len(content) - most:,} more characters are left out]"
        return ToolMessage(call.id, call.name, content, is_error, revealed.revealed)

    def _finish(self, outcome: ToolExecutionOutcome) -> None:
        self._dispatch_answer(outcome)
        self._bring(outcome)

    def _dispatch_answer(self, outcome: ToolExecutionOutcome) -> None:
        self.session.dispatch(CallAnswered(outcome.message))

    def _bring(self, outcome: ToolExecutionOutcome) -> None:
        """Have the model have what a call opened.

        Source: dynamic tool registration, "InnerLoop Tool Registry Update".
        """
        brought = outcome.expanded_tools
        for collision in brought.collided:
            self.session.dispatch(collision)
        held = {offer.name for offer in self._state.offers}
        if new := tuple(offer for offer in brought.offers if offer.name not in held):
            self.session.dispatch(ToolsOffered(new))
        if outcome.opened is not None:
            self.session.dispatch(SetVisibilityOverride(outcome.opened, SectionVisibility.FULL))
        if brought.names:
            key = dotted(outcome.opened or ())
            logger.info("injected %d tools of section `%s`: %s", len(brought.names), key, ", ".join(brought.names))
            self.session.dispatch(ToolsInjected(brought.names, key, time.time()))


_UNKNOWN = "Whether it has run is not known."


def _parsed(call: ToolCall) -> dict[str, Any]:
    """The arguments that a model wrote; raises `InvalidArguments` where they are no JSON object."""
    if not call.arguments.strip():
        return {}
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"Nothing was run: the arguments of `{call.name}` are no JSON: {error}.") from error
    if not isinstance(given, dict):
        raise InvalidArguments(f"Nothing was run: the arguments of `{call.name}` are no JSON object.")
    return cast("dict[str, Any]", given)


def _failed(call: ToolCall, error: ToolcribError) -> ToolExecutionOutcome:
    content = orjson.dumps(error.to_wire(), default=str).decode()
    return ToolExecutionOutcome(ToolMessage(call.id, call.name, content, is_error=True))


def _resource(block: Mapping[str, Any]) -> Mapping[str, Any]:
    resource = block.get("resource")
    return cast("Mapping[str, Any]", resource) if isinstance(resource, Mapping) else {}


def _text_of(result: ToolResult) -> str:
    """What a model reads of an answer: its text, or its JSON where it has none; of anything else, that it is there."""
    parts: list[str] = []
    for block in result.content:
        kind = block.get("type")
        if kind == "text":
            parts.append(str(block.get("text", "")))
        elif kind == "resource" and isinstance(text := _resource(block).get("text"), str):
            parts.append(text)
        elif kind == "resource_link":
            parts.append(f"[{block.get('name', 'resource')}: {block.get('uri', '')}]")
        else:
            parts.append(f"[{kind or 'content'} {block.get('mimeType', '')}]".replace(" ]", "]"))
    if not any(part.strip() for part in parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    return "\n".join((*parts, *(f"[{warning}]" for warning in result.warnings)))
