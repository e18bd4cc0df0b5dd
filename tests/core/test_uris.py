"""Different spellings of a URI denote the same resource."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.uris import spellings


@pytest.mark.parametrize(
    ("uri", "also"),
    [
        ("FILE:///a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("https://EXAMPLE.com/a", "https://example.com/a"),
        ("file:///a/../b", "file:///b"),
        ("file:///a/%2e%2e/b", "file:///b"),
        ("file:///a/%252e%252e/b", "file:///b"),
        ("file:///%65tc", "file:///etc"),
        ("file:////etc", "file:///etc"),
        ("file:///folder/./", "file:///folder/"),
        ("memo://1?q=%41", "memo://1?q=%41"),
    ],
)
def test_the_spellings_of_a_uri_include_its_normalized_form(uri: str, also: str) -> None:
    assert also in spellings(uri)
    assert spellings(uri)[0] == uri


@pytest.mark.parametrize("name", ["greet", "", "a b", "../x", "//host/x", "http://[", "ä/ö"])
def test_a_name_that_is_not_a_uri_has_only_one_spelling(name: str) -> None:
    assert spellings(name) == (name,)


@given(st.text())
def test_any_string_has_a_few_spellings_including_itself(text: str) -> None:
    assert text in spellings(text)
    assert len(spellings(text)) <= 6
