"""Values by pattern: as if every pattern were asked, in the order in which they were given."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.catalog.id_patterns import Patterns, is_pattern, nearest_id

PARTS = st.text("aAb.*?[]!-^|(", max_size=6)
IDS = st.builds("{}.{}".format, st.text("aAb*", min_size=1, max_size=3), st.text("aAb.[]|(", max_size=4))


@given(st.lists(PARTS | IDS, max_size=8), IDS)
def test_a_tool_meets_the_patterns_that_file_names_would_meet_in_their_order(patterns: list[str], tool_id: str) -> None:
    met = Patterns(zip(patterns, range(8), strict=False)).of(tool_id)

    assert met == tuple(
        position
        for position, pattern in enumerate(patterns)
        if (fnmatchcase(tool_id, pattern) if is_pattern(pattern) else tool_id == pattern)
    )


def test_upper_and_lower_case_are_told_apart() -> None:
    patterns = Patterns([("git.commit", 1), ("git.Commit", 2), ("GIT.*", 3), ("*.commit", 4), ("git.c*", 5)])

    assert patterns.of("git.commit") == (1, 4, 5)
    assert patterns.of("git.Commit") == (2,)
    assert patterns.of("GIT.commit") == (3, 4)


def test_a_pattern_crosses_dots() -> None:
    assert Patterns([("git.*", 1), ("*.deep", 2), ("g*deep", 3), ("*", 4)]).of("git.very.deep") == (1, 2, 3, 4)


def test_without_any_nothing_is_met() -> None:
    assert Patterns[int]().of("git.commit") == ()


@pytest.mark.parametrize(
    ("text", "several"), [("git.commit", False), ("git.*", True), ("g?t.x", True), ("[a]", True), ("]x", False)]
)
def test_what_may_stand_for_several_is_a_pattern(text: str, several: bool) -> None:
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
def test_the_nearest_id_is_like_in_its_source_and_in_its_name(wanted: str, meant: str | None) -> None:
    assert nearest_id(wanted, ["time.convert_time", "time.get_current_time", "git.log"]) == meant
