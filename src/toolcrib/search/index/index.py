"""The index of a catalog: an immutable value that is searched, and from which the next index is made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from toolcrib.core.properties import cached_property
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import WEIGHTS, Weights

if TYPE_CHECKING:
    from toolcrib.search.index.fields import Document
    from toolcrib.search.index.ranking import Knowledge
    from toolcrib.search.index.searching import Ranking
    from toolcrib.search.index.segment import Mask, Part, Segment
    from toolcrib.search.index.signals import Layout

# All modules that compute are imported late, because they need numpy. A program without an index starts faster.

# The number of documents in memory at once. Their terms take ten times the memory of the resulting segment.
_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The tools of one index that a principal may see. All statistics of a search are computed from them only."""

    index: Index
    parts: tuple[Part, ...]
    permitted: tuple[Mask, ...]
    """The result of the predicate for each tool of each segment, including removed tools."""

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __contains__(self, tool_id: object) -> bool:
        return isinstance(tool_id, str) and any(tool_id in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        return (tool_id for part in self.parts for tool_id in part)

    def without(self, tool_ids: Collection[str]) -> Selection:
        """Return the selection without `tool_ids`. The cost depends on `tool_ids`, not on the size of the selection."""
        parts = tuple(part.without(tool_ids) for part in self.parts)
        return Selection(self.index, parts, tuple(part.mask for part in parts))


Scope = Selection | Collection[str] | Callable[[str], bool]
"""The tools that a search may return: a collection of ids, or a test of an id."""


@dataclass(frozen=True, eq=False)
class Index:
    """Tools, ready to be searched.

    The index has several segments, the largest first, each with a mask of its current tools. Added tools go into a new
    small segment, removed tools are masked, and small segments are merged when they become many. Each tool is merged
    O(log n) times. The answers do not depend on the history of the index: an index that grew and shrank gives exactly
    the same ranking, scores included, as one that is built at once from the same tools.
    """

    parts: tuple[Part, ...] = ()
    weights: Weights = WEIGHTS

    EMPTY: ClassVar[Index]

    @classmethod
    def build(cls, documents: Iterable[Document], *, weights: Weights = WEIGHTS) -> Index:
        """Build the index of `documents`. If two have the same id, the later one counts."""
        return cls(weights=weights).updated(documents)

    def __len__(self) -> int:
        return sum(part.size for part in self.parts)

    def __contains__(self, tool_id: str) -> bool:
        return any(tool_id in part for part in self.parts)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all tools, in no particular order."""
        return (tool_id for part in self.parts for tool_id in part)

    def updated(self, added: Iterable[Document] = (), removed: Iterable[str] = ()) -> Index:
        """Return this index without `removed` and with `added`. Added tools replace tools with the same id.

        Unknown ids in `removed` are ignored. The cost usually depends on the size of `added`, not of the index.
        """
        from toolcrib.search.index.segment import Part, fewer, merged, segment  # noqa: PLC0415  numpy comes with the first tool

        documents = iter(added)
        new: list[Part] = []
        while some := {document.tool_id: document for document in islice(documents, _AT_ONCE)}:
            new = [*(part.without(some) for part in new), Part.whole(segment(some.values(), self.weights))]
        if len(new) > 1:
            new = [Part.whole(merged(new))]
        gone = {*removed}.union(*new)
        return Index(fewer([*(part.without(gone) for part in self.parts), *new]), self.weights)

    def combined(self, other: Index) -> Index:
        """Return an index with the tools of both. For an id in both, `other` wins. The cost depends on the size of
        `other`."""
        taken = set(other)
        return Index((*(part.without(taken) for part in self.parts), *other.parts), self.weights)

    def whole(self) -> Selection:
        """Return a selection of all tools."""
        return Selection(self, self.parts, tuple(part.mask for part in self.parts))

    def select(self, predicate: Callable[[str], bool], *, known: Selection | None = None) -> Selection:
        """Select the tools whose ids satisfy `predicate`.

        `known` is a selection that the same predicate made from a related index, such as an earlier one. The predicate
        is not called again for segments that both indexes share.
        """
        before: dict[Segment, Mask] = {}
        if known is not None:
            before = {part.segment: mask for part, mask in zip(known.parts, known.permitted, strict=True)}
        permitted = tuple(
            before[part.segment] if part.segment in before else part.segment.mask_of(predicate) for part in self.parts
        )
        parts = tuple(part.narrowed(mask) for part, mask in zip(self.parts, permitted, strict=True))
        return Selection(self, parts, permitted)

    def weighted(self, weights: Weights) -> Index:
        """Return the same tools with different weights of the signals. The field weights of BM25F do not change."""
        return Index(self.parts, weights)

    def search(
        self,
        query: str | Query,
        *,
        limit: int,
        offset: int = 0,
        visible: Selection | None = None,
        scope: Scope | None = None,
        knowledge: Knowledge | None = None,
    ) -> Ranking:
        """Rank the tools that match `query`, and return `limit` of them after the first `offset`.

        If the confidence of the best tool in scope is below `Calibration.refused`, the ranking is weak: it has at most
        `Weights.weak_results` tools. This does not hold if the past supports a tool in scope. The ranking is empty only
        if no tool is related to the query.

        Tools that are not `visible` do not exist: the answer, including scores, is that of an index built without them.
        `scope` only narrows what is returned and counted, and the statistics are those of all visible tools. A query of
        only stopwords is matched against names. A query without words matches nothing.

        Raises:
            ValueError: `limit` or `offset` is negative, or `visible` was selected from a different index.
        """
        if limit < 0 or offset < 0:
            raise ValueError(f"limit and offset must not be negative: {limit}, {offset}")
        if visible is not None and visible.index is not self:
            raise ValueError("the selection was made from a different index")
        from toolcrib.search.index.searching import search  # noqa: PLC0415  numpy comes with the first search

        own = scope if isinstance(scope, Selection) and scope.index is self else None
        return search(
            Query.parse(query) if isinstance(query, str) else query,
            self.parts if visible is None else visible.parts,
            self._layout,
            self.weights,
            knowledge,
            limit=limit,
            offset=offset,
            among=own.parts if own is not None else None,
            scope=scope if own is None else None,
        )

    @cached_property
    def _layout(self) -> Layout:
        from toolcrib.search.index.signals import Layout  # noqa: PLC0415  see `search`

        return Layout.of([part.segment for part in self.parts], self.weights)


Index.EMPTY = Index()
