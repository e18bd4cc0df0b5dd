"""A session as a toolset of Pydantic AI, for any of its agents and models.

The framework loops, this lists and calls. Which tools were opened stands in the history of messages and nowhere else:
what runs side by side shares nothing, and whoever goes on from a history has what was opened in it. How a tool that was
opened reaches the model is the framework's to decide, by what the provider takes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolAvailabilityDeltaPart, ToolReturn
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolcrib.calling.answering import (
    CALL_TIMEOUT_S,
    MAX_RESULT_CHARS,
    json_text,
    result_text,
    run_call,
    sendable,
)
from toolcrib.calling.approving import Approvals, Approver
from toolcrib.calling.questions import ONCE, Intent, Question
from toolcrib.catalog.view import View
from toolcrib.conversation.messages import ToolCall, ToolSpec
from toolcrib.core.errors import (
    InvalidArguments,
    InvalidCursor,
    NextAction,
    NotAuthorized,
    NotExpanded,
    StaleExpansion,
    ToolcribError,
    ToolNotFound,
    UnknownPath,
)
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.counter import Session
from toolcrib.disclosure.messages import Answer, Expansion, Expansions, SearchPage, Suggestion
from toolcrib.disclosure.suggestions import not_found
from toolcrib.formats import anthropic
from toolcrib.protocol.desk import Desk
from toolcrib.protocol.steps import answer_within, leading_within
from toolcrib.protocol.tools import ALL, CALLS, DEFAULT_SET, OPERATIONS, SETS, operation_tools

MAX_ASKED = 1_000
"""Calls that wait for a person; one more forgets the oldest, which is then asked about again."""

MARK = "toolcrib"
"""Stands in the metadata of a tool's definition, over its id, and in those of a call that a person is asked about."""

_NAMES = {"search_tools": "find_tools"}
"""How an operation is called here, where not by its own name: that one is the framework's search of deferred tools, of
which some models are shown calls that nobody made, and which an agent may have besides."""

_OPERATIONS = {_NAMES.get(name, name): name for name in OPERATIONS}
"""The other way round, of all."""

