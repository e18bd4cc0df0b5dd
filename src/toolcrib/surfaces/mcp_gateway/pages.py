"""Lists that clients receive one page at a time."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

PAGE_SIZE = 100

TTL_MS = 60_000
"""How long a client may cache a page, in milliseconds. Clients are notified of changes."""


def page_of(
    key: str,
    names: Iterable[str],
    shown: Callable[[str], Mapping[str, Any] | None],
    cursor: str | None,
    size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Return a page of a list result under `key`: `shown` of the `size` names that follow `cursor` in order.

    Names for which `shown` returns None are skipped. A cursor holds the name before the page. So names that appear or
    disappear between two requests do not shift the other names.

    Raises:
        MCPError: the cursor is invalid.
    """
    after = None if cursor is None else _read(cursor)
    following = sorted(name for name in names if after is None or name > after)
    page_names = following[:size]
    page: dict[str, Any] = {
        key: [definition for name in page_names if (definition := shown(name)) is not None],
        "resultType": "complete",
        "ttlMs": TTL_MS,
        "cacheScope": "private",
    }
    return {**page, "nextCursor": _written(page_names[-1])} if len(following) > size else page


def _written(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _read(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise MCPError(INVALID_PARAMS, "Invalid cursor. Send the request again without `cursor`.") from error
