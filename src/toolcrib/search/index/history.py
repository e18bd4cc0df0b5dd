"""Uses past requests that ended in a successful call, and which tools were called together.

Similar past requests vote for the tools that served them. Traces tell which tools follow each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, compress
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from toolcrib.core.properties import cached_property
from toolcrib.search.index.query import Query
from toolcrib.search.index.segment import Impacts, Mask, Part
from toolcrib.search.index.weights import Weights

MOST_OF_A_TOOL = 100
"""The number of different requests that are remembered for one tool, the newest ones.

The limit applies to each tool separately. With a common limit, calls of hidden tools would push out others.
"""

# The votes of a call that is not doubted.
_WHOLE = 2

_ASSUMED_TRACES = 5
"""The assumed number of further traces in which no source is used again. Without them, one trace would prove much."""

_LEAST_TRACES = 3
"""In how many traces a tool must have followed a different one before it is said to follow it often."""

_LEAST_SHARE = 0.25
"""The share of the traces with a tool in which a different one must follow it, with two assumed traces without."""

Places: TypeAlias = tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
"""For each part: the positions in `History.tool_ids` of its tools, and their positions in its segment."""

# The assumed number of further requests with other words. Without it, a word in two of three requests would be common.
_UNSEEN = 100


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A request after which a tool that the search had found was called successfully."""

    query: Query
    tool_id: str
    at: float
    """The time in seconds since 1970."""
    trace: tuple[str, str] | None = None
    """The principal and its trace; None if the trace is unknown."""
    replaced_by: frozenset[str] = frozenset()
    """Ids of the tools that later served the same request in other words, in the same trace."""


