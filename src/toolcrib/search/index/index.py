"""The index of a catalog: a value that is searched, and from which the next one is made."""

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

# All that reckons is imported late, as numpy comes with it: a program is there sooner where nothing is indexed yet.

# Documents that are in memory at once: their terms take ten times the room of what becomes of them.
_AT_ONCE = 4_096


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
            before[part.segment] if part.segment in before else part.segment.mask_of(predicate) for part in self.parts
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
        knowledge: Knowledge | None = None,
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
        from toolcrib.search.index.signals import Layout  # noqa: PLC0415  likewise

        return Layout.of([part.segment for part in self.parts], self.weights)


Index.EMPTY = Index()
