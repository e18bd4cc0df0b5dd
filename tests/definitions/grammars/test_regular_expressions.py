"""Grammars for strings with patterns and formats."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.peers import Matcher, spelled, validator

from toolcrib.definitions.grammars import arguments_grammar

TEXTS = (
    "",
    "a",
    "aa",
    "b",
    "ab",
    "aab",
    "xaby",
    "A1",
    "7",
    "-",
    "\\",
    '"',
    "\n",
    "é",
    "漢",
    "\u00a0",
    "a/b",
    "\x00",
    "\x1f",
    "ABC",
)


def schema(keyword: str, said: str) -> dict[str, object]:
    return {"type": "object", "properties": {"x": {"type": "string", keyword: said}}, "required": ["x"]}


@pytest.mark.parametrize(
    "pattern",
    [
        "^a+$",
        "a",
        "^a",
        "b$",
        "^(?:a|b)*$",
        "^a|b$",
        "^[a-c]{2,3}?$",
        "^[^a/]$",
        r"^\w+$",
        r"^\W$",
        r"^\d$",
        r"^[\s\S]$",
        r"^[\\\"\n]$",
        r"^\x41\u0031$",
        r"^[\]\-^]$",
        "^$",
        "",
        "^(a|a?)+$",
        "^((a*)*)*b$",
        "^(a?b?)*$",
        "(x+x+)*y",
        "^[\x00-\x1f]$",
        "^(a{0}b{1,}){2}$",
    ],
)
def test_an_enforced_pattern_accepts_what_validators_accept(pattern: str) -> None:
    held = schema("pattern", pattern)
    grammar = arguments_grammar(held)
    assert not grammar.unenforced
    read = Read(grammar.text)
    assert not read.left_recursive()
    matcher, fits = Matcher(grammar.text), validator(held)
    for text in (*TEXTS, "".join(TEXTS)):
        assert matcher.accepts(spelled({"x": text})) == fits.is_valid({"x": text}), text
    source = random.Random(pattern)
    for _ in range(30):
        walked = read.walk(source, most=60)
        assert matcher.accepts(walked)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)b", "looks around"),
        (r"^(a)\1$", r"`\1`"),
        (r"\bword\b", r"`\b`"),
        (r"^\p{L}+$", r"`\p`"),
        ("^(a$)", "anchor"),
        ("^a{2000}$", "1,999"),
        ("^" + "(" * 60 + "a" + ")" * 60 + "$", "nested"),
        ("^" + "a" * 3_000 + "$", "2,000 characters"),
        ("^(" + "a?" * 900 + ")*$", "too complex"),
    ],
)
def test_an_unenforced_pattern_is_reported_with_the_reason(pattern: str, why: str) -> None:
    (unenforced,) = arguments_grammar(schema("pattern", pattern)).unenforced
    assert (unenforced.pointer, unenforced.keyword) == ("/properties/x", "pattern")
    assert why in unenforced.why


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29", "1999-12-31"],
            ["2023-02-29", "1900-02-29", "2024-04-31", "2024-1-1", "x"],
        ),
        ("time", ["00:00:00Z", "23:59:59.123+05:30"], ["24:00:00Z", "12:00:00", "12:60:00Z", "12:00:00+24:00"]),
        (
            "date-time",
            ["2024-02-29T12:00:00Z"],
            ["2024-02-29 12:00:00Z", "2024-02-29T12:00:00", "2024-02-30T12:00:00Z"],
        ),
        ("uuid", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000", "g" * 36]),
    ],
)
def test_date_and_time_formats_follow_the_calendar(name: str, right: Sequence[str], wrong: Sequence[str]) -> None:
    held = schema("format", name)
    grammar = arguments_grammar(held)
    matcher, fits = Matcher(grammar.text), validator(held)
    assert not grammar.unenforced
    for text in (*right, *wrong):
        assert matcher.accepts(spelled({"x": text})) == fits.is_valid({"x": text}) == (text in right), text
    source = random.Random(0)
    for _ in range(100):
        assert fits.is_valid(json.loads(Read(grammar.text).walk(source)))


def test_lengths_next_to_a_pattern_are_reported_unless_the_pattern_implies_them() -> None:
    def unenforced(**more: object) -> list[str]:
        text = {"type": "string", "pattern": "^a{2,4}$", **more}
        return [each.keyword for each in arguments_grammar({"type": "object", "properties": {"x": text}}).unenforced]

    assert unenforced(minLength=2, maxLength=4) == []
    assert unenforced(minLength=3, maxLength=3) == ["minLength", "maxLength"]
