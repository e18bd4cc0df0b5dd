"""Cursors: where the next page begins, sealed so that only the request and catalog they were made for take them."""

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
    """Makes and opens cursors under one key; whoever shares the key can open them, so replicas can be given one."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes()

    def make(self, offset: int, bound_to: Mapping[str, Any]) -> str:
        """A cursor for the page that begins at `offset`, for a request that is `bound_to` exactly these JSON values."""
        head = offset.to_bytes(_OFFSET_BYTES)
        return base64.urlsafe_b64encode(head + self._seal(head, bound_to)).decode()

    def open(self, cursor: str, bound_to: Mapping[str, Any], *, restart: NextAction) -> int:
        """The offset in `cursor`.

        Raises:
            InvalidCursor: altered, of another request, or older than a change of the catalog; `restart` is the way on.
        """
        offset = self._offset(cursor, bound_to)
        if offset is None:
            raise InvalidCursor(
                "This cursor is not for this request, or the catalog has changed since it was made.",
                hints=["Send the request again without a cursor."],
                next_action=restart,
            )
        return offset

    def _offset(self, cursor: str, bound_to: Mapping[str, Any]) -> int | None:
        try:
            raw = base64.urlsafe_b64decode(cursor)
        except ValueError:  # no base64, or no ASCII
            return None
        offset = int.from_bytes(raw[:_OFFSET_BYTES])
        # The whole string is compared, for the same bytes can be written in more than one way.
        return offset if hmac.compare_digest(self.make(offset, bound_to), cursor) else None

    def _seal(self, head: bytes, bound_to: Mapping[str, Any]) -> bytes:
        return hmac.new(self._key, head + canonical_bytes(bound_to), hashlib.sha256).digest()[:_SEAL_BYTES]
