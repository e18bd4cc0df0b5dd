"""Approval by the person in front of the editor before a tool runs. Only an option that allows counts as consent."""

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
from toolcrib.operations.calling.approval_question import ALWAYS, ONCE, Intent
from toolcrib.operations.calling.approver import Approver, MemoryApprovals
from toolcrib.surfaces.acp_agent.editor_updates import ShownCall, details, meta_of, progressed

logger = logging.getLogger(__name__)

OPTIONS = (
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow in this session", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject in this session", kind="reject_always"),
)

_CONSENT: dict[str, Consent] = {"allow_once": ONCE, "allow_always": ALWAYS}
"""The consent of each option that allows. Any other answer is not consent."""

_ASK_THEM = "Do not try the same in a different way. Ask the person what they want instead."

Diffs = Callable[[ShownCall], Awaitable[Sequence[FileEditToolCallContent]]]
"""Returns the file changes that a call would make, if they are known before it runs."""


class EditorApprovals:
    """The person's answers in one session.

    An answer holds while the session is open, for exactly the tool it was about.
    """

    def __init__(
        self,
        client: Client,
        session_id: str,
        about: Callable[[Intent], ShownCall],
        diffs: Diffs,
        forbids: Callable[[], str | None],
    ) -> None:
        """Create the permissions of one session.

        `about` describes an intent in ACP's terms. `diffs` returns what a call would change. `forbids` returns why
        nothing may run now, or None. Its reason overrides every answer of the person.
        """
        self.allowed = MemoryApprovals()
        self._client = client
        self._session_id = session_id
        self._about = about
        self._diffs = diffs
        self._forbids = forbids
        self._rejected: set[tuple[str, str]] = set()
        """Pairs of a tool id and the digest of its definition."""
        self._asking = anyio.Lock()
        """Allows one question at a time, because an editor may show only one."""

    def of(self, call_id: str) -> Approver:
        """Return an approver for the call that the editor knows as `call_id`."""
        return _EditorApprover(self, call_id)

    async def settle(self, intent: Intent, call_id: str) -> Consent:
        """Ask the person, and return the answer.

        A lasting answer that arrived while this call waited also applies to it.

        Raises:
            NotAuthorized: nothing may run any more, because the prompt was cancelled or the mode changed.
        """
        async with self._asking:
            self._check(intent)
            if await self.allowed.holds(intent.principal, intent.subject, intent.definition):
                return "kept"
            if (intent.subject, intent.definition) in self._rejected:
                return "refused"
            return await self._ask_person(intent, call_id)

    async def begun(self, intent: Intent, call_id: str) -> None:
        """Tell the editor that an approved call runs from now on. Raises the same errors as `settle`."""
        await self._client.session_update(session_id=self._session_id, update=progressed(call_id, status="in_progress"))
        self._check(intent)

    def _check(self, intent: Intent) -> None:
        if (reason := self._forbids()) is not None:
            raise _no(intent, reason)

    async def _ask_person(self, intent: Intent, call_id: str) -> Consent:
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
            logger.warning("could not ask the person about %s: %s", intent.subject, error)
            return "unanswered"
        self._check(intent)
        if not isinstance(answer.outcome, AllowedOutcome):
            return "unanswered"
        chosen = answer.outcome.option_id
        if chosen == "reject_always":
            self._rejected.add((intent.subject, intent.definition))
        if chosen == "allow_always":
            # Before the call runs, because the answer also applies to the next call in the queue.
            await self.allowed.keep(intent.principal, intent.subject, intent.definition)
        return _CONSENT.get(chosen, "refused")

    async def _content(self, called: ShownCall) -> Sequence[FileEditToolCallContent | ContentToolCallContent]:
        """Show what the call would change. Otherwise show its arguments if the title had to shorten them.

        A shortened argument could hide exactly what matters to the person.
        """
        if diffs := await self._diffs(called):
            return diffs
        return [] if (text := details(called)) is None else [tool_content(text_block(text))]


def _no(intent: Intent, reason: str) -> NotAuthorized:
    # Suggest the operation `list`. A suggested search for similar tools would invite what the hint warns about.
    why = f"`{intent.subject}` did not run: {reason}."
    return NotAuthorized(why, hints=[_ASK_THEM], next_action=NextAction("list"))


class _EditorApprover(Approver):
    def __init__(self, permissions: EditorApprovals, call_id: str) -> None:
        super().__init__(permissions.allowed)
        self._permissions = permissions
        self._call_id = call_id

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        context.note_approval("unanswered")  # in case the editor leaves or the call is cancelled
        consent = await self._permissions.settle(intent, self._call_id)
        context.note_approval(consent)
        if consent not in {ONCE, ALWAYS, "kept"}:
            what = "the person rejected it" if consent == "refused" else "the call was not approved"
            raise _no(intent, what)
        await self._permissions.begun(intent, self._call_id)
        return consent
