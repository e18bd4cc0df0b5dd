"""Checks whether a JSON value has the form that a protocol version prescribes for a result or a definition."""

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
"""The key of a result under which its definitions are listed, by method."""


def fits(wire: Mapping[str, Any], method: str, version: str) -> bool:
    """Return whether `wire` is a complete result of `method` in the protocol `version`. Additional fields are
    allowed."""
    # In the newer era the SDK's own check accepts nearly everything as a request for more input, so that alternative is
    # left out.
    model = surfaces.SERVER_RESULTS[method, version]  # pyright: ignore[reportArgumentType]
    complete = cast("type[BaseModel]", get_args(model)[0] if get_args(model) else model)
    try:
        complete.model_validate({"resultType": "complete", **wire}, by_name=False)
    except ValidationError:
        return False
    return True


def is_definition(wire: object, method: str, version: str) -> bool:
    """Return whether `wire` can be a definition in the result of `method`, one of `LIST_KEYS`, in the protocol
    `version`."""
    return fits({LIST_KEYS[method]: [wire], "ttlMs": 0, "cacheScope": "private"}, method, version)
