"""The postings of a group of tools, packed into immutable arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.index.fields import Document
from toolcrib.search.index.weights import Weights
from toolcrib.search.index.word_vectors import COARSE_DIM, shipped

Docs = NDArray[np.int32]
"""Positions of tools in one segment, ascending."""

Impacts = NDArray[np.float32]
"""What a term adds to a tool's score, before multiplication with the term's inverse document frequency."""

Mask = NDArray[np.bool_]
"""(n_tools,): one truth value for each tool of a segment."""

Lengths = NDArray[np.float32]
"""(n_tools,): the Euclidean length of each tool's impacts."""

_FANOUT = 4
"""A segment is at least this many times as large as the next. This keeps both segments and merges few."""

_MANY = 8
"""From this number of tools on, it is faster to compute their vectors together."""

_ARRAYS = (
    "starts", "docs", "impacts", "lengths", "keys", "has_parameters", "runs", "origin_of_run", "vectors", "coarse",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Segment:
    """The postings of `len(ids)` tools. Two segments are equal only if they are the same object.

    Tools are in ascending order of their ids, so an earlier tool wins a tie in every array.
    """

    ids: tuple[str, ...]
    positions: Mapping[str, int]
    """The position of each id in `ids`."""
    terms: Mapping[str, int]
    """The row of each term."""
    starts: NDArray[np.int64]
    """(n_terms + 1,): row `r` of the postings is `starts[r]:starts[r + 1]`."""
    docs: Docs
    """(n_postings,), ascending within a row."""
    impacts: Impacts
    """(n_postings,), positive."""
    lengths: Lengths
    keys: NDArray[np.uint64]
    """(n_tools,): the `Document.key` of each tool."""
    has_parameters: Mask
    origins: Mapping[str, int]
    """The number of each origin, from 0."""
    runs: NDArray[np.int64]
    """(n_runs,): the position in `ids` at which a run of tools of one origin starts. An origin mostly has one run."""
    origin_of_run: NDArray[np.int64]
    """(n_runs,): the number of the origin of each run."""
    vectors: NDArray[np.int8]
    """(n_tools, DIM): the vector of each tool by the table of word vectors. (n_tools, 0) if no tool has a vector."""
    coarse: NDArray[np.float32]
    """(COARSE_DIM, n_tools): the first dimensions of `vectors`, in a form in which products are fast."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes. Ids and terms are not included."""
        return sum(getattr(self, name).nbytes for name in _ARRAYS)

    def origin_of_each(self) -> Iterator[str]:
        """Yield the origin of each tool, in the order of the tools."""
        names = [*self.origins]
        lengths = np.diff(self.runs, append=len(self))
        return (names[at] for at in np.repeat(self.origin_of_run, lengths).tolist())

    def mask_of(self, predicate: Callable[[str], bool]) -> Mask:
        """Return the result of `predicate` for the id of each tool."""
        return np.fromiter(map(predicate, self.ids), np.bool_, len(self))

    def postings(self, term: str) -> tuple[Docs, Impacts] | None:
        """Return the tools that contain `term`, and its impact on each. None if no tool contains it."""
        row = self.terms.get(term)
        if row is None:
            return None
        start, end = self.starts[row], self.starts[row + 1]
        return self.docs[start:end], self.impacts[start:end]

    def gathered(self, terms: Sequence[str]) -> tuple[NDArray[np.intp], Impacts, list[int]]:
        """Return the postings of `terms` one after the other: tools, impacts, and the number of postings of each term.

        A term that no tool contains has no postings.
        """
        starts, lengths = self._spans([self.terms.get(term, -1) for term in terms])
        spans = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True) if length]
        if not spans:
            return np.empty(0, np.intp), np.empty(0, np.float32), lengths
        # Positions are converted at once, because numpy converts them again each time that it looks something up.
        docs = np.concatenate([self.docs[span] for span in spans], dtype=np.intp)
        return docs, np.concatenate([self.impacts[span] for span in spans]), lengths

    def lengths_of(self, rows: Sequence[int]) -> list[int]:
        """Return how many tools contain the term of each row."""
        return self._spans(rows)[1]

    def _spans(self, rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return where the postings of each row start, and how many there are: none for row -1."""
        at = np.array(rows, np.int64)
        starts = self.starts.take(at)
        # For row -1, this takes the end of all postings, and then 0.
        return starts.tolist(), np.maximum(self.starts.take(at + 1) - starts, 0).tolist()


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A segment with a mask of the visible tools: those that are not removed and that the principal may see."""

    segment: Segment
    mask: Mask
    size: int
    """The number of visible tools."""

    @classmethod
    def of(cls, segment: Segment, mask: Mask) -> Self:
        mask.setflags(write=False)
        return cls(segment, mask, int(np.count_nonzero(mask)))

    @classmethod
    def whole(cls, segment: Segment) -> Self:
        return cls.of(segment, np.ones(len(segment), np.bool_))

    def __contains__(self, tool_id: str) -> bool:
        at = self.segment.positions.get(tool_id)
        return at is not None and bool(self.mask[at])

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the visible tools, ascending."""
        return compress(self.segment.ids, self.mask.tolist())

    def without(self, tool_ids: Iterable[str]) -> Part:
        """Return this part without `tool_ids`."""
        positions = self.segment.positions
        gone = [at for tool_id in tool_ids if (at := positions.get(tool_id)) is not None and self.mask[at]]
        if not gone:
            return self
        mask = self.mask.copy()
        mask[gone] = False
        return Part.of(self.segment, mask)

    def narrowed(self, mask: Mask) -> Part:
        """Return the tools of this part that `mask` keeps."""
        return Part.of(self.segment, self.mask & mask)

    def count_where(self, claim: Mask) -> int:
        """Count the visible tools for which `claim` is true."""
        return int(np.count_nonzero(claim & self.mask))

    def holders(self, term: str) -> int:
        """Count the visible tools that contain `term`."""
        found = self.segment.postings(term)
        if found is None:
            return 0
        docs, _ = found
        return len(docs) if self.size == len(self.segment) else int(np.count_nonzero(self.mask.take(docs)))

    def holders_of(self, terms: Iterable[str]) -> dict[str, int]:
        """Return how many visible tools contain each of `terms`. Terms that no visible tool contains are left out."""
        rows = {term: row for term in terms if (row := self.segment.terms.get(term)) is not None}
        if self.size == len(self.segment):
            return dict(zip(rows, self.segment.lengths_of([*rows.values()]), strict=True))
        docs, _, lengths = self.segment.gathered([*rows])
        seen = np.zeros(len(docs) + 1, np.int64)
        np.cumsum(self.mask.take(docs), out=seen[1:])
        by_end: list[int] = seen.take([*accumulate(lengths, initial=0)]).tolist()
        counts = (after - before for before, after in pairwise(by_end))
        return {term: count for term, count in zip(rows, counts, strict=True) if count}


def segment(documents: Iterable[Document], weights: Weights) -> Segment:
    """Make the segment of `documents`, whose ids must differ."""
    ordered = sorted(documents, key=lambda document: document.tool_id)
    terms: dict[str, int] = {}
    rows: list[int] = []
    counts: list[int] = []
    frequencies: list[float] = []
    for document in ordered:
        weighted: dict[str, float] = {}
        for field_terms, weight in weights.of_fields(document):
            if field_terms:
                once = weight.of_term(len(field_terms))
                for term in field_terms:
                    weighted[term] = weighted.get(term, 0.0) + once
        rows += [terms.setdefault(term, len(terms)) for term in weighted]
        counts.append(len(weighted))
        frequencies += weighted.values()
    frequency = np.array(frequencies, np.float64)
    docs = np.repeat(np.arange(len(ordered), dtype=np.int32), counts)
    impacts = frequency * (weights.k1 + 1) / (frequency + weights.k1)
    return _packed(
        tuple(document.tool_id for document in ordered),
        terms,
        rows=np.array(rows, np.int32),
        docs=docs,
        impacts=impacts.astype(np.float32),
        # Each is summed in the order of its own text, so that it does not depend on the other tools.
        lengths=np.sqrt(np.bincount(docs, impacts * impacts, len(ordered))).astype(np.float32),
        keys=np.array([document.key for document in ordered], np.uint64),
        has_parameters=np.array([bool(document.parameter_names) for document in ordered], np.bool_),
        origins=[document.origin for document in ordered],
        vectors=_vectors(ordered, weights),
    )


def _vectors(documents: Sequence[Document], weights: Weights) -> NDArray[np.int8]:
    table = shipped() if weights.meaning else None
    if table is None:
        return np.empty((len(documents), 0), np.int8)
    if 0 < len(documents) < _MANY:
        return np.stack([table.of_fields(document.texts) for document in documents])
    return table.of_many([document.texts for document in documents])


def merged(parts: Sequence[Part]) -> Segment:
    """Merge the visible tools of `parts`, whose ids must differ, into one segment. No text is read again."""
    ids = [tool_id for part in parts for tool_id in part]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    place = np.empty(len(ids), np.int32)
    place[order] = np.arange(len(ids), dtype=np.int32)
    terms: dict[str, int] = {}
    rows: list[NDArray[np.int32]] = []
    docs: list[Docs] = []
    impacts: list[Impacts] = []
    origins: list[str] = []
    before = 0
    for part in parts:
        old = part.segment
        kept = part.mask[old.docs]
        row_of = np.fromiter((terms.setdefault(term, len(terms)) for term in old.terms), np.int32, len(old.terms))
        position = np.cumsum(part.mask, dtype=np.int32) + (before - 1)
        rows.append(np.repeat(row_of, np.diff(old.starts))[kept])
        docs.append(place[position[old.docs[kept]]])
        impacts.append(old.impacts[kept])
        origins += compress(old.origin_of_each(), part.mask.tolist())
        before += part.size
    return _packed(
        tuple(ids[at] for at in order),
        terms,
        rows=np.concatenate(rows),
        docs=np.concatenate(docs),
        impacts=np.concatenate(impacts),
        lengths=np.concatenate([part.segment.lengths[part.mask] for part in parts])[order],
        keys=np.concatenate([part.segment.keys[part.mask] for part in parts])[order],
        has_parameters=np.concatenate([part.segment.has_parameters[part.mask] for part in parts])[order],
        origins=[origins[at] for at in order],
        vectors=_joined([part.segment.vectors[part.mask] for part in parts])[order],
    )


def _joined(vectors: Sequence[NDArray[np.int8]]) -> NDArray[np.int8]:
    """Join the vectors of several segments. Tools of a segment without vectors get zeros."""
    dim = max(each.shape[1] for each in vectors)
    return np.concatenate([each if each.shape[1] else np.zeros((len(each), dim), np.int8) for each in vectors])


def fewer(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Merge segments until each has less than a quarter of the tools of the one before, and at least half of them
    visible."""
    kept = [
        Part.whole(merged([part])) if 2 * part.size < len(part.segment) else part
        for part in sorted((part for part in parts if part.size), key=lambda part: part.size, reverse=True)
    ]
    while len(kept) > 1 and kept[-2].size < _FANOUT * kept[-1].size:
        last = kept.pop()
        kept[-1] = Part.whole(merged([kept[-1], last]))
    return tuple(kept)


def _packed(
    ids: tuple[str, ...],
    terms: dict[str, int],
    *,
    rows: NDArray[np.int32],
    docs: Docs,
    impacts: Impacts,
    lengths: Lengths,
    keys: NDArray[np.uint64],
    has_parameters: Mask,
    origins: Sequence[str],
    vectors: NDArray[np.int8],
) -> Segment:
    """Sort postings into rows. Terms without postings are dropped."""
    order = np.lexsort((docs, rows))
    holders = np.bincount(rows, minlength=len(terms))
    if terms and not holders.all():
        terms = {term: row for row, term in enumerate(term for term, row in terms.items() if holders[row])}
        holders = holders[holders > 0]
    starts = np.zeros(len(terms) + 1, np.int64)
    np.cumsum(holders, out=starts[1:])
    if not vectors.any():
        vectors = np.empty((len(ids), 0), np.int8)
    numbers: dict[str, int] = {}
    of_tool = np.array([numbers.setdefault(origin, len(numbers)) for origin in origins], np.int64)
    runs = np.flatnonzero(np.diff(of_tool, prepend=-1))
    packed = Segment(
        ids=ids,
        positions={name: at for at, name in enumerate(ids)},
        terms=terms,
        starts=starts,
        docs=docs[order],
        impacts=impacts[order],
        lengths=lengths,
        keys=keys,
        has_parameters=has_parameters,
        origins=numbers,
        runs=runs,
        origin_of_run=of_tool[runs],
        vectors=vectors,
        coarse=np.ascontiguousarray(vectors[:, :COARSE_DIM].T, np.float32),
    )
    for name in _ARRAYS:
        getattr(packed, name).setflags(write=False)
    return packed