_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""All that the framework judges of arguments. What a tool takes is judged where it is called."""

_MISTAKES = (InvalidArguments, InvalidCursor, NotExpanded, StaleExpansion, ToolNotFound, UnknownPath)
"""Nothing ran, and the same operation or tool can do it once it is asked otherwise."""


def create_toolset(session: Session) -> CribToolset[Any]:
    """The toolset of a session. Source: ACP tool discovery, `create_toolset`."""
    return CribToolset(session)


def create_pydantic_agent(
    model: Model | str, toolset: AbstractToolset[Any] | None = None
) -> Agent[object, str | DeferredToolRequests]:
    """An agent that answers with text, or with the calls that a person has to approve of.

    Without a `toolset` it has what each run is given. Source: ACP tool discovery, `create_pydantic_agent`.
    """
    toolsets = () if toolset is None else (toolset,)
    return Agent(model, output_type=[str, DeferredToolRequests], toolsets=toolsets)


class CribToolset(AbstractToolset[AgentDepsT]):
    """The operations of a session, `tools` besides, and each tool that the model expanded, under its own name.

    `operations` is the name of one of `SETS`, or names some of `OPERATIONS`; or it is `ALL`, for every tool of the
    catalog, its loading deferred, and the framework's search in place of the operations (`search`).

    `max_retries` is how often in a row a tool asks the model to mend its call, the agent's own number by default. After
    that it fails, and the run goes on: an error of ours never ends it.

    Raises:
        ValueError: there is no such set or operation.
    """

    def __init__(
        self,
        session: Session,
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        tools: Sequence[str | Tool] = (),
        max_retries: int | None = None,
        id: str | None = None,  # noqa: A002  the framework calls it so
    ) -> None:
        self.session = session
        self._lists_all = operations == ALL
        self._operations = () if self._lists_all else _named(operations)
        self._given = tuple(each if isinstance(each, str) else each.id for each in tools)
        self._max_retries = max_retries
        self._id = id
        self._asked: dict[str, _Subject] = {}
        """What a person was asked about, by the id of the call. Whoever approves does so in another run than asked."""

    @property
    def id(self) -> str | None:
        return self._id

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """This very one: it holds nothing of a run.

        Raises:
            ToolNotFound: one of the tools that were given is not there, or may not be seen. In the middle of a run it
                is left out.
        """
        view = self.session.view()
        for name in self._given:
            if view.find(name) is None:
                raise not_found(view, name)
        return self

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """What the model has by now."""
        view = self.session.view()
        held: dict[str, ToolsetTool[AgentDepsT]] = {}
        for each in operation_tools(self._operations):
            spec = ToolSpec(_NAMES.get(each.name, each.name), each.description, each.input_schema)
            held[spec.name] = self._held(ctx, _definition(spec), None)
        given = (tool for name in self._given if (tool := view.find(name)) is not None)
        plain = ((tool, False) for tool in (*given, *self._opened(view, ctx)))
        deferred = ((tool, True) for tool in view.tools.values()) if self._lists_all else ()
        for tool, is_deferred in (*plain, *deferred):
            if (name := view.names[tool.id]) not in held:
                spec = ToolSpec(name, tool.description.strip(), tool.input_schema, is_deferred)
                held[name] = self._held(ctx, _definition(spec, tool.id), tool.handle)
        return held

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if not isinstance(tool, _CribTool):
            raise TypeError(f"`{name}` is no tool of this toolset")
        call = ToolCall(ctx.tool_call_id or "", name, json_text(tool_args))

        async def run() -> _Outcome:
            return await self._run(name, tool_args, ctx, tool.handle)

        try:
            outcome = await run_call(call, run, timeout_s=CALL_TIMEOUT_S)
        except ToolcribError as error:
            raise self._told(error, name, tool.handle, ctx) from error
        if outcome.asks is not None:
            raise self._asking(outcome.asks, ctx)
        if not outcome.success:
            raise ToolFailed(outcome.value)
        return outcome.value

    async def search(
        self, ctx: RunContext[AgentDepsT], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        """Rank `tools` as the session does, best first: a strategy for the framework's `ToolSearch`."""
        names = {tool_id: tool.name for tool in tools if (tool_id := _tool_id(tool)) is not None}
        found: dict[str, None] = {}
        for query in queries:
            answer = await self.session.perform("search_tools", {"query": query})
            if not isinstance(answer, ToolResult):
                found |= dict.fromkeys(answer.tool_ids)
        return [names[tool_id] for tool_id in found if tool_id in names]

    def _opened(self, view: View, ctx: RunContext[AgentDepsT]) -> Iterator[Tool]:
        """In the order in which they were opened: a list that only grows at its end is cached the longest."""
        if self._lists_all:
            return
        for name in _discovered(ctx):
            if name not in _OPERATIONS and (tool := view.find(name)) is not None and view.names[tool.id] == name:
                yield tool

    def _held(self, ctx: RunContext[AgentDepsT], definition: ToolDefinition, handle: str | None) -> Any:
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return _CribTool(toolset=self, tool_def=definition, max_retries=retries, args_validator=_OBJECT, handle=handle)

    async def _run(
        self, name: str, arguments: Mapping[str, Any], ctx: RunContext[AgentDepsT], handle: str | None
    ) -> _Outcome:
        operation = _OPERATIONS.get(name, name)
        if handle is None and operation not in CALLS:
            answer = answer_within(await self.session.perform(operation, arguments), self._operations)
            return _Outcome(self._shown(_under_own_names(cast("Answer", answer)), ctx))
        if handle is not None:
            operation, arguments = "call_tool", {"tool_id": handle, "arguments": arguments}
        approver = _Deferring(self._desk.runner.approver.approvals, self._approved(ctx))
        desk = replace(self._desk, runner=replace(self._desk.runner, approver=approver))
        try:
            answer = await desk.perform(self.session.view(), self.session.context, operation, arguments)
        except NotAuthorized:
            if approver.asks is None:
                raise
            return _Outcome(None, asks=approver.asks)
        result = cast("ToolResult", answer)
        text = sendable(result_text(result), MAX_RESULT_CHARS)
        files = [] if result.is_error else [*_files(result)]
        return _Outcome([text, *files] if files else text, success=not result.is_error)

    @property
    def _desk(self) -> Desk:
        return self.session.counter.desk

    def _shown(self, answer: Answer, ctx: RunContext[AgentDepsT]) -> str | ToolReturn[Any]:
        """What the model reads of an answer; tools that it expands go their own way, and are named in it."""
        wire = answer.to_wire()
        match answer:
            case Expansions():
                expanded = answer.tools
            case Expansion():
                expanded = (answer,)
            case _:
                expanded = ()
        named = {each.tool_id: name for each in expanded if (name := self._name_for(each.tool_id, ctx)) is not None}
        if not named:
            return sendable(json_text(wire), MAX_RESULT_CHARS)
        rest = [each.to_wire() for each in expanded if each.tool_id not in named]
        told: dict[str, Any] = {"callable_by_now": [*named.values()]}
        told |= {"tools": rest} if rest else {}
        told |= {key: wire[key] for key in ("errors",) if key in wire}
        fresh = [name for name in named.values() if name not in ctx.tools]
        return ToolReturn(sendable(json_text(told), MAX_RESULT_CHARS), tools=fresh)

    def _name_for(self, tool_id: str, ctx: RunContext[AgentDepsT]) -> str | None:
        """The name under which it can be listed; None where another tool of the agent has that."""
        name = self.session.view().names.get(tool_id)
        if name is None or name in _OPERATIONS:
            return None
        taken = ctx.tools.get(name)
        return name if taken is None or _tool_id(taken) == tool_id else None

    def _approved(self, ctx: RunContext[AgentDepsT]) -> _Subject | None:
        """What the person who approved of this call was asked about, as far as that is known."""
        if not ctx.tool_call_approved:
            return None
        match ctx.tool_call_metadata:
            case {"toolcrib": {"tool_id": str() as tool_id, "definition": str() as definition}}:
                return _Subject(tool_id, definition)
            case _:
                return self._asked.get(ctx.tool_call_id or "")

    def _asking(self, asks: _Asks, ctx: RunContext[AgentDepsT]) -> ApprovalRequired:
        if ctx.tool_call_id is not None:
            self._asked.pop(ctx.tool_call_id, None)
            self._asked[ctx.tool_call_id] = asks.subject
            if len(self._asked) > MAX_ASKED:
                del self._asked[next(iter(self._asked))]
        about = {"tool_id": asks.subject.tool_id, "definition": asks.subject.definition}
        return ApprovalRequired({MARK: {**about, "question": asks.question}})

    def _told(
        self, error: ToolcribError, name: str, handle: str | None, ctx: RunContext[AgentDepsT]
    ) -> ModelRetry | ToolFailed:
        """The framework counts what a model is to mend, and ends the run when it is too much; the last is told as one
        that failed, which it does not count."""
        error = leading_within(error, self._operations)
        wire = error.to_wire()["error"]
        match error.next_action:
            case NextAction("call_tool", {"arguments": arguments}) if handle is not None:
                wire["next_action"] = {"operation": name, "arguments": arguments}
            case NextAction(operation, arguments) if operation in self._operations:
                wire["next_action"] = _step(NextAction(operation, arguments)).to_wire()
            case _:
                wire.pop("next_action", None)
        text = sendable(json_text(wire), MAX_RESULT_CHARS)
        return ModelRetry(text) if isinstance(error, _MISTAKES) and ctx.retry < ctx.max_retries else ToolFailed(text)


