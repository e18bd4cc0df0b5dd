"""Tools and answers for programs with their own model loop: in the format of their vendor, without its SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from toolcrib.agent.answering import (
    CALL_TIMEOUT_S,
    MAX_RESULT_CHARS,
    PARALLEL_CALLS,
    arguments_of,
    error_within,
    json_text,
    result_text,
    run_call,
    sendable,
)
from toolcrib.agent.conversation.events import Offer
from toolcrib.agent.conversation.messages import ToolCall, ToolMessage, ToolSpec
from toolcrib.agent.formats.call_formats import TOOLS, Form, answers_in, calls_in
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidTool, NextAction, NotExpanded, ToolcribError, ToolNotFound
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Tool
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.next_actions import answer_within
from toolcrib.operations.operation_table import OPERATIONS, SETS
from toolcrib.operations.protocol_messages import Answer, Expansion, expanded_by
from toolcrib.operations.suggestions import not_found

_ECHO_CHARS = 80


@dataclass(frozen=True, slots=True)
class _Outcome:
    message: ToolMessage
    shown: tuple[Expansion, ...] = ()
    """Tools that the answer expands."""

    @property
    def success(self) -> bool:
        return not self.message.is_error


@dataclass
class OwnLoop:
    """The tools that one conversation was given so far. Only one task at a time may use it."""

    view: Callable[[], View]
    run: Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]]
    """Calls a tool by its handle."""
    perform: Callable[[str, Mapping[str, Any]], Awaitable[Answer | ToolResult]]
    _offers: dict[str, Offer] = field(default_factory=dict[str, Offer])
    """The offers by the name that the model calls."""

    def tools_for(
        self, form: Form, tools: Sequence[str | Tool], operations: str | Sequence[str]
    ) -> list[dict[str, Any]]:
        """See `Session.tools_for`."""
        if form not in TOOLS:
            raise ValueError(f"unknown form `{form}`. Use one of: {', '.join(TOOLS)}")
        named = operation_tools(_operations(operations))
        offers = {each.name: Offer(ToolSpec(each.name, each.description, each.input_schema)) for each in named}
        view = self.view()
        for reference in tools:
            offer = _offer(view, reference)
            if offer.name in offers and offers[offer.name].handle != offer.handle:
                raise InvalidTool(f"`{reference}` cannot be offered: `{offer.name}` is the name of an operation.")
            offers[offer.name] = offer
        self._offers |= offers
        return TOOLS[form](offer.spec for offer in offers.values())

    async def handle(self, calls: Iterable[object] | None) -> list[Any]:
        """See `Session.handle`."""
        asked = calls_in(calls)
        outcomes: dict[int, _Outcome] = {}
        places = anyio.CapacityLimiter(PARALLEL_CALLS)

        async def answer(position: int, call: ToolCall) -> None:
            async with places:
                outcomes[position] = await self._answered(call)

        async with anyio.create_task_group() as tasks:
            for position, each in enumerate(asked):
                tasks.start_soon(answer, position, each.call)
        for position in range(len(asked)):  # only now: other calls of this turn must not use expanded tools
            self._add_expanded(outcomes[position].shown)
        return answers_in((each.form, outcomes[position].message) for position, each in enumerate(asked))

    async def _answered(self, call: ToolCall) -> _Outcome:
        async def run() -> _Outcome:
            offer = self._offers.get(call.name)
            if offer is None:
                raise self._not_offered(call.name)
            arguments = arguments_of(call)
            if offer.handle is not None:
                return _outcome(call, await self.run(offer.handle, arguments))
            return _outcome(call, answer_within(await self.perform(offer.name, arguments), self._offers))

        try:
            return await run_call(call, run, timeout_s=CALL_TIMEOUT_S)
        except ToolcribError as error:
            return _Outcome(_message(call, json_text(error_within(error, self._offers)), is_error=True))

    def _not_offered(self, name: str) -> ToolcribError:
        view = self.view()
        if (tool := view.find(name)) is not None:
            return NotExpanded(
                f"`{name}` was not expanded yet, so you do not know its arguments. Call `expand_tool` first, then "
                "call it.",
                next_action=NextAction("expand_tool", {"tool_id": tool.id}),
            )
        if (near := nearest(name[:_ECHO_CHARS], self._offers)) is not None:
            return ToolNotFound(f"Tool `{name[:_ECHO_CHARS]}` not found.", hints=[f"Did you mean `{near}`?"])
        return not_found(view, name)

    def _add_expanded(self, shown: Iterable[Expansion]) -> None:
        names = self.view().names
        for each in shown:
            name = names.get(each.tool_id)
            if name is not None and name not in OPERATIONS:
                self._offers[name] = Offer(ToolSpec(name, each.description, each.args_schema), each.handle)


def _operations(named: str | Sequence[str]) -> Sequence[str]:
    if isinstance(named, str):
        if named not in SETS:
            raise ValueError(f"unknown set of operations `{named}`. Use one of: {', '.join(SETS)}")
        return SETS[named]
    if unknown := [name for name in named if name not in OPERATIONS]:
        raise ValueError(f"unknown operation `{unknown[0]}`. Use one of: {', '.join(OPERATIONS)}")
    return named


def _offer(view: View, reference: str | Tool) -> Offer:
    name = reference if isinstance(reference, str) else reference.id
    tool = view.find(name)
    if tool is None:
        raise not_found(view, name)
    return Offer(ToolSpec(view.names[tool.id], tool.description.strip(), tool.input_schema), tool.handle)


def _outcome(call: ToolCall, answer: Answer | ToolResult) -> _Outcome:
    if isinstance(answer, ToolResult):
        return _Outcome(_message(call, result_text(answer), is_error=answer.is_error))
    return _Outcome(_message(call, json_text(answer.to_wire())), expanded_by(answer))


def _message(call: ToolCall, content: str, *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(call.id, call.name, sendable(content, MAX_RESULT_CHARS), is_error)
