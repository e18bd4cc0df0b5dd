"""The client behind a request: a source can ask it for input or send it log messages while the request runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.core.errors import ToolFailed

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Log levels, from the least to the most severe. Source: MCP, "Logging"; RFC 5424, section 6.2.1."""

ANSWER_S = 600.0
"""How long a client can take to answer a question, in seconds. It is long because a person needs time to think."""


def is_as_severe(level: str, lowest: str) -> bool:
    """Return whether `level` is at least as severe as `lowest`. Both must be in `LOG_LEVELS`."""
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(lowest)


class Client(Protocol):
    """The program that sent a request, and the person who uses it. Two calls of one client have equal objects."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can be asked for (`elicitation`, `roots`, `sampling`), as MCP's `ClientCapabilities`."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send `elicitation/create`, `roots/list` or `sampling/createMessage` and return the answer, as MCP writes it.

        Raises:
            ToolFailed: the client does not support the request, or refused it. If a person declines, that is an
                ordinary answer.
        """
        ...

    @property
    def log_level(self) -> str | None:
        """The lowest of `LOG_LEVELS` that the client wants from sources; None if it did not ask for log messages."""
        ...

    def log(self, params: Mapping[str, Any]) -> None:
        """Send one log message to the client.

        `params` are those of MCP's `notifications/message`, with a level from `LOG_LEVELS`. This method never waits,
        so a source that logs faster than the client reads blocks no one. It drops messages that the client did not ask
        for, and messages that do not fit into the client's queue.
        """
        ...


@dataclass(frozen=True, slots=True)
class SilentClient:
    """A client whose `capabilities` are known, but which can no longer be asked anything or receive messages."""

    capabilities: Mapping[str, Any]

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ToolFailed("The client that sent this request cannot be asked now.")

    @property
    def log_level(self) -> None:
        return None

    def log(self, params: Mapping[str, Any]) -> None:
        """Discard the message."""


NO_CLIENT = SilentClient({})
"""Used where no client is connected."""


_APPROVED = "toolcrib-approved:"
"""The prefix of states that also name an approval.

If a source's own state begins with it, that source does not get its state back. Nothing else goes wrong.
"""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What the client adds when it sends a request again, because the tool asked for more input the first time.

    Source: MCP 2026-07-28, "Multi Round-Trip Requests".
    """

    responses: Mapping[str, Any]
    """Answers by the key of the question."""
    state: str | None = None
    """The state that the source sent with its questions. The source gets it back unchanged."""
    approval: str | None = None
    """The approval under which the request began; None if no approval was given for this request alone."""

    @classmethod
    def of(cls, responses: Mapping[str, Any], handed_out: str | None) -> Resumption:
        """Build the resumption from a client's answers and the state that the client returned.

        A state that was made by `approved_state` is split into the approval and the source's own state.
        """
        if handed_out is None or not handed_out.startswith(_APPROVED):
            return cls(responses, handed_out)
        approval, has_state, state = handed_out.removeprefix(_APPROVED).partition(":")
        return cls(responses, state if has_state else None, approval)


def approved_state(approval: str, state: str | None) -> str:
    """Return the state to send to the client instead of the source's own `state`. `approval` must contain no colon."""
    return f"{_APPROVED}{approval}" + (f":{state}" if state is not None else "")
