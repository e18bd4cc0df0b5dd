"""Results that exceed the size limits: text is split into pages, and large binary content is left out."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

from mcp.server.context import HandlerResult

from toolcrib.config import DEFAULT_ROOM, Room
from toolcrib.core.principal import Principal
from toolcrib.core.shares import Shares
from toolcrib.surfaces.mcp_gateway.gateway_answers import fitted, json_text, whole
from toolcrib.surfaces.mcp_gateway.request_context import Ctx, principal_of

PAGE_SCHEME = "toolcrib-result://"

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""The maximum memory of all stored pages together, in bytes.

When there is no more room, the principal that uses the most memory loses its oldest results.
"""

MAX_LINKS = 10
"""The maximum number of pages that a result links to. A line of text names the others."""

_MAX_DIGITS = 9

_BREAKS_WITHIN = 0.2
"""A page ends at a line break if there is one in this last fraction of the page."""


@dataclass(frozen=True, slots=True)
class _StoredPages:
    pages: tuple[str, ...]
    mime_type: str
    size: int
    whose: str
    """The id of the principal that received the answer."""

    @property
    def in_memory(self) -> int:
        """The size in memory, in bytes.

        One character outside Latin-1 doubles or quadruples the size of its whole page.
        """
        return sum(sys.getsizeof(page) for page in self.pages)


class PagedResults:
    """Shortens answers to the size limits. The rest stays in memory, for the principal that received the answer."""

    def __init__(self) -> None:
        self.room: Room = DEFAULT_ROOM
        """The size limits of an answer."""
        self._stored = Shares[str, _StoredPages](MAX_KEPT_BYTES, attrgetter("in_memory"))

    def answer_to(self, ctx: Ctx, result: Mapping[str, Any], *, keeps_structure: bool = False) -> HandlerResult:
        """Return the handler's answer to `tools/call`: `result` in the form and size that the client can take.

        `keeps_structure`: see `fitted`.
        """
        if result.get("resultType") == "input_required":
            return dict(result)
        result = self.fitted(result, self.room, principal_of(ctx), keeps_structure=keeps_structure)
        return whole(fitted(result, ctx.protocol_version))

    def fitted(
        self, wire: Mapping[str, Any], room: Room, principal: Principal, *, keeps_structure: bool = False
    ) -> Mapping[str, Any]:
        """Shorten `wire`, an answer to `tools/call`, to the limits of `room`.

        It keeps at most `room.text` bytes of text, and no binary content above `room.binary` bytes. A link or a note
        replaces what was removed. Structured content that is too large is also replaced by links, unless the reader
        needs it complete (`keeps_structure`).
        """
        content = wire.get("content")
        structured = wire.get("structuredContent")
        if isinstance(content, list):
            wire = {**wire, "content": self._content(cast("list[object]", content), room, principal)}
        if structured is not None and not keeps_structure:
            text = json_text(cast("object", structured))
            if _size(text) > room.text:
                wire = {key: value for key, value in wire.items() if key != "structuredContent"}
                links = self._replacement(text, "application/json", room, principal, "The structured content")
                wire["content"] = [*wire.get("content", ()), *links]
        return wire

    def page(self, uri: str, principal: Principal) -> Mapping[str, Any] | None:
        """Return the result of `resources/read` for a page, or None if it does not exist or was discarded."""
        name, _, number = uri.removeprefix(PAGE_SCHEME).partition("/")
        stored = self._stored.get(name)
        if stored is None or stored.whose != principal.id:
            return None
        if not (number.isdecimal() and len(number) <= _MAX_DIGITS and 1 <= int(number) <= len(stored.pages)):
            return None
        return {"contents": [{"uri": uri, "mimeType": stored.mime_type, "text": stored.pages[int(number) - 1]}]}

    def _content(self, content: list[object], room: Room, principal: Principal) -> list[object]:
        fitting: list[object] = []
        left, rest, rest_at = room.text, list[str](), 0
        for block in content:
            match block:
                case {"type": "text", "text": str() as text}:
                    if rest or _size(text) > left:
                        if not rest:
                            end = _end(text, 0, left)
                            head, text = text[:end], text[end:]
                            fitting += [{**cast("dict[str, Any]", block), "text": head}] if head else []
                            left, rest_at = 0, len(fitting)
                        rest.append(text)
                    else:
                        left -= _size(text)
                        fitting.append(block)
                case {"type": "resource", "resource": {"text": str() as text, "uri": str() as uri}}:
                    if _size(text) > left:
                        mime_type = str(cast("dict[str, Any]", block)["resource"].get("mimeType", "text/plain"))
                        fitting += self._replacement(text, mime_type, room, principal, uri)
                    else:
                        left -= _size(text)
                        fitting.append(block)
                case {"data": str() as data} | {"resource": {"blob": str() as data}}:
                    fitting.append(block if _binary_size(data) <= room.binary else _left_out(block, data, room))
                case _:
                    fitting.append(block)
        if rest:
            links = self._replacement("\n".join(rest), "text/plain", room, principal, "The rest of this text")
            fitting[rest_at:rest_at] = links
        return fitting

    def _replacement(
        self, text: str, mime_type: str, room: Room, principal: Principal, what: str
    ) -> list[dict[str, Any]]:
        """Store `text` as pages, and return content blocks: a line that says where they are, and links."""
        name = secrets.token_urlsafe(9)
        stored = _StoredPages(tuple(_paged(text, room.text)), mime_type, _size(text), principal.id)
        self._stored.put(principal.id, name, stored)
        if name not in self._stored:
            line = f"[{what} is too large for one answer ({stored.size} bytes), and also too large to store.]"
            return [{"type": "text", "text": line}]
        count = len(stored.pages)
        first, last = f"{PAGE_SCHEME}{name}/1", f"{PAGE_SCHEME}{name}/{count}"
        where = f"as the resource {first}" if count == 1 else f"as {count} resources, {first} to {last}"
        line = (
            f"[{what} is too large for one answer ({stored.size} bytes). Read it {where}. "
            "It is kept until memory is needed.]"
        )
        links = [
            {
                "type": "resource_link",
                "uri": f"{PAGE_SCHEME}{name}/{number}",
                "name": f"page {number} of {count}",
                "mimeType": mime_type,
                "size": _size(page),
            }
            for number, page in enumerate(stored.pages[:MAX_LINKS], 1)
        ]
        return [{"type": "text", "text": line}, *links]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _binary_size(base64: str) -> int:
    return len(base64) * 3 // 4


