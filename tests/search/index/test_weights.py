"""Constants as one value, and signals that are switched off in it."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from toolcrib.search.index.weights import SIGNALS, WEIGHTS


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_that_is_switched_off_has_no_weight_and_the_others_have_theirs(name: str) -> None:
    before, after = asdict(WEIGHTS), asdict(WEIGHTS.without(name))

    assert {key for key in before if before[key] != after[key]} == {name}
    assert after[name] == 0
    assert before[name] > 0


def test_several_are_switched_off_at_once_and_none_leaves_all_as_it_is() -> None:
    assert WEIGHTS.without(*SIGNALS) == WEIGHTS.without(*SIGNALS[:3]).without(*SIGNALS[3:])
    assert WEIGHTS.without() == WEIGHTS


@pytest.mark.parametrize("name", ["", "synonym", "k1", "clause_parity", "name"])
def test_what_is_no_signal_is_refused_by_name(name: str) -> None:
    with pytest.raises(KeyError, match=f"unknown signals: {name}"):
        WEIGHTS.without("synonyms", name)