@dataclass(kw_only=True)
class _CribTool(ToolsetTool[AgentDepsT]):
    handle: str | None
    """Of the definition that the model was shown; None for an operation."""


@dataclass(frozen=True, slots=True)
class _Subject:
    """What an approval is of: this tool, with exactly this definition."""

    tool_id: str
    definition: str


@dataclass(frozen=True, slots=True)
class _Asks:
    subject: _Subject
    question: str


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any
    """Text, where the call failed."""
    success: bool = True
    asks: _Asks | None = None
    """Where a person has to approve first."""


class _Deferring(Approver):
    """Has a person asked by the framework, which ends the run or waits, and calls again with what was approved."""

    def __init__(self, approvals: Approvals, approved: _Subject | None) -> None:
        super().__init__(approvals)
        self._approved = approved
        self.asks: _Asks | None = None

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        subject = _Subject(intent.subject, intent.definition)
        if await self.approvals.holds(intent.principal, intent.subject, intent.definition):
            context.note_approval("kept")
            return "kept"
        if subject == self._approved:
            context.note_approval(ONCE)
            return ONCE
        context.note_approval("unasked")
        question = Question.about(intent).message
        context.note_approval("unanswered")
        self.asks = _Asks(subject, question)
        raise NotAuthorized(f"`{intent.subject}` was not run: a person has to approve of it first.")