@dataclass(frozen=True, eq=False)
class History:
    """Past requests as TF-IDF vectors, with the tools that served them.

    The order of the requests does not matter. Requests with the same words are merged. Tools that served the same
    request have votes in proportion to how often they did.
    """

    tool_ids: tuple[str, ...]
    """Ids of tools that served any request, ascending."""
    pairs: NDArray[np.int32]
    """(n_pairs, 3): a request, a tool's position in `tool_ids`, and how often it served the request. Ascending."""
    pair_starts: NDArray[np.int64]
    """(n_requests + 1,): the pairs of request `r` are `pair_starts[r]:pair_starts[r + 1]`."""
    of_tool: NDArray[np.int64]
    """(n_tools,): how many requests each tool served, 1 or more."""
    terms: Mapping[str, int]
    """The row of each term, ascending."""
    starts: NDArray[np.int64]
    """(n_terms + 1,): row `t` of the postings is `starts[t]:starts[t + 1]`."""
    requests: NDArray[np.int32]
    """(n_postings,): the requests that contain the term, ascending within a row."""
    shares: NDArray[np.float64]
    """(n_postings,): the term's component in the unit vector of the request."""
    idf: NDArray[np.float64]
    """(n_terms,): the inverse document frequency of each term."""
    doubts: NDArray[np.int32]
    """(n_doubts, 4): the request and the tool of a pair, a tool that replaced this one, and how often. Ascending."""
    pair_votes: NDArray[np.int32]
    """(n_pairs,): twice the votes of each pair. Each call adds 2, and each doubt subtracts 1."""
    calls: NDArray[np.int32]
    """(n_calls, 2): the number of a trace, and the position in `tool_ids` of a tool that was called in it.

    The traces are ascending. The tools of a trace are in the order of their first calls, each once.
    """

    EMPTY: ClassVar[History]

    @classmethod
    def of(cls, confirmed: Iterable[Confirmed]) -> History:
        """Make the history of these requests. Requests without words are ignored."""
        confirmed = [*confirmed]
        uses = _newest(confirmed)
        requests = sorted({request for request, _, _ in uses})
        tool_ids = tuple(sorted({tool_id for _, tool_id, _ in uses}))
        row_of = {request: row for row, request in enumerate(requests)}
        place_of = {tool_id: place for place, tool_id in enumerate(tool_ids)}
        pairs = sorted((row_of[request], place_of[tool_id], count) for request, tool_id, count in uses)
        holders = defaultdict[str, list[int]](list)
        for row, request in enumerate(requests):
            for term in request:
                holders[term].append(row)
        terms = sorted(holders)
        return _weighted(
            tool_ids,
            np.array(pairs, np.int32).reshape(-1, 3),
            {term: row for row, term in enumerate(terms)},
            _starts([len(holders[term]) for term in terms]),
            np.fromiter(chain.from_iterable(holders[term] for term in terms), np.int32),
            doubts=_doubts(
                confirmed, {(row_of[request], place_of[tool_id]) for request, tool_id, _ in uses}, row_of, place_of
            ),
            calls=_calls(confirmed, place_of),
        )

    @cached_property
    def digest(self) -> str:
        """A hex digest. Two histories have equal digests if and only if they have the same content."""
        lengths = np.diff(self.starts)
        held = lengths > 0  # a restricted history keeps the words of hidden requests
        terms = [*compress(self.terms, held.tolist())]
        told = blake2b(repr((self.tool_ids, terms)).encode("utf-8", "surrogatepass"), digest_size=8)
        for array in (self.pairs, lengths[held], self.requests, self.doubts, self.calls):
            told.update(array.tobytes())
        return told.hexdigest()

    def __len__(self) -> int:
        """The number of different requests."""
        return len(self.pair_starts) - 1

    def restricted(self, is_visible: Callable[[str], bool]) -> History:
        """Return the history with only the tools whose ids satisfy `is_visible`, as if it had been made of their calls
        only.

        Cache the result while the same tools are visible: it takes a few milliseconds if there are many requests.
        """
        return self._kept(np.fromiter(map(is_visible, self.tool_ids), np.bool_, len(self.tool_ids)))

    def over(self, parts: Sequence[Part]) -> Recall:
        """Return this history for the tools in `parts`, whose ids must differ. Cache the result together with
        `parts`."""
        found = [_placed(self.tool_ids, part) for part in parts]
        visible = np.zeros(len(self.tool_ids), np.bool_)
        for rows, _ in found:
            visible[rows] = True
        new = np.cumsum(visible) - 1
        return Recall(self._kept(visible), tuple((new[rows], positions) for rows, positions in found))

    def _kept(self, visible: Mask) -> History:
        if visible.all():
            return self
        pairs = self.pairs[visible[self.pairs[:, 1]]]
        is_kept = np.zeros(len(self), np.bool_)
        is_kept[pairs[:, 0]] = True
        pairs[:, 0] = (np.cumsum(is_kept) - 1)[pairs[:, 0]]
        pairs[:, 1] = (np.cumsum(visible) - 1)[pairs[:, 1]]
        doubts = self.doubts[visible[self.doubts[:, 1]] & visible[self.doubts[:, 2]]]
        doubts[:, 0] = (np.cumsum(is_kept) - 1)[doubts[:, 0]]
        doubts[:, 1:3] = (np.cumsum(visible) - 1)[doubts[:, 1:3]]
        held = is_kept[self.requests]
        starts = np.concatenate([[0], np.cumsum(held)])[self.starts]
        is_said = starts[1:] > starts[:-1]
        calls = self.calls[visible[self.calls[:, 1]]]
        calls[:, 0] = np.unique(calls[:, 0], return_inverse=True)[1]
        calls[:, 1] = (np.cumsum(visible) - 1)[calls[:, 1]]
        return _weighted(
            tuple(compress(self.tool_ids, visible.tolist())),
            pairs,
            {term: row for row, term in enumerate(compress(self.terms, is_said.tolist()))},
            np.append(starts[:-1][is_said], starts[-1]),
            (np.cumsum(is_kept, dtype=np.int32) - 1)[self.requests[held]],
            doubts=doubts,
            calls=calls,
        )

    @cached_property
    def same_source(self) -> float:
        """The estimated chance that the next tool of a trace is of a source that the trace has used. In [0, 1).

        The mean over all traces with two tools or more, shrunk towards 0 by a few assumed traces. 0 without evidence.
        """
        sources = [source_of(tool_id) for tool_id in self.tool_ids]
        number_of = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        of_tool = np.array([number_of[source] for source in sources], np.int64)
        traces, tools = self.calls[:, 0].astype(np.int64), self.calls[:, 1]
        sizes = np.bincount(traces)
        used = np.unique(traces * len(number_of) + of_tool[tools]) // max(len(number_of), 1)
        different = np.bincount(used, minlength=len(sizes))
        several = sizes > 1
        again = (sizes - different)[several] / (sizes[several] - 1)
        return float(again.sum()) / (len(again) + _ASSUMED_TRACES)

    def following(self, tool_id: str) -> tuple[str, ...]:
        """Return the tools that were often called after `tool_id` in the same trace, most often first.

        Ties are ordered by id. A tool counts once in each trace.
        """
        place = bisect_left(self.tool_ids, tool_id)
        traces, tools = self.calls[:, 0], self.calls[:, 1]
        begins = np.flatnonzero(tools == place)
        if self.tool_ids[place : place + 1] != (tool_id,) or len(begins) < _LEAST_TRACES:
            return ()
        begin_of = np.full(int(traces[-1]) + 1, len(traces))
        begin_of[traces[begins]] = begins
        counts = np.bincount(tools[np.arange(len(traces)) > begin_of[traces]], minlength=1)
        often = np.flatnonzero(counts >= max(_LEAST_TRACES, _LEAST_SHARE * (len(begins) + 2)))
        return tuple(self.tool_ids[at] for at in sorted(often.tolist(), key=lambda at: (-counts[at], at)))

    def prior(self, query: Query, weights: Weights) -> Mapping[str, float]:
        """Return how strongly the past supports each tool, in (0, 1]. Tools without support are left out."""
        return {self.tool_ids[place]: value for place, value in self.votes(query, weights).items()}

    def votes(self, query: Query, weights: Weights) -> Mapping[int, float]:
        """Return the support by positions in `tool_ids`.

        The nearest past requests by cosine vote for the tools that served them. Several votes are combined like
        independent evidence (noisy or). Support below the floor is dropped, and the rest is rescaled to start at the
        floor.
        """
        cosines = self._cosines(query)
        near = np.flatnonzero(cosines >= weights.history_floor)
        if len(near) > weights.history_nearest:
            found = cosines[near]
            near = near[found >= np.sort(found)[-weights.history_nearest]]  # includes ties with the last one
        against = dict[int, float]()
        for row in near.tolist():
            own = slice(self.pair_starts[row], self.pair_starts[row + 1])
            votes: list[int] = self.pair_votes[own].tolist()
            most = max(_WHOLE, *votes)
            for place, count in zip(self.pairs[own, 1].tolist(), votes, strict=True):
                against[place] = against.get(place, 1.0) * (1 - min(1.0, float(cosines[row])) * count / most)
        floor = weights.history_floor
        return {place: (1 - no - floor) / (1 - floor) for place, no in against.items() if 1 - no > floor}

    def _cosines(self, query: Query) -> NDArray[np.float64]:
        """(n_requests,): the cosine between `query` and each past request, in [0, 1] except for rounding."""
        cosines = np.zeros(len(self))
        rows = [self.terms.get(term) for term in sorted(query.terms)]
        unknown = _idf(len(self), 0)
        norm = math.sqrt(sum((unknown if row is None else float(self.idf[row])) ** 2 for row in rows))
        for row in rows:
            if row is not None:
                start, end = self.starts[row], self.starts[row + 1]
                np.add.at(cosines, self.requests[start:end], self.shares[start:end] * (self.idf[row] / norm))
        return cosines


