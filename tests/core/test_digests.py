"""The canonical bytes of a JSON value, and their digest."""

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
def test_the_order_of_keys_does_not_affect_a_digest(value: Any) -> None:
    assert digest(reordered(value)) == digest(value)


def test_the_order_of_a_list_affects_a_digest() -> None:
    assert digest([1, 2]) != digest([2, 1])


def test_canonical_bytes_follow_rfc_8785() -> None:
    assert canonical_bytes({"b": [1.0, 1e21], "a": "é\n"}) == '{"a":"é\\n","b":[1,1e+21]}'.encode()


@given(st.integers(min_value=2**53), st.integers(min_value=2**53))
def test_integers_above_two_to_the_53rd_have_different_digests(one: int, other: int) -> None:
    assert (digest({"maximum": one}) == digest({"maximum": other})) == (one == other)


@given(JSON)
def test_canonical_bytes_equal_those_of_a_different_implementation(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except rfc8785.CanonicalizationError:
        assume(False)
        raise
    assert canonical_bytes(value) == expected


def test_numbers_next_to_a_number_beyond_rfc_8785_are_written_as_usual() -> None:
    assert canonical_bytes({"é": [1.0, 2**64, 1e21]}) == '{"é":[1,18446744073709551616,1e+21]}'.encode()


def test_similar_looking_letters_have_different_digests() -> None:
    assert len({digest(text) for text in ("é", "e\u0301", "a", "а", "ａ")}) == 5


def test_the_depth_of_a_value_is_not_limited() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    assert len(canonical_bytes(value)) == 200_002


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError):
        digest({"a": {1, 2}})


def test_values_beyond_rfc_8785_have_different_digests() -> None:
    values = [{"a": "\ud800"}, {"a": "\ud801"}, float("inf"), float("nan"), 2**64, -(2**64)]

    assert len({digest(value) for value in values}) == len(values)


def test_a_read_only_mapping_has_the_digest_of_its_contents() -> None:
    inner: dict[str, Any] = {"é": [], "b": ()}

    assert digest(MappingProxyType({"a": MappingProxyType(inner)})) == digest({"a": inner})
