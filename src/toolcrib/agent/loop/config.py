"""How far a loop may go."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.agent.answering import CALL_TIMEOUT_S, MAX_RESULT_CHARS, PARALLEL_CALLS
from toolcrib.core.errors import InvalidConfig

_LEAST = {"max_turns": 1, "max_result_chars": 1, "parallel_calls": 1, "retries": 0, "repair_turns": 0}


@dataclass(frozen=True, slots=True)
class InnerLoopConfig:
    """Budgets of what is done for one request, restarts included.

    Where one is used up the evaluation ends, and every call of the model is answered.

    Raises:
        InvalidConfig: a number is smaller than makes sense; the message names it.
    """

    max_turns: int = 50
    """Answers of the model."""
    max_tokens: int | None = None
    """Read and written together, as the provider counts them; looked at between turns."""
    timeout_s: float | None = None
    """For all of it."""
    call_timeout_s: float = CALL_TIMEOUT_S
    """For one call of a tool."""
    max_result_chars: int = MAX_RESULT_CHARS
    """Of one answer to a call; the rest is left out, and that is said."""
    parallel_calls: int = PARALLEL_CALLS
    """Calls of one turn that run at once."""
    retries: int = 4
    """Times a request is sent again that failed and may work later."""
    repair_turns: int = 2
    """Times the model is told what is wrong with its final answer."""
    operations: tuple[str, ...] = ()
    """Operations of the discovery protocol that the model is given besides the prompt's own tools."""
    supports_dynamic_tools: bool | None = None
    """False has sections with tools begin the evaluation anew whatever the adapter can; None goes by the adapter.

    Source: dynamic tool registration, "InnerLoopConfig Extension".
    """

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if (given := getattr(self, name)) < least:
                raise InvalidConfig(f"`InnerLoopConfig.{name}` is {least} or more, and not {given}.")


DEFAULT_CONFIG = InnerLoopConfig()
