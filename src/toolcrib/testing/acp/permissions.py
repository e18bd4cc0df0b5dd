"""The answers of a fake editor's person when an agent asks for permission."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import anyio
from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

Choice: TypeAlias = Literal[
    "allow_once", "allow_always", "reject_once", "reject_always", "cancelled", "unknown", "error", "silent"
]
"""The person's choice.

A kind of option chooses the first offered option of that kind. Otherwise the question is `cancelled`, answered with an
option that was not offered (`unknown`) or with an error, or never answered (`silent`).
"""


@dataclass(frozen=True, slots=True)
class PermissionAsked:
    """A question of the agent."""

    session_id: str
    tool_call: ToolCallUpdate
    options: tuple[PermissionOption, ...]
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The value of `_meta`."""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(option.kind for option in self.options)


Permission: TypeAlias = Choice | Callable[[PermissionAsked], Choice | Awaitable[Choice]]
"""The same choice every time, or a function of the question that returns a choice and may wait first."""


async def answered(permission: Permission, asked: PermissionAsked) -> RequestPermissionResponse:
    """Return the response for the agent.

    Raises:
        RequestError: the choice is an error, or a kind of option that is not offered.
    """
    choice = permission(asked) if callable(permission) else permission
    return _response(await choice if inspect.isawaitable(choice) else choice, asked) or await _never()


def cancelled() -> RequestPermissionResponse:
    return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


def _response(choice: Choice, asked: PermissionAsked) -> RequestPermissionResponse | None:
    match choice:
        case "cancelled":
            return cancelled()
        case "unknown":
            return _selected("an-option-that-was-not-offered")
        case "error":
            raise RequestError.internal_error({"details": "The question could not be shown."})
        case "silent":
            return None
        case kind:
            offered = [option.option_id for option in asked.options if option.kind == kind]
            if not offered:
                raise RequestError.invalid_params({"details": f"The agent offers no option of the kind `{kind}`."})
            return _selected(offered[0])


def _selected(option_id: str) -> RequestPermissionResponse:
    return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option_id))


async def _never() -> RequestPermissionResponse:
    await anyio.sleep_forever()
    raise AssertionError("unreachable")