def _newest(confirmed: Iterable[Confirmed]) -> list[tuple[tuple[str, ...], str, int]]:
    """Return each remembered pair of request and tool, with its count."""
    of_tool = defaultdict[str, dict[tuple[str, ...], tuple[float, int]]](dict)
    for each in confirmed:
        if each.query.terms:
            found, request = of_tool[each.tool_id], tuple(sorted(each.query.terms))
            at, count = found.get(request, (each.at, 0))
            found[request] = max(at, each.at), count + 1
    return [
        (request, tool_id, count)
        for tool_id, found in of_tool.items()
        for _, request, count in sorted(((at, request, count) for request, (at, count) in found.items()), reverse=True)[
            :MOST_OF_A_TOOL
        ]
    ]


def _doubts(
    confirmed: Iterable[Confirmed],
    pairs: Collection[tuple[int, int]],
    row_of: Mapping[tuple[str, ...], int],
    place_of: Mapping[str, int],
) -> NDArray[np.int32]:
    """Return `History.doubts` of the remembered `pairs`."""
    found = Counter[tuple[int, int, int]]()
    for each in confirmed:
        if each.replaced_by and each.query.terms:
            pair = row_of.get(tuple(sorted(each.query.terms)), -1), place_of[each.tool_id]
            found.update((*pair, place_of[by]) for by in each.replaced_by if pair in pairs and by in place_of)
    return np.array([(*key, count) for key, count in sorted(found.items())], np.int32).reshape(-1, 4)


