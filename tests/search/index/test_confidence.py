"""The confidence of a result follows the evidence for the best tool, and decides what fills a page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.search.index.strategies import everything

from toolcrib.search.index.confidence import Estimate, Evidence, estimates
from toolcrib.search.index.fields import Document
from toolcrib.search.index.index import Index
from toolcrib.search.index.weights import WEIGHTS

HALF = Evidence(terms=8, weight=24.0, held=12.0, together=12.0, said=0.5, cosine=0.4)
"""The best tool has half of a request of eight words."""


def _chance(evidence: Evidence, share: float = 1.0) -> float:
    return estimates(evidence, WEIGHTS.by_words, WEIGHTS.by_table)[-1].chance(share)


@pytest.mark.parametrize(
    "better",
    [
        replace(HALF, held=20.0, together=20.0),
        replace(HALF, together=20.0),
        replace(HALF, said=0.8),
        replace(HALF, cosine=0.7),
        replace(HALF, past=1.0),
    ],
    ids=["more words", "more words in the best three", "more of the tool", "closer in meaning", "past calls"],
)
def test_more_evidence_means_more_confidence(better: Evidence) -> None:
    assert _chance(better) > _chance(HALF)


def test_a_longer_request_needs_more_evidence() -> None:
    assert _chance(replace(HALF, terms=30, weight=90.0)) < _chance(HALF)


def test_a_tool_without_the_only_word_of_a_request_hardly_serves_it() -> None:
    alone = Evidence(terms=1, weight=4.0, held=0.0, together=0.0, said=0.0)

    assert _chance(alone) < 0.1
    assert _chance(replace(alone, held=4.0, together=4.0, said=0.5)) > 0.5


def test_without_a_known_meaning_only_the_words_count() -> None:
    by_words = estimates(replace(HALF, cosine=None), WEIGHTS.by_words, WEIGHTS.by_table)

    assert by_words == (Estimate.of(HALF, WEIGHTS.by_words),)
    assert len(estimates(HALF, WEIGHTS.by_words, WEIGHTS.by_table)) == 2


def test_if_the_best_tool_has_all_words_the_next_one_is_less_likely() -> None:
    whole = replace(HALF, held=24.0, together=24.0)

    assert _chance(whole, 0.9) / _chance(whole) < _chance(HALF, 0.9) / _chance(HALF)


def test_the_share_of_a_confidence_has_that_confidence() -> None:
    estimate = Estimate.of(HALF, WEIGHTS.by_table)

    assert estimate.chance(estimate.share_of(0.02)) == pytest.approx(0.02, abs=1e-4)
    assert estimate.share_of(0.0) == 0.0


def _tools(*second: str) -> list[Document]:
    """A tool, five that are equal to each other, and others."""
    first = Document("s.a", ("alpha", "beta"), ("gamma", "delta"))
    return [
        first,
        *(Document(f"s.b{at}", second, ("gamma", "kappa", "rho", "tau", "xi", "phi")) for at in range(5)),
        Document("s.z", ("omega",)),
    ]


def test_a_page_holds_unlikely_tools_only_if_they_are_nearly_as_good_as_the_best() -> None:
    weights = WEIGHTS.without("meaning")
    near = everything(Index.build(_tools("alpha", "beta"), weights=weights), "alpha beta gamma delta").hits
    far = everything(Index.build(_tools("alpha"), weights=weights), "alpha beta gamma delta").hits

    assert len(near) == 6
    assert near[-1].confidence < weights.least_confidence
    assert near[-1].score > weights.least_share * near[0].score
    assert len(far) == weights.weak_results
    every = everything(Index.build(_tools("alpha"), weights=weights.refusing_nothing()), "alpha beta gamma delta").hits
    assert every[-1].score < weights.least_share * every[0].score
