"""A bounded table that principals share: a principal within its share loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.shares import Shares


def test_a_single_principal_may_fill_the_table_and_then_loses_its_oldest_values() -> None:
    table = Shares[int, str](3)
    assert [table.put("eve", number, f"e{number}") for number in range(5)] == [[], [], [], ["e0"], ["e1"]]
    assert table.items() == [(2, "e2"), (3, "e3"), (4, "e4")]


def test_a_full_table_makes_room_for_a_new_principal_permanently() -> None:
    table = Shares[str, str](10)
    for number in range(10):
        table.put("eve", f"eve {number}", "")
    assert table.can_take("ada")
    assert not table.can_take("eve")
    table.put("ada", "ada", "hers")
    for number in range(100):
        table.put("eve", f"more {number}", "")
    assert table.get("ada") == "hers"
    assert len(table) == 10


def test_a_value_larger_than_the_share_is_dropped_before_values_of_others() -> None:
    table = Shares[str, bytes](100, len)
    table.put("ada", "ada", bytes(40))
    assert table.put("eve", "eve", bytes(90)) == [bytes(90)]
    assert table.items() == [("ada", bytes(40))]
    assert table.put("eve", "eve", bytes(60)) == []


def test_can_take_is_exact_up_to_the_last_unit() -> None:
    table = Shares[str, bytes](10, len)
    table.put("ada", "ada", bytes(6))
    table.put("eve", "eve", bytes(1))

    assert table.can_take("ada", 3)
    assert not table.can_take("ada", 4)


def test_the_limit_per_principal_applies_and_does_not_affect_others() -> None:
    table = Shares[str, int](100, int, each=10)
    assert table.put("ada", "kept", 10) == []
    assert table.put("eve", "first", 6) == []
    assert (table.can_take("eve", 4), table.can_take("eve", 5)) == (True, False)
    assert table.put("eve", "second", 5) == [6]
    assert table.put("eve", "too much", 11) == [5, 11]
    assert [key for key, _ in table.items()] == ["kept"]


def test_a_value_that_becomes_smaller_stays_in_position_and_frees_room() -> None:
    table = Shares[str, bytes](10, len)
    table.put("ada", "first", bytes(6))
    table.put("ada", "second", bytes(2))

    table.replace("first", bytes(1))
    table.replace("gone", bytes(1))

    assert table.items() == [("first", bytes(1)), ("second", bytes(2))]
    assert table.can_take("ada", 7)
    assert not table.can_take("ada", 8)
    assert table.put("ada", "third", bytes(8)) == [bytes(1)]
    with pytest.raises(ValueError, match="a value of size 2 by a value of size 3"):
        table.replace("second", bytes(3))


def test_the_default_size_of_a_value_is_one() -> None:
    table = Shares[str, str](2)
    table.put("ada", "ada", "")

    assert table.can_take("ada")
    table.put("ada", "another", "")
    assert not table.can_take("ada")


def test_a_principal_can_take_up_to_its_share_of_a_full_table() -> None:
    table = Shares[str, bytes](12, len)
    table.put("ada", "ada", bytes(2))
    table.put("eve", "eve", bytes(10))

    assert table.can_take("ada", 4), "the share is half of the room"
    assert not table.can_take("ada", 5)
    assert table.can_take("grace", 4), "the share is a third of the room"
    assert not table.can_take("grace", 5)


def test_a_principal_at_exactly_its_share_loses_nothing() -> None:
    table = Shares[str, bytes](4, len)
    table.put("ada", "ada", bytes(2))

    assert table.put("eve", "eve", bytes(4)) == [bytes(4)]
    assert table.items() == [("ada", bytes(2))]


def test_values_of_others_above_their_share_are_dropped_before_a_new_value() -> None:
    table = Shares[str, bytes](10, len)
    table.put("ada", "first", bytes(4))
    table.put("ada", "second", bytes(4))

    assert table.put("eve", "eve", bytes(9)) == [bytes(4), bytes(9)]
    assert table.items() == [("second", bytes(4))]


def test_the_principal_with_the_largest_excess_loses_first() -> None:
    table = Shares[str, bytes](10, len)
    table.put("zoe", "zoe", bytes(4))
    table.put("ada", "ada", bytes(5))
    table.put("grace", "grace", bytes(1))

    assert table.put("grace", "another", bytes(1)) == [bytes(5)]


def test_a_removed_value_no_longer_counts_for_its_principal() -> None:
    table = Shares[str, str](6)
    for key in ("e1", "e2", "e3"):
        table.put("eve", key, key)
    table.pop("e1")
    for key in ("a1", "a2", "a3"):
        table.put("ada", key, key)
    for key in ("g1", "g2"):
        table.put("grace", key, key)

    assert table.get("a1") is None
    assert table.get("e2") == "e2"


def test_a_removed_value_frees_its_room() -> None:
    table = Shares[str, bytes](10, len)
    table.put("ada", "first", bytes(6))
    assert table.pop("first") == bytes(6)
    assert table.pop("first") is None
    assert table.put("ada", "second", bytes(10)) == []


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50), st.booleans()), max_size=60),
)
def test_the_table_is_bounded_and_principals_within_their_share_lose_nothing(
    room: int, steps: list[tuple[str, int, bool]]
) -> None:
    table, model = Shares[int, tuple[str, int]](room, lambda value: value[1]), dict[int, tuple[str, int]]()
    for key, (principal, size, takes_out) in enumerate(steps):
        if takes_out and model:
            oldest = next(iter(model))
            assert table.pop(oldest) == model.pop(oldest)
        model[key] = principal, size
        principals = {whose for whose, _ in model.values()}
        modest = {
            whose for whose in principals if sum(each for who, each in model.values() if who == whose) <= room / 5
        }
        gone = table.put(principal, key, (principal, size))
        model = {key: value for key, value in model.items() if key in table}
        assert table.items() == [*model.items()]
        assert sum(each for _, each in model.values()) <= room
        assert not modest.intersection(whose for whose, _ in gone)