def _calls(confirmed: Iterable[Confirmed], place_of: Mapping[str, int]) -> NDArray[np.int32]:
    """Return `History.calls` for tools with a place. Other tools have no request with words."""
    first = dict[tuple[tuple[str, str], str], float]()
    for each in confirmed:
        if each.trace is not None and each.tool_id in place_of:
            key = each.trace, each.tool_id
            first[key] = min(first.get(key, each.at), each.at)
    in_order = sorted((trace, at, tool_id) for (trace, tool_id), at in first.items())
    numbers = dict[tuple[str, str], int]()
    rows = [(numbers.setdefault(trace, len(numbers)), place_of[tool_id]) for trace, _, tool_id in in_order]
    return np.array(rows, np.int32).reshape(-1, 2)


def _weighted(
    tool_ids: tuple[str, ...],
    pairs: NDArray[np.int32],
    terms: Mapping[str, int],
    starts: NDArray[np.int64],
    requests: NDArray[np.int32],
    *,
    doubts: NDArray[np.int32],
    calls: NDArray[np.int32],
) -> History:
    """Make the history of these pairs and postings. Each number in it depends only on them, to the last digit."""
    size = int(pairs[-1, 0]) + 1 if len(pairs) else 0
    lengths = np.diff(starts)
    # numpy's logarithm is not used, because its last digit may differ between an array and a single number.
    different, which = np.unique(lengths, return_inverse=True)
    idf = np.array([_idf(size, int(length)) for length in different], np.float64)[which]
    values = np.repeat(idf, lengths)
    # Summed in the order of the terms, independent of other requests.
    norms = np.sqrt(np.bincount(requests, values * values, minlength=size))
    pair_starts = _starts(np.bincount(pairs[:, 0], minlength=size))
    of_tool = np.bincount(pairs[:, 1], minlength=len(tool_ids))
    shares = values / norms[requests]
    keys = pairs[:, 0] * np.int64(len(tool_ids)) + pairs[:, 1]
    doubted = keys.searchsorted(doubts[:, 0] * np.int64(len(tool_ids)) + doubts[:, 1])
    taken = np.zeros(len(pairs), np.int32)
    np.add.at(taken, doubted, doubts[:, 3])
    counts = pairs[:, 2]
    pair_votes = np.maximum(_WHOLE * counts - taken, counts)  # however many tools replaced it, a call counts half
    for array in (pairs, pair_starts, of_tool, starts, requests, shares, idf, doubts, pair_votes, calls):
        array.setflags(write=False)
    return History(
        tool_ids, pairs, pair_starts, of_tool, terms, starts, requests, shares, idf, doubts, pair_votes, calls
    )


def _starts(lengths: ArrayLike) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


History.EMPTY = History.of(())


