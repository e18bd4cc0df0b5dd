"""Calls of newer-era clients that wait for answers to a server's questions.

A server of the handshake era asks questions during a request. A newer-era client cannot receive a request during its
own. It gets the questions as the answer to its request, and returns with the answers. Until then the call is suspended.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolcrib.core.client import ANSWER_S
from toolcrib.core.errors import ToolFailed
from toolcrib.core.shares import Shares
from toolcrib.surfaces.mcp_gateway.client_logs import LogMessages, send_log
from toolcrib.surfaces.mcp_gateway.request_context import MAX_ROUNDS, Ctx, check_askable, level_of_request, principal_of

MAX_WAITING = 1_000
"""The maximum number of suspended calls. One more ends the oldest call of the principal that has the most."""

MAX_WAITING_EACH = 100
"""The maximum number of suspended calls of one principal. Each call is a task and uses about 50 KB."""

TICKET = "suspended:"
"""The prefix of request states that lead back to a suspended call."""

_Request = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(slots=True, eq=False)
class _Question:
    method: str
    params: Mapping[str, Any]
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True, eq=False)
class SuspendableCall:
    """A call that its client can leave to answer a question. `ask` suspends it until the client returns."""

    who: object
    """Identifies the client across its requests, or None if that is impossible."""
    capabilities: Mapping[str, Any]
    ctx: Ctx
    """The current request of the client, or its last one."""
    tasks: TaskGroup | None
    """Runs the task that sends log messages, until the client takes no more."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    news: anyio.Event = field(default_factory=anyio.Event)
    """Set when there is a new question, or the request has ended."""
    returned: anyio.Event = field(default_factory=anyio.Event)
    """Set when the client has returned."""
    questions: dict[str, _Question] = field(default_factory=dict[str, _Question])
    """The unanswered questions, by key."""
    asked: int = 0
    result: Mapping[str, Any] | None = None
    failure: Exception | None = None
    _messages: LogMessages | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SuspendableCall) and self.who is not None and self.who is other.who)

    def __hash__(self) -> int:
        return id(self) if self.who is None else id(self.who)

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def log_level(self) -> str | None:
        return level_of_request(self.ctx)

    @property
    def messages(self) -> LogMessages:
        """The log messages for the client. Most calls have none, so they are made when they are needed."""
        if self._messages is None:
            self._messages = LogMessages(self.tasks, lambda: self.log_level, self.send_log)
        return self._messages

    def log(self, params: Mapping[str, Any]) -> None:
        self.messages.put(params)

    async def finish(self) -> None:
        """Send the remaining log messages before the answer, and take no more."""
        self.tasks = None
        if self._messages is not None:
            await self._messages.finish()

    async def send_log(self, params: Mapping[str, Any]) -> None:
        await send_log(self.ctx, params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        check_askable(method, params, self.capabilities)
        if self.asked >= MAX_ROUNDS:
            raise ToolFailed(f"The tool asked the client more than {MAX_ROUNDS} questions.")
        self.asked += 1
        key, question = f"input-{self.asked}", _Question(method, params)
        self.questions[key] = question
        self.news.set()
        try:
            await question.answered.wait()
        finally:
            self.questions.pop(key, None)
        return question.answer or {}


class SuspendedCalls:
    """The suspended calls. Their clients are away."""

    def __init__(self, tasks: TaskGroup) -> None:
        """`tasks` runs the calls."""
        self._tasks = tasks
        self._waiting = Shares[str, SuspendableCall](MAX_WAITING, each=MAX_WAITING_EACH)
        """The calls by ticket."""

    async def begin(self, call: SuspendableCall, request: _Request) -> Mapping[str, Any]:
        """Return the result of `request`, or an `input_required` with a ticket with which the client can return."""
        call.messages.send_with(call.send_log)  # so that they exist, and can be held while the client is away
        self._tasks.start_soon(_run, call, request)
        return await self._stay(call, {})

    async def come_back(self, ticket: str, ctx: Ctx, answers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Continue a call whose client has returned. A ticket is valid for one return, so that nothing runs twice.

        Raises:
            MCPError: the ticket has no call, or the call belongs to a different principal.
        """
        call = self._waiting.get(ticket)
        if call is None or principal_of(call.ctx).id != principal_of(ctx).id:
            raise MCPError(
                INVALID_PARAMS, "This request state is no longer valid: the call has ended, or was already answered."
            )
        self._waiting.pop(ticket)
        call.ctx = ctx
        call.messages.send_with(call.send_log)
        call.returned.set()
        return await self._stay(call, answers)

    async def _stay(self, call: SuspendableCall, answers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass on the answers, and wait for the result or for the next questions."""
        for key, answer in answers.items():
            if (question := call.questions.pop(key, None)) is not None:
                question.answer = answer
                question.answered.set()
        try:
            if not call.questions and not call.is_over:
                call.news = anyio.Event()
                await call.news.wait()
            await call.messages.sent()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()  # the client has disconnected
            call.messages.end()
            raise
        if call.failure is not None:
            raise call.failure
        return call.result if call.result is not None else self._leave(call)

    def _leave(self, call: SuspendableCall) -> Mapping[str, Any]:
        """Return the open questions to the client. Log messages wait until it returns."""
        call.messages.hold()
        ticket = f"{TICKET}{secrets.token_urlsafe(18)}"
        call.returned = anyio.Event()
        for other in self._waiting.put(principal_of(call.ctx).id, ticket, call):
            other.scope.cancel()
            other.returned.set()  # or its `_expire` would wait for minutes
        self._tasks.start_soon(self._expire, ticket, call.returned)
        asked = {key: {"method": each.method, "params": dict(each.params)} for key, each in call.questions.items()}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": ticket}

    async def _expire(self, ticket: str, returned: anyio.Event) -> None:
        with anyio.move_on_after(ANSWER_S):
            await returned.wait()
            return
        if (call := self._waiting.pop(ticket)) is not None:
            call.scope.cancel()


async def _run(call: SuspendableCall, request: _Request) -> None:
    with call.scope:
        try:
            call.result = await request()
        except Exception as error:  # noqa: BLE001  raised again in the client's request
            call.failure = error
    if not call.is_over:
        call.failure = ToolFailed("The call was cancelled while it waited for the client's answer.")
    call.news.set()
