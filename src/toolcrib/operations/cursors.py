"""Cursors for the next page, sealed so that they are only valid for the same request and the same catalog."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from toolcrib.core.digests import canonical_bytes
from toolcrib.core.errors import InvalidCursor, NextAction

_SEAL_BYTES = 12
_OFFSET_BYTES = 4


class CursorSeal:
    """Makes and opens cursors with a key. Replicas that share a key can open each other's cursors."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes()

    def make(self, offset: int, bound_to: Mapping[str, Any]) -> str:
        """Return a cursor for the page that begins at `offset`. It is only valid with the same `bound_to` values."""
        head = offset.to_bytes(_OFFSET_BYTES)
        return base64.urlsafe_b64encode(head + self._seal(head, bound_to)).decode()

    def open(self, cursor: str, bound_to: Mapping[str, Any], *, restart: NextAction) -> int:
        """Return the offset in `cursor`.

        Raises:
            InvalidCursor: the cursor was modified, belongs to a different request, or is older than a change of the
                catalog. `restart` is the next action of the error.
        """
        offset = self._offset(cursor, bound_to)
        if offset is None:
            raise InvalidCursor(
                "This cursor is invalid: it belongs to a different request, or the catalog has changed.",
                hints=["Send the request again without `cursor`."],
                next_action=restart,
            )
        return offset

    def _offset(self, cursor: str, bound_to: Mapping[str, Any]) -> int | None:
        try:
            raw = base64.urlsafe_b64decode(cursor)
        except ValueError:  # not base64, or not ASCII
            return None
        offset = int.from_bytes(raw[:_OFFSET_BYTES])
        # Compare the whole string, because base64 can encode the same bytes in more than one way.
        return offset if hmac.compare_digest(self.make(offset, bound_to), cursor) else None

    def _seal(self, head: bytes, bound_to: Mapping[str, Any]) -> bytes:
        return hmac.new(self._key, head + canonical_bytes(bound_to), hashlib.sha256).digest()[:_SEAL_BYTES]