def _named(operations: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(operations, str):
        if operations not in SETS:
            raise ValueError(f"`{operations}` is no set of operations; there are: {', '.join((*SETS, ALL))}")
        return tuple(SETS[operations])
    if unknown := [name for name in operations if name not in OPERATIONS]:
        raise ValueError(f"`{unknown[0]}` is no operation; there are: {', '.join(OPERATIONS)}")
    return tuple(operations)


def _step(step: NextAction) -> NextAction:
    return NextAction(_NAMES.get(step.operation, step.operation), step.arguments)


def _under_own_names(answer: Answer) -> Answer:
    """`answer`, where what it leads to is called as it is here."""
    match answer:
        case SearchPage(suggestion=Suggestion() as told):
            return replace(answer, suggestion=replace(told, next_action=_step(told.next_action)))
        case Expansions():
            errors = {
                asked: error if error.next_action is None else error.leading_to(_step(error.next_action))
                for asked, error in answer.errors.items()
            }
            return replace(answer, errors=errors)
        case _:
            return answer


def _discovered(ctx: RunContext[Any]) -> Sequence[str]:
    """What the framework holds for revealed, which it gives as a set."""
    parts = (part for message in ctx.messages if isinstance(message, ModelRequest) for part in message.parts)
    added = (name for part in parts if isinstance(part, ToolAvailabilityDeltaPart) for name in part.tools_added)
    known = ctx.discovered_tool_names
    return [*dict.fromkeys((*(name for name in added if name in known), *sorted(known)))]


def _definition(spec: ToolSpec, tool_id: str | None = None) -> ToolDefinition:
    """In Anthropic's form, which is the narrowest: the framework hands schemas on as they are, and a provider that
    does not take one refuses the whole request."""
    (form,) = anthropic.tools([spec])
    return ToolDefinition(
        name=spec.name,
        description=form.get("description"),
        parameters_json_schema=form["input_schema"],
        strict=False,  # where nothing is said, OpenAI's models are told that objects take nothing but what is named
        defer_loading=spec.is_deferred,
        metadata=None if tool_id is None else {MARK: {"tool_id": tool_id}},
    )


def _tool_id(definition: ToolDefinition) -> str | None:
    match definition.metadata:
        case {"toolcrib": {"tool_id": str() as tool_id}}:
            return tool_id
        case _:
            return None


def _files(result: ToolResult) -> Iterator[BinaryContent]:
    """Its images and sounds; what is none after all is named in its text alone."""
    for block in result.content:
        match block:
            case {"type": "image" | "audio", "data": str() as data, "mimeType": str() as media_type}:
                try:
                    yield BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
                except ValueError:
                    continue
            case _:
                continue
