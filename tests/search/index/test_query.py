"""Terms and clauses of requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.search.index.query import MAX_CLAUSES, MAX_TERMS, Query


def test_a_word_counts_once_however_often_it_is_said() -> None:
    assert Query.parse("Weather, weather and the weather in Paris").terms == ("weather", "pari")


def test_a_request_for_two_things_has_two_clauses() -> None:
    query = Query.parse("Book a hotel room in Paris and send my boss an email. Thanks!")

    assert query.clauses == (("book", "hotel", "room", "pari"), ("send", "boss", "email"))


def test_a_request_for_one_thing_has_no_clauses() -> None:
    assert Query.parse("Book a hotel room in Paris.").clauses == ()
    assert Query.parse("v1.2 of git.commit").clauses == ()


def test_clauses_end_at_full_stops_of_other_scripts() -> None:
    assert Query.parse("搜索文件。发送邮件").clauses == (("搜索", "索文", "文件"), ("发送", "送邮", "邮件"))


def test_stopwords_are_kept_only_where_nothing_else_is() -> None:
    assert Query.parse("who is it?").terms == ("who", "is", "it")
    assert Query.parse("who is Ada?").terms == ("ada",)
    assert Query.parse(" \x00 🔥").terms == ()


@given(st.text(st.characters(codec=None)))
def test_clauses_hold_only_terms_of_the_query(text: str) -> None:
    query = Query.parse(text)

    assert {term for clause in query.clauses for term in clause} <= set(query.terms)


def test_a_huge_query_is_read_to_its_bound() -> None:
    query = Query.parse(". ".join(f"first{chr(97 + at % 26)}{at} second{at}" for at in range(10_000)))

    assert len(query.terms) == MAX_TERMS
    assert len(query.clauses) == MAX_CLAUSES
