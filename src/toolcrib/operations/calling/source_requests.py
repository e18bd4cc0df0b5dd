"""Requests to sources: the deadline while they run, and the URIs in their answers."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import anyio

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.names import resource_uri
from toolcrib.core.principal import CallContext

NOT_KNOWN = "The tool may or may not have run."

_DIRECT = ("http://", "https://")
"""URIs that a client fetches itself. Source: MCP 2026-07-28, "Resources", common URI schemes."""


class RunningRequests:
    """The running requests of one crib."""

    def __init__(self) -> None:
        self._scopes: set[anyio.CancelScope] = set()
        self._is_given_up = False

    @contextmanager
    def asking(self, what: str, context: CallContext, *, hints: Sequence[str] = ()) -> Generator[None]:
        """Limit a block, in which a source is asked for `what`, to the caller's deadline.

        Raises:
            SourceUnavailable: the deadline passed during the block, or `give_up` was called; it has `hints`.
        """
        left_s = context.remaining_s()
        deadline = math.inf if left_s is None else anyio.current_time() + left_s
        with anyio.CancelScope(deadline=deadline) as scope:
            self._scopes.add(scope)
            if self._is_given_up:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            why = (
                "was cancelled, because Toolcrib is stopping"
                if self._is_given_up
                else "did not answer within the time limit of your request"
            )
            raise SourceUnavailable(f"{what} {why}.", hints=hints)

    def give_up(self) -> None:
        """Cancel all running requests and all later ones, because the program stops."""
        self._is_given_up = True
        for scope in self._scopes:
            scope.cancel()


def under_catalog_names(entry: SourceEntry, wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a result of `tools/call`, `prompts/get` or `resources/read` with the URIs that the catalog uses."""
    if entry.plain_names:
        return wire
    named = dict(wire)
    if isinstance(wire.get("content"), list):
        named["content"] = [_block(entry, block) for block in wire["content"]]
    if isinstance(wire.get("contents"), list):
        named["contents"] = [_with_uri(entry, part, direct=()) for part in wire["contents"]]
    if isinstance(wire.get("messages"), list):
        named["messages"] = [_message(entry, message) for message in wire["messages"]]
    return named if named != wire else wire  # cheap: unchanged blocks are the same objects


def _message(entry: SourceEntry, message: object) -> object:
    if not isinstance(message, dict):
        return message
    said = cast("dict[str, Any]", message)
    return {**said, "content": _block(entry, said["content"])} if "content" in said else said


def _block(entry: SourceEntry, block: object) -> object:
    match block:
        case {"type": "resource_link"}:
            return _with_uri(entry, cast("dict[str, Any]", block))
        case {"type": "resource", "resource": {}}:
            embedded = cast("dict[str, Any]", block)
            return {**embedded, "resource": _with_uri(entry, embedded["resource"])}
        case _:
            return block


def _with_uri(entry: SourceEntry, part: object, direct: tuple[str, ...] = _DIRECT) -> object:
    match part:
        case {"uri": str() as uri} if not uri.startswith(direct):
            return {**cast("dict[str, Any]", part), "uri": resource_uri(entry.name, uri)}
        case _:
            return part
