"""A toolset for Pydantic AI: the operations of a session, and the tools that the model expanded.

The framework runs the loop; this toolset lists and calls. Only the message history says which tools were expanded. So
concurrent runs share nothing, and a run that continues from a history has the tools of that history. The framework
decides how an expanded tool reaches the model, by what the provider supports.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias, cast

from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import BinaryContent, ModelRequest, ToolAvailabilityDeltaPart, ToolReturn
from pydantic_ai.tools import AgentDepsT, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolcrib.agent.answering import (
    CALL_TIMEOUT_S,
    MAX_RESULT_CHARS,
    error_within,
    json_text,
    result_text,
    run_call,
    sendable,
)
from toolcrib.agent.conversation.events import Offer
from toolcrib.agent.conversation.messages import ToolCall, ToolSpec
from toolcrib.agent.formats import anthropic_format
from toolcrib.agent.session import Session
from toolcrib.agent.telemetry import count_injected
from toolcrib.catalog.view import View
from toolcrib.core.client import ANSWER_S
from toolcrib.core.digests import size_of
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
from toolcrib.core.handles import Handle
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.operations.briefing import operation_tools
from toolcrib.operations.calling.approval_question import ONCE, Intent, Question
from toolcrib.operations.calling.approver import Approvals, Approver
from toolcrib.operations.next_actions import answer_within, leading_within
from toolcrib.operations.operation_table import ALL, CALLS, DEFAULT_SET, OPERATIONS, SETS
from toolcrib.operations.protocol_messages import (
    Answer,
    DetailLevel,
    Expansions,
    SearchPage,
    Suggestion,
    expanded_by,
)
from toolcrib.operations.suggestions import not_found

MAX_ASKED = 1_000
"""The maximum number of calls that wait for a person. One more drops the oldest, and its person is asked again."""

MARK = "toolcrib"
"""The key in the metadata of a tool's definition, and of a call that needs approval. Its value contains the tool id."""

NAME_OF = {"search_tools": "find_tools"}
"""The names of operations that differ here.

The framework's own search for deferred tools is called `search_tools`. An agent may have it too, and some models are
shown artificial calls of it.
"""

OPERATION_OF = {NAME_OF.get(name, name): name for name in OPERATIONS}
"""The operation for each name that is used here."""

MAX_METADATA_BYTES = 1_000_000
"""The maximum size of a result's metadata, as JSON. The framework stores the metadata in its history."""

_ONLY_READS = "Only read-only tools may run now."

_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))
"""The only check of arguments by the framework. The runner validates them against the tool's schema."""

_MISTAKES = (InvalidArguments, InvalidCursor, NotExpanded, StaleExpansion, ToolNotFound, UnknownPath)
"""Errors after which nothing ran, and a corrected request for the same operation or tool can work."""


ApproverOf: TypeAlias = Callable[[RunContext[AgentDepsT]], Approver]
"""Returns the approver for one call, to which the context belongs."""


