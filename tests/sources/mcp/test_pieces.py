"""Long JSON texts that are read in pieces: the values are the same as when read at once, in steps of limited size."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from toolcrib.sources.mcp import pieces
from toolcrib.sources.mcp.pieces import read_pieces

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["", '"', "\\", "\\u", "😀" * 20, "x" * 200]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda below: st.lists(below) | st.dictionaries(TEXTS, below),
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a window so small that it cuts nearly every value."""
    monkeypatch.setattr(pieces, "WINDOW_BYTES", 32)
    monkeypatch.setattr(pieces, "MANY_CHARS", 12)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_every_value_is_read_as_it_was_written(value: Any, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    assert read_pieces(text.encode()) == json.loads(text)


@given(st.binary() | TEXTS.map(str.encode), st.sampled_from([b"", b" " * 40, b"[" * 40, b'"' + b"x" * 40]))
def test_text_that_is_not_json_is_refused(text: bytes, before: bytes) -> None:
    whole = before + text
    try:
        expected = json.loads(whole)
    except ValueError:
        with pytest.raises(ValueError):
            read_pieces(whole.decode("utf-8", "replace").encode())
    else:
        assert read_pieces(whole) == expected


@given(VALUES, st.integers(0, 400))
def test_truncated_json_is_refused(value: Any, at: int) -> None:
    text = json.dumps([value, "end"]).encode()
    with pytest.raises(ValueError):
        read_pieces(text[: min(at, len(text) - 1)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'["\\ud83d", "' + b"x" * 60 + b'"]', ["?", "x" * 60]),
        (b'["' + b"x" * 40 + b'\\ud83d\\u0041\\ude00"]', ["x" * 40 + "?A?"]),
        (b'["' + b"x" * 27 + b"\xff" + b"x" * 40 + b'"]', ["x" * 27 + "?" + "x" * 40]),
        (b'{"\\ud83d' + b"k" * 40 + b'": 1}', {"?" + "k" * 40: 1}),
    ],
)
def test_invalid_unicode_becomes_a_question_mark(text: bytes, expected: Any) -> None:
    assert read_pieces(text) == expected


@pytest.mark.parametrize("depth", [pieces.MAX_DEPTH, pieces.MAX_DEPTH + 1, 100_000])
@pytest.mark.parametrize("window", [32, 100_000])
def test_the_maximum_nesting_is_the_same_as_for_reading_at_once(
    depth: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WINDOW_BYTES", window)
    text = b"[" * depth + b"1" + b"]" * depth
    if depth <= pieces.MAX_DEPTH:
        assert read_pieces(text) == from_json(text)
        return
    for read in (from_json, read_pieces):
        with pytest.raises(ValueError):
            read(text)


@pytest.mark.parametrize("begin", [b"{", b"{ ", b'{"k": ', b'[{"k": ', b'{"k": {', b"[{"])
@pytest.mark.parametrize("window", [32, 100_000])
def test_endlessly_nested_openings_are_refused(begin: bytes, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WINDOW_BYTES", window)
    with pytest.raises(ValueError):
        read_pieces(begin * 100_000)


@pytest.mark.parametrize("key", [b"{}", b"[]", b"1", b"null", b""])
def test_a_key_that_is_not_a_string_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="no key begins at 1"):
        read_pieces(b"{" + key + b': "' + b"x" * 40 + b'"}')


@pytest.mark.parametrize("frames", [40, 60, 80])
def test_a_text_that_would_overflow_the_stack_is_refused(frames: int) -> None:
    """This also holds if code other than the scanner needs the stack."""
    text = (b"[" + b" " * 40) * pieces.MAX_DEPTH + b"1" + b"]" * pieces.MAX_DEPTH
    assert read_pieces(text) == from_json(text)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + frames)
    try:
        with pytest.raises(ValueError, match="nested too deeply"):
            read_pieces(text)
    finally:
        sys.setrecursionlimit(limit)


def test_nesting_does_not_multiply_the_reading_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Testing each object and list for its length would take steps that multiply with the depth."""
    monkeypatch.setattr(pieces, "WINDOW_BYTES", 1_000)
    looked = 0
    look = pieces._Reader._look  # pyright: ignore[reportPrivateUsage]

    def counted(reader: Any) -> None:
        nonlocal looked
        looked += 1
        look(reader)

    monkeypatch.setattr(pieces._Reader, "_look", counted)  # pyright: ignore[reportPrivateUsage]
    one = b"[1," * 150 + b'"' + b"x" * 1_500 + b'"' + b"]" * 150
    text = b"[" + b",".join([one] * 50) + b"]"
    assert len(read_pieces(text)) == 50
    assert looked < 6 * len(text) / 1_000
