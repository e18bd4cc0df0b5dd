"""Finds the terms that stand in for a query term that no visible tool has.

A term stands in if it is what the query term abbreviates, if it begins with the query term, if it contains it, or if it
differs from it by a typing error, in this order. Only terms of visible tools stand in, and only as long as no visible
tool has the query term itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

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
"""How many terms of each kind stand in for a term, at most."""

_COMPARED = 2_000
"""How many terms of visible tools are compared for typing errors, at most."""


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

    The caller has checked that no visible tool has `term`. Every limit counts terms of visible tools only, over all
    parts. So neither hidden tools nor the division into parts affect the result.
    """
    found = [_StandIn(each, _OF_ABBREVIATION) for each in _visible(_abbreviations().get(term, ()), parts)]
    if not (term.isascii() and term.isalpha()):  # a part of a number, or one digit more, means something else
        return tuple(found)
    vocabularies = [_vocabulary(part.segment) for part in parts]
    if len(term) >= _MIN_BEGINNING:
        beginning = chain.from_iterable(each.beginning(term) for each in vocabularies)
        found += [_StandIn(each, _OF_BEGINNING) for each in islice(_visible(beginning, parts), _MOST)]
        holding = chain.from_iterable(each.holding(term) for each in vocabularies)
        found += [_StandIn(each, _OF_PART) for each in islice(_visible(holding, parts), _MOST)]
    return tuple(found or _misspelled(term, vocabularies, parts))


def _visible(found: Iterable[str], parts: Sequence[Part]) -> Iterator[str]:
    """Yield each term of `found` that a visible tool has, once. The shortest come first, then in alphabetical order."""
    ordered = sorted(set(found), key=lambda each: (len(each), each))
    return (each for each in ordered if any(part.holders(each) for part in parts))


def _misspelled(term: str, vocabularies: Sequence[_Vocabulary], parts: Sequence[Part]) -> list[_StandIn]:
    """Return the terms with the fewest typing errors."""
    errors = sum(len(term) >= least for least in _MIN_TYPED)
    if not errors:
        return []
    pieces = _pieces(term, errors)
    alike = chain.from_iterable(vocabulary.alike(term, errors) for vocabulary in vocabularies)
    near = (each for each in alike if any(map(each.__contains__, pieces)))
    by_errors: dict[int, list[str]] = {}
    for each in islice(_visible(near, parts), _COMPARED):
        by_errors.setdefault(distance(term, each, errors), []).append(each)
    least = min(by_errors, default=errors + 1)
    if least > errors:
        return []
    return [_StandIn(each, _OF_ERRORS[least - 1]) for each in by_errors[least][:_MOST]]


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The terms of one segment, prepared for searching in them. Terms with digits or other letters are left out."""

    ordered: Sequence[str]
    joined: str
    """All terms, each between two line feeds."""
    by_beginning: Mapping[tuple[str, int], tuple[Sequence[str], NDArray[np.uint32]]]
    """The terms by their first letter and their length, each with the set of its letters as bits."""

    @classmethod
    def of(cls, segment: Segment) -> _Vocabulary:
        ordered = sorted(term for term in segment.terms if term.isascii() and term.isalpha())
        by_beginning: dict[tuple[str, int], list[str]] = {}
        for term in ordered:
            by_beginning.setdefault((term[0], len(term)), []).append(term)
        lettered = {key: (names, _letters(names)) for key, names in by_beginning.items()}
        return cls(ordered, "\n" + "\n".join(ordered) + "\n", lettered)

    def alike(self, term: str, errors: int) -> Iterator[str]:
        """Yield the terms that may differ from `term` by at most `errors` typing errors in a later letter.

        One error changes at most one letter, so of each term at most `errors` letters are not in the other.
        """
        own = _letters([term])
        for length in range(len(term) - errors, len(term) + errors + 1):
            names, letters = self.by_beginning.get((term[0], length), ((), own[:0]))
            if names:
                differ = np.maximum(np.bitwise_count(own & ~letters), np.bitwise_count(letters & ~own))
                yield from (names[at] for at in np.flatnonzero(differ <= errors).tolist())

    def beginning(self, term: str) -> Sequence[str]:
        """Return the terms that begin with `term`."""
        return self.ordered[bisect_left(self.ordered, term) : bisect_left(self.ordered, term + "\x7f")]

    def holding(self, term: str) -> Iterator[str]:
        """Yield the terms that contain `term`, but do not begin with it."""
        at = self.joined.find(term)
        while at >= 0:
            start, end = self.joined.rfind("\n", 0, at) + 1, self.joined.find("\n", at)
            if start < at:
                yield self.joined[start:end]
            at = self.joined.find(term, end)


_BITS = np.zeros(128, np.uint32)
_BITS[ord("a") : ord("z") + 1] = 1 << np.arange(26)


def _letters(names: Sequence[str]) -> NDArray[np.uint32]:
    """(len(names),): the set of the letters of each name, which are ASCII, as bits."""
    codes = np.array(names, np.bytes_).view(np.uint8).reshape(len(names), -1)
    return np.bitwise_or.reduce(_BITS[codes], axis=1)


_vocabularies: WeakKeyDictionary[Segment, _Vocabulary] = WeakKeyDictionary()


def _vocabulary(segment: Segment) -> _Vocabulary:
    if (known := _vocabularies.get(segment)) is None:
        known = _vocabularies[segment] = _Vocabulary.of(segment)
    return known


@cache
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
