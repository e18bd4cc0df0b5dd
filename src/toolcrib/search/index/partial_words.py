"""Finds the terms that stand in for a query term that no visible tool has.

A term stands in if it is what the query term abbreviates, if it begins with the query term, if it contains it, or if it
differs from it by a typing error, in this order. Only terms of visible tools stand in, and only as long as no visible
tool has the query term itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from weakref import WeakKeyDictionary

from toolcrib.search.index.segment import Part, Segment
from toolcrib.search.index.tokens import terms

ABBREVIATIONS: Mapping[str, str] = {
    "addr": "address", "admin": "administrator administration", "ai": "intelligence", "app": "application",
    "args": "arguments", "async": "asynchronous", "auth": "authenticate authorize", "avg": "average",
    "btn": "button", "calc": "calculate", "cfg": "configuration", "cmd": "command",
    "conf": "configuration", "config": "configuration configure", "conn": "connection", "cred": "credential",
    "ctx": "context", "db": "database", "del": "delete", "dest": "destination", "dev": "development developer",
    "dir": "directory folder", "dirs": "directories folders", "doc": "document",
    "docs": "documents documentation", "env": "environment", "envs": "environments", "err": "error",
    "exe": "executable execute", "exec": "execute", "fs": "filesystem file", "func": "function", "gh": "github",
    "i18n": "internationalization translation", "img": "image", "imgs": "images", "info": "information",
    "js": "javascript", "k8s": "kubernetes", "kb": "knowledge", "l10n": "localization",
    "lang": "language", "lib": "library", "max": "maximum", "mem": "memory", "mgmt": "management",
    "mgr": "manager", "min": "minimum", "misc": "miscellaneous", "ml": "learning", "mr": "merge", "msg": "message",
    "msgs": "messages", "nav": "navigate navigation", "notif": "notification", "num": "number", "org": "organization",
    "param": "parameter", "pg": "postgres postgresql", "pic": "picture image", "pics": "pictures images",
    "pkg": "package", "postgres": "postgresql", "pr": "pull", "prefs": "preferences", "prev": "previous",
    "proc": "process", "prod": "production product", "proj": "project", "prs": "pulls",
    "pw": "password", "pwd": "password directory", "py": "python", "qty": "quantity",
    "recv": "receive", "ref": "reference", "repo": "repository", "repos": "repositories", "req": "request",
    "spec": "specification", "src": "source", "srv": "server",
    "stats": "statistics", "svc": "service", "sync": "synchronize", "sys": "system",
    "tbl": "table", "temp": "temperature temporary", "tf": "terraform", "tmp": "temporary",
    "txt": "text", "tz": "timezone", "usr": "user", "util": "utility", "val": "value",
    "var": "variable", "vars": "variables", "ver": "version", "vid": "video", "vm": "machine", "wiki": "wikipedia",
    "ws": "workspace websocket", "xls": "excel", "yt": "youtube",
}  # fmt: skip
"""Common abbreviations in requests and in names of tools, and the words that they stand for."""

_MIN_BEGINNING = 4
"""The minimum length of a term that stands for longer terms. Most words of three letters begin unrelated ones."""

_MIN_TYPED = (5, 8)
"""The minimum lengths of a term in which one typing error, and two, are assumed."""

_MOST = 24
"""How many terms of one segment stand in for a term, at most."""

_COMPARED = 2_000
"""How many terms of one segment are compared for typing errors, at most."""

_KEPT = 1_024
"""For how many terms each segment keeps what was found."""


@dataclass(frozen=True, slots=True)
class _StandIn:
    """A term that stands in for a term of the query."""

    term: str
    likeness: float
    """In (0, 1]: how likely both mean the same."""


_OF_ABBREVIATION = 1.0
_OF_BEGINNING = 0.8
_OF_PART = 0.5
_OF_ERRORS = (0.7, 0.5)


def stand_ins(term: str, parts: Sequence[Part]) -> tuple[_StandIn, ...]:
    """Return the terms of the visible tools in `parts` that stand in for `term`, the most alike first.

    The caller has checked that no visible tool has `term`.
    """
    found: dict[str, float] = {}
    for part in parts:
        for each in _vocabulary(part.segment).alike(term):
            postings = part.segment.postings(each.term)
            if postings is not None and part.count(postings[0]):
                found[each.term] = each.likeness
    if not found:
        return ()
    # A typing error is assumed only if nothing else explains the word in any segment.
    best = max(found.values())
    kept = [(name, likeness) for name, likeness in found.items() if likeness == best or best not in _OF_ERRORS]
    kept.sort(key=lambda each: (-each[1], len(each[0]), each[0]))
    return tuple(_StandIn(name, likeness) for name, likeness in kept[:_MOST])


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The terms of one segment, prepared for searching in them."""

    ordered: Sequence[str]
    joined: str
    """All terms, each between two line feeds."""
    by_beginning: Mapping[tuple[str, int], Sequence[str]]
    """The terms by their first letter and their length."""
    found: dict[str, tuple[_StandIn, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, segment: Segment) -> _Vocabulary:
        # Numbers and words of other scripts are left out: a part of a number, or one digit more, means something else.
        ordered = sorted(term for term in segment.terms if term.isascii() and term.isalpha())
        by_beginning: dict[tuple[str, int], list[str]] = {}
        for term in ordered:
            by_beginning.setdefault((term[0], len(term)), []).append(term)
        return cls(ordered, "\n" + "\n".join(ordered) + "\n", by_beginning)

    def alike(self, term: str) -> tuple[_StandIn, ...]:
        if (known := self.found.get(term)) is None:
            if len(self.found) >= _KEPT:
                self.found.clear()
            known = self.found[term] = tuple(self._search(term))
        return known

    def _search(self, term: str) -> Iterator[_StandIn]:
        given = _abbreviations().get(term, ())
        yield from (_StandIn(each, _OF_ABBREVIATION) for each in given)
        if not (term.isascii() and term.isalpha()):
            return
        others: list[_StandIn] = []
        if len(term) >= _MIN_BEGINNING:
            start = bisect_left(self.ordered, term)
            begun = (each for each in islice(self.ordered, start, start + _MOST) if each.startswith(term))
            others += [_StandIn(each, _OF_BEGINNING) for each in begun]
            others += [_StandIn(each, _OF_PART) for each in islice(self._holding(term), _MOST)]
        yield from others
        if not given and not others:
            yield from self._misspelled(term)

    def _holding(self, term: str) -> Iterator[str]:
        """Yield the terms that contain `term`, but do not begin with it."""
        at = self.joined.find(term)
        while at >= 0:
            start, end = self.joined.rfind("\n", 0, at) + 1, self.joined.find("\n", at)
            if start < at:
                yield self.joined[start:end]
            at = self.joined.find(term, end)

    def _misspelled(self, term: str) -> Iterator[_StandIn]:
        errors = sum(len(term) >= least for least in _MIN_TYPED)
        if not errors:
            return
        near = (
            each
            for length in sorted(range(len(term) - errors, len(term) + errors + 1), key=lambda n: abs(n - len(term)))
            for each in self.by_beginning.get((term[0], length), ())
        )
        pieces = _pieces(term, errors)
        for each in islice((each for each in near if any(map(each.__contains__, pieces))), _COMPARED):
            if (count := distance(term, each, errors)) <= errors:
                yield _StandIn(each, _OF_ERRORS[count - 1])


_vocabularies: WeakKeyDictionary[Segment, _Vocabulary] = WeakKeyDictionary()


def _vocabulary(segment: Segment) -> _Vocabulary:
    if (known := _vocabularies.get(segment)) is None:
        known = _vocabularies[segment] = _Vocabulary.of(segment)
    return known


@lru_cache(maxsize=1)
def _abbreviations() -> Mapping[str, tuple[str, ...]]:
    """Return what each term stands for, in the form of `tokens.terms`, in both directions."""
    found: dict[str, dict[str, None]] = {}
    for short, long in ABBREVIATIONS.items():
        for word in long.split():
            (one,), (other,) = terms(short, keep_stopwords=True)[-1:], terms(word, keep_stopwords=True)[-1:]
            if one != other:
                found.setdefault(one, {})[other] = None
                found.setdefault(other, {})[one] = None
    return {term: tuple(others) for term, others in found.items()}


def _pieces(term: str, errors: int) -> list[str]:
    """Cut `term` so that at least one piece is in each term that differs from it by so many errors.

    Between two pieces one letter is left out, because two letters that were swapped there would spoil both.
    """
    width = len(term) // (errors + 1)
    starts = [*range(0, width * (errors + 1), width)]
    return [term[start : start + width - 1] if start < starts[-1] else term[start:] for start in starts]


def distance(one: str, other: str, most: int) -> int:
    """Return how many letters must be added, left out, replaced or swapped with their neighbour to make `other` of
    `one`. `most + 1` if that is more than `most`.

    Source: the restricted edit distance of Damerau (1964) and Levenshtein (1966).
    """
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    if abs(len(one) - len(other)) > most:
        return most + 1
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        earlier, before, row = before, row, [at, *([0] * len(other))]
        for place, wanted in enumerate(other, 1):
            row[place] = min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != wanted))
            if at > 1 and place > 1 and letter == other[place - 2] and one[at - 2] == wanted:
                row[place] = min(row[place], earlier[place - 2] + 1)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)
