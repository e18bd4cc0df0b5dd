"""The interface between a loop and a provider's model, and the limits of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from toolcrib.agent.answering import CALL_TIMEOUT_S, MAX_RESULT_CHARS, PARALLEL_CALLS
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn, Usage
from toolcrib.agent.sections import Prompt, SectionPath, SectionVisibility, dotted
from toolcrib.agent.session import Session
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


OutputT = TypeVar("OutputT")


class Delivery(StrEnum):
    """How tools that are expanded in the middle of a conversation reach the model."""

    DEFER = "defer"
    """The provider hides schemas, and a reference in a message reveals them."""
    INJECT = "inject"
    """The list of tools grows with the next request."""
    PROXY = "proxy"
    """The list of tools does not change. Expanded tools are called with `call_tool`."""
    RESTART = "restart"
    """The evaluation restarts with the section open."""


def delivery_of(said: Delivery | str) -> Delivery:
    """Return the delivery for a `Delivery` or its value.

    Raises:
        InvalidConfig: there is no such delivery.
    """
    try:
        return Delivery(said)
    except ValueError as error:
        raise InvalidConfig(f"unknown delivery `{said}`. Use one of: {', '.join(Delivery)}") from error


TextListener: TypeAlias = Callable[[str], None]
"""Receives each piece of text as the model writes it. If a request is sent again, the text starts again."""


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """The result of a prompt."""

    output: OutputT
    text: str
    """The final answer as the model wrote it."""
    usage: Usage
    """The cost of all requests of the session so far."""


class VisibilityExpansionRequired(Exception):
    """A model opened a section that requires a restart of the evaluation. Every call is answered.

    Source: dynamic tool registration, "ToolExecutor Behavior".
    """

    def __init__(
        self,
        message: str,
        *,
        requested_overrides: dict[SectionPath, SectionVisibility],
        reason: str,
    ) -> None:
        super().__init__(message)
        self.requested_overrides = requested_overrides
        self.reason = reason
        self.section_keys = tuple(map(dotted, requested_overrides))


class ProviderAdapter(ABC):
    """A provider's model. Enter it before the first use. Leaving it closes its connections.

    Source: dynamic tool registration, "Adapter Capability Protocol".
    """

    name: str
    """The vendor's name, as for `get_adapter`: `openai`."""
    model: str

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """How the adapter delivers tools."""

    @property
    def supports_dynamic_tools(self) -> bool:
        """Whether tools can be delivered without a restart."""
        return self.delivery is not Delivery.RESTART

    @property
    def reveals_unlisted(self) -> bool:
        """With `Delivery.DEFER`: whether a tool can be revealed that was not in the list from the start."""
        return False

    @abstractmethod
    async def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: Session,
        request: str = "",
        config: InnerLoopConfig | None = None,
        on_text: TextListener | None = None,
    ) -> PromptResponse[OutputT]:
        """Let the model answer `prompt`, and `request` if there is one, in the conversation of `session`.

        If a killed program left an evaluation unfinished, it is continued, and `request` is ignored.

        Raises:
            VisibilityExpansionRequired: a section with tools was opened, and its tools cannot be delivered.
            BudgetExceeded: a limit of `config` was reached. Every call is answered.
            InvalidOutput: the final answer does not have the required type.
            InvalidPrompt: `session` is busy with a different request, or in the middle of a different prompt.
            ProviderFailed: the provider refused or failed, even after retries.
        """

    async def __aenter__(self) -> Self:
        return self

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Responder(ABC):
    """A model that answers one turn at a time."""

    @abstractmethod
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        """Send one request. `on_text` receives the text as it arrives, if the vendor supports streaming.

        Raises:
            ProviderFailed: the provider refused or failed. `retryable` is set if the same request may work later, and
                `retry_after_s` if the provider said when.
        """
