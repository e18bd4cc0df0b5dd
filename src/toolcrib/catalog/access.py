"""The one decision on what may be seen and what may be called."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from toolcrib.core.principal import Principal
from toolcrib.core.tools import Tool


class Access(Enum):
    """What a principal may do with a tool."""

    CALL = "call"
    """See it and call it."""
    SEE = "see"
    """See it; calling it is refused with `NOT_AUTHORIZED`."""
    HIDDEN = "hidden"
    """It does not exist for this principal, in any answer, count, hint or error."""


class Policy(Protocol):
    """Decides for one principal and one tool. Pure: the same question always has the same answer."""

    def decide(self, principal: Principal, tool: Tool) -> Access: ...


class AllowAll:
    """Everything may be seen and called: the policy until one is configured."""

    def decide(self, principal: Principal, tool: Tool) -> Access:
        return Access.CALL


ALLOW_ALL = AllowAll()
