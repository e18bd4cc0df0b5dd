"""One byte string for one JSON value."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st

from toolcrib.core.digests import canonical_bytes, digest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(part) for key, part in reversed(list(value.items()))}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return [reordered(part) for part in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


@given(JSON)
def test_the_order_of_keys_never_matters(value: Any) -> None:
    assert digest(reordered(value)) == digest(value)


def test_the_order_of_a_list_does() -> None:
    assert digest([1, 2]) != digest([2, 1])


def test_bytes_are_those_of_rfc_8785() -> None:
    assert canonical_bytes({"b": [1.0, 1e21], "a": "é\n"}) == '{"a":"é\\n","b":[1,1e+21]}'.encode()


@given(st.integers(min_value=2**53), st.integers(min_value=2**53))
def test_integers_beyond_two_to_the_53rd_are_told_apart(one: int, other: int) -> None:
    assert (digest({"maximum": one}) == digest({"maximum": other})) == (one == other)


@given(JSON)
def test_bytes_are_those_of_another_implementation_wherever_it_has_any(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        assume(False)
        raise
    assert canonical_bytes(value) == expected


def test_a_number_beside_one_that_rfc_8785_cannot_hold_is_written_as_ever() -> None:
    assert canonical_bytes({"é": [1.0, 2**64, 1e21]}) == '{"é":[1,18446744073709551616,1e+21]}'.encode()


def test_letters_that_look_alike_are_told_apart() -> None:
    assert len({digest(text) for text in ("é", "e\u0301", "a", "а", "ａ")}) == 5


def test_depth_has_no_bound() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    assert len(canonical_bytes(value)) == 200_002


def test_what_is_no_json_value_is_refused() -> None:
    with pytest.raises(TypeError):
        digest({"a": {1, 2}})


def test_what_rfc_8785_cannot_hold_still_has_a_digest() -> None:
    values = [{"a": "\ud800"}, {"a": "\ud801"}, float("inf"), float("nan"), 2**64, -(2**64)]

    assert len({digest(value) for value in values}) == len(values)


def test_a_read_only_mapping_is_the_object_it_shows() -> None:
    inner: dict[str, Any] = {"é": [], "b": ()}

    assert digest(MappingProxyType({"a": MappingProxyType(inner)})) == digest({"a": inner})
