"""The limits of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.agent.answering import CALL_TIMEOUT_S, MAX_RESULT_CHARS, PARALLEL_CALLS
from toolcrib.core.errors import InvalidConfig

_LEAST = {"max_turns": 1, "max_result_chars": 1, "parallel_calls": 1, "retries": 0, "repair_turns": 0}


@dataclass(frozen=True, slots=True)
class InnerLoopConfig:
    """Limits for one request, including restarts.

    The evaluation ends when a limit is reached. Every call of the model is answered.

    Raises:
        InvalidConfig: a number is too small. The message names it.
    """

    max_turns: int = 50
    """The number of answers of the model."""
    max_tokens: int | None = None
    """The number of tokens that are read and written, as the provider counts them. Checked between turns."""
    timeout_s: float | None = None
    """The time for the whole evaluation."""
    call_timeout_s: float = CALL_TIMEOUT_S
    """The time for one tool call."""
    max_result_chars: int = MAX_RESULT_CHARS
    """The length of one answer to a call. The rest is omitted, with a note."""
    parallel_calls: int = PARALLEL_CALLS
    """The number of calls of one turn that run at once."""
    retries: int = 4
    """How often a failed request is sent again if it may work later."""
    repair_turns: int = 2
    """How often the model is told what is wrong with its final answer."""
    operations: tuple[str, ...] = ()
    """Operations of the discovery protocol that the model gets in addition to the prompt's own tools."""
    supports_dynamic_tools: bool | None = None
    """False makes sections with tools restart the evaluation, even if the adapter could deliver tools.

    None follows the adapter. Source: dynamic tool registration, "InnerLoopConfig Extension".
    """

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if (given := getattr(self, name)) < least:
                raise InvalidConfig(f"`InnerLoopConfig.{name}` must be at least {least}, not {given}.")


DEFAULT_CONFIG = InnerLoopConfig()
