"""Tests for paged lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import MCPError

from toolcrib.surfaces.mcp_gateway.gateway_answers import page_of

NAMES = st.sets(st.text(max_size=8), max_size=40)


def page(names: set[str], cursor: str | None, size: int = 7) -> tuple[list[str], str | None]:
    got: dict[str, Any] = page_of("names", names, lambda name: {"name": name}, cursor, size)
    return [each["name"] for each in got["names"]], got.get("nextCursor")


@given(NAMES, st.integers(1, 9))
def test_a_cursor_walk_returns_each_name_once_in_order(names: set[str], size: int) -> None:
    walked, cursor = page(names, None, size)
    while cursor is not None:
        more, cursor = page(names, cursor, size)
        assert 1 <= len(more) <= size
        walked += more
    assert walked == sorted(names)


@given(NAMES, NAMES, NAMES)
def test_names_added_or_removed_between_pages_do_not_affect_others(
    names: set[str], new: set[str], gone: set[str]
) -> None:
    first, cursor = page(names, None)
    walked, later = [*first], (names | new) - gone
    while cursor is not None:
        more, cursor = page(later, cursor)
        walked += more
    assert len(walked) == len({*walked})
    assert names - new - gone <= {*walked}


def test_an_invalid_cursor_is_refused() -> None:
    for cursor in ("no cursor", "ä", "AAA", "_____w=="):
        with pytest.raises(MCPError, match="cursor"):
            page({"a"}, cursor)
