"""Splits a text into the terms that are indexed and searched."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import cast

import Stemmer

MAX_CHARS = 20_000
"""The number of characters of one text that are read. The purpose of a tool is on its first pages."""

MAX_WORD_CHARS = 64
"""The length of a word. A longer run of letters is data (a key, an image) and is cut."""

_MAX_COMPOUND_HUMPS = 3

STOPWORDS = frozenset(
    re.findall(
        "[a-z]+",
        "a about after all also am an and any are as at be been before being but by can could did do does doing don "
        "doesn didn isn aren wasn won couldn wouldn shouldn for from had has have having he her here hers him his how "
        "i if in into is it its just let like may me might more most my need no nor not now of on once only or other "
        "our out over own please she should so some such than that the their them then there these they this those "
        "through to too under until up us very want was we were what when where which while who whom why will with "
        "would you your yours",
    )
)
"""English words that say nothing about a tool. Only names keep them, for queries without other words."""

# Scripts without spaces between words, by the first word of their characters' Unicode names.
_UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI", "TANGUT"}
_SAME_SCRIPT = {"IDEOGRAPHIC": "CJK", "KATAKANA-HIRAGANA": "KATAKANA", "FULLWIDTH": "LATIN", "DIGIT": "LATIN"}
_LATIN = "LATIN"
_SEPARATOR = ""
_MARK = "MARK"
_INVISIBLE = "INVISIBLE"

# "tool's" becomes "tool", and "don't" becomes "don". Otherwise the letters "s" and "t" would be terms.
_ASCII_RUN = re.compile(r"([A-Za-z0-9]+)(?:'(?:s|t|d|m|ll|re|ve)(?![A-Za-z0-9]))?")
_CONTRACTION = re.compile(r"(?<=\w)['’](?:s|t|d|m|ll|re|ve)(?!\w)")
_ACCENTED = re.compile(r"([A-Za-z])[\u0300-\u036f]+")
# Latin letters with a stroke, and ligatures, which Unicode does not decompose.
_UNDECOMPOSED = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ħ": "h", "Ħ": "H", "ı": "i"}
    | {"æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th", "ß": "ss", "ẞ": "SS"}
)
# In this order: "URLs"; "HTTP" of "HTTPServer", "S3" of "S3Bucket"; "Server", "user2", "2fa".
_HUMPS = re.compile(r"[A-Z]{2,}s(?![a-z0-9])|[A-Z]+(?![a-z])[a-z0-9]*|[A-Z]?[a-z0-9]+")
_DIGITS = "0123456789"


class _StemmerOfThread(threading.local):
    """A stemmer for each thread, because PyStemmer's stemmers keep state between calls."""

    def __init__(self) -> None:
        self.stem = cast(Callable[[str], str], Stemmer.Stemmer("english", 0).stemWord)  # pyright: ignore


_of_thread = _StemmerOfThread()


def words(text: str) -> Iterator[str]:
    """Yield the words of `text` in order, folded and not stemmed, each with at most `MAX_WORD_CHARS` characters.

    Compatibility forms, case and Latin diacritics are folded. Identifiers are split at underscores, dots, colons,
    slashes and humps. If an identifier has two or three humps, the whole follows its parts, so `GitHub` matches
    `github`, and `sha256` gives both `sha` and `sha256`. Text in scripts without spaces becomes pairs of neighbouring
    characters (or a single character if it is alone). Other scripts become words. A word ends where the script changes.

    Never raises. Only the first `MAX_CHARS` characters count.
    """
    for run, script in _runs(text[:MAX_CHARS]):
        if script in _UNSPACED:
            yield from _pairs(run)
        else:
            yield from _parts(run)


