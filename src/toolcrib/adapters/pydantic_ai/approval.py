"""A person's approval by the framework's deferred requests: asked in one run, and given in the next."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.core.errors import NotAuthorized
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling.approving import Approvals, Approver
from toolcrib.operations.calling.questions import ONCE, Intent, Question


@dataclass(frozen=True, slots=True)
class Subject:
    """What an approval is of: this tool, with exactly this definition."""

    tool_id: str
    definition: str


@dataclass(frozen=True, slots=True)
class Asks:
    """What a person is to be asked."""

    subject: Subject
    question: str


class Deferring(Approver):
    """Has a person asked by the framework, which ends the run or waits, and calls again with what was approved."""

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
        raise NotAuthorized(f"`{intent.subject}` was not run: a person has to approve of it first.")
