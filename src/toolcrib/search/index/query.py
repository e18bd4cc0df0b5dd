"""Parses a query into terms and clauses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolcrib.search.index.tokens import MAX_CHARS, terms

MAX_TERMS = 128
"""The number of different terms of one query that count, the first ones. A longer query is a document."""

MAX_CLAUSES = 12
"""The number of clauses of one query that count, the first ones."""

_CLAUSE_END = re.compile(r"[.;?!](?:\s|$)|,\s|\n|[。；？！，、]|\b(?:and|then|also)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Query:
    """The different terms of a request, and the terms of each of its clauses.

    The frequency of a word does not count, because the words that a long request repeats are not its subject.
    """

    terms: tuple[str, ...]
    clauses: tuple[tuple[str, ...], ...] = ()
    """Only if there are two or more clauses. Each has two terms or more."""
    texts: tuple[str, ...] = ()
    """The whole request as it was asked, then each of `clauses`, for embedding models. Empty for a blank request."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a request. Never raises. English stopwords are dropped unless the query has no other words."""
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