def _left_out(block: object, data: str, room: Room) -> dict[str, Any]:
    wire = cast("dict[str, Any]", block)
    kind = wire.get("mimeType") or wire.get("resource", {}).get("mimeType") or "a file"
    text = (
        f"[{kind} of about {_binary_size(data)} bytes is left out. The limit is {room.binary} bytes, "
        "which the gateway's owner can change.]"
    )
    return {"type": "text", "text": text}


def _paged(text: str, room: int) -> list[str]:
    pages, at = list[str](), 0
    while at < len(text):
        end = max(_end(text, at, room), at + 1)
        pages.append(text[at:end])
        at = end
    return pages


def _end(text: str, at: int, room: int) -> int:
    """Return where a page ends: `text` from `at` fits into `room` bytes. Prefers a line break near the end."""
    part = text[at : at + max(0, room)]
    if not part.isascii():
        encoded = part.encode("utf-8", "surrogatepass")
        if len(encoded) > room:
            while encoded[room] & 0xC0 == 0x80:  # in the middle of a character
                room -= 1
            part = encoded[:room].decode("utf-8", "surrogatepass")
    end = at + len(part)
    near = at + int(len(part) * (1 - _BREAKS_WITHIN))
    if end < len(text) and (line_end := text.rfind("\n", near, end)) >= 0:
        return line_end + 1
    return end
