"""What a query asks for: its terms, and its clauses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from toolcrib.index.tokens import MAX_CHARS, terms

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

    @classmethod
    def parse(cls, text: str) -> Self:
        """Never raises. English stopwords are dropped unless the query holds nothing else."""
        found = _different(terms(text))[:MAX_TERMS]
        if not found:
            return cls(_different(terms(text, keep_stopwords=True))[:MAX_TERMS])
        known = set(found)
        parts = [_different(terms(part)) for part in _CLAUSE_END.split(text[:MAX_CHARS])]
        clauses = [tuple(term for term in part if term in known) for part in parts]
        clauses = [clause for clause in clauses if len(clause) > 1][:MAX_CLAUSES]
        return cls(found, tuple(clauses) if len(clauses) > 1 else ())


def _different(found: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found))
