"""Cursors: where the next page begins, sealed so that only the request and catalog they were made for take them."""

from __future__ import annotations

import base64
import binascii
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
        self._key = key or secrets.token_bytes(32)

    def make(self, offset: int, bound_to: Mapping[str, Any]) -> str:
        """A cursor for the page that begins at `offset`, for a request that is `bound_to` exactly these JSON values."""
        head = offset.to_bytes(_OFFSET_BYTES, "big")
        return base64.urlsafe_b64encode(head + self._seal(head, bound_to)).decode()

    def open(self, cursor: str, bound_to: Mapping[str, Any], *, restart: NextAction) -> int:
        """The offset in `cursor`.

        Raises:
            InvalidCursor: altered, of another request, or older than a change of the catalog; `restart` is the way on.
        """
        try:
            raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raw = b""
        if base64.urlsafe_b64encode(raw) != cursor.encode("utf-8", "replace"):  # another way to write the same bytes
            raw = b""
        head, seal = raw[:_OFFSET_BYTES], raw[_OFFSET_BYTES:]
        if not hmac.compare_digest(seal, self._seal(head, bound_to)):
            raise InvalidCursor(
                "This cursor is not for this request, or the catalog has changed since it was made.",
                hints=["Send the request again without a cursor."],
                next_action=restart,
            )
        return int.from_bytes(head, "big")

    def _seal(self, head: bytes, bound_to: Mapping[str, Any]) -> bytes:
        return hmac.new(self._key, head + canonical_bytes(bound_to), hashlib.sha256).digest()[:_SEAL_BYTES]
