"""What an agent told an editor about a session, folded to what the editor would show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanContentUpdate,
    AgentPlanRemovedUpdate,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PlanEntry,
    PromptResponse,
    SessionInfoUpdate,
    StopReason,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AgentPlanContentUpdate
    | AgentPlanRemovedUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)


class Updates(tuple[Update, ...]):
    """Updates of one session in the order in which they came."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """What the agent said, its pieces joined; blocks other than text are left out."""
        return "".join(_text(update) for update in self if isinstance(update, AgentMessageChunk))

    @property
    def thoughts(self) -> str:
        return "".join(_text(update) for update in self if isinstance(update, AgentThoughtChunk))

    @property
    def user_text(self) -> str:
        """What the person said, as a loaded session tells it again."""
        return "".join(_text(update) for update in self if isinstance(update, UserMessageChunk))

    @property
    def tool_calls(self) -> Mapping[str, ToolCallUpdate]:
        """Each tool call by its id in the state that its last update left it in, in the order in which they began."""
        calls: dict[str, ToolCallUpdate] = {}
        for update in self:
            if isinstance(update, ToolCallStart | ToolCallProgress):
                before = calls.get(update.tool_call_id, ToolCallUpdate(tool_call_id=update.tool_call_id))
                told = {name: getattr(update, name) for name in ToolCallUpdate.model_fields}
                calls[update.tool_call_id] = before.model_copy(
                    update={name: value for name, value in told.items() if value is not None}
                )
        return MappingProxyType(calls)

    def statuses(self, tool_call_id: str) -> tuple[ToolCallStatus, ...]:
        """Each status that a tool call was said to have, in order; one that was said again is there again."""
        return tuple(
            update.status
            for update in self
            if isinstance(update, ToolCallStart | ToolCallProgress)
            and update.tool_call_id == tool_call_id
            and update.status is not None
        )

    @property
    def plans(self) -> tuple[tuple[PlanEntry, ...], ...]:
        """Every plan that was sent, whole; the last one stands."""
        return tuple(tuple(update.entries) for update in self if isinstance(update, AgentPlanUpdate))

    @property
    def mode(self) -> str | None:
        """The mode that the agent last said the session is in."""
        modes = [update.current_mode_id for update in self if isinstance(update, CurrentModeUpdate)]
        return modes[-1] if modes else None


@dataclass(frozen=True, slots=True)
class Turn:
    """The answer to a prompt, and what the agent told of its session in the meantime."""

    stop_reason: StopReason
    updates: Updates
    response: PromptResponse

    @property
    def text(self) -> str:
        return self.updates.text

    @property
    def tool_calls(self) -> Mapping[str, ToolCallUpdate]:
        return self.updates.tool_calls


def _text(chunk: UserMessageChunk | AgentMessageChunk | AgentThoughtChunk) -> str:
    return chunk.content.text if isinstance(chunk.content, TextContentBlock) else ""
