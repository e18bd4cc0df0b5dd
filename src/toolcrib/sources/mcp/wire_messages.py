"""Reads protocol messages from bytes: splits them into lines, limits their length, and reports invalid ones."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from toolcrib.sources.aside import aside
from toolcrib.sources.mcp.pieces import read_pieces
from toolcrib.sources.mcp.refused_requests import NO_MESSAGE, Refusal, outcome, too_long

EDGE_BYTES = 1_024
"""How many bytes are kept from each end of a line that is too long."""

SHOWN_CHARACTERS = 80
"""How many characters are shown of a line that is not a message."""

SHORT_BYTES = 262_144
"""A message up to this length is read in one step, which takes a few milliseconds."""

_STARTS = (b"{", b"[", codecs.BOM_UTF8)
"""How a message can begin. Lines with a different beginning are not parsed."""

_ID = rb'"id"\s*:\s*(-?\d+|null|"(?:[^"\\]|\\.)*")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"[^"]*"\s*'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")


class Garbled(Exception):
    """A server sent something that is not a protocol message. The text is its beginning."""


class Overlong(bytes):
    """The two ends of a line that was too long to keep. The part between them is left out."""

    __slots__ = ()


def overlong(line: bytes) -> Overlong:
    """Return the two ends of `line`."""
    return Overlong(line[:EDGE_BYTES] + line[-EDGE_BYTES:])


class LineSplitter:
    """Splits the bytes fed to it into lines of at most `limit_bytes`, in linear time."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is at least `EDGE_BYTES`."""
        self._limit_bytes = max(limit_bytes, EDGE_BYTES)
        self._line = bytearray()
        self._start: bytes | None = None
        """The start of a line that is too long. `_line` then holds the end of that line."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that end in `chunk`, without their line feed. A line that is too long is yielded as an
        `Overlong`."""
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            self._add(chunk[begin:end])
            yield self.rest()
            begin = end + 1
        self._add(chunk[begin:])

    def rest(self) -> bytes:
        """Return what was fed since the last line feed, and begin a new line."""
        line = bytes(self._line) if self._start is None else Overlong(self._start + bytes(self._line))
        self._line, self._start = bytearray(), None
        return line

    def _add(self, part: bytes) -> None:
        self._line += part
        if self._start is None and len(self._line) > self._limit_bytes:
            self._start = bytes(self._line[:EDGE_BYTES])
        if self._start is not None:
            self._line = self._line[-EDGE_BYTES:]


def messages_in(line: bytes, limit_bytes: int) -> Iterator[SessionMessage | Garbled]:
    """Yield the messages in `line`: one message, or several in an array, which servers of 2025-03-26 may send.

    If an unreadable message seems to answer a request, that request is refused, so that its caller does not wait
    forever.
    """
    if isinstance(line, Overlong):
        yield Garbled(f"more than {limit_bytes / 2**20:g} MiB, beginning with {_shown(line)}")
        if (request_id := request_answered(line)) is not None:
            yield refused(request_id, too_long(limit_bytes))
        return
    text = line.strip()
    if not text:
        return
    try:
        wire = read_json(text) if text.startswith(_STARTS) else None
    except ValueError:
        wire = None
    if not isinstance(wire, dict | list):
        yield Garbled(_shown(line))
        return
    for one in cast("list[Any]", wire if isinstance(wire, list) else [wire]):
        try:
            yield SessionMessage(jsonrpc_message_adapter.validate_python(_with_whole_id(one), by_name=False))
        except ValidationError:
            yield Garbled(_shown(line))
            request_id = (
                cast("Mapping[str, Any]", one).get("id") if isinstance(one, dict) and "method" not in one else None
            )
            if isinstance(request_id, int | str) and not isinstance(request_id, bool):
                yield refused(request_id, NO_MESSAGE)


async def received(line: bytes, limit_bytes: int) -> Iterable[SessionMessage | Garbled]:
    """Return what `messages_in` yields. A long line is read in a thread, so that the event loop goes on."""
    if len(line) <= SHORT_BYTES:
        return messages_in(line, limit_bytes)
    return await aside(lambda: [*messages_in(line, limit_bytes)])


def read_json(text: bytes) -> Any:
    """Return the value of the JSON `text`. Invalid Unicode becomes replacement characters.

    Raises:
        ValueError: it is not valid JSON.
    """
    if len(text) > SHORT_BYTES:
        return read_pieces(text.removeprefix(codecs.BOM_UTF8))
    try:
        return from_json(text)
    except ValueError:
        # Rare cases that are worth the time: bytes in another encoding, a byte order mark, a lone surrogate. A tool
        # that has run must not lose its answer to them.
        try:
            repaired = json.loads(text.decode("utf-8-sig", "replace"))
            return from_json(json.dumps(repaired, ensure_ascii=False).encode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def request_answered(message: bytes) -> RequestId | None:
    """Return the id at the start or the end of `message`, where programs usually write it; None if it is elsewhere.

    The part between is not read, because it may be long or missing. Only an id that certainly belongs to the message
    itself is returned.
    """
    found = _ID_FIRST.match(message[:EDGE_BYTES]) or _ID_LAST.search(message[-EDGE_BYTES:])
    try:
        return None if found is None else from_json(found[1])
    except ValueError:
        return None


def _with_whole_id(wire: Any) -> Any:
    """Return `wire` with the id 7 instead of 7.0. Some languages have one number type, and JSON does not distinguish
    them."""
    match wire:
        case {"id": float() as request_id, **rest} if request_id.is_integer():
            return {**rest, "id": int(request_id)}
        case _:
            return wire


def refused(request_id: RequestId, refusal: Refusal) -> SessionMessage:
    """Return an error message that takes the place of the answer to a request."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=outcome(refusal)))


def _shown(line: bytes) -> str:
    return line[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")[:SHOWN_CHARACTERS]
