"""Events of the catalog and of operations as frozen values, and the types of their listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from toolcrib.core.tools import Path, Tool


@dataclass(frozen=True, slots=True)
class ToolRegistered:
    """A new tool is in the catalog. Source: ADR-001, `OnToolRegistered`."""

    tool: Tool


@dataclass(frozen=True, slots=True)
class ToolReplaced:
    """A tool's definition changed under the same id."""

    old: Tool
    new: Tool


@dataclass(frozen=True, slots=True)
class ToolUnregistered:
    """A tool left the catalog. Source: ADR-001, `OnToolUnregistered`."""

    tool: Tool


@dataclass(frozen=True, slots=True)
class CatalogPublished:
    """Readers now see a new state of the catalog. This is the last event of each publication."""

    version: int


Event = ToolRegistered | ToolReplaced | ToolUnregistered | CatalogPublished


class CatalogListener(Protocol):
    """An object with methods that are called when tools change. They can be async.

    Source: ADR-001, `RegistryListener`.
    """

    def on_tool_registered(self, tool: Tool) -> Awaitable[None] | None:
        """Receive `tool`, which was registered or replaced the tool with the same id."""
        ...

    def on_tool_unregistered(self, tool_id: str) -> Awaitable[None] | None:
        """Receive the id of a tool that left the catalog."""
        ...


Listener = Callable[[Event], None] | Callable[[Event], Awaitable[None]] | CatalogListener
"""Receives events after their publication, in order, outside of any lock. An async listener runs on the event loop on
which it subscribed."""


OK = "ok"
TOOL_ERROR = "TOOL_ERROR"
"""The outcome of a call whose tool ran and reported an error of its own."""

Consent: TypeAlias = Literal["once", "always", "kept", "refused", "pending", "unasked", "unanswered"]
"""The result of asking for approval, for a call that a person must approve.

`once`: a person approved this call, which includes its continuation after a pause. `always`: a person approved
permanently. `kept`: a permanent approval existed before. `refused`: a person refused. `pending`: the call waits until a
person answers it outside the client. `unasked`: no person could be asked. `unanswered`: a person was asked and did not
answer.
"""


@dataclass(frozen=True, slots=True)
class OperationPerformed:
    """One finished operation, successful or not, as the audit records it.

    It is an operation of the discovery protocol, or MCP's `prompts/get`, `resources/read` or `completion/complete`.

    Source: discovery protocol v0.1, goal 5.
    """

    at: float
    """The start time, in seconds since 1970."""
    trace_id: str
    """The trace: the same for a search, the expansion of a tool that it found, and the call of that tool."""
    principal: str
    operation: str
    outcome: str
    """`ok`, `TOOL_ERROR`, or the code of the error that ended the operation."""
    duration_s: float
    answer_bytes: int
    """The size of the answer, or of the error, as compact JSON."""
    query: str | None = None
    path: Path | None = None
    tool_ids: tuple[str, ...] = ()
    """The tools that were shown, expanded or called, in the order of the answer."""
    node_count: int | None = None
    """How many categories were shown; None for an operation that shows no categories."""
    item: str | None = None
    """The requested prompt or resource, by its name or URI in the catalog.

    For a resource that is not listed, it is the URI template, or else the URI of its source without a path.
    """
    arguments: Mapping[str, Any] | None = None
    """The arguments of a tool, a prompt or a template. They must not be stored unless the owner turned that on."""
    input_schema: Mapping[str, Any] | None = None
    """The input schema of the called tool, which marks the secret arguments."""
    approval: Consent | None = None
    """How the approval of a call, a prompt or a resource was settled.

    None if no approval was needed, or if the operation ended before the question.
    """
    bundle: str | None = None
    """The name of the bundle that limited the operation; None for everything that the principal can see.

    If the request named a bundle and a bundle applies to all requests, it is the one that the request named.
    """


Recorder = Callable[[OperationPerformed], None]
"""Receives every operation after its end. It must not wait or raise, so that the operation is not affected."""
