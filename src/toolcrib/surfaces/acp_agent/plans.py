"""The model's plan: a tool for the model, which the editor shows as a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

from acp.helpers import plan_entry, update_plan
from acp.schema import AgentPlanUpdate, PlanEntryPriority, PlanEntryStatus
from pydantic import BaseModel, ValidationError
from pydantic_ai.messages import ToolCallPart

PLAN = "update_plan"
"""The tool by which a model reports its plan. The editor shows the plan instead of the call."""


class PlanStep(BaseModel):
    """One step of a plan."""

    content: str
    status: PlanEntryStatus = "pending"
    priority: PlanEntryPriority = "medium"


def shown(steps: Iterable[PlanStep]) -> AgentPlanUpdate:
    """Convert the plan to an ACP update."""
    return update_plan(plan_entry(step.content, priority=step.priority, status=step.status) for step in steps)


def shown_again(part: ToolCallPart) -> AgentPlanUpdate | None:
    """Return the plan in `part`, a call of `PLAN`, or None if its arguments are invalid."""
    try:
        given: Any = json.loads(part.args or "{}") if not isinstance(part.args, dict) else part.args
        steps = cast("list[object]", given["steps"])
        return shown([PlanStep.model_validate(step) for step in steps])
    except (ValidationError, ValueError, LookupError, TypeError):
        return None
