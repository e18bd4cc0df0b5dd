"""What a query asks for: its terms, and its clauses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolcrib.search.index.tokens import MAX_CHARS, terms

MAX_TERMS = 128
"""Different terms of one query that count, the first ones; a longer query is a document."""

MAX_CLAUSES = 12
"""Clauses of one query that count, the first ones."""

_CLAUSE_END = re.compile(r"[.;?!](?:\s|$)|,\s|\n|[。；？！，、]|\b(?:and|then|also)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Query:
    """The different terms of a request, and those of each of its clauses.

    How often a request says a word does not count: what a long one repeats is not what it is about.
    """

    terms: tuple[str, ...]
    clauses: tuple[tuple[str, ...], ...] = ()
    """Only where there are two or more; each of two terms or more."""
    texts: tuple[str, ...] = ()
    """The whole as it was asked, then each of `clauses`, for whoever understands more than terms; none of a blank."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Never raises. English stopwords are dropped unless the query holds nothing else."""
        text = text[:MAX_CHARS]
        found = _different(terms(text))[:MAX_TERMS]
        if not found:
            return cls(_different(terms(text, keep_stopwords=True))[:MAX_TERMS], texts=(text,) if text.strip() else ())
        known = set(found)
        parts = [(part, _different(terms(part))) for part in _CLAUSE_END.split(text)]
        kept = [(part, tuple(term for term in held if term in known)) for part, held in parts]
        clauses = [(part.strip(), held) for part, held in kept if len(held) > 1][:MAX_CLAUSES]
        if len(clauses) < 2:
            return cls(found, texts=(text,))
        return cls(found, tuple(held for _, held in clauses), (text, *(part for part, _ in clauses)))


def _different(found: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))
