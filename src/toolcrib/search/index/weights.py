"""How much each field of a tool counts, and each signal of a search, in one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.search.index.fields import Document


@dataclass(frozen=True, slots=True)
class FieldWeight:
    """One field's part in BM25F."""

    boost: float
    """How much one occurrence of a term counts."""
    b: float
    """In [0, 1]: how far an occurrence in a long field counts less; 0 ignores the length."""
    pivot: float
    """The field's length, in terms, at which nothing is corrected.

    A constant where BM25F has the mean over the corpus: so a tool's weights depend on the tool alone, and whatever is
    added, removed or hidden moves only the number of tools and how many of them hold a term.
    """

    def of_term(self, length: int) -> float:
        """What one occurrence counts in a field of `length` terms."""
        return self.boost / (1 - self.b + self.b * length / self.pivot)


@dataclass(frozen=True, slots=True)
class Calibration:
    """From how well a tool matches to the chance that it serves: a logistic curve over log-odds.

    Fitted to the first ten results of each of ToolBench's queries. What is refused was chosen so that no more than 2 %
    of the queries of any of the four sets are.
    """

    bias: float
    evidence: float
    """Of what the words say: the logarithm of the most that they earn any visible tool over a power of what they weigh,
    and of the best result how much of the query it holds, and how much of it the query asks for."""
    share: float
    """Of the logarithm of a tool's share of the best score."""
    refused: float
    """The confidence below which a best result is taken for none, where all tools have parameters."""
    refused_of_bare: float
    """The same where none has, and between the two where some have: they have few words to match."""
    slack: float
    """Added to what words earn, and to what they weigh: the more, the less it says that they meet nothing."""
    power: float = 0.8
    """Of what the words weigh: 0 favours long queries, 1 short ones."""
    similarity: float = 0.0
    """Of how much nearer to the query the nearest tool is than most, as cosines."""
    history: float = 3.0
    """Of how clearly the past speaks for the best tool, squared; chosen, not fitted: 19 to 1 for the same request."""


@dataclass(frozen=True, slots=True)
class Weights:
    """All constants of the ranking, chosen on ToolBench with a look at the other sets; 0 switches a signal off.

    The pivots are near the mean lengths of ToolBench's fields. The signals and what each is worth: `signals.py`.

    Source: Robertson, Zaragoza, Taylor, "Simple BM25 extension to multiple weighted fields", CIKM 2004. A term has ONE
    inverse document frequency over whole documents; one for each field ranks badly, since a common word is then rare in
    some field of every tool.
    """

    name: FieldWeight = FieldWeight(boost=2.0, b=0.3, pivot=3)
    description: FieldWeight = FieldWeight(boost=1.0, b=0.6, pivot=10)
    parameter_names: FieldWeight = FieldWeight(boost=0.6, b=0.6, pivot=4)
    parameter_texts: FieldWeight = FieldWeight(boost=0.3, b=0.6, pivot=20)
    category: FieldWeight = FieldWeight(boost=0.5, b=0.3, pivot=1.5)
    source: FieldWeight = FieldWeight(boost=1.0, b=0.3, pivot=3)
    k1: float = 1.2
    """How soon further occurrences of a term stop counting."""
    unseen: int = 100
    """Tools that are taken to be there besides, with words as common as among tools anywhere (`vocabulary.py`): in a
    catalog of two, a word of both need not be a common one, and `get` in one of them no rare one."""

    synonyms: float = 0.25
    """What a word of the same meaning counts, where the word itself counts 1."""
    clauses: float = 1.0
    """What the best clause of a query adds to the whole query."""
    clause_parity: float = 0.75
    """In [0, 1]: how far the best tool of each clause counts alike, however rare its words; 0 is not at all."""
    brevity: float = 0.2
    """The power of a tool's length, as a vector of terms, that its score is divided by."""
    sources: float = 0.3
    """What a source's best score adds to that of each of its tools that matches."""

    embedding: float = 0.55
    """The share of the score that is left to the similarity of meanings, for a query of one clause."""
    embedding_by_clause: float = 0.04
    """What that loses with each clause: long requests name what they want."""
    embedding_at_least: float = 0.35
    embedding_without_parameters: float = 0.15
    """What it gains where no tool has parameters, and in part where some have none: those have few words to match."""
    similar: float = 0.5
    """The share of the greatest similarity from which on a tool matches that shares no word with the query."""

    history: float = 0.5
    """What a past that speaks for a tool adds, in top scores."""
    history_doubt: float = 0.8
    """In [0, 1]: how far a tool without a past is judged as if it had one that agrees with its words."""
    history_sure: float = 2.0
    """What is added to 1 where the past speaks as clearly as it can: what served the same request stands first."""
    history_floor: float = 0.2
    """The cosine from which on a past request is like another."""
    history_nearest: int = 5
    """Past requests that are heeded, the nearest."""

    by_words: Calibration = Calibration(
        bias=-0.31, evidence=0.96, share=8.2, refused=0.25, refused_of_bare=0.16, slack=0.1
    )
    by_meaning: Calibration = Calibration(
        bias=-1.19, evidence=0.31, share=8.3, refused=0.28, refused_of_bare=0.25, slack=3.0, similarity=2.5
    )
    """Where similarities are known."""

    def of_fields(self, document: Document) -> Iterator[tuple[tuple[str, ...], FieldWeight]]:
        """The terms of each field of `document` with what the field counts."""
        yield document.name, self.name
        yield document.description, self.description
        yield document.parameter_names, self.parameter_names
        yield document.parameter_texts, self.parameter_texts
        yield document.category, self.category
        yield document.source, self.source

    def without(self, *signals: str) -> Weights:
        """These with some of `SIGNALS` switched off.

        Raises:
            KeyError: one of them is not known.
        """
        unknown = {*signals} - {*SIGNALS}
        if unknown:
            raise KeyError(f"no signals: {', '.join(sorted(unknown))}")
        return replace(self, **dict.fromkeys(signals, 0.0))

    def refusing_nothing(self) -> Weights:
        """These, with which the best there is is always shown."""
        words, meaning = (replace(each, refused=0.0, refused_of_bare=0.0) for each in (self.by_words, self.by_meaning))
        return replace(self, by_words=words, by_meaning=meaning)


SIGNALS = ("synonyms", "clauses", "brevity", "sources", "embedding", "history")
"""What can be switched off by itself: each is the name of a weight."""

WEIGHTS = Weights()
