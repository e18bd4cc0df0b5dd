"""Lists of which a client gets one page at a time."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from itertools import islice

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

PAGE_SIZE = 100


def page_of(names: Iterable[str], cursor: str | None, size: int = PAGE_SIZE) -> tuple[list[str], str | None]:
    """The `size` names that follow `cursor` in order, and the cursor of the page after them.

    A cursor holds the name it follows: names that come and go between two pages shift no other.

    Raises:
        MCPError: no such cursor was given out.
    """
    after = None if cursor is None else _read(cursor)
    following = sorted(name for name in names if after is None or name > after)
    page = list(islice(following, size))
    return page, _written(page[-1]) if len(following) > size else None


def _written(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _read(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise MCPError(INVALID_PARAMS, "This cursor is of no page here.") from error