@dataclass(frozen=True, slots=True, eq=False)
class Recall:
    """A history for the parts of an index. It contains only tools that are visible in them."""

    history: History
    places: Places
    used: frozenset[str] = frozenset()
    """Ids of the tools that were expanded or called before in the trace of the search."""

    def mark(self, parts: Sequence[Part]) -> str:
        """Return a digest of everything here that affects the visible tools of `parts`."""
        used = self._visibly_used(parts) if self.history.same_source else []
        return " ".join((self.history.digest, *used))

    def lifted(self, scores: Sequence[Impacts], parts: Sequence[Part], weights: Weights) -> Sequence[Impacts]:
        """Return `scores`, raised for tools whose source was used before in the trace. Other scores stay the same.

        The tools that were used themselves are not raised, because the trace has them already. The factor is learned:
        it depends on how often past traces used a source again, as far as that exceeds chance. So it is 1 if all tools
        are of one source.
        """
        used = self._visibly_used(parts)
        if not used or not self.history.same_source:
            return scores
        near = [_of_sources({*map(source_of, used)}, part) for part in parts]
        by_chance = sum(map(np.count_nonzero, near)) / sum(part.size for part in parts)
        if self.history.same_source <= by_chance:
            return scores
        factor = np.float32(1 + weights.trace * (self.history.same_source - by_chance) / (1 - by_chance))
        for part, mask in zip(parts, near, strict=True):
            mask[[at for tool_id in used if (at := part.segment.positions.get(tool_id)) is not None]] = False
        return [
            np.where(mask, part_scores * factor, part_scores) for part_scores, mask in zip(scores, near, strict=True)
        ]

    def _visibly_used(self, parts: Sequence[Part]) -> list[str]:
        return sorted(tool_id for tool_id in self.used if any(tool_id in part for part in parts))

    def weighed(self, votes: Mapping[int, float], scores: Sequence[Impacts], weights: Weights) -> Sequence[Impacts]:
        """Return `scores`, one array for each part, adjusted by `votes` of `history.votes`.

        A tool with a past gains up to `weights.history` of the top score, and more if the request was the same. A tool
        without a past is treated as if its past agreed with its words, to the degree of `weights.history_doubt`. The
        same is done, less and less, for a tool that was called for few requests. All scores are divided by the
        resulting factor of a tool without a past, so the scores of such tools stay the same.

        The alternative, raising other tools without division, costs tools without a past up to 0.04 nDCG@10 if others
        are requested in similar words (BFCL).
        """
        if not votes:
            return scores
        # If no tool matches by words or meaning, the past is the only evidence.
        top = max((float(part_scores.max(initial=0.0)) for part_scores in scores), default=0.0) or 1.0
        gained = np.zeros(len(self.history.tool_ids), np.float32)
        gained[[*votes]] = [vote * (1 + weights.history_sure * vote**8) for vote in votes.values()]
        gained *= np.float32(weights.history * top)
        unknown = weights.history * weights.history_doubt * max(votes.values())
        doubted = (unknown / (1 + self.history.of_tool)).astype(np.float32)
        weighed: list[Impacts] = []
        for part_scores, (rows, positions) in zip(scores, self.places, strict=True):
            changed = part_scores.copy()
            before = changed[positions]
            changed[positions] = (before + np.maximum(gained[rows], before * doubted[rows])) / np.float32(1 + unknown)
            weighed.append(changed)
        return weighed


def source_of(tool_id: str) -> str:
    """Return the name of the tool's source, which contains no dot."""
    return tool_id.partition(".")[0]


def _of_sources(names: Collection[str], part: Part) -> Mask:
    """Return which tools of `part` are visible and of one of these sources."""
    origins = part.segment.origins
    runs = np.isin(part.segment.origin_of_run, [origins[name] for name in names if name in origins])
    return np.repeat(runs, np.diff(part.segment.runs, append=len(part.segment))) & part.mask


def _placed(tool_ids: Sequence[str], part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions in `tool_ids` of the visible tools of `part`, and their positions in its segment."""
    positions = np.fromiter((part.segment.positions.get(tool_id, -1) for tool_id in tool_ids), np.int64, len(tool_ids))
    rows = np.flatnonzero(positions >= 0)
    rows = rows[part.mask[positions[rows]]]
    return rows, positions[rows]


def _idf(size: int, holders: int) -> float:
    return math.log1p((size + _UNSEEN - holders + 0.5) / (holders + 0.5))
