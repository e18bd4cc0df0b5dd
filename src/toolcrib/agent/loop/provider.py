"""What a provider's model is to a loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn, Usage
from toolcrib.agent.loop.config import InnerLoopConfig
from toolcrib.agent.sections import Prompt, SectionPath, SectionVisibility, dotted
from toolcrib.agent.session import Session
from toolcrib.core.errors import InvalidConfig

OutputT = TypeVar("OutputT")


class Delivery(StrEnum):
    """How tools that are expanded in the middle of a conversation reach the model."""

    DEFER = "defer"
    """The provider holds schemas back, and reveals them by a reference in a message."""
    INJECT = "inject"
    """The list of tools grows with the next request."""
    PROXY = "proxy"
    """The list stays; expanded tools are called through `call_tool`."""
    RESTART = "restart"
    """The evaluation begins anew with the section open."""


def delivery_of(said: Delivery | str) -> Delivery:
    """The delivery that somebody said, by itself or by its value.

    Raises:
        InvalidConfig: there is none.
    """
    try:
        return Delivery(said)
    except ValueError as error:
        raise InvalidConfig(f"`{said}` is no delivery; there are: {', '.join(Delivery)}") from error


TextListener: TypeAlias = Callable[[str], None]
"""Told of each piece of text as the model writes it; where a request is sent again, from the beginning."""


@dataclass(frozen=True, slots=True)
class PromptResponse(Generic[OutputT]):
    """What came of a prompt."""

    output: OutputT
    text: str
    """The final answer as the model wrote it."""
    usage: Usage
    """Of all requests of the session so far."""


class VisibilityExpansionRequired(Exception):
    """A model opened a section for which the evaluation has to begin anew; every call that it made is answered.

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
    """A provider's model. Entered before its first use; leaving it lets go of its connections.

    Source: dynamic tool registration, "Adapter Capability Protocol".
    """

    name: str
    """The vendor's, as `get_adapter` takes it: `openai`."""
    model: str

    @property
    @abstractmethod
    def delivery(self) -> Delivery:
        """How it brings in tools."""

    @property
    def supports_dynamic_tools(self) -> bool:
        """Whether tools are brought in without a restart."""
        return self.delivery is not Delivery.RESTART

    @property
    def reveals_unlisted(self) -> bool:
        """With `Delivery.DEFER`: whether a tool can be revealed that did not stand in the list from the start."""
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
        """Have the model answer `prompt`, and `request` where there is one, in the conversation of `session`.

        What a killed program left unfinished there is gone on with, and `request` then passed over.

        Raises:
            VisibilityExpansionRequired: a section with tools was opened, and these cannot be brought in.
            BudgetExceeded: it took more than `config` allows; every call is answered.
            InvalidOutput: the final answer is not of the type that was asked for.
            InvalidPrompt: `session` answers another request, or is in the middle of another prompt.
            ProviderFailed: the provider refused or failed, also after retries.
        """

    async def __aenter__(self) -> Self:
        return self

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Responder(ABC):
    """What is asked for one turn after the other."""

    @abstractmethod
    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        """Ask once; `on_text` hears the text as it comes, where the vendor streams.

        Raises:
            ProviderFailed: the provider refused or failed; `retryable` where the same request may work later, with
                `retry_after_s` where it said when.
        """
