"""The weights of each field of a tool and of each signal of a search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.search.index.fields import Document


@dataclass(frozen=True, slots=True)
class _FieldWeight:
    """The parameters of one field in BM25F."""

    boost: float
    """How much one occurrence of a term counts."""
    b: float
    """In [0, 1]: how much less an occurrence counts in a long field. 0 ignores the length."""
    pivot: float
    """The field's length, in terms, at which nothing is corrected.

    BM25F uses the mean over the corpus here. With a constant, a tool's weights depend only on the tool: adding,
    removing or hiding tools only changes the number of tools and how many of them contain a term.
    """

    def of_term(self, length: int) -> float:
        """Return the weight of one occurrence in a field of `length` terms."""
        return self.boost / (1 - self.b + self.b * length / self.pivot)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Maps the evidence for the best tool (`Evidence`) to the log-odds that it serves the query: a linear sum.

    `benchmarks/calibration.py` fits the constants to all four sets. The thresholds were chosen by hand.
    """

    bias: float
    held: float
    """For each unit of weight of the words that the best tool has."""
    together: float
    """For each unit of weight of the words that the best three tools have together."""
    said: float
    """For the square of the share of the best tool that the query mentions."""
    missing: float
    """How much the estimate falls if a tool lacks the only word of a query. It falls less if the query is longer."""
    length: float
    """For each unit of ln(1 + terms): a longer query needs more evidence."""
    share: float
    """The factor for the logarithm of a tool's share of the best score, if the best tool has no word of the query."""
    share_by_coverage: float
    """The amount that is added to `share` if it has all words. Then other tools are less likely to serve the query."""
    refused: float
    """The confidence below which even the best result is refused."""
    cosine: float = 0.0
    """For a cosine of 1 of the best tool and the query, for each unit of ln(1 + terms)."""
    history: float = 3.0
    """The factor for the square of the past's support for the best tool. Chosen, not fitted: 19 to 1 for the same
    request."""


