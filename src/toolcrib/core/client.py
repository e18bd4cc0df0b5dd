"""Whoever called, as far as a source may ask it for something in the middle of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from toolcrib.core.errors import ToolFailed


class Client(Protocol):
    """The program that a request came from, and the person in front of it. Two calls of one client have equal ones."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What it can be asked for, in the form of MCP's `ClientCapabilities`: `elicitation`, `roots`, `sampling`."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its answer to `elicitation/create`, `roots/list` or `sampling/createMessage`, as MCP writes them.

        Raises:
            ToolFailed: it cannot be asked that, or refused; a person who declines is an ordinary answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class SilentClient:
    """Can be asked for `capabilities` while it calls; nobody can be asked anything through this."""

    capabilities: Mapping[str, Any]

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ToolFailed("There is nobody who could be asked now.")


NOBODY = SilentClient({})
"""Stands where no client is."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """What goes with a request that is sent again, because it asked for more input the first time.

    Source: MCP 2026-07-28, "Multi Round-Trip Requests".
    """

    responses: Mapping[str, Any]
    """Answers by the key of the question."""
    state: str | None = None
    """What the source gave with its questions, to be given back as it was."""
