"""Asking the person in front of the editor before something runs. Only an option that allows is consent."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio
from acp import RequestError
from acp.helpers import text_block, tool_content
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    ContentToolCallContent,
    FileEditToolCallContent,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

from toolcrib.core.client import ANSWER_S
from toolcrib.core.errors import NextAction, NotAuthorized
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling.approving import Approver, MemoryApprovals
from toolcrib.operations.calling.questions import ALWAYS, ONCE, Intent
from toolcrib.surfaces.acp_agent.showing import Called, details, meta_of, progressed

logger = logging.getLogger(__name__)

OPTIONS = (
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow in this session", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject in this session", kind="reject_always"),
)

_CONSENT: dict[str, Consent] = {"allow_once": ONCE, "allow_always": ALWAYS}
"""What the options that allow come to; any other answer is none."""

_ASK_THEM = "Do not try the same in another way: ask the person what they want instead."

Diffs = Callable[[Called], Awaitable[Sequence[FileEditToolCallContent]]]
"""What a call would change in which files, as far as that is known before it runs."""


class Permissions:
    """What the person said in one session: kept for as long as that is open, and for exactly what was asked about."""

    def __init__(
        self,
        client: Client,
        session_id: str,
        about: Callable[[Intent], Called],
        diffs: Diffs,
        forbids: Callable[[], str | None],
    ) -> None:
        """`about` gives what an intent is in an editor's words, `diffs` what it would change, and `forbids` why nothing
        may run by now, whatever a person answers or has answered.
        """
        self.allowed = MemoryApprovals()
        self._client = client
        self._session_id = session_id
        self._about = about
        self._diffs = diffs
        self._forbids = forbids
        self._rejected: set[tuple[str, str]] = set()
        """Ids of tools and the digests of their definitions."""
        self._asking = anyio.Lock()
        """One question at a time: people answer what they see, and an editor may show only one."""

    def of(self, call_id: str) -> Approver:
        """Asks about the call that an editor knows by `call_id`."""
        return _EditorApprover(self, call_id)

    async def settle(self, intent: Intent, call_id: str) -> Consent:
        """How it was settled; a lasting answer that came while this waited holds for it as well.

        Raises:
            NotAuthorized: nothing may run any more, since it was cancelled or the mode has become another.
        """
        async with self._asking:
            self._check(intent)
            if await self.allowed.holds(intent.principal, intent.subject, intent.definition):
                return "kept"
            if (intent.subject, intent.definition) in self._rejected:
                return "refused"
            return await self._asked(intent, call_id)

    async def begun(self, intent: Intent, call_id: str) -> None:
        """A call that was approved runs from now on; raises as `settle` does."""
        await self._client.session_update(session_id=self._session_id, update=progressed(call_id, status="in_progress"))
        self._check(intent)

    def _check(self, intent: Intent) -> None:
        if (reason := self._forbids()) is not None:
            raise _no(intent, reason)

    async def _asked(self, intent: Intent, call_id: str) -> Consent:
        called = self._about(intent)
        call = ToolCallUpdate(
            tool_call_id=call_id,
            title=called.title,
            kind=called.kind,
            status="pending",
            content=[*await self._content(called)] or None,
            locations=list(called.locations) or None,
            raw_input=dict(called.arguments),
            field_meta=meta_of(called),
        )
        try:
            with anyio.fail_after(ANSWER_S):
                answer = await self._client.request_permission(
                    session_id=self._session_id, tool_call=call, options=list(OPTIONS)
                )
        except (RequestError, ValidationError, ConnectionError, TimeoutError) as error:
            logger.warning("asking about %s failed: %s", intent.subject, error)
            return "unanswered"
        self._check(intent)
        if not isinstance(answer.outcome, AllowedOutcome):
            return "unanswered"
        chosen = answer.outcome.option_id
        if chosen == "reject_always":
            self._rejected.add((intent.subject, intent.definition))
        if chosen == "allow_always":
            # At once, and not only once it has run: the next call in the queue is answered by it.
            await self.allowed.keep(intent.principal, intent.subject, intent.definition)
        return _CONSENT.get(chosen, "refused")

    async def _content(self, called: Called) -> Sequence[FileEditToolCallContent | ContentToolCallContent]:
        """What it would change; else its arguments, where they are too long for the title: what is hidden there may be
        the very thing.
        """
        if diffs := await self._diffs(called):
            return diffs
        return [] if (text := details(called)) is None else [tool_content(text_block(text))]


def _no(intent: Intent, reason: str) -> NotAuthorized:
    # A step of its own: a search for what does the same would be the other way that the hint warns of.
    why = f"`{intent.subject}` was not run: {reason}."
    return NotAuthorized(why, hints=[_ASK_THEM], next_action=NextAction("list"))


class _EditorApprover(Approver):
    def __init__(self, permissions: Permissions, call_id: str) -> None:
        super().__init__(permissions.allowed)
        self._permissions = permissions
        self._call_id = call_id

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        context.note_approval("unanswered")  # should the editor, or whoever cancels, go away meanwhile
        consent = await self._permissions.settle(intent, self._call_id)
        context.note_approval(consent)
        if consent not in {ONCE, ALWAYS, "kept"}:
            what = "the person rejected it" if consent == "refused" else "nobody approved of it"
            raise _no(intent, what)
        await self._permissions.begun(intent, self._call_id)
        return consent
