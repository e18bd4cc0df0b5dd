"""The shipped table of word vectors, which gives a text a vector from its own words.

A text's vector is the weighted sum of the vectors of its words and of its frequent pairs of words. A word that the
table does not have is the mean of the vectors of its character n-grams. `docs/word-vectors.md` says what the table was
made of, and `training/table.py` makes it.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, chain, count, islice, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.properties import cached_property
from toolcrib.search.index.tokens import MAX_WORD_CHARS, ascii_runs, words

logger = logging.getLogger(__name__)

FILE = Path(__file__).with_name("word_vectors.bin")
MAGIC = b"toolcrib word vectors 1\n"

DIM = 128
COARSE_DIM = 24
"""The number of leading dimensions that are compared with all tools. They come from a principal component analysis, so
they hold the coarse meaning."""

SCALE = 254
"""Unit vectors of tools are stored as `round(SCALE * vector)` in 8 bits. Values beyond 0.5 are clipped."""

QUERY_SCALE = 32_768
"""Unit vectors of queries are rounded to multiples of 1 / QUERY_SCALE.

Both factors are whole numbers, and their products add up to less than 2**24. So float32 computes the products of tools
and queries exactly, in any order of additions. An index that grew gives the same scores as one that is built at once.
"""

FIELD_WEIGHTS = (2.0, 1.0, 0.5, 0.5, 0.7, 0.7)
"""How much each of `Document.texts` counts: name, description, names and texts of parameters, category, source."""

MAX_WORDS = 100
"""The number of words of one field that count, the first ones."""

_MIN_GRAM, _MAX_GRAM = 3, 5
_PAIR_BITS = 16

_KEPT_RUNS = 1 << 16
"""The number of runs of letters whose rows are cached."""


_AT_ONCE = 64
"""The number of tools whose rows are copied at once: as many as fit in the cache of a processor."""


class TableDamaged(Exception):
    """The file of the table cannot be used. The message says why."""


class WordVectors:
    """The rows of words, then of pairs of words, then of the buckets of character n-grams. Thread-safe."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        pairs: Sequence[int],
        n_buckets: int,
        *,
        rows: NDArray[np.int8],
        scales: NDArray[np.float32],
        facts: Mapping[str, Any],
    ) -> None:
        """`rows` is (n_rows, DIM), and `scales`, (n_rows,), is what each row is multiplied with.

        A pair of words is `first << 16 | second`, of the rows of the words.
        """
        self.words = {word: row for row, word in enumerate(vocabulary)}
        """The row of each word, in the form of `tokens.words`: not stemmed, stopwords included."""
        self.pairs = {pair: row for row, pair in enumerate(pairs, len(vocabulary))}
        self.rows = rows
        self.scales = scales
        self.typical = np.array(facts["typical"], np.float32)
        """(DIM,): the mean vector of tools in general, times `SCALE`, rounded."""
        self.facts = facts
        """What the table was made of: sources, licences, digest."""
        self._first_bucket = len(vocabulary) + len(pairs)
        self._n_buckets = n_buckets
        self._of_run = lru_cache(_KEPT_RUNS)(self._rows_of_run)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the table. The vectors are mapped into memory, not copied.

        Raises:
            TableDamaged: the file is missing, truncated or changed.
        """
        try:
            content = np.memmap(path, np.uint8, "r")
            return cls._parsed(content)
        except OSError as error:
            raise TableDamaged(f"it cannot be read: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:  # also an empty file, which cannot be mapped
            raise TableDamaged(f"its content is damaged: {error}") from error

    @classmethod
    def _parsed(cls, content: NDArray[np.uint8]) -> Self:
        head = content[:65_536].tobytes()
        magic, _, rest = head.partition(b"\n")
        told, newline, _ = rest.partition(b"\n")
        if magic + b"\n" != MAGIC or not newline:
            raise ValueError("it is not a table of this version")
        facts = json.loads(told)
        body = content[len(MAGIC) + len(told) + 1 :]
        if zlib.crc32(body.data) != facts["crc32"] or facts["dim"] != DIM:
            raise ValueError("the checksum is wrong")
        n_words, n_pairs, n_buckets, n_bytes = (facts[key] for key in ("words", "pairs", "buckets", "bytes_of_words"))
        n_rows = n_words + n_pairs + n_buckets
        names, pairs, scales, rows = np.split(body, np.cumsum([n_bytes, 4 * n_pairs, 4 * n_rows]))
        return cls(
            names.tobytes().decode().split("\n"),
            pairs.copy().view("<u4").tolist(),
            n_buckets,
            rows=np.asarray(rows.view(np.int8).reshape(n_rows, DIM)),  # a view without the cost of `memmap`
            scales=scales.copy().view("<f4"),
            facts=facts,
        )

    def of_fields(self, texts: Sequence[str]) -> NDArray[np.int8]:
        """(DIM,): the vector of a tool by its `Document.texts`, times `SCALE`. Zeros if no word has a vector."""
        rows, weights = self.features(zip(texts, FIELD_WEIGHTS, strict=False))
        return _rounded(self._units(rows, weights, [0])[0])

    def of_many(self, documents: Sequence[Sequence[str]]) -> NDArray[np.int8]:
        """(len(documents), DIM): the vectors of many tools by their `Document.texts`, as `of_fields` returns them.

        It is faster because the rows of a run of letters are looked up once for all tools.
        """
        numbers: defaultdict[str | _Run, int] = defaultdict(count().__next__)
        fields = [
            [[*map(numbers.__getitem__, self._split(text))] for text in islice(texts, len(FIELD_WEIGHTS))]
            for texts in documents
        ]
        runs = _Runs.of([self._run(run) if isinstance(run, str) else run for run in numbers])
        found = np.empty((len(documents), DIM), np.int8)
        for start in range(0, len(documents), _AT_ONCE):
            rows, weights, bounds = self._features_of_many(fields[start : start + _AT_ONCE], runs)
            factors = weights.astype(np.float32) * self.scales[rows]
            vectors = self.rows.take(rows, 0).astype(np.float32)
            sums = np.zeros((len(bounds) - 1, DIM), np.float32)
            for at, (begin, end) in enumerate(pairwise(bounds)):
                # One product for each tool, as in `of_fields`: a different order of additions rounds differently.
                np.matmul(factors[begin:end], vectors[begin:end], out=sums[at])
            found[start : start + _AT_ONCE] = _rounded(_unit(sums))
        return found

    def of_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(len(texts), DIM): the vectors of queries, times `QUERY_SCALE`, rounded. Zeros if all words are unknown.

        An unknown word helps only next to known ones: parts of nonsense have vectors too, and are close to something.
        """
        rows: list[int] = []
        weights: list[float] = []
        starts: list[int] = []
        known: list[int] = []
        for at, text in enumerate(texts):
            more, their_weights = _once(*self.features([(text, 1.0)]))
            if any(row < self._first_bucket for row in more):
                known.append(at)
                starts.append(len(rows))
                rows += more
                weights += their_weights
        found = np.zeros((len(texts), DIM), np.float32)
        if known:
            found[known] = np.rint(self._units(rows, weights, starts) * QUERY_SCALE)
        return found

    def features(self, fields: Iterable[tuple[str, float]]) -> tuple[list[int], list[float]]:
        """Return the rows whose weighted sum is the vector of some texts, and the weight of each row.

        `fields` are texts and their weights. A weight is divided by the square root of the number of words.
        """
        rows: list[int] = []
        weights: list[float] = []
        pair_of = self.pairs.get
        for text, weight in fields:
            shares: list[float] = []
            count, before = 0, -1
            for run in self._runs(text):
                of_run, their_shares, n_words, first, last = run
                rows += of_run
                shares += their_shares
                count += n_words
                if before >= 0 and first >= 0 and (pair := pair_of(before << _PAIR_BITS | first)) is not None:
                    rows.append(pair)
                    shares.append(1.0)
                before = last
                if count >= MAX_WORDS:
                    break
            if count:
                factor = weight / count**0.5
                weights += [share * factor for share in shares]
        return rows, weights

    def _features_of_many(
        self, documents: Sequence[Sequence[Sequence[int]]], runs: _Runs
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], list[int]]:
        """Return the `features` of several tools one after the other, and the bounds of those of each tool.

        `documents` are, for each tool, the numbers of the runs of each of its fields.
        """
        texts = [*chain.from_iterable(documents)]
        n_runs = [*map(len, texts)]
        field_weights = np.array([weight for each in documents for _, weight in zip(each, FIELD_WEIGHTS, strict=False)])
        which = np.array([*chain.from_iterable(texts)], np.int64)
        fields = np.repeat(np.arange(len(texts)), n_runs)

        # Leave out the runs after the first `MAX_WORDS` words of a field.
        n_words = runs.n_words[which]
        before = np.zeros(len(which) + 1, np.int64)
        np.cumsum(n_words, out=before[1:])
        kept = before[:-1] - before[[*accumulate(n_runs[:-1], initial=0)]][fields] < MAX_WORDS
        which, fields, n_words = which[kept], fields[kept], n_words[kept]

        last, first = runs.last[which[:-1]], runs.first[which[1:]]
        follows = np.flatnonzero((fields[1:] == fields[:-1]) & (last >= 0) & (first >= 0))
        pairs = np.full(len(which), -1, np.int64)
        pairs[follows + 1] = self._rows_of_pairs(last[follows] << _PAIR_BITS | first[follows])

        # The rows of each run, and then the row of the pair of its first word with the word before it.
        lengths = runs.lengths[which]
        has_pair = pairs >= 0
        ends = np.cumsum(lengths + has_pair)
        size = int(ends[-1]) if len(ends) else 0
        rows, shares = np.empty(size, np.int64), np.ones(size)
        is_pair = np.zeros(size, np.bool_)
        is_pair[ends[has_pair] - 1] = True
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source = np.repeat(runs.starts[which], lengths) + within
        rows[~is_pair], shares[~is_pair] = runs.rows[source], runs.shares[source]
        rows[is_pair] = pairs[has_pair]

        words_of_fields = np.bincount(fields, n_words, len(texts)).astype(np.int64)
        roots = np.array([1.0, *(number**0.5 for number in range(1, int(words_of_fields.max(initial=0)) + 1))])
        shares *= np.repeat((field_weights / roots[words_of_fields])[fields], lengths + has_pair)
        of_fields = np.bincount(fields, lengths + has_pair, len(texts)).astype(np.int64)
        until = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(of_fields, out=until[1:])
        bounds: list[int] = until[[*accumulate(map(len, documents), initial=0)]].tolist()
        return rows, shares, bounds

    def _rows_of_pairs(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each pair of words. -1 for unknown pairs."""
        known, rows = self._sorted_pairs
        if not len(known):
            return np.full(len(pairs), -1, np.int64)
        places = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
        return np.where(known[places] == pairs, rows[places], -1)

    @cached_property
    def _sorted_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        pairs, rows = np.array([*self.pairs], np.int64), np.array([*self.pairs.values()], np.int64)
        order = np.argsort(pairs)
        return pairs[order], rows[order]

    def _units(self, rows: Sequence[int], weights: Sequence[float], starts: Sequence[int]) -> NDArray[np.float32]:
        """(len(starts), DIM), unit rows, or zeros: the weighted sum of `rows` from each start to the next."""
        if not rows:
            return np.zeros((len(starts), DIM), np.float32)
        at = np.array(rows)
        factors = np.array(weights, np.float32) * self.scales[at]
        found = self.rows.take(at, 0).astype(np.float32)
        if len(starts) == 1:
            return _unit((factors @ found).astype(np.float32, copy=False)[None, :])
        found *= factors[:, None]
        return _unit(np.add.reduceat(found, starts, axis=0))

    def _runs(self, text: str) -> Iterable[_Run]:
        return (self._run(run) if isinstance(run, str) else run for run in self._split(text))

    def _split(self, text: str) -> Sequence[str | _Run]:
        """Return the runs of an ASCII text, or all words of a different text as one run."""
        return ascii_runs(text) if text.isascii() else [self._joined(words(text))]

    def _run(self, run: str) -> _Run:
        return self._of_run(run) if len(run) <= MAX_WORD_CHARS else self._rows_of_run(run)

    def _rows_of_run(self, run: str) -> _Run:
        return self._joined(words(run))

    def _joined(self, run: Iterable[str]) -> _Run:
        rows: list[int] = []
        shares: list[float] = []
        known: list[int] = []
        for word in islice(run, MAX_WORDS):
            found = self._rows_of_word(word)
            rows += found
            shares += [1 / len(found)] * len(found) if found else []
            known.append(found[0] if len(found) == 1 else -1)
        for first, second in pairwise(known):
            if first >= 0 and second >= 0 and (pair := self.pairs.get(first << _PAIR_BITS | second)) is not None:
                rows.append(pair)
                shares.append(1.0)
        return tuple(rows), tuple(shares), len(known), known[0] if known else -1, known[-1] if known else -1

    def _rows_of_word(self, word: str) -> tuple[int, ...]:
        if (row := self.words.get(word)) is not None:
            return (row,)
        if not word.isascii() or word.isdigit():
            return ()
        return tuple(self._first_bucket + zlib.crc32(gram) % self._n_buckets for gram in _grams(word))


_Run = tuple[tuple[int, ...], tuple[float, ...], int, int, int]
"""The rows of a run of letters and digits, the share of each, the number of words, and the rows of the first and the
last word, which may be part of a pair. -1 for an unknown word."""


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """The values of many runs, each as one array."""

    rows: NDArray[np.int64]
    shares: NDArray[np.float64]
    starts: NDArray[np.int64]
    """(n_runs,): the rows of run `at`, and their shares, are `starts[at]:starts[at] + lengths[at]`."""
    lengths: NDArray[np.int64]
    n_words: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, runs: Sequence[_Run]) -> Self:
        lengths = np.array([len(run[0]) for run in runs], np.int64)
        return cls(
            np.array([*chain.from_iterable(run[0] for run in runs)], np.int64),
            np.array([*chain.from_iterable(run[1] for run in runs)], np.float64),
            np.cumsum(lengths) - lengths,
            lengths,
            *(np.array([run[at] for run in runs], np.int64) for at in (2, 3, 4)),
        )


def _unit(sums: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, DIM): `sums` as unit rows. Rows of zeros stay as they are."""
    lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
    return np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)


def _rounded(units: NDArray[np.float32]) -> NDArray[np.int8]:
    return np.rint(units * SCALE).clip(-127, 127).astype(np.int8)


def _once(rows: Sequence[int], weights: Sequence[float]) -> tuple[list[int], list[float]]:
    """Leave out repeated rows. The words that a long request repeats are not its subject."""
    found = dict(zip(reversed(rows), reversed(weights), strict=True))
    return list(found), list(found.values())


def _grams(word: str) -> list[bytes]:
    marked = f"<{word}>".encode()
    return [
        marked[start : start + size]
        for size in range(_MIN_GRAM, _MAX_GRAM + 1)
        for start in range(len(marked) - size + 1)
    ]


@cache
def shipped() -> WordVectors | None:
    """Return the table in the package. None if it is missing or damaged, which is logged once."""
    try:
        return WordVectors.load(FILE)
    except TableDamaged as error:
        logger.warning("search ranks by words only, because the table of word vectors cannot be used: %s", error)
        return None
