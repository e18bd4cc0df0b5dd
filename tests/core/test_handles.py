"""Handles: what is written is read again, and what is no handle becomes none that any tool has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.handles import Handle

TRACES = st.integers(1, 16**32 - 1).map("{:032x}".format)


@given(st.text(), st.text("0123456789abcdef", min_size=1), st.none() | TRACES)
def test_what_a_handle_is_written_as_is_read_as_the_same_handle(
    tool_id: str, digest: str, trace_id: str | None
) -> None:
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
def test_a_handle_is_an_id_a_digest_and_perhaps_a_trace(text: str, handle: Handle) -> None:
    assert Handle.parse(text) == handle


def test_a_trace_is_written_without_the_zeros_it_begins_with() -> None:
    assert str(Handle("git.push", "1f", "ab0".zfill(32))) == "git.push@1f.ab0"


@pytest.mark.parametrize("text", ["", "git.push", "1f.ab0"])
def test_what_has_no_at_sign_is_no_handle(text: str) -> None:
    assert Handle.parse(text) is None


@pytest.mark.parametrize("trace", ["", "0", "0" * 32, "f" * 33, "AB", "xyz", "a.b", " a"])
def test_what_stands_where_a_trace_should_and_is_none_makes_the_digest_another(trace: str) -> None:
    assert Handle.parse(f"git.push@1f.{trace}") == Handle("git.push", f"1f.{trace}")
