"""A list of a server's, page after page, however long it says it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

MAX_PAGES = 1_000
MAX_DEFINITIONS = 100_000
"""Pages and definitions read of one list; a server that goes on beyond either is not followed for ever."""

AT_ONCE = 200
"""Definitions that are judged before others get their turn: each takes microseconds, and a page can hold millions."""


async def walk(page: Callable[[str | None], Awaitable[object]], count: Callable[[], int]) -> bool:
    """Ask for page after page: `page` takes a cursor, None first, and gives the next one, if it is a text.

    `count` says how many definitions were read by now. False where the list does not end.
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
