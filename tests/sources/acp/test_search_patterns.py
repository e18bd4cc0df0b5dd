"""Untrusted search patterns: what they match, which are refused, and that all of them end in linear time."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ToolFailed
from toolcrib.sources.acp.search_patterns import expression, glob, literal


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("*.py", "a.pyc", False),
        ("*.py", "axpy", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/*.py", "lib/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/very/deep/a.py", True),
        ("**/a.py", "a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("src/**", "src/very/deep/a.py", True),
        ("?.py", "a.py", True),
        ("?.py", "ab.py", False),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("[!ab].py", "c.py", True),
        ("[a-c].py", "b.py", True),
        ("[c-a].py", "b.py", False),
        ("[!c-a].py", "b.py", True),
        ("[zb-a-c].py", "c.py", True),
        ("[a-].py", "-.py", True),
        ("[", "[", True),
        ("a[.py", "a[.py", True),
        ("*.{ts,tsx}", "x/a.tsx", True),
        ("*.{ts,tsx}", "a.js", False),
        ("{a*,b}/c", "abc/c", True),
        ("{", "{", True),
        ("a+(b)^$|.py", "a+(b)^$|.py", True),
        ("ä*", "ärger.txt", True),
        ("a b#&-~.py", "a b#&-~.py", True),
        ("\\d", "\\d", True),
        ("a\nb", "a\nb", True),
        ("*", "a\nb", True),
        ("a", "a\n", False),
    ],
)
def test_a_glob_pattern_matches_paths_as_expected(pattern: str, path: str, is_match: bool) -> None:
    assert glob(pattern)(path) is is_match


@given(st.text("ab.*?[]!-{},\\^", min_size=1, max_size=8), st.text("ab.-\\^", min_size=1, max_size=6))
def test_a_glob_pattern_for_a_name_agrees_with_fnmatch(pattern: str, name: str) -> None:
    if any(special in pattern for special in "[]{}"):
        glob(pattern)(name)  # compiling and matching must not fail
    else:
        assert glob(pattern)(name) is fnmatch.fnmatchcase(name, pattern)


@given(st.text(max_size=30))
def test_any_text_is_a_valid_glob_pattern(pattern: str) -> None:
    glob(pattern)("src/a.py")


def test_a_regular_expression_is_found_anywhere_in_a_line() -> None:
    matches = expression(r"def\s+(\w+)\(")
    assert matches("    def f(x):")
    assert not matches("    define f(x):")
    assert expression("DEF", ignores_case=True)("def")
    assert not expression("DEF")("def")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1000}{1000}{1000}", "x" * 1001])
def test_an_expression_that_cannot_be_matched_in_linear_time_is_refused(pattern: str) -> None:
    with pytest.raises(ToolFailed):
        expression(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*c", "(.*.*.*)*x"])
def test_an_expression_with_exponential_backtracking_is_answered_in_linear_time(pattern: str) -> None:
    assert not expression(pattern)("a" * 5_000 + "!")


def test_a_name_with_a_lone_surrogate_matches_nothing() -> None:
    assert not glob("*")("a\udcff")


def test_a_literal_has_no_special_characters() -> None:
    assert literal("a.c(")("xa.c(x")
    assert not literal("a.c")("abc")
    assert literal("STRASSE", ignores_case=True)("straße")
