"""Tools for models without a vendor's API, as most chat templates expect them: name, description and JSON Schema."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolcrib.agent.conversation.messages import ToolSpec


def tools(specs: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Convert all tools. This format has no deferred tools."""
    return [
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.input_schema)} for spec in specs
    ]
