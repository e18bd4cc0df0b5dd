"""What happens in a conversation, as frozen values: each follows from those before it and what came from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from toolcrib.agent.conversation.messages import NO_USAGE, AssistantMessage, ToolMessage, ToolSpec, Usage
from toolcrib.agent.sections import SectionPath, SetVisibilityOverride, ToolsInjected


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that a model was given, and what a call of it means."""

    spec: ToolSpec
    handle: str | None = None
    """That of exactly the definition that was shown; None for an operation and for `read_section`."""

    @property
    def name(self) -> str:
        return self.spec.name


@dataclass(frozen=True, slots=True)
class EvaluationBegan:
    """A model is about to be asked with this prompt and these tools; what was said before it stays."""

    system: str
    offers: tuple[Offer, ...]
    request: str | None = None
    """What it is asked, where it was not asked already."""
    prompt: str = ""
    """Namespace and key of the prompt, with `/` between them: whoever goes on has to go on with that."""
    delivery: str = ""
    """How tools are brought in: what was offered for one way is of no use in another."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """A model ended its turn."""

    message: AssistantMessage
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class TurnDropped:
    """A model ended its turn without an answer that counts: it refused, or was cut off."""

    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """One of the calls of the last turn has its answer; several end in any order."""

    message: ToolMessage


@dataclass(frozen=True, slots=True)
class ToolsOffered:
    """A model may call these from here on."""

    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class NameCollided:
    """A tool was not offered, for another one has its name.

    Source: dynamic tool registration, "Tool Name Collision".
    """

    name: str
    section_key: str
    """Of the section that it came with, with dots; empty where it came with none."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A model was told why its answer is none."""

    text: str


@dataclass(frozen=True, slots=True)
class RestartRequired:
    """A section was read that opens with the next beginning of the evaluation."""

    path: SectionPath


@dataclass(frozen=True, slots=True)
class EvaluationRestarted:
    """A section opened for which the prompt has to be sent anew; every call of the last turn is answered."""

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
