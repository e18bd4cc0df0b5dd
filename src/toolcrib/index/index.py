"""The index of a catalog: a value that is searched, and from which the next one is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from toolcrib.index.fields import Document
from toolcrib.index.query import Query
from toolcrib.index.ranking import NOTHING_KNOWN, Knowledge, rank
from toolcrib.index.segment import Impacts, Mask, Part, Segment, merged, segment
from toolcrib.index.signals import Layout, Scores, most
from toolcrib.index.weights import WEIGHTS, Weights

# A segment is at least this many times as large as the next: few segments to search, and few merges of each tool.
_FANOUT = 4

# Documents that are in memory at once: their terms take ten times the room of what becomes of them.
_AT_ONCE = 4_096

# Scores that are looked at as one while the best are sought.
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that matches a query."""

    tool_id: str
    score: float
    """Above 0; comparable within one ranking only."""
    confidence: float
    """In [0, 1], to 4 digits: the estimated chance that the tool serves the query. Rises with `score`."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """A page of the tools that match a query."""

    hits: tuple[Hit, ...]
    """Best first; ties fall to `tool_id`, ascending."""
    total: int
    """How many tools match, on this page or not."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The tools of one index that somebody may see; how many they are and what they hold are the only statistics."""

    index: Index
    parts: tuple[Part, ...]
    permitted: tuple[Mask, ...]
    """What the predicate says of each tool of each segment, removed ones too."""

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __contains__(self, tool_id: str) -> bool:
        return any(tool_id in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        return (tool_id for part in self.parts for tool_id in part)

    def without(self, tool_ids: Collection[str]) -> Selection:
        """Less those of `tool_ids` that are in it; costs what these are, not what is here."""
        parts = tuple(part.without(tool_ids) for part in self.parts)
        return Selection(self.index, parts, tuple(part.mask for part in parts))


Scope = Selection | Collection[str] | Callable[[str], bool]
"""Which tools a search may return: ids, or a test of an id."""


@dataclass(frozen=True, eq=False)
class Index:
    """Tools, ready to be searched.

    Some segments side by side, the largest first, each with the tools that still count. What is added goes into a small
    segment of its own, what is removed is masked, and small segments are merged as they become many, so that each tool
    is merged O(log n) times. How an index came about cannot be seen in its answers: one that grew and shrank ranks
    exactly, scores included, as one built at once of what it holds.
    """

    parts: tuple[Part, ...] = ()
    weights: Weights = WEIGHTS

    EMPTY: ClassVar[Index]

    @classmethod
    def build(cls, documents: Iterable[Document], *, weights: Weights = WEIGHTS) -> Index:
        """The index of `documents`; of two with one id, the later counts."""
        return cls(weights=weights).updated(documents)

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __contains__(self, tool_id: str) -> bool:
        return any(tool_id in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        """The ids of all tools, in no order that means anything."""
        return (tool_id for part in self.parts for tool_id in part)

    def updated(self, added: Iterable[Document] = (), removed: Iterable[str] = ()) -> Index:
        """This index without `removed` and with `added`, which replace tools of the same id.

        Ids to remove that are not here are passed over. Costs what is added, seldom more: not what is here.
        """
        documents = iter(added)
        new: list[Part] = []
        while some := {document.tool_id: document for document in islice(documents, _AT_ONCE)}:
            new = [*(part.without(some) for part in new), Part.whole(segment(some.values(), self.weights))]
        if len(new) > 1:
            new = [Part.whole(merged(new))]
        gone = {*removed}.union(*new)
        return Index(_merged_where_many([*(part.without(gone) for part in self.parts), *new]), self.weights)

    def combined(self, other: Index) -> Index:
        """The tools of both; where an id is in both, `other` has it. Costs what is in `other`, not what is here."""
        taken = set(other)
        return Index((*(part.without(taken) for part in self.parts), *other.parts), self.weights)

    def whole(self) -> Selection:
        """All of its tools."""
        return Selection(self, self.parts, tuple(part.mask for part in self.parts))

    def select(self, predicate: Callable[[str], bool], *, known: Selection | None = None) -> Selection:
        """The tools whose ids satisfy `predicate`.

        `known` is a selection that the same predicate made of another index (an earlier one, or one this was combined
        from): it is not asked again of the segments both have.
        """
        before: dict[Segment, Mask] = {}
        if known is not None:
            before = {part.segment: mask for part, mask in zip(known.parts, known.permitted, strict=True)}
        permitted = tuple(
            before[part.segment]
            if part.segment in before
            else np.fromiter(map(predicate, part.segment.ids), np.bool_, len(part.segment))
            for part in self.parts
        )
        parts = tuple(part.narrowed(mask) for part, mask in zip(self.parts, permitted, strict=True))
        return Selection(self, parts, permitted)

    def weighted(self, weights: Weights) -> Index:
        """The same tools, with other weights of the signals; those of BM25F's fields stay as they were built."""
        return Index(self.parts, weights)

    def search(
        self,
        query: str | Query,
        *,
        limit: int,
        offset: int = 0,
        visible: Selection | None = None,
        scope: Scope | None = None,
        knowledge: Knowledge = NOTHING_KNOWN,
    ) -> Ranking:
        """Rank the tools that match `query`; `limit` of them after the first `offset`.

        None where the confidence of the best in scope is below `Calibration.refused`, unless the past speaks for one
        there: then no tool serves the query.

        Tools that are not `visible` do not exist: the answer, scores included, is that of an index built without them.
        `scope` only narrows what is returned and counted; statistics stay those of all visible tools. A query of
        stopwords alone is looked up in names; one without words matches nothing.

        Raises:
            ValueError: `limit` or `offset` is negative, or `visible` was selected from another index.
        """
        if limit < 0 or offset < 0:
            raise ValueError(f"limit and offset must not be negative: {limit}, {offset}")
        if visible is not None and visible.index is not self:
            raise ValueError("the selection was made of another index")
        parts = self.parts if visible is None else visible.parts
        query = Query.parse(query) if isinstance(query, str) else query
        standing = rank(query, parts, self._layout, self.weights, knowledge)
        scores = standing.scores
        if isinstance(scope, Selection) and scope.index is self:
            scores = [part_scores * kept.mask for part_scores, kept in zip(scores, scope.parts, strict=True)]
        elif scope is not None:
            scores = [_within(scope, part, part_scores) for part, part_scores in zip(parts, scores, strict=True)]
        if standing.is_refused(most(scores)) and not _is_any(standing.is_known_of, standing.past, parts, scores):
            return Ranking((), 0)

        total, best = 0, list[tuple[float, str]]()
        for part, part_scores in zip(parts, scores, strict=True):
            total += int(np.count_nonzero(part_scores))
            found = _best(part_scores, offset + limit)
            best += zip((-part_scores[found]).tolist(), map(part.segment.ids.__getitem__, found.tolist()), strict=True)
        best.sort()
        page = best[offset : offset + limit]
        return Ranking(tuple(Hit(tool_id, -score, standing.confidence(-score)) for score, tool_id in page), total)

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of([part.segment for part in self.parts], self.weights)


Index.EMPTY = Index()


def _merged_where_many(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same tools in segments each less than a quarter of the one before, and each at least half in use."""
    kept = [
        Part.whole(merged([part])) if 2 * part.size < len(part.segment) else part
        for part in sorted((part for part in parts if part.size), key=lambda part: part.size, reverse=True)
    ]
    while len(kept) > 1 and kept[-2].size < _FANOUT * kept[-1].size:
        last = kept.pop()
        kept[-1] = Part.whole(merged([kept[-1], last]))
    return tuple(kept)


def _is_any(claim: Callable[[str], bool], tool_ids: Iterable[str], parts: Sequence[Part], scores: Scores) -> bool:
    """Whether `claim` is true of any of these tools that has a score."""
    return any(
        part_scores[at] > 0
        for tool_id in tool_ids
        if claim(tool_id)
        for part, part_scores in zip(parts, scores, strict=True)
        if (at := part.segment.positions.get(tool_id)) is not None
    )


def _within(scope: Scope, part: Part, scores: Impacts) -> Impacts:
    """The scores of the tools in `scope`, 0 for others."""
    ids, positions = part.segment.ids, part.segment.positions
    narrowed = np.zeros_like(scores)
    if callable(scope):
        kept = [at for at in np.flatnonzero(scores).tolist() if scope(ids[at])]
    elif isinstance(scope, Set) and len(scope) > np.count_nonzero(scores):
        kept = [at for at in np.flatnonzero(scores).tolist() if ids[at] in scope]
    else:
        kept = [at for tool_id in scope if (at := positions.get(tool_id)) is not None]
    narrowed[kept] = scores[kept]
    return narrowed


def _best(scores: Impacts, count: int) -> NDArray[np.intp]:
    """The positions of the `count` highest positive scores, in no order; of equal ones the earliest."""
    if count == 0:
        return np.empty(0, np.intp)
    # The count-th highest of the blocks' maxima is a lower bound of the count-th highest score, so few scores are above
    # it. Partitioning all scores instead is 10 times slower where most of them are equal, as after a query of one word.
    bound = np.float32(0)
    if (width := min(_BLOCK, len(scores) // count)) > 1:
        maxima = np.maximum.reduceat(scores, np.arange(0, len(scores), width))
        bound = np.sort(maxima)[-count]
    above = np.flatnonzero(scores > bound)
    if len(above) > count:
        values = scores[above]
        bound = np.sort(values)[-count]
        equal = above[values == bound]
        above = above[values > bound]
    else:
        equal = np.flatnonzero(scores == bound) if bound > 0 else above[:0]
    return np.concatenate([above, equal[: count - len(above)]])
