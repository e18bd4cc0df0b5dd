"""One byte string for one JSON value."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from hypothesis import given
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


def test_what_rfc_8785_cannot_hold_still_has_a_digest() -> None:
    values = [{"a": "\ud800"}, {"a": "\ud801"}, float("inf"), float("nan"), 2**64, -(2**64)]

    assert len({digest(value) for value in values}) == len(values)


def test_a_read_only_mapping_is_the_object_it_shows() -> None:
    inner: dict[str, Any] = {"b": []}

    assert digest(MappingProxyType({"a": MappingProxyType(inner)})) == digest({"a": inner})
