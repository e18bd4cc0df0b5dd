"""How much each field of a tool counts, in one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from toolcrib.index.fields import Document


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
class Weights:
    """BM25F's constants, chosen on ToolBench alone; the pivots are near the mean lengths of its fields.

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
    clause: float = 0.5
    """What the best clause of a query adds to the whole query, so that a tool for one half of a request is found."""

    def of_fields(self, document: Document) -> Iterator[tuple[tuple[str, ...], FieldWeight]]:
        """The terms of each field of `document` with what the field counts."""
        yield document.name, self.name
        yield document.description, self.description
        yield document.parameter_names, self.parameter_names
        yield document.parameter_texts, self.parameter_texts
        yield document.category, self.category
        yield document.source, self.source


WEIGHTS = Weights()
