"""Messages of the protocol as bytes: cut into lines, bounded, read, and what can be told of those that cannot be."""

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
from toolcrib.sources.mcp.refusals import NO_MESSAGE, Refusal, outcome, too_long

EDGE_BYTES = 1_024
"""How much is kept of either end of a line that is too long."""

SHOWN_CHARACTERS = 80
"""How much is shown of a line that is no message."""

SHORT_BYTES = 262_144
"""Up to this length a message is read in one step, which takes some milliseconds."""

_STARTS = (b"{", b"[", codecs.BOM_UTF8)
"""How a message may begin; what does not is not looked at any further."""

_ID = rb'"id"\s*:\s*(-?\d+|null|"(?:[^"\\]|\\.)*")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"[^"]*"\s*'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")


class Garbled(Exception):
    """What a server sent is no message of the protocol; the text is how it begins."""


class Overlong(bytes):
    """The two ends of a line that was too long to keep, with what lay between them left out."""

    __slots__ = ()


def overlong(line: bytes) -> Overlong:
    """The two ends of `line`."""
    return Overlong(line[:EDGE_BYTES] + line[-EDGE_BYTES:])


class Lines:
    """Cuts what is fed to it into lines of at most `limit_bytes`, in time that is linear in its length."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` is at least `EDGE_BYTES`."""
        self._limit_bytes = max(limit_bytes, EDGE_BYTES)
        self._line = bytearray()
        self._start: bytes | None = None
        """The start of a line that has become too long, of which `_line` is the end by now."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in `chunk`, without their line feed; an `Overlong` for each that was too long."""
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            self._add(chunk[begin:end])
            yield self.rest()
            begin = end + 1
        self._add(chunk[begin:])

    def rest(self) -> bytes:
        """What was fed since the last line feed, which begins a new line."""
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
    """What `line` says: one message, or several, as servers of 2025-03-26 may put them into an array.

    What looks like the answer to a request and cannot be read refuses that request, so that nobody waits for it.
    """
    if isinstance(line, Overlong):
        yield Garbled(f"more than {limit_bytes / 2**20:g} MiB that begin {_shown(line)}")
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
    """The same as `messages_in`, where other things are to go on meanwhile."""
    if len(line) <= SHORT_BYTES:
        return messages_in(line, limit_bytes)
    return await aside(lambda: [*messages_in(line, limit_bytes)])


def read_json(text: bytes) -> Any:
    """The value that `text` stands for; what is no Unicode text becomes replacement characters.

    Raises:
        ValueError: it is no JSON.
    """
    if len(text) > SHORT_BYTES:
        return read_pieces(text.removeprefix(codecs.BOM_UTF8))
    try:
        return from_json(text)
    except ValueError:
        # Rarely, and then worth the time: bytes in another encoding, a byte order mark, half a surrogate pair. A tool
        # that has run must not lose its answer to that.
        try:
            mended = json.loads(text.decode("utf-8-sig", "replace"))
            return from_json(json.dumps(mended, ensure_ascii=False).encode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def request_answered(message: bytes) -> RequestId | None:
    """The id at the start or the end of `message`, where those who write answers put it; None if it stands elsewhere.

    Without reading what lies between: it may be long, or left out. Told only what is the message's own id for sure.
    """
    found = _ID_FIRST.match(message[:EDGE_BYTES]) or _ID_LAST.search(message[-EDGE_BYTES:])
    try:
        return None if found is None else from_json(found[1])
    except ValueError:
        return None


def _with_whole_id(wire: Any) -> Any:
    """`wire` with 7 for 7.0 as its id: some languages know one kind of number, and JSON does not tell them apart."""
    match wire:
        case {"id": float() as request_id, **rest} if request_id.is_integer():
            return {**rest, "id": int(request_id)}
        case _:
            return wire


def refused(request_id: RequestId, refusal: Refusal) -> SessionMessage:
    """In place of an answer, for whoever waits for one."""
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=outcome(refusal)))


def _shown(line: bytes) -> str:
    return line[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")[:SHOWN_CHARACTERS]
