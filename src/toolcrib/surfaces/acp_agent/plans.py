"""The plan that a model tells of: a tool to the model, and to an editor a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from acp.helpers import plan_entry, update_plan
from acp.schema import AgentPlanUpdate, PlanEntryPriority, PlanEntryStatus
from pydantic import BaseModel, ValidationError
from pydantic_ai.messages import ToolCallPart

PLAN = "update_plan"
"""The tool by which a model tells of its plan; an editor sees the plan, not the call."""


class PlanStep(BaseModel):
    """One step of a plan."""

    content: str
    status: PlanEntryStatus = "pending"
    priority: PlanEntryPriority = "medium"


def shown(steps: Iterable[PlanStep]) -> AgentPlanUpdate:
    """The plan in an editor's words."""
    return update_plan(plan_entry(step.content, priority=step.priority, status=step.status) for step in steps)


def shown_again(part: ToolCallPart) -> AgentPlanUpdate | None:
    """The plan that `part`, a call of `PLAN`, told of; None where it told of none."""
    try:
        given: Any = json.loads(part.args or "{}") if not isinstance(part.args, dict) else part.args
        steps = cast("list[object]", given["steps"])
        return shown([PlanStep.model_validate(step) for step in steps])
    except (ValidationError, ValueError, LookupError, TypeError):
        return None