class CribToolset(AbstractToolset[AgentDepsT]):
    """The operations of a session, `tools`, and each tool that the model expanded under its own name.

    `operations` is the name of one of `SETS`, or a list of `OPERATIONS`. With `ALL`, it lists every tool of the catalog
    with deferred loading, and the framework's search replaces the operations (`search`).

    If a person must approve a call, the framework returns the call as a deferred request. An `approver` asks while the
    run waits instead. While `only_read` returns True, only read-only tools run.

    One call may take `call_timeout_s` seconds. With an `approver`, the time for a person's answer is added.
    `max_retries` is how often in a row a tool asks the model to correct its call. The default is the agent's own
    number. After that the call fails and the run continues: an error of Toolcrib never ends a run.

    Raises:
        ValueError: the set or operation does not exist.
    """

    def __init__(
        self,
        session: Session,
        *,
        operations: str | Sequence[str] = DEFAULT_SET,
        tools: Iterable[str | Tool] = (),
        approver: ApproverOf[AgentDepsT] | None = None,
        only_read: Callable[[], bool] | None = None,
        call_timeout_s: float = CALL_TIMEOUT_S,
        max_retries: int | None = None,
        id: str | None = None,  # noqa: A002  the framework calls it so
    ) -> None:
        self.session = session
        self._lists_all = operations == ALL
        self._operations = () if self._lists_all else _named(operations)
        self._given = tuple(each if isinstance(each, str) else each.id for each in tools)
        self._approver = approver
        self._only_read = only_read
        self._timeout_s = call_timeout_s + (ANSWER_S if approver is not None else 0)
        self._max_retries = max_retries
        self._id = id
        self._subjects: dict[str, tuple[str, str]] = {}
        """What a person was asked, by the id of the call. The approval arrives in a later run than the question."""

    @property
    def id(self) -> str | None:
        return self._id

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Return this toolset, since it holds no state of a run.

        Raises:
            ToolNotFound: one of the given tools does not exist or is hidden. In the middle of a run such a tool is left
                out instead.
        """
        view = self.session.view()
        for name in self._given:
            if view.find(name) is None:
                raise not_found(view, name)
        return self

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools that the model has now."""
        retries = ctx.max_retries if self._max_retries is None else self._max_retries
        return {
            name: _CribTool(
                toolset=self, tool_def=_definition(offer), max_retries=retries, args_validator=_OBJECT, offer=offer
            )
            for name, offer in self._offers(ctx).items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        if not isinstance(tool, _CribTool):
            raise TypeError(f"`{name}` is not a tool of this toolset")
        offer = tool.offer
        call = ToolCall(ctx.tool_call_id or "", offer.name, json_text(tool_args))

        async def run() -> _Outcome:
            return await self._run(offer, tool_args, ctx)

        try:
            outcome = await run_call(call, run, timeout_s=self._timeout_s)
        except ToolcribError as error:
            raise self._tool_error(error, offer, ctx) from error
        if outcome.asks is not None:
            raise self._approval_required(outcome.asks, ctx)
        if not outcome.success:
            raise ToolFailed(outcome.value)
        return outcome.value

    async def search(
        self, ctx: RunContext[AgentDepsT], queries: Sequence[str], tools: Sequence[ToolDefinition]
    ) -> list[str]:
        """Rank `tools` as the session does, best first. Usable as a strategy of the framework's `ToolSearch`."""
        names = {tool_id: tool.name for tool in tools if (tool_id := _tool_id(tool)) is not None}
        found: dict[str, None] = {}
        for query in queries:
            answer = await self.session.perform("search_tools", {"query": query})
            if not isinstance(answer, ToolResult):
                found |= dict.fromkeys(answer.tool_ids)
        return [names[tool_id] for tool_id in found if tool_id in names]

    def _offers(self, ctx: RunContext[AgentDepsT]) -> dict[str, Offer]:
        """Return what the model has now, by the names that it uses in calls."""
        view = self.session.view()
        offers: dict[str, Offer] = {}
        for each in operation_tools(self._operations):
            name = NAME_OF.get(each.name, each.name)
            offers[name] = Offer(ToolSpec(name, each.description, each.input_schema))
        given = (tool for name in self._given if (tool := view.find(name)) is not None)
        listed = view.tools.values() if self._lists_all else self._expanded(view, ctx)
        for tool, is_deferred in (*((tool, False) for tool in given), *((tool, self._lists_all) for tool in listed)):
            name = view.names[tool.id]
            spec = ToolSpec(name, tool.description.strip(), tool.input_schema, is_deferred)
            offers.setdefault(name, Offer(spec, tool.handle))
        return offers

    def _expanded(self, view: View, ctx: RunContext[AgentDepsT]) -> Iterator[Tool]:
        """Yield the expanded tools in the order of their expansion.

        A list that only grows at its end stays cached longest.
        """
        for name in _discovered(ctx):
            if name not in OPERATION_OF and (tool := view.find(name)) is not None and view.names[tool.id] == name:
                yield tool

    async def _run(self, offer: Offer, arguments: Mapping[str, Any], ctx: RunContext[AgentDepsT]) -> _Outcome:
        operation = OPERATION_OF.get(offer.name, offer.name)
        if offer.handle is not None:
            return await self._called("call_tool", {"tool_id": offer.handle, "arguments": arguments}, ctx)
        if operation in CALLS:
            return await self._called(operation, arguments, ctx)
        answer = answer_within(await self.session.perform(operation, arguments), self._operations)
        return _Outcome(self._answer_text(_under_own_names(cast("Answer", answer)), ctx))

    async def _called(self, operation: str, arguments: Mapping[str, Any], ctx: RunContext[AgentDepsT]) -> _Outcome:
        dispatcher = self.session.dispatcher
        deferring = _DeferredApprover(dispatcher.runner.approver.approvals, self._approved(ctx))
        approver = deferring if self._approver is None else self._approver(ctx)
        dispatcher = replace(dispatcher, runner=replace(dispatcher.runner, approver=approver))
        if only_reads := self._only_read is not None and self._only_read():
            operation = "call_read_only_tool"
        try:
            answer = await dispatcher.perform(self.session.view(), self.session.context, operation, arguments)
        except NotAuthorized as refused:
            if deferring.asks is not None:
                return _Outcome(None, asks=deferring.asks)
            if only_reads and refused.next_action is not None and refused.next_action.operation == "call_tool":
                raise NotAuthorized(refused.message, hints=[_ONLY_READS]) from refused
            raise
        result = cast("ToolResult", answer)
        text = sendable(result_text(result), MAX_RESULT_CHARS)
        files = [] if result.is_error else [*_files(result)]
        value: Any = [text, *files] if files else text
        if not result.is_error and (metadata := _metadata(result)):
            value = ToolReturn(value, metadata={MARK: metadata})
        return _Outcome(value, success=not result.is_error)

    def _answer_text(self, answer: Answer, ctx: RunContext[AgentDepsT]) -> str | ToolReturn[Any]:
        """Return what the model reads of an answer. Expanded tools are added as tools, and the text only names them."""
        expanded = expanded_by(answer)
        named = {each.tool_id: name for each in expanded if (name := self._name_for(each.tool_id, ctx)) is not None}
        wire = answer.to_wire()
        if not named:
            return sendable(json_text(wire), MAX_RESULT_CHARS)
        told: dict[str, Any] = {"callable_by_now": [*named.values()]}
        if rest := [each.to_wire() for each in expanded if each.tool_id not in named]:
            told["tools"] = rest
        if isinstance(answer, SearchPage):
            told |= replace(answer, detail_level=DetailLevel.SUMMARY).to_wire()
        elif "errors" in wire:
            told["errors"] = wire["errors"]
        fresh = [name for name in named.values() if name not in ctx.tools]
        if fresh:
            count_injected(len(fresh), section="", delivery="framework", provider="pydantic-ai")
        return ToolReturn(sendable(json_text(told), MAX_RESULT_CHARS), tools=fresh)

    def _name_for(self, tool_id: str, ctx: RunContext[AgentDepsT]) -> str | None:
        """Return the name under which a tool can be listed, or None if a different tool of the agent has that name."""
        name = self.session.view().names.get(tool_id)
        if name is None or name in OPERATION_OF:
            return None
        taken = ctx.tools.get(name)
        return name if taken is None or _tool_id(taken) == tool_id else None

    def _approved(self, ctx: RunContext[AgentDepsT]) -> tuple[str, str] | None:
        """Return what the person who approved this call was asked, if that is known."""
        if not ctx.tool_call_approved:
            return None
        match ctx.tool_call_metadata:
            case {"toolcrib": {"tool_id": str() as tool_id, "definition": str() as definition}}:
                return tool_id, definition
            case _:
                return self._subjects.get(ctx.tool_call_id or "")

    def _approval_required(self, asks: _ApprovalQuestion, ctx: RunContext[AgentDepsT]) -> ApprovalRequired:
        if ctx.tool_call_id is not None:
            self._subjects.pop(ctx.tool_call_id, None)
            self._subjects[ctx.tool_call_id] = (asks.tool_id, asks.definition)
            if len(self._subjects) > MAX_ASKED:
                del self._subjects[next(iter(self._subjects))]
        return ApprovalRequired({MARK: asdict(asks)})

    def _tool_error(self, error: ToolcribError, offer: Offer, ctx: RunContext[AgentDepsT]) -> ModelRetry | ToolFailed:
        """Convert an error to a request for a retry, or to a failure.

        The framework counts retries and ends the run after too many. So the last one becomes a failure, which does not
        count.
        """
        error = leading_within(error, self._operations)
        if error.next_action is not None:
            error = error.leading_to(_step(error.next_action))
        wire = error_within(error, {**self._offers(ctx), offer.name: offer})
        text = sendable(json_text(wire), MAX_RESULT_CHARS)
        return ModelRetry(text) if isinstance(error, _MISTAKES) and ctx.retry < ctx.max_retries else ToolFailed(text)


@dataclass(kw_only=True)
class _CribTool(ToolsetTool[AgentDepsT]):
    offer: Offer
    """The definition that the model was shown."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any
    """A string if the call failed."""
    success: bool = True
    asks: _ApprovalQuestion | None = None
    """The question for a person who must approve first."""


@dataclass(frozen=True, slots=True)
class _ApprovalQuestion:
    """A question for a person, about a tool with exactly this definition."""

    tool_id: str
    definition: str
    question: str


class _DeferredApprover(Approver):
    """Lets the framework ask a person.

    The framework ends the run or waits, and repeats the call when it is approved.
    """

    def __init__(self, approvals: Approvals, approved: tuple[str, str] | None) -> None:
        """`approved` is the tool id and the definition that a person has approved for this call."""
        super().__init__(approvals)
        self._approved = approved
        self.asks: _ApprovalQuestion | None = None

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        if await self.approvals.holds(intent.principal, intent.subject, intent.definition):
            context.note_approval("kept")
            return "kept"
        if (intent.subject, intent.definition) == self._approved:
            context.note_approval(ONCE)
            return ONCE
        context.note_approval("unasked")
        question = Question.about(intent).message
        context.note_approval("unanswered")
        self.asks = _ApprovalQuestion(intent.subject, intent.definition, question)
        raise NotAuthorized(f"`{intent.subject}` did not run: a person must approve it first.")


def _named(operations: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(operations, str):
        if operations not in SETS:
            raise ValueError(f"unknown set of operations `{operations}`; the sets are: {', '.join((*SETS, ALL))}")
        return tuple(SETS[operations])
    if unknown := [name for name in operations if name not in OPERATIONS]:
        raise ValueError(f"unknown operation `{unknown[0]}`; the operations are: {', '.join(OPERATIONS)}")
    return tuple(operations)


def _step(step: NextAction) -> NextAction:
    return NextAction(NAME_OF.get(step.operation, step.operation), step.arguments)


def _under_own_names(answer: Answer) -> Answer:
    """Replace the operations that `answer` suggests by the names that they have here."""
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
    """Return the tools that the framework holds as revealed, in order of appearance. The framework only has a set."""
    parts = (part for message in ctx.messages if isinstance(message, ModelRequest) for part in message.parts)
    added = (name for part in parts if isinstance(part, ToolAvailabilityDeltaPart) for name in part.tools_added)
    known = ctx.discovered_tool_names
    return [*dict.fromkeys((*(name for name in added if name in known), *sorted(known)))]


def _definition(offer: Offer) -> ToolDefinition:
    """Return the definition in Anthropic's form, which is the strictest.

    The framework passes schemas on unchanged, and a provider refuses a whole request with one schema that it does not
    accept.
    """
    (form,) = anthropic_format.tools([offer.spec])
    handle = None if offer.handle is None else Handle.parse(offer.handle)
    return ToolDefinition(
        name=offer.name,
        description=form.get("description"),
        parameters_json_schema=form["input_schema"],
        strict=False,  # by default the framework forbids additional properties for OpenAI's models
        defer_loading=offer.spec.is_deferred,
        metadata=None if handle is None else {MARK: {"tool_id": handle.tool_id}},
    )


def _tool_id(definition: ToolDefinition) -> str | None:
    match definition.metadata:
        case {"toolcrib": {"tool_id": str() as tool_id}}:
            return tool_id
        case _:
            return None


def _files(result: ToolResult) -> Iterator[BinaryContent]:
    """Yield the images and audio of a result. Invalid ones are only named in its text."""
    for block in result.content:
        match block:
            case {"type": "image" | "audio", "data": str() as data, "mimeType": str() as media_type}:
                try:
                    yield BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
                except ValueError:
                    continue
            case _:
                continue


def _metadata(result: ToolResult) -> dict[str, Any]:
    """Return what a result contains for programs in addition to the text, unless it is too large."""
    kept = {key: result.wire[key] for key in ("_meta", "structuredContent") if key in result.wire}
    return kept if size_of(kept) <= MAX_METADATA_BYTES else {}
