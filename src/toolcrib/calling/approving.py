"""Asking a person before something runs. Only an answer that says so is consent."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.core.digests import digest
from toolcrib.core.errors import NotAuthorized, ToolFailed
from toolcrib.core.principal import CallContext

ONCE, ALWAYS, NO = "once", "always", "no"

MAX_SHOWN_CHARS = 2_000
"""Of the arguments, in the question."""

MAX_PAUSED = 1_000
"""Calls that were approved and wait for input; one more forgets the oldest, which is then asked about again."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What somebody wants to run."""

    principal: str
    subject: str
    """The tool's id, or what else it is in words."""
    definition: str = ""
    """The digest of its definition; empty where it has none, and nothing lasting can be approved."""
    summary: str = ""
    arguments: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Approved:
    """Something that runs now."""

    goes_on: bool = False
    """Whether it only paused, to ask for input; otherwise it is asked about again the next time."""


class Approvals(Protocol):
    """What was approved for good: a principal, a tool and exactly this definition of it."""

    def holds(self, principal: str, tool_id: str, definition: str) -> bool: ...

    def keep(self, principal: str, tool_id: str, definition: str) -> None: ...


class MemoryApprovals:
    """Approvals that last as long as the program."""

    def __init__(self) -> None:
        self._kept: set[tuple[str, str, str]] = set()

    def holds(self, principal: str, tool_id: str, definition: str) -> bool:
        return (principal, tool_id, definition) in self._kept

    def keep(self, principal: str, tool_id: str, definition: str) -> None:
        self._kept.add((principal, tool_id, definition))


class Approver:
    """Asks whoever is at the client, unless that was answered for good."""

    def __init__(self, approvals: Approvals | None = None) -> None:
        self.approvals: Approvals = approvals or MemoryApprovals()
        self._paused: dict[tuple[str, str, str], None] = {}
        """Approved once: whichever call takes up one of these takes it away."""

    @asynccontextmanager
    async def approved(self, intent: Intent, context: CallContext) -> AsyncGenerator[Approved]:
        """The time in which something runs of which a person approves, or did.

        A call that comes back with input its source asked for was approved already, and is not asked about again.

        Raises:
            NotAuthorized: nobody can be asked, or whoever was did not say yes.
        """
        await self._approve(intent, context)
        approved = Approved()
        yield approved
        if approved.goes_on:
            self._paused[_key(intent)] = None
            if len(self._paused) > MAX_PAUSED:
                self._paused.pop(next(iter(self._paused)))

    async def _approve(self, intent: Intent, context: CallContext) -> None:
        lasting = bool(intent.definition)
        if lasting and self.approvals.holds(intent.principal, intent.subject, intent.definition):
            return
        if context.resumed is not None and (key := _key(intent)) in self._paused:
            del self._paused[key]
            return
        answer = await _ask(intent, context)
        if answer == NO:
            raise NotAuthorized(f"`{intent.subject}` was not run: nobody approved of it.", hints=[_USE_ANOTHER])
        if answer == ALWAYS:
            self.approvals.keep(intent.principal, intent.subject, intent.definition)


_USE_ANOTHER = "Use another tool, or ask the person you work for."


async def _ask(intent: Intent, context: CallContext) -> str:
    client = context.client
    if client is None or not _can_ask(client.capabilities):
        raise NotAuthorized(
            f"`{intent.subject}` runs only after a person has approved, and your client cannot ask one.",
            hints=[_USE_ANOTHER, "A client that supports elicitation asks; the owner of the policy can allow it."],
        )
    shown = "" if intent.arguments is None else json.dumps(intent.arguments, ensure_ascii=False, indent=2)
    message = f"Run {intent.subject} for {intent.principal}? {intent.summary}".rstrip()
    if shown:
        message += f"\n\nArguments:\n{shown[:MAX_SHOWN_CHARS]}" + ("\n…" if len(shown) > MAX_SHOWN_CHARS else "")
    choices = [ONCE, ALWAYS, NO] if intent.definition else [ONCE, NO]
    question = {
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": {
                "answer": {
                    "type": "string",
                    "title": "Run it?",
                    "description": _EXPLAINED if intent.definition else "once: run it now",
                    "enum": choices,
                }
            },
            "required": ["answer"],
        },
    }
    try:
        answer = await client.ask("elicitation/create", question)
    except ToolFailed as failed:
        raise NotAuthorized(f"`{intent.subject}` was not run: {failed.message}", hints=[_USE_ANOTHER]) from failed
    match answer:
        case {"action": "accept", "content": {"answer": str() as given}} if given in choices:
            return given
        case _:  # declined, cancelled, or no answer to this question
            return NO


_EXPLAINED = "once: run it now. always: run it now, and from now on without asking, until its definition changes"


def _can_ask(capabilities: Mapping[str, Any]) -> bool:
    """Whether forms can be shown. Source: MCP 2025-11-25, "Elicitation": `{}` stands for forms."""
    return "elicitation" in capabilities and "form" in (capabilities["elicitation"] or {"form": {}})


def _key(intent: Intent) -> tuple[str, str, str]:
    return intent.principal, intent.subject, digest([intent.definition, intent.arguments])
