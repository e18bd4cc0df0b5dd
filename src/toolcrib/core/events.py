"""What happened, as frozen values, and who is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from toolcrib.core.tools import Path, Tool


@dataclass(frozen=True, slots=True)
class ToolRegistered:
    """A tool is in the catalog that was not there before. Source: ADR-001, `OnToolRegistered`."""

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
    """A new state is what readers see from now on; told last of all events of that publication."""

    version: int


Event = ToolRegistered | ToolReplaced | ToolUnregistered | CatalogPublished


class CatalogListener(Protocol):
    """An object that is told of tools by its methods, which may be async. Source: ADR-001, `RegistryListener`."""

    def on_tool_registered(self, tool: Tool) -> Awaitable[None] | None:
        """`tool` was registered, or has replaced the one with its id."""
        ...

    def on_tool_unregistered(self, tool_id: str) -> Awaitable[None] | None: ...


Listener = Callable[[Event], None] | Callable[[Event], Awaitable[None]] | CatalogListener
"""Told of events after their publication, in order, outside any lock; an async one on the loop it subscribed on."""


OK = "ok"
TOOL_ERROR = "TOOL_ERROR"
"""The outcome of a call whose tool ran and reported a failure of its own."""

Consent: TypeAlias = Literal["once", "always", "kept", "refused", "unasked", "unanswered"]
"""How it was settled whether a call may run that a person has to approve of.

`once`, `always`: a person said so, for this call (also where it then pauses, and goes on later) or for good; `kept`:
one had said so for good before. `refused`: a person said no; `unasked`: nobody could be asked; `unanswered`: somebody
was, and gave no answer.
"""


@dataclass(frozen=True, slots=True)
class OperationPerformed:
    """One operation, however it ended: what an audit keeps.

    An operation of the discovery protocol, or one of `prompts/get`, `resources/read` and `completion/complete` of MCP.

    Source: discovery protocol v0.1, goal 5.
    """

    at: float
    """When it began, in seconds since 1970."""
    trace_id: str
    """The same for a search, the expansion of what it found, and the call of that."""
    principal: str
    operation: str
    outcome: str
    """`ok`, `TOOL_ERROR`, or the code of the error it ended with."""
    duration_s: float
    answer_bytes: int
    """Of the answer, or the error, as compact JSON."""
    query: str | None = None
    path: Path | None = None
    tool_ids: tuple[str, ...] = ()
    """The tools that were shown, expanded or called, in that order."""
    node_count: int | None = None
    """How many nodes were shown; None for an operation that shows none."""
    item: str | None = None
    """The prompt or resource that was asked for, by its name or URI in the catalog.

    Of a resource that is not listed it is the template, else the URI of its source with nothing behind it.
    """
    arguments: Mapping[str, Any] | None = None
    """What a tool was called with, or what was filled into a prompt or a template; never to be written down unless
    somebody switched that on."""
    input_schema: Mapping[str, Any] | None = None
    """Of that tool: it marks what of the arguments is secret."""
    approval: Consent | None = None
    """Of a call, a prompt or a resource; None where it ended before that was asked, or needs nobody's."""
    bundle: str | None = None
    """The name of the bundle that it was kept within, the one it asked for itself if there is also one that all of
    them are; None for all that the principal has."""


Recorder = Callable[[OperationPerformed], None]
"""Told of every operation once it is over. Neither waits nor raises: the operation must not feel it."""
