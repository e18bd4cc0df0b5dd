"""Asking a person before something runs. Only an answer that says so is consent."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from toolcrib.core.client import ANSWER_S, approved_state
from toolcrib.core.digests import digest
from toolcrib.core.errors import NotAuthorized, ToolFailed
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.shares import Shares
from toolcrib.operations.calling.questions import ALWAYS, ONCE, Intent, Question

logger = logging.getLogger(__name__)

MAX_PAUSED = 1_000
"""Calls that were approved and wait for input.

One more forgets the oldest of the principal that has most. A person is then asked about that one again.
"""


class Approvals(Protocol):
    """What was approved for good: a principal, a tool and exactly this definition of it."""

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool: ...

    async def keep(self, principal: str, tool_id: str, definition: str) -> None: ...


class MemoryApprovals:
    """Approvals that last as long as the program."""

    def __init__(self) -> None:
        self._kept: set[tuple[str, str, str]] = set()

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return (principal, tool_id, definition) in self._kept

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        self._kept.add((principal, tool_id, definition))


class Approver:
    """Asks whoever is at the client, unless that was answered for good.

    What it is about is asked first, then kept; what may have changed while a person thought is looked at in between, by
    whoever runs it.
    """

    def __init__(self, approvals: Approvals | None = None, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.approvals: Approvals = MemoryApprovals() if approvals is None else approvals
        self._now_s = now_s
        self._paused = Shares[str, tuple[_Bound, float]](MAX_PAUSED)
        """What was approved for one call that now waits for input, by the name of the approval, and until when. Whoever
        takes one up takes it away."""

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        """How a person approves of it, or did: `once`, `always` or `kept`.

        A call that comes back with input its source asked for was approved already, and is not asked about again.

        Raises:
            NotAuthorized: nobody can be asked, or whoever was did not say yes.
        """
        consent = await self._settled(intent, context)
        context.note_approval(consent)
        if consent not in {ONCE, ALWAYS, "kept"}:
            raise NotAuthorized(f"`{intent.subject}` was not run: nobody approved of it.", hints=[_USE_ANOTHER])
        return consent

    async def keep(self, intent: Intent, consent: Consent) -> None:
        """Have it hold from now on, where the consent is one for good."""
        if consent == ALWAYS:
            await self.approvals.keep(intent.principal, intent.subject, intent.definition)

    def paused(self, intent: Intent, consent: Consent, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """`result`, the answer to what was approved, to be handed out.

        Where it asks for input, whoever comes back with its state in time goes on, once; what was approved for good
        before has to be so then as well.
        """
        if consent == "kept" or not ToolResult(result).needs_input:
            return result
        approval = secrets.token_urlsafe()
        self._paused.put(intent.principal, approval, (_bound(intent), self._now_s() + ANSWER_S))
        return {**result, "requestState": approved_state(approval, result.get("requestState"))}

    async def _settled(self, intent: Intent, context: CallContext) -> Consent:
        if self._is_taken_up(intent, context):
            return ONCE
        if intent.definition and await self.approvals.holds(intent.principal, intent.subject, intent.definition):
            return "kept"
        return await self._answered(intent, context)

    async def _answered(self, intent: Intent, context: CallContext) -> Consent:
        """Put the question to the person at the client.

        Raises:
            NotAuthorized: the client cannot ask, or asking failed.
        """
        return await _asked_by_client(intent, context)

    def _is_taken_up(self, intent: Intent, context: CallContext) -> bool:
        if context.resumed is None or (approval := context.resumed.approval) is None:
            return False
        if (paused := self._paused.get(approval)) is None:
            return False
        bound, until_s = paused
        if bound != _bound(intent):
            return False
        self._paused.pop(approval)
        return self._now_s() < until_s


_USE_ANOTHER = "Use another tool, or ask the person you work for."


async def _asked_by_client(intent: Intent, context: CallContext) -> Consent:
    context.note_approval("unasked")
    client = context.client
    if client is None or not _can_ask(client.capabilities):
        raise NotAuthorized(
            f"`{intent.subject}` runs only after a person has approved, and your client cannot ask one.",
            hints=[
                _USE_ANOTHER,
                "A client that supports elicitation asks; the owner of the configuration can allow it.",
            ],
        )
    question = Question.about(intent)
    context.note_approval("unanswered")  # should whoever is asked, or whoever called, go away
    try:
        answer = await client.ask("elicitation/create", question.to_wire())
    except ToolFailed as failed:
        raise NotAuthorized(f"`{intent.subject}` was not run: {failed.message}", hints=[_USE_ANOTHER]) from failed
    except Exception as fault:  # whatever it is, it is no yes
        logger.exception("asking about %s failed", intent.subject)
        raise NotAuthorized(f"`{intent.subject}` was not run: asking failed.", hints=[_USE_ANOTHER]) from fault
    return question.settled_by(answer)


def _can_ask(capabilities: Mapping[str, Any]) -> bool:
    """Whether forms can be shown. Source: MCP 2025-11-25, "Elicitation": `{}` stands for forms."""
    return "elicitation" in capabilities and "form" in (capabilities["elicitation"] or {"form": {}})


_Bound = tuple[str, str, str]
"""What an approval of one call is of: this principal, this subject, these arguments of this definition."""


def _bound(intent: Intent) -> _Bound:
    return intent.principal, intent.subject, digest([intent.definition, intent.arguments])
