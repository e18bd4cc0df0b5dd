"""The updates that an agent sent about a session, combined to what an editor would show."""

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
    """The updates of one session, in the order of arrival."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The agent's text, with its pieces joined. Blocks other than text are left out."""
        return "".join(_text(update) for update in self if isinstance(update, AgentMessageChunk))

    @property
    def thoughts(self) -> str:
        return "".join(_text(update) for update in self if isinstance(update, AgentThoughtChunk))

    @property
    def user_text(self) -> str:
        """The person's text, as the agent sends it again when a session is loaded."""
        return "".join(_text(update) for update in self if isinstance(update, UserMessageChunk))

    @property
    def tool_calls(self) -> Mapping[str, ToolCallUpdate]:
        """Each tool call by its id, in the state of its last update. Ordered by the start of the calls."""
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
        """Return each status of a tool call, in order. A repeated status appears again."""
        return tuple(
            update.status
            for update in self
            if isinstance(update, ToolCallStart | ToolCallProgress)
            and update.tool_call_id == tool_call_id
            and update.status is not None
        )

    @property
    def plans(self) -> tuple[tuple[PlanEntry, ...], ...]:
        """Every complete plan that was sent. The last one is current."""
        return tuple(tuple(update.entries) for update in self if isinstance(update, AgentPlanUpdate))

    @property
    def mode(self) -> str | None:
        """The mode that the agent reported last."""
        modes = [update.current_mode_id for update in self if isinstance(update, CurrentModeUpdate)]
        return modes[-1] if modes else None


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """The response to a prompt, and the updates of its session in the meantime."""

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
