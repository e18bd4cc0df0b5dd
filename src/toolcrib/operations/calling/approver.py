"""Asks a person before a tool runs. Only an explicit yes counts as consent."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from anyio import CapacityLimiter, to_thread

from toolcrib.core.client import ANSWER_S, Client, approved_state
from toolcrib.core.digests import digest, size_of
from toolcrib.core.errors import ApprovalPending, NotAuthorized, ToolFailed
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.shares import Shares
from toolcrib.operations.calling.approval_question import ALWAYS, ONCE, Intent, Question
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.waiting import WaitingItem, WaitingStore

logger = logging.getLogger(__name__)

MAX_WAITING_BYTES = 256_000
"""The largest call that can wait for an answer, in bytes of JSON."""

MAX_PAUSED = 1_000
"""The most approved calls that can wait for input.

A further one replaces the oldest of the principal that has most. A person is then asked about that call again.
"""


class Approvals(Protocol):
    """A store of permanent approvals. Each is for a principal, a tool and exactly one definition of it."""

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        """Return whether this is approved."""
        ...

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        """Store an approval."""
        ...


class MemoryApprovals:
    """Approvals that last as long as the program."""

    def __init__(self) -> None:
        self._kept: set[tuple[str, str, str]] = set()

    async def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return (principal, tool_id, definition) in self._kept

    async def keep(self, principal: str, tool_id: str, definition: str) -> None:
        self._kept.add((principal, tool_id, definition))


class Approver:
    """Asks the person at the client for approval, unless a permanent approval exists.

    `ask` and `keep` are separate, because the caller must check in between what changed while the person was thinking.
    """

    def __init__(
        self,
        approvals: Approvals | None = None,
        waiting: WaitingStore | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`waiting` keeps the calls of clients that cannot ask. Without it, these calls are refused."""
        self.approvals: Approvals = MemoryApprovals() if approvals is None else approvals
        self.waiting = waiting
        self._threads = CapacityLimiter(4)
        self._now_s = now_s
        self._paused = Shares[str, tuple[_Bound, float]](MAX_PAUSED)
        """By the name of the approval, an approved call that waits for input, and when it expires. It can continue only
        once."""

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        """Return how the call is approved: `once`, `always` or `kept`.

        A call that continues with input that its source asked for is already approved. The person is not asked again.

        Raises:
            NotAuthorized: no person can be asked, or the person did not say yes.
            ApprovalPending: the client cannot ask, so the call waits until a person answers it elsewhere.
            RateLimited: too many calls wait already.
        """
        consent = await self._settled(intent, context)
        context.note_approval(consent)
        if consent not in {ONCE, ALWAYS, "kept"}:
            raise NotAuthorized(f"`{intent.subject}` did not run: the call was not approved.", hints=[_USE_ANOTHER])
        return consent

    async def keep(self, intent: Intent, consent: Consent) -> None:
        """Store the consent if it is permanent."""
        if consent == ALWAYS:
            await self.approvals.keep(intent.principal, intent.subject, intent.definition)

    def paused(self, intent: Intent, consent: Consent, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `result`, the answer of an approved call, for the client.

        If the result asks for input, its state gets the name of the approval. A client that sends the state back in
        time can continue the call once. A call with a permanent approval needs no name: the approval is checked again.
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
        """Ask the person at the client. If the client cannot ask, look for an answer that was given elsewhere.

        Raises:
            NotAuthorized, ApprovalPending, RateLimited: see `ask`.
        """
        context.note_approval("unasked")
        client = context.client
        if client is not None and _can_ask(client.capabilities):
            return await _asked_by_client(intent, client, context)
        if self.waiting is None or not intent.may_wait:
            raise _unasked(intent)
        return await self._answered_elsewhere(intent, self.waiting, context)

    async def _answered_elsewhere(self, intent: Intent, waiting: WaitingStore, context: CallContext) -> Consent:
        """Take the answer that a person has given to this call, or let the call wait for one."""
        body = {"summary": intent.summary, "arguments": intent.arguments}
        too_large = NotAuthorized(
            f"`{intent.subject}` did not run. It needs approval, and its arguments are too large for a call that waits."
        )
        try:
            if size_of(body) > MAX_WAITING_BYTES:
                raise too_large
            # If the caller leaves, it does not have to wait until the key is unlocked.
            item, is_new = await to_thread.run_sync(
                _taken_or_put, waiting, intent, body, abandon_on_cancel=True, limiter=self._threads
            )
        except (OSError, sqlite3.Error, KeyUnavailable) as fault:
            logger.warning("a call cannot wait for approval: %s: %s", waiting.path, fault)
            raise _unasked(intent) from fault
        except RecursionError as fault:  # JSON is written with less stack here than where the arguments were checked
            raise too_large from fault
        if item.answer is not None:
            return ONCE if item.answer == "granted" else "refused"
        context.note_approval("pending")
        if is_new:
            logger.warning(
                "a call waits for approval: %s for %s. Run `toolcrib approvals`", item.subject, item.principal
            )
        raise ApprovalPending(
            f"`{intent.subject}` waits for a person's approval, as {item.id}. Nothing ran.",
            waiting_id=item.id,
            expires_in_s=max(0, round(item.expires_at - time.time())),
            hints=[
                f"Tell your user that {item.id} waits. When they have approved it, send exactly the same call again."
            ],
        )

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


def _taken_or_put(waiting: WaitingStore, intent: Intent, body: Mapping[str, Any]) -> tuple[WaitingItem, bool]:
    """Return the answered item of this call, or the one that waits, and whether it is new. Blocks.

    The digest of many arguments takes some tenths of a second, so it is computed here and not on the event loop.
    """
    call = WaitingItem(
        kind="call",
        principal=intent.principal,
        subject=intent.subject,
        definition=intent.definition,
        server=intent.server,
        arguments=digest(intent.arguments),
        body=body,
    )
    item = waiting.take(call) or waiting.put(call)
    return item, item.id == call.id


_USE_ANOTHER = "Use a different tool, or ask your user what to do."


def _unasked(intent: Intent) -> NotAuthorized:
    return NotAuthorized(
        f"`{intent.subject}` needs a person's approval, and your client cannot show the question. Nothing ran.",
        hints=[
            _USE_ANOTHER,
            "Connect with a client that supports elicitation, or ask the gateway's owner to allow this tool.",
        ],
    )


async def _asked_by_client(intent: Intent, client: Client, context: CallContext) -> Consent:
    question = Question.about(intent)
    context.note_approval("unanswered")  # in case the person or the caller leaves before there is an answer
    try:
        answer = await client.ask("elicitation/create", question.to_wire())
    except ToolFailed as failed:
        raise NotAuthorized(f"`{intent.subject}` did not run: {failed.message}", hints=[_USE_ANOTHER]) from failed
    except Exception as fault:  # no failure may count as a yes
        logger.exception("asking for approval of %s failed", intent.subject)
        raise NotAuthorized(
            f"`{intent.subject}` did not run: Toolcrib could not ask for approval.", hints=[_USE_ANOTHER]
        ) from fault
    return question.settled_by(answer)


def _can_ask(capabilities: Mapping[str, Any]) -> bool:
    """Return whether the client can show forms. Source: MCP 2025-11-25, "Elicitation": `{}` means forms."""
    return "elicitation" in capabilities and "form" in (capabilities["elicitation"] or {"form": {}})


_Bound = tuple[str, str, str]
"""What the approval of one call is bound to: the principal, the subject, and a digest of definition and arguments."""


def _bound(intent: Intent) -> _Bound:
    return intent.principal, intent.subject, digest([intent.definition, intent.server, intent.arguments])
