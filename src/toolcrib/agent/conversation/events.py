"""The events of a conversation, as frozen values. The state of a conversation is computed from its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolcrib.agent.conversation.messages import NO_USAGE, AssistantMessage, ToolMessage, ToolSpec, Usage
from toolcrib.agent.sections import SectionPath, SetVisibilityOverride, ToolsInjected


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that a model was given, and the effect of a call."""

    spec: ToolSpec
    handle: str | None = None
    """The handle of exactly the definition that was shown. None for an operation and for `read_section`."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class EvaluationBegan:
    """A model is about to be asked with this prompt and these tools. Earlier messages stay."""

    system: str
    offers: tuple[Offer, ...]
    request: str | None = None
    """The request for the model. None if the conversation already contains it."""
    prompt: str = ""
    """Namespace and key of the prompt, with `/` between them. The evaluation must be continued with the same prompt."""
    delivery: str = ""
    """How tools are delivered. Tools that were offered for one delivery are of no use for a different one."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model ended its turn."""

    message: AssistantMessage
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class TurnDropped:
    """A model ended its turn without a usable answer: it refused, or was cut off."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """One call of the last turn has its answer. Several calls may end in any order."""

    message: ToolMessage


@dataclass(frozen=True, slots=True)
class ToolsOffered:
    """A model may call these tools from now on."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class NameCollided:
    """A tool was not offered, because a different tool has its name.

    Source: dynamic tool registration, "Tool Name Collision".
    """

    name: str
    section_key: str
    """The dotted key of the section of the tool. Empty if the tool belongs to no section."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A model was told why its answer is not valid."""

    text: str


@dataclass(frozen=True, slots=True)
class RestartRequired:
    """A section was read that opens when the evaluation restarts."""

    path: SectionPath


@dataclass(frozen=True, slots=True)
class EvaluationRestarted:
    """The prompt must be sent again because sections opened. Every call of the last turn is answered."""

    section_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationEnded:
    """The model gave its final answer."""

    text: str


ConversationEvent: TypeAlias = (
    EvaluationBegan
    | ModelAnswered
    | TurnDropped
    | CallAnswered
    | ToolsOffered
    | NameCollided
    | Corrected
    | RestartRequired
    | EvaluationRestarted
    | EvaluationEnded
    | SetVisibilityOverride
    | ToolsInjected
)