def terms(text: str, *, keep_stopwords: bool = False) -> list[str]:
    """Return the stemmed words of `text` in order. English stopwords are dropped unless `keep_stopwords` is set."""
    found: list[str] = []
    if text.isascii():
        # Most of the cost of indexing is here, so each run of letters and digits needs only one lookup in a cache.
        known = _all_terms_of if keep_stopwords else _terms_of
        for run in ascii_runs(text):
            found += known(run) if len(run) <= MAX_WORD_CHARS else known.__wrapped__(run)
        return found
    return [_stem(word) for word in words(text) if keep_stopwords or word not in STOPWORDS]


def ascii_runs(text: str) -> list[str]:
    """Return the runs of letters and digits of an ASCII text. Each contains one or more words."""
    return _ASCII_RUN.findall(text[:MAX_CHARS])


@lru_cache(maxsize=1 << 16)
def _terms_of(run: str) -> tuple[str, ...]:
    return tuple(_stem(part) for part in _parts(run) if part not in STOPWORDS)


@lru_cache(maxsize=1 << 14)
def _all_terms_of(run: str) -> tuple[str, ...]:
    return tuple(_stem(part) for part in _parts(run))


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    # The English rules are for English letters. `isascii` also keeps the C library from text that UTF-8 cannot encode.
    return _of_thread.stem(word) if word.isascii() and word.isalpha() else word


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the longest runs of one script, each with the script. Digits belong to Latin letters."""
    if text.isascii():
        for run in _ASCII_RUN.findall(text):
            yield run, _LATIN
        return
    letters: list[str] = []
    script = _SEPARATOR
    for character in _without_accents(text):
        kind = _script(character)
        if kind == _INVISIBLE:
            continue
        if kind == _MARK and script:
            kind = script
        if kind != script:
            if letters:
                yield "".join(letters), script
            letters.clear()
            script = kind if kind != _MARK else _SEPARATOR
        if script:
            letters.append(character)
    if letters:
        yield "".join(letters), script


def _without_accents(text: str) -> str:
    text = _CONTRACTION.sub("", unicodedata.normalize("NFKC", text))
    bare = _ACCENTED.sub(r"\1", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", bare).translate(_UNDECOMPOSED)


@lru_cache(maxsize=1 << 14)
def _script(character: str) -> str:
    """Return the first word of the character's Unicode name, which is its script, or a marker if it is not a letter."""
    category = unicodedata.category(character)
    name = unicodedata.name(character, "").partition(" ")[0]
    if category == "Cf" or name.startswith("VARIATION"):
        return _INVISIBLE  # soft hyphens, joiners and byte order marks occur within words
    if category[0] == "M":
        return _MARK
    if category[0] not in "LN":
        return _SEPARATOR
    name = name.partition("-")[0] if name.startswith("CJK") else name
    return _SAME_SCRIPT.get(name, name or "UNNAMED")


def _pairs(run: str) -> Iterable[str]:
    letters: list[str] = []
    for character in run:
        if letters and _script(character) == _MARK:
            letters[-1] += character  # no word starts with a vowel sign that belongs to the letter before
        else:
            letters.append(character)
    pairs = map(str.__add__, letters, letters[1:]) if len(letters) > 1 else letters
    return (pair[:MAX_WORD_CHARS] for pair in pairs)


def _parts(run: str) -> list[str]:
    """Return the humps of a run of letters and digits, and then the whole if there are few: `sha` and `sha256`."""
    if not run.isascii():
        return [unicodedata.normalize("NFKC", run.casefold())[:MAX_WORD_CHARS]]
    if run.islower() and run.isalpha():
        return [run[:MAX_WORD_CHARS]]
    humps: list[str] = _HUMPS.findall(run)
    if 1 < len(humps) <= _MAX_COMPOUND_HUMPS:
        humps.append(run)
    parts: list[str] = []
    for hump in humps:
        part = hump.lower()[:MAX_WORD_CHARS]
        letters = part.rstrip(_DIGITS)
        if 1 < len(letters) < len(part) and letters.isalpha():
            parts.append(letters)
        parts.append(part)
    return parts
