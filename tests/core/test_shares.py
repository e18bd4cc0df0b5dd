"""A table that principals share: whoever takes little loses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.shares import Shares


def test_one_principal_may_take_all_the_room_and_then_loses_its_oldest() -> None:
    table = Shares[int, str](3)
    assert [table.put("eve", number, f"e{number}") for number in range(5)] == [[], [], [], ["e0"], ["e1"]]
    assert table.items() == [(2, "e2"), (3, "e3"), (4, "e4")]


def test_a_full_table_of_others_makes_room_for_a_newcomer_and_never_takes_it_back() -> None:
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


def test_a_value_that_is_larger_than_its_share_goes_before_those_of_others_who_keep_to_theirs() -> None:
    table = Shares[str, bytes](100, len)
    table.put("ada", "ada", bytes(40))
    assert table.put("eve", "eve", bytes(90)) == [bytes(90)]
    assert table.items() == [("ada", bytes(40))]
    assert table.put("eve", "eve", bytes(60)) == []


def test_what_was_taken_out_leaves_its_room() -> None:
    table = Shares[str, bytes](10, len)
    table.put("ada", "first", bytes(6))
    assert table.pop("first") == bytes(6)
    assert table.pop("first") is None
    assert table.put("ada", "second", bytes(10)) == []


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50), st.booleans()), max_size=60),
)
def test_it_is_never_overfull_and_takes_nothing_from_who_keeps_to_its_share(
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
