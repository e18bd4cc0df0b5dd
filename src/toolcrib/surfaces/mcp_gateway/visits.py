"""Visits: requests of newer-era clients that wait for answers to a server's questions.

A server of the handshake era asks questions during a request. A newer-era client cannot receive a request during its
own. It gets the questions as the answer to its request, and returns with the answers. The request waits as a visit.
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
from toolcrib.surfaces.mcp_gateway.connections import Ctx, principal_of
from toolcrib.surfaces.mcp_gateway.logs import LogMessages, in_answer_to, level_of_request
from toolcrib.surfaces.mcp_gateway.questions import MAX_ROUNDS, check_askable

MAX_WAITING = 1_000
"""The maximum number of visits that wait. One more ends the oldest visit of the principal that has the most."""

MAX_WAITING_EACH = 100
"""The maximum number of waiting visits of one principal. Each visit is a task and uses about 50 KB."""

TICKET = "visit:"
"""The prefix of request states that lead back to a visit."""


@dataclass(slots=True, eq=False)
class _Question:
    method: str
    params: Mapping[str, Any]
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True, eq=False)
class Visit:
    """One such request with its client, which may be present or away."""

    who: object
    """Identifies the client across visits, or None if that is impossible."""
    capabilities: Mapping[str, Any]
    ctx: Ctx
    """The current request of the client, or its last one."""
    messages: LogMessages
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

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Visit) and self.who is not None and self.who is other.who)

    def __hash__(self) -> int:
        return id(self) if self.who is None else id(self.who)

    @property
    def is_over(self) -> bool:
        return self.result is not None or self.failure is not None

    @property
    def log_level(self) -> str | None:
        return level_of_request(self.ctx)

    def log(self, params: Mapping[str, Any]) -> None:
        self.messages.put(params)

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


class Visits:
    """Holds the visits whose clients are away."""

    def __init__(self, tasks: TaskGroup) -> None:
        """`tasks` runs the requests of the visits."""
        self._tasks = tasks
        self._waiting = Shares[str, Visit](MAX_WAITING, each=MAX_WAITING_EACH)
        """The waiting visits by ticket."""

    async def begin(self, visit: Visit, request: Callable[[], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
        """Return the result of `request`, or an `input_required` with a ticket with which the client can return."""
        self._tasks.start_soon(_run, visit, request)
        return await self._stay(visit, {})

    async def come_back(self, ticket: str, ctx: Ctx, answers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Continue a visit whose client has returned. A ticket is valid for one return, so that nothing runs twice.

        Raises:
            MCPError: the ticket has no waiting visit, or its visit belongs to another principal.
        """
        visit = self._waiting.get(ticket)
        if visit is None or principal_of(visit.ctx).id != principal_of(ctx).id:
            raise MCPError(
                INVALID_PARAMS, "This request state is no longer valid: the call has ended, or was already answered."
            )
        self._waiting.pop(ticket)
        visit.ctx = ctx
        visit.messages.send_with(in_answer_to(ctx))
        visit.returned.set()
        return await self._stay(visit, answers)

    async def _stay(self, visit: Visit, answers: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass on the answers, and wait for the result or for the next questions."""
        for key, answer in answers.items():
            if (question := visit.questions.pop(key, None)) is not None:
                question.answer = answer
                question.answered.set()
        try:
            if not visit.questions and not visit.is_over:
                visit.news = anyio.Event()
                await visit.news.wait()
            await visit.messages.sent()
        except anyio.get_cancelled_exc_class():
            visit.scope.cancel()  # the client has disconnected
            visit.messages.end()
            raise
        if visit.failure is not None:
            raise visit.failure
        return visit.result if visit.result is not None else self._leave(visit)

    def _leave(self, visit: Visit) -> Mapping[str, Any]:
        """Return the open questions to the client. Log messages wait until it returns."""
        visit.messages.hold()
        ticket = f"{TICKET}{secrets.token_urlsafe(18)}"
        visit.returned = anyio.Event()
        for other in self._waiting.put(principal_of(visit.ctx).id, ticket, visit):
            other.scope.cancel()
            other.returned.set()  # or its `_expire` would wait for minutes
        self._tasks.start_soon(self._expire, ticket, visit.returned)
        asked = {key: {"method": each.method, "params": dict(each.params)} for key, each in visit.questions.items()}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": ticket}

    async def _expire(self, ticket: str, returned: anyio.Event) -> None:
        with anyio.move_on_after(ANSWER_S):
            await returned.wait()
            return
        if (visit := self._waiting.pop(ticket)) is not None:
            visit.scope.cancel()


async def _run(visit: Visit, request: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
    with visit.scope:
        try:
            visit.result = await request()
        except Exception as error:  # noqa: BLE001  raised again in the client's request
            visit.failure = error
    if not visit.is_over:
        visit.failure = ToolFailed("The call was cancelled while it waited for the client's answer.")
    visit.news.set()
