"""Whether a JSON value has the form that a protocol version gives to a result, or to a definition in a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from mcp_types import methods as surfaces
from pydantic import BaseModel, ValidationError

LIST_KEYS: Mapping[str, str] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""By method: under which key its result has the definitions."""


def fits(wire: Mapping[str, Any], method: str, version: str) -> bool:
    """Whether `wire` is a complete result of `method` in the protocol `version`; it may say more than that knows."""
    # In the newer era the SDK's own check takes nearly everything for a request for more input, the alternative there.
    model = surfaces.SERVER_RESULTS[method, version]  # pyright: ignore[reportArgumentType]
    complete = cast("type[BaseModel]", get_args(model)[0] if get_args(model) else model)
    try:
        complete.model_validate({"resultType": "complete", **wire}, by_name=False)
    except ValidationError:
        return False
    return True


def is_definition(wire: object, method: str, version: str) -> bool:
    """Whether `wire` can stand in the result of `method`, one of `LIST_KEYS`, in the protocol `version`."""
    return fits({LIST_KEYS[method]: [wire], "ttlMs": 0, "cacheScope": "private"}, method, version)
