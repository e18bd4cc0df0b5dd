"""Values by pattern: the result equals testing every pattern in the given order."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.id_patterns import Patterns, is_pattern, nearest_id

PARTS = st.text("aAb.*?[]!-^|(", max_size=6)
IDS = st.builds("{}.{}".format, st.text("aAb*", min_size=1, max_size=3), st.text("aAb.[]|(", max_size=4))


@given(st.lists(PARTS | IDS, max_size=8), IDS)
def test_a_tool_matches_the_patterns_that_fnmatch_would_match_in_order(patterns: list[str], tool_id: str) -> None:
    met = Patterns(zip(patterns, range(8), strict=False)).of(tool_id)

    assert met == tuple(
        position
        for position, pattern in enumerate(patterns)
        if (fnmatchcase(tool_id, pattern) if is_pattern(pattern) else tool_id == pattern)
    )


def test_patterns_are_case_sensitive() -> None:
    patterns = Patterns([("git.commit", 1), ("git.Commit", 2), ("GIT.*", 3), ("*.commit", 4), ("git.c*", 5)])

    assert patterns.of("git.commit") == (1, 4, 5)
    assert patterns.of("git.Commit") == (2,)
    assert patterns.of("GIT.commit") == (3, 4)


def test_a_wildcard_matches_dots() -> None:
    assert Patterns([("git.*", 1), ("*.deep", 2), ("g*deep", 3), ("*", 4)]).of("git.very.deep") == (1, 2, 3, 4)


def test_an_empty_set_of_patterns_matches_nothing() -> None:
    assert Patterns[int]().of("git.commit") == ()


@pytest.mark.parametrize(
    ("text", "several"), [("git.commit", False), ("git.*", True), ("g?t.x", True), ("[a]", True), ("]x", False)]
)
def test_a_string_with_a_wildcard_is_a_pattern(text: str, several: bool) -> None:
    assert is_pattern(text) is several


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("time.get_curent_time", "time.get_current_time"),
        ("tme.get_current_time", "time.get_current_time"),
        ("get_curent_time", "time.get_current_time"),
        ("git.lg", "git.log"),
        ("git.push", None),
        ("excel.create_chart", None),
        ("", None),
    ],
)
def test_the_nearest_id_is_similar_in_source_and_in_name(wanted: str, meant: str | None) -> None:
    assert nearest_id(wanted, ["time.convert_time", "time.get_current_time", "git.log"]) == meant
