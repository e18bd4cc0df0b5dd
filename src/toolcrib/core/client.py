"""Whoever called, as far as a source may ask it for something in the middle of a request, or tell it something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.core.errors import ToolFailed

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least to the most severe. Source: MCP, "Logging"; RFC 5424, section 6.2.1."""

ANSWER_S = 600.0
"""How long a client may take to answer a question, in seconds: a person thinks."""


def is_as_severe(level: str, lowest: str) -> bool:
    """Whether a message of `level` is for someone who wants those from `lowest` on; both are of `LOG_LEVELS`."""
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(lowest)


class Client(Protocol):
    """The program that a request came from, and the person in front of it. Two calls of one client have equal ones."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can be asked for, in the form of MCP's `ClientCapabilities`: `elicitation`, `roots`, `sampling`."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its answer to `elicitation/create`, `roots/list` or `sampling/createMessage`, as MCP writes them.

        Raises:
            ToolFailed: it cannot be asked that, or refused; a person who declines is an ordinary answer.
        """
        ...

    @property
    def log_level(self) -> str | None:
        """From which of `LOG_LEVELS` on it asked to be told what sources log; None where it did not ask."""
        ...

    def log(self, params: Mapping[str, Any]) -> None:
        """Tell it one log message: the parameters of MCP's `notifications/message`, whose level is of `LOG_LEVELS`.

        Never waits, so that a source which logs faster than a client reads holds up nobody. What the client does not
        want is dropped, and so is what it has no room for.
        """
        ...


@dataclass(frozen=True, slots=True)
class SilentClient:
    """Can be asked for `capabilities` while it calls; nobody can be asked or told anything through this."""

    capabilities: Mapping[str, Any]

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ToolFailed("There is nobody who could be asked now.")

    @property
    def log_level(self) -> None:
        return None

    def log(self, params: Mapping[str, Any]) -> None:
        """Nobody listens."""


NOBODY = SilentClient({})
"""Stands where no client is."""


_APPROVED = "toolcrib-approved:"
"""How states begin that name an approval besides. A source whose own states begin alike misses theirs, and no more."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What goes with a request that is sent again, because it asked for more input the first time.

    Source: MCP 2026-07-28, "Multi Round-Trip Requests".
    """

    responses: Mapping[str, Any]
    """Answers by the key of the question."""
    state: str | None = None
    """What the source gave with its questions, to be given back as it was."""
    approval: str | None = None
    """Names the approval under which the request was begun; None where none was given for it alone."""

    @classmethod
    def of(cls, responses: Mapping[str, Any], handed_out: str | None) -> Resumption:
        """The one of a client that gives back the state of a result, which names an approval if `approved_state` made
        it."""
        if handed_out is None or not handed_out.startswith(_APPROVED):
            return cls(responses, handed_out)
        approval, has_state, state = handed_out.removeprefix(_APPROVED).partition(":")
        return cls(responses, state if has_state else None, approval)


def approved_state(approval: str, state: str | None) -> str:
    """A state to hand out in place of `state`, which is a source's own; `approval` is without colons."""
    return f"{_APPROVED}{approval}" + (f":{state}" if state is not None else "")
