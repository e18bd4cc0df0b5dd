"""Reads a server's list page by page, up to a maximum length."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

MAX_PAGES = 1_000
MAX_DEFINITIONS = 100_000
"""How many pages and definitions of one list are read. A server whose list is longer is not followed further."""

AT_ONCE = 200
"""How many definitions are checked before others get a turn. Each takes microseconds, but a page can hold millions."""


async def walk(page: Callable[[str | None], Awaitable[object]], count: Callable[[], int]) -> bool:
    """Read page after page: `page` takes a cursor (None first), and returns the next cursor if it is a string.

    `count` returns how many definitions were read so far. Returns False if the list exceeds the maximum length.
    """
    cursors: set[str] = set()
    cursor: str | None = None
    while True:
        following = await page(cursor)
        if not isinstance(following, str) or not following:
            return count() < MAX_DEFINITIONS
        if following in cursors or len(cursors) >= MAX_PAGES or count() >= MAX_DEFINITIONS:
            return False
        cursors.add(following)
        cursor = following
