"""Handles: parsing and formatting, and strings that are not handles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.handles import Handle

TRACES = st.integers(1, 16**32 - 1).map("{:032x}".format)


@given(st.text(), st.text("0123456789abcdef", min_size=1), st.none() | TRACES)
def test_a_formatted_handle_is_parsed_to_an_equal_handle(tool_id: str, digest: str, trace_id: str | None) -> None:
    handle = Handle(tool_id, digest, trace_id)

    assert Handle.parse(str(handle)) == handle


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("git.push@1f", Handle("git.push", "1f")),
        ("git.push@1f.ab0", Handle("git.push", "1f", "ab0".zfill(32))),
        ("mail@home.send@1f", Handle("mail@home.send", "1f")),
        ("git.push@", Handle("git.push", "")),
        ("@1f", Handle("", "1f")),
    ],
    ids=str,
)
def test_a_handle_consists_of_an_id_a_digest_and_an_optional_trace(text: str, handle: Handle) -> None:
    assert Handle.parse(text) == handle


def test_a_trace_in_a_handle_is_written_without_leading_zeros() -> None:
    assert str(Handle("git.push", "1f", "ab0".zfill(32))) == "git.push@1f.ab0"


@pytest.mark.parametrize("text", ["", "git.push", "1f.ab0"])
def test_a_string_without_an_at_sign_is_not_a_handle(text: str) -> None:
    assert Handle.parse(text) is None


@pytest.mark.parametrize("trace", ["", "0", "0" * 32, "f" * 33, "AB", "xyz", "a.b", " a"])
def test_an_invalid_trace_becomes_part_of_the_digest(trace: str) -> None:
    assert Handle.parse(f"git.push@1f.{trace}") == Handle("git.push", f"1f.{trace}")