@dataclass(frozen=True, slots=True)
class Weights:
    """All constants of the ranking. They were chosen on ToolBench, with checks on the other sets. 0 switches a signal
    off.

    The pivots are near the mean lengths of ToolBench's fields. For the gain of each signal, see `signals.py`.

    Source: Robertson, Zaragoza, Taylor, "Simple BM25 extension to multiple weighted fields", CIKM 2004. A term has ONE
    inverse document frequency over whole documents. A separate one for each field ranks badly, because a common word is
    then rare in some field of every tool.
    """

    name: _FieldWeight = _FieldWeight(boost=2.0, b=0.3, pivot=3)
    description: _FieldWeight = _FieldWeight(boost=1.0, b=0.6, pivot=10)
    parameter_names: _FieldWeight = _FieldWeight(boost=0.6, b=0.6, pivot=4)
    parameter_texts: _FieldWeight = _FieldWeight(boost=0.3, b=0.6, pivot=20)
    category: _FieldWeight = _FieldWeight(boost=0.5, b=0.3, pivot=1.5)
    source: _FieldWeight = _FieldWeight(boost=1.0, b=0.3, pivot=3)
    k1: float = 1.2
    """How soon further occurrences of a term stop counting."""
    unseen: int = 100
    """The number of additional assumed tools, with the word frequencies of tools in general (`vocabulary.py`). In a
    catalog of two tools, a word in both is then not common, and `get` in one of them is not rare.
    """

    synonyms: float = 0.25
    """The weight of a synonym, relative to the word itself."""
    partial_words: float = 0.6
    """The weight of a term that stands in for a query term that no visible tool has, relative to the term itself."""
    clauses: float = 1.0
    """The weight of a query's best clause, relative to the whole query."""
    clause_parity: float = 0.75
    """In [0, 1]: how equal the best tools of all clauses count, however rare their words are. 0 means not at all."""
    brevity: float = 0.2
    """The power of a tool's length, as a vector of terms, that divides its score."""
    sources: float = 0.3
    """The share of a source's best score that is added to each of its matching tools."""

    meaning: float = 1.2
    """The share of the score that comes from the table of word vectors, for a query of one term. It falls with the
    number of terms, because a long request names what it wants: `meaning - meaning_by_length * ln(terms)`."""
    meaning_by_length: float = 0.33
    meaning_at_least: float = 0.2
    meaning_at_most: float = 0.8
    meaning_by_coverage: float = 0.4
    """The amount by which `meaning_at_most` is lower if the best tool by words has all words of the request."""
    meaning_alone: float = 0.2
    """How much closer than the mean of all tools a tool without a common word must be to match, as cosines."""

    embedding: float = 0.55
    """The share of the score that comes from the similarity of meanings, for a query without clauses."""
    embedding_by_clause: float = 0.04
    """The amount by which each clause reduces this share, because long requests name what they want."""
    embedding_at_least: float = 0.35
    embedding_without_parameters: float = 0.15
    """The amount that is added to the share if no tool has parameters, and in part if some have none.

    Tools without parameters have few words to match.
    """
    similar: float = 0.5
    """The share of the highest similarity from which a tool without a common word matches."""

    history: float = 0.5
    """The gain of a tool that the past supports, in units of the top score."""
    history_doubt: float = 0.8
    """In [0, 1]: how much a tool without a past is treated as if it had one that agrees with its words."""
    history_sure: float = 2.0
    """The extra gain if the past supports a tool as strongly as possible. A tool that served the same request is
    first."""
    history_floor: float = 0.2
    """The cosine from which a past request counts as similar."""
    history_nearest: int = 5
    """The number of past requests that count, the nearest ones."""

    trace: float = 1.0
    """How much a score rises if the trace has used the tool's source, in proportion to how often past traces used a
    source again. The value is for traces that always did."""

    weak_results: int = 3
    """How many results are given even if they fit badly."""
    least_confidence: float = 0.02
    """The confidence below which a page shows no further results, unless they are nearly as good as the best."""
    least_share: float = 0.45
    """The share of the best score from which a result is nearly as good as the best."""

    by_words: Calibration = Calibration(
        bias=1.15,
        held=0.042,
        together=0.017,
        said=2.53,
        missing=3.13,
        length=1.09,
        share=5.93,
        share_by_coverage=12.5,
        refused=0.25,
    )
    by_meaning: Calibration = Calibration(
        bias=1.48,
        held=0.027,
        together=0.018,
        said=1.25,
        missing=2.97,
        length=1.37,
        share=6.85,
        share_by_coverage=11.8,
        refused=0.25,
        cosine=0.95,
    )
    """Used if similarities by an embedding model are known."""
    by_table: Calibration = Calibration(
        bias=1.51,
        held=0.032,
        together=0.019,
        said=1.77,
        missing=3.44,
        length=1.3,
        share=6.16,
        share_by_coverage=15.3,
        refused=0.25,
        cosine=0.48,
    )
    """Used if similarities by the table of word vectors are known."""

    def of_fields(self, document: Document) -> Iterator[tuple[tuple[str, ...], _FieldWeight]]:
        """Yield the terms of each field of `document` with the weight of the field."""
        yield document.name, self.name
        yield document.description, self.description
        yield document.parameter_names, self.parameter_names
        yield document.parameter_texts, self.parameter_texts
        yield document.category, self.category
        yield document.source, self.source

    def without(self, *signals: str) -> Weights:
        """Return these weights with some of `SIGNALS` switched off.

        Raises:
            KeyError: one of `signals` is unknown.
        """
        unknown = {*signals} - {*SIGNALS}
        if unknown:
            raise KeyError(f"unknown signals: {', '.join(sorted(unknown))}")
        return replace(self, **dict.fromkeys(signals, 0.0))

    def refusing_nothing(self) -> Weights:
        """Return these weights without refusals: all results are shown, however weak."""
        words, meaning, table = (replace(each, refused=0.0) for each in (self.by_words, self.by_meaning, self.by_table))
        return replace(self, by_words=words, by_meaning=meaning, by_table=table, least_confidence=0.0)


SIGNALS = ("synonyms", "partial_words", "clauses", "brevity", "sources", "meaning", "embedding", "history", "trace")
"""The signals that can be switched off. Each is the name of a weight."""

WEIGHTS = Weights()
