"""Approval by a person through the framework's deferred requests: one run asks, and the next run has the answer."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.core.errors import NotAuthorized
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling.approving import Approvals, Approver
from toolcrib.operations.calling.questions import ONCE, Intent, Question


@dataclass(frozen=True, slots=True)
class Subject:
    """What an approval is for: a tool with exactly this definition."""

    tool_id: str
    definition: str


@dataclass(frozen=True, slots=True)
class Asks:
    """A question for a person."""

    subject: Subject
    question: str


class Deferring(Approver):
    """Lets the framework ask a person.

    The framework ends the run or waits, and repeats the call when it is approved.
    """

    def __init__(self, approvals: Approvals, approved: Subject | None) -> None:
        super().__init__(approvals)
        self._approved = approved
        self.asks: Asks | None = None

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        subject = Subject(intent.subject, intent.definition)
        if await self.approvals.holds(intent.principal, intent.subject, intent.definition):
            context.note_approval("kept")
            return "kept"
        if subject == self._approved:
            context.note_approval(ONCE)
            return ONCE
        context.note_approval("unasked")
        question = Question.about(intent).message
        context.note_approval("unanswered")
        self.asks = Asks(subject, question)
        raise NotAuthorized(f"`{intent.subject}` did not run: a person must approve it first.")
