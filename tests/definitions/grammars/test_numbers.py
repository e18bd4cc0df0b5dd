"""Grammars for numbers with bounds."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.peers import Matcher, spelled, validator
from tests.examples import examples

from toolcrib.definitions.grammars import arguments_grammar

whole = st.one_of(st.integers(-120, 120), st.integers(-(10**17), 10**17))


def schema(**number: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": number}, "required": ["x"]}


@settings(max_examples=examples(60), deadline=None)
@given(whole, st.integers(0, 10**4), st.booleans(), st.booleans(), st.lists(whole, max_size=5))
def test_bounds_of_integers_are_enforced(
    low: int, room: int, strict_low: bool, strict_high: bool, more: list[int]
) -> None:
    held = schema(
        type="integer",
        **{"exclusiveMinimum" if strict_low else "minimum": low},
        **{"exclusiveMaximum" if strict_high else "maximum": low + room},
    )
    grammar = arguments_grammar(held)
    if grammar.degraded:
        assert not any(validator(held).is_valid({"x": value}) for value in range(low - 1, low + 2))
        return
    matcher = Matcher(grammar.text)
    near = (low - 1, low, low + 1, low + room // 2, low + room - 1, low + room, low + room + 1, -low)
    for value in (*near, *more):
        assert matcher.accepts(spelled({"x": value})) == validator(held).is_valid({"x": value}), value


@pytest.mark.parametrize("kind", ["number", "integer"])
@settings(max_examples=examples(60), deadline=None)
@given(
    low=st.none() | st.integers(-12, 12),
    high=st.none() | st.integers(-12, 12),
    strict=st.booleans(),
    seed=st.integers(0, 2**32),
    values=st.lists(st.decimals(-15, 15, places=3), max_size=8),
)
def test_whole_bounds_of_numbers_are_enforced(
    kind: str, *, low: int | None, high: int | None, strict: bool, seed: int, values: list[Any]
) -> None:
    names = ("exclusiveMinimum", "exclusiveMaximum") if strict else ("minimum", "maximum")
    held = schema(type=kind, **{key: bound for key, bound in zip(names, (low, high), strict=True) if bound is not None})
    grammar = arguments_grammar(held)
    fits = validator(held)
    if grammar.degraded:
        assert low is not None
        assert high is not None
        assert high <= low + 1
        return
    assert not grammar.unenforced
    matcher = Matcher(grammar.text)
    for value in (*map(float, values), *(bound for bound in (low, high) if bound is not None)):
        said = int(value) if float(value).is_integer() else value
        assert matcher.accepts(spelled({"x": said})) == fits.is_valid({"x": said}), said
    source, read = random.Random(seed), Read(grammar.text)
    for _ in range(20):
        text = read.walk(source)
        assert fits.is_valid(json.loads(text)), text


def test_numbers_are_limited_to_what_machines_can_represent() -> None:
    matcher = Matcher(arguments_grammar(schema(type="number")).text)
    for text in ("0", "-0.5", "1e10", "1.5E-07", "-123456789012345678", "0.00012345678901234567", "1.7e+22"):
        assert matcher.accepts(f'{{"x": {text}}}'), text
    for text in ("01", "+1", ".5", "1.", "1e", "1e999", "1" * 19, "NaN", "0x1", "--1"):
        assert not matcher.accepts(f'{{"x": {text}}}'), text


def test_huge_bounds_and_bounds_of_older_drafts_are_read() -> None:
    assert arguments_grammar(schema(type="integer", minimum=5, maximum=3)).degraded
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **schema(type="integer", minimum=3, exclusiveMinimum=True),
    }
    matcher = Matcher(arguments_grammar(old).text)
    assert [matcher.accepts(spelled({"x": value})) for value in (2, 3, 4)] == [False, False, True]
    wide = Matcher(arguments_grammar(schema(type="integer", minimum=-(10**30), maximum=1e300)).text)
    assert wide.accepts('{"x": -999999999999999999}')
