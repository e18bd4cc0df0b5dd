"""Vectors of what catalogs hold, made in the background, and of what is asked; nobody waits for the first."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import cast

import anyio
import numpy as np
from numpy.typing import NDArray

from toolcrib.core.loops import soon
from toolcrib.search.embedders import Embedder, EmbeddingFailed
from toolcrib.search.index.meaning import Understood
from toolcrib.search.index.query import Query
from toolcrib.search.index.vectors import Keys, Rows, Vectors
from toolcrib.search.vector_store import Vectors as Kept

logger = logging.getLogger(__name__)

LOOKED_UP = 2_048
"""Texts that are looked for among those kept at once."""

BATCH = 32
"""Texts that are embedded at once: some tenths of a second with a transformer, which is how long an end may take."""

QUERIES = 1_024
"""Of which the vectors are remembered: 1.5 MB with 384 dimensions."""

PATIENCE_S = 0.5
"""How long a search waits for the vector of its query."""

REST_S = 5.0
"""For so long after a query had no vector in time, none is waited for."""

FLIGHTS = 8
"""Queries that are asked for at once; what comes on top of them is searched for by its words."""

BACKOFF_S = (1.0, 600.0)
"""From the first failure in a row to the most; each waits twice as long as the one before."""

GATHERING_S = 0.05
"""How long changes of what is wanted are gathered, since a catalog that starts changes often."""

CLOSING_S = 2.0
"""How long the end waits for a batch that is being embedded: a program that ends amid one may crash."""

NICENESS = 5
"""Of the thread; more, and who waits for Python's lock while it has it would wait too long on a busy machine."""

PUBLISHED_S = 0.3
"""How long what is new is gathered before searches see it: the first after that looks up anew where all tools stand."""

_SMALL = 1_024
"""So many rows are never too many."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts of which there should be vectors."""

    keys: Keys
    """(n,): equal ones are of equal texts, and count once; 0 is of something that is to have none."""
    text_at: Callable[[int], str]
    """The text at a position in `keys`; asked in the background, and only for what is not there yet."""

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]]) -> Wanted:
        """Of keys with their texts."""
        pairs = list(texts)
        return cls(np.array([key for key, _ in pairs], np.uint64), lambda position: pairs[position][1])


@dataclass(frozen=True, slots=True)
class EmbeddingCondition:
    """How embedding is doing."""

    model: str | None
    """None before it is there."""
    dim: int | None
    embedded: int
    """Texts that have a vector, of those that are `wanted`."""
    wanted: int
    refused: int = 0
    """Texts that the model does not take; they are found by their words alone."""
    problem: str | None = None
    """Why it does not go on, for the owner; None while it does."""
    is_final: bool = False
    """Whether it will not be tried again."""
    retry_after_s: float | None = None
    """In how many seconds it is tried again."""


class Embedding:
    """One model, one thread that embeds, and a snapshot of the vectors that there are so far.

    Whoever owns tools says with `want` what is to have vectors, as often as that changes. What an owner no longer
    wants is forgotten once it is more than half of what there is. A model that fails is left alone for longer and
    longer; one that cannot be used at all is not tried again. Nothing of this ever raises where it is used.
    """

    def __init__(
        self,
        opening: Callable[[], Embedder],
        *,
        store: Kept | None = None,
        backoff_s: tuple[float, float] = BACKOFF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`opening` gives the embedder or raises `EmbeddingFailed`; it is called when something is first wanted."""
        self._opening = opening
        self._store = store
        self._backoff_s = backoff_s
        self._clock = clock
        self._changed = threading.Condition()
        # What follows is read and written under that lock; the rest belongs to the thread.
        self._wanted: OrderedDict[Hashable, Wanted] = OrderedDict()
        self._is_dirty = False
        self._is_closed = False
        self._is_settled = True
        self._condition = EmbeddingCondition(None, None, 0, 0)
        self._next_try_at: float | None = None
        self._queries: OrderedDict[bytes, Rows] = OrderedDict()
        self._flights: dict[bytes, _Flight] = {}
        self._rests_until = float("-inf")
        self._embedder: Embedder | None = None
        self._thread: threading.Thread | None = None
        self._vectors: Vectors | None = None
        self._published_at = float("-inf")
        self._table: _Table | None = None
        self._waiting: Iterator[_Place] = iter(())
        self._refused: set[int] = set()

    # -- what is wanted -----------------------------------------------------------------------------------------------

    @property
    def vectors(self) -> Vectors | None:
        """Those that there are; None before the model is there."""
        return self._vectors

    def want(self, owner: Hashable, wanted: Wanted | None) -> None:
        """Have vectors of what is `wanted`, in place of what `owner` wanted before; None takes that back.

        What was wanted last is embedded first.
        """
        with self._changed:
            if self._is_closed or self._condition.is_final:
                return
            if wanted is None:
                if self._wanted.pop(owner, None) is None:
                    return
            else:
                self._wanted[owner] = wanted
                self._wanted.move_to_end(owner)
            self._is_dirty = True
            self._is_settled = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="embedding", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def opened(self, timeout_s: float) -> bool:
        """Wait until the model for what is wanted is there, or fails; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._condition.model or self._condition.problem or self._is_settled), timeout_s
            )

    def settle(self, timeout_s: float, *, patient: bool = True) -> bool:
        """Wait until all that is wanted has vectors, or never will; False where that takes longer.

        If not `patient`, only until there is a problem, which may pass.
        """

        def is_over() -> bool:
            return self._is_settled or self._is_closed or (not patient and self._condition.problem is not None)

        with self._changed:
            return self._changed.wait_for(is_over, timeout_s)

    @property
    def condition(self) -> EmbeddingCondition:
        with self._changed:
            if self._next_try_at is None:
                return self._condition
            return replace(self._condition, retry_after_s=max(0.0, self._next_try_at - self._clock()))

    def close(self, wait_s: float = CLOSING_S) -> None:
        """End; waits for a batch that is being embedded, but no longer than that."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def understood(self, query: Query) -> Understood | None:
        """`query` beside the vectors that there are; None where nothing is known of either by now."""
        if not self._vectors or (texts := self.queries(query.texts)) is None:
            return None
        return Understood(self._vectors, texts)

    def queries(self, texts: Sequence[str]) -> Rows | None:
        """(len(texts), dim), unit rows: the vectors of what is asked, where they can be had at once.

        A local model is run on the caller's thread; of another there is only what `prepare` brought.
        """
        with self._changed:
            known, missing = self._remembered(texts)
            embedder = self._embedder
            if missing and (embedder is None or not embedder.is_local or self._clock() < self._rests_until):
                return None
        if missing and embedder is not None:
            if (found := self._asked(embedder, missing)) is None:
                return None
            known |= found
        return np.stack([known[text] for text in texts]) if texts else None

    def computes(self, texts: Sequence[str]) -> bool:
        """Whether `queries` would run a model for some of `texts`, which takes a while."""
        with self._changed:
            return self._embedder is not None and self._embedder.is_local and bool(self._remembered(texts)[1])

    async def prepare(self, texts: Sequence[str], timeout_s: float = PATIENCE_S) -> None:
        """Bring the vectors of `texts` from a model elsewhere, so that `queries` has them; nothing for a local one.

        Waits for `timeout_s` at most; what comes later is there for the next time. After a failure, or when it took
        longer, nothing is asked or waited for during some seconds.
        """
        if not (flights := self._boarded(texts)):
            return
        on_loop = soon()
        ends: list[anyio.Event] = []
        with self._changed:
            for flight in flights:
                if not flight.is_over:
                    ends.append(anyio.Event())
                    flight.waiting.append(partial(on_loop, ends[-1].set))
        with anyio.move_on_after(timeout_s) as scope:
            for each in ends:
                await each.wait()
        if scope.cancelled_caught:
            self.rest()

    def rest(self) -> None:
        """During some seconds have no vector of a query that none is known of, and wait for none."""
        with self._changed:
            self._rests_until = self._clock() + REST_S

    def _boarded(self, texts: Sequence[str]) -> set[_Flight]:
        """What is on its way with some of `texts`, by now; none where not all of them can be had."""
        with self._changed:
            _, missing = self._remembered(texts)
            embedder = self._embedder
            if not missing or embedder is None or embedder.is_local or self._is_closed:
                return set()
            on_their_way = {flight for text in missing if (flight := self._flights.get(_digest(text))) is not None}
            missing = [text for text in missing if _digest(text) not in self._flights]
            if not missing:
                return on_their_way
            if self._clock() < self._rests_until or len({*self._flights.values()}) == FLIGHTS:
                return set()
            flight = _Flight()
            self._flights |= dict.fromkeys(map(_digest, missing), flight)
        try:
            work = threading.Thread(target=self._fly, args=(flight, embedder, missing), name="embedding a query")
            work.daemon = True
            work.start()
        except RuntimeError:  # the system has no thread left
            self._land(flight)
        return {flight, *on_their_way}

    def _fly(self, flight: _Flight, embedder: Embedder, texts: Sequence[str]) -> None:
        try:
            self._asked(embedder, texts)
        finally:
            self._land(flight)

    def _land(self, flight: _Flight) -> None:
        with self._changed:
            self._flights = {digest: each for digest, each in self._flights.items() if each is not flight}
            flight.is_over = True
        for ended in flight.waiting:
            with suppress(RuntimeError):  # its loop is closed, and nobody waits any more
                ended()

    def _remembered(self, texts: Sequence[str]) -> tuple[dict[str, Rows], list[str]]:
        """Vectors by text, and the texts of which there is none, each once; under the lock."""
        known: dict[str, Rows] = {}
        for text in texts:
            if (vector := self._queries.get(digest := _digest(text))) is not None:
                self._queries.move_to_end(digest)
                known[text] = vector
        return known, [*dict.fromkeys(text for text in texts if text not in known)]

    def _asked(self, embedder: Embedder, texts: Sequence[str]) -> dict[str, Rows] | None:
        """The vectors of `texts`, by text, which are remembered as well; None where the model gives none."""
        try:
            rows = _checked(embedder.embed_queries(texts), len(texts), embedder.dim)
        except EmbeddingFailed as error:
            logger.info("a query has no vector: %s", error)
        except Exception:
            logger.exception("a query has no vector")
        else:
            found = dict(zip(texts, map(np.copy, rows), strict=True))
            with self._changed:
                self._queries |= ((_digest(text), vector) for text, vector in found.items())
                while len(self._queries) > QUERIES:
                    self._queries.popitem(last=False)
            return found
        self.rest()
        return None

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        _step_back()
        failures = 0
        while not self._is_closed:
            try:
                if self._embedder is None:
                    self._open()
                if not self._step():
                    return
            except EmbeddingFailed as error:
                if error.is_final and self._embedder is None:
                    self._give_up(str(error))
                    return
                failures = self._wait(failures, str(error), error.retry_after_s)
            except Exception as error:
                logger.exception("embedding failed")
                failures = self._wait(failures, f"it failed in a way that it should not: {type(error).__name__}", None)
            else:
                failures = 0

    def _open(self) -> None:
        embedder = self._opening()
        self._table = _Table(embedder.model_id, embedder.dim)
        with self._changed:
            self._embedder = embedder
        self._publish()

    def _step(self) -> bool:
        """Embed some texts, or wait until there is something to do; False where this is over."""
        wanted: list[Wanted] | None = None
        with self._changed:
            if self._is_settled:
                self._changed.wait_for(lambda: self._is_dirty or self._is_closed)
            if self._is_closed:
                return False
            if self._is_dirty:
                self._changed.wait_for(lambda: self._is_closed, GATHERING_S)
                self._is_dirty = False
                # Last wanted, first embedded.
                wanted = list(reversed(self._wanted.values()))
        if wanted is not None:
            self._plan(wanted)
        if not self._advance():
            self._publish_more()
            self._rest_assured()
        return True

    def _plan(self, wanted: list[Wanted]) -> None:
        """See what is wanted and not there, and forget what is there and not wanted."""
        table = self._opened_table
        keys = np.concatenate([np.empty(0, np.uint64), *(each.keys for each in wanted)])
        unique, first = np.unique(keys, return_index=True)
        unique, first = unique[unique != 0], first[unique != 0]
        if table.keep(unique):
            self._publish()
        self._refused.intersection_update(unique.tolist() if self._refused else ())
        missing = ~np.isin(unique, table.keys)
        embedded = len(unique) - int(np.count_nonzero(missing))
        with self._changed:
            self._condition = replace(self._condition, embedded=embedded, wanted=len(unique))
        missing &= ~np.isin(unique, np.array(sorted(self._refused), np.uint64))
        starts = np.cumsum([0, *(len(each.keys) for each in wanted)])
        self._waiting = _places(wanted, starts, np.sort(first[missing]))

    def _advance(self) -> bool:
        """Bring in the next texts that wait; False where there are none."""
        places = list(islice(self._waiting, LOOKED_UP))
        if not places:
            return False
        missing = self._from_store(places)
        if missing:
            self._publish_more()  # the model may take long
        for start in range(0, len(missing), BATCH):
            if self._is_closed or self._is_dirty:
                break
            self._embed(missing[start : start + BATCH])
        return True

    def _from_store(self, places: list[_Place]) -> list[_Place]:
        """Bring in what is kept; returns the others."""
        if self._store is None:
            return places
        table = self._opened_table
        positions, rows = self._store.get_many(table.model_id, [place.digest for place in places], table.dim)
        self._bring_in([places[position] for position in positions], rows)
        found = {*positions}
        return [place for position, place in enumerate(places) if position not in found]

    def _embed(self, places: list[_Place]) -> None:
        embedder = self._embedder
        assert embedder is not None  # noqa: S101
        try:
            rows = _checked(embedder.embed_documents([place.text for place in places]), len(places), embedder.dim)
        except EmbeddingFailed as error:
            if not error.is_refused:
                raise
            # Where it takes not even this, it is not about the texts.
            embedder.embed_documents(["tool"])
            if len(places) == 1:
                self._refuse(places[0])
                return
            half = len(places) // 2
            self._embed(places[:half])
            self._embed(places[half:])
            return
        # As they are kept, so that no ranking moves with the next start.
        rows = rows.astype(np.float16)
        self._bring_in(places, rows)
        if self._store is not None:
            self._store.put_many(embedder.model_id, [place.digest for place in places], rows)

    def _bring_in(self, places: list[_Place], rows: NDArray[np.float16] | Rows) -> None:
        if not places:
            return
        self._opened_table.add([place.key for place in places], rows)
        with self._changed:
            embedded = self._condition.embedded + len(places)
            self._condition = replace(self._condition, embedded=embedded, problem=None)
        if self._clock() >= self._published_at + PUBLISHED_S:
            self._publish()

    def _refuse(self, place: _Place) -> None:
        self._refused.add(place.key)
        with self._changed:
            self._condition = replace(self._condition, refused=len(self._refused))

    def _publish(self) -> None:
        """Let searches see what there is by now."""
        table = self._opened_table
        vectors = table.snapshot()
        self._published_at = self._clock()
        with self._changed:
            self._vectors = vectors
            self._condition = replace(self._condition, model=table.model_id, dim=table.dim)
            self._changed.notify_all()

    def _publish_more(self) -> None:
        """Likewise, where there is something that they do not see yet."""
        if self._vectors is not None and len(self._opened_table.keys) > len(self._vectors):
            self._publish()

    def _rest_assured(self) -> None:
        """All that can be done is done."""
        with self._changed:
            if self._is_dirty:
                return
            # Their texts are not asked for again, and would keep alive whatever they come from.
            self._wanted = OrderedDict((owner, replace(each, text_at=_gone)) for owner, each in self._wanted.items())
            self._condition = replace(self._condition, problem=None, refused=len(self._refused))
            self._is_settled = True
            self._changed.notify_all()

    def _wait(self, failures: int, why: str, retry_after_s: float | None) -> int:
        """Leave the model alone for a while; returns how often it has failed in a row."""
        first, most = self._backoff_s
        delay_s = max(min(first * 2.0 ** min(failures, 60), most), retry_after_s or 0.0)
        logger.info("embedding waits %g s: %s", delay_s, why)
        self._publish_more()
        with self._changed:
            self._condition = replace(self._condition, problem=why, wanted=self._count_wanted())
            self._next_try_at = self._clock() + delay_s
            self._is_dirty = True  # some of what was waiting may have been brought in
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed, delay_s)
            self._next_try_at = None
        return failures + 1

    def _give_up(self, why: str) -> None:
        logger.warning("tools are found by their words alone: %s", why)
        with self._changed:
            self._condition = replace(self._condition, problem=why, is_final=True, wanted=self._count_wanted())
            self._wanted.clear()
            self._is_settled = True
            self._changed.notify_all()

    def _count_wanted(self) -> int:
        return self._condition.wanted or sum(len(each.keys) for each in self._wanted.values())

    @property
    def _opened_table(self) -> _Table:
        assert self._table is not None  # noqa: S101  the thread opens before it does anything else
        return self._table


@dataclass(eq=False, slots=True)
class _Flight:
    """Queries that a model elsewhere is asked for, and who is told when it is over."""

    waiting: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """A text that waits."""

    key: int
    text: str

    @property
    def digest(self) -> bytes:
        """What it is kept under."""
        return _digest(self.text)


def _places(wanted: Sequence[Wanted], starts: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[_Place]:
    """The texts at `places` of all that is wanted, end to end, each when it is asked for."""
    owners: NDArray[np.int64] = np.searchsorted(starts, places, side="right") - 1
    within: list[int] = (places - starts[owners]).tolist()
    for owner, position in zip(cast("list[int]", owners.tolist()), within, strict=True):
        yield _Place(int(wanted[owner].keys[position]), wanted[owner].text_at(position))


class _Table:
    """The rows that there are, in arrays that double; what was handed out of them is never written again."""

    def __init__(self, model_id: str, dim: int) -> None:
        self.model_id = model_id
        self.dim = dim
        self._keys = np.empty(_SMALL, np.uint64)
        self._matrix = np.empty((_SMALL, dim), np.float32)
        self._count = 0

    @property
    def keys(self) -> Keys:
        return self._keys[: self._count]

    def add(self, keys: Sequence[int], rows: NDArray[np.float16] | Rows) -> None:
        """Put `rows` behind the others."""
        end = self._count + len(keys)
        if end > len(self._keys):
            self._move(slice(0, self._count), max(end, 2 * len(self._keys)))
        self._keys[self._count : end] = np.array(keys, np.uint64)
        self._matrix[self._count : end] = rows
        self._count = end

    def keep(self, wanted: Keys) -> bool:
        """Forget what is not among `wanted` if that is more than half, and enough to matter; whether it was."""
        if self._count <= _SMALL:
            return False
        kept = np.flatnonzero(np.isin(self.keys, wanted))
        if 2 * len(kept) >= self._count:
            return False
        self._move(kept, max(_SMALL, len(kept)))
        self._count = len(kept)
        return True

    def snapshot(self) -> Vectors:
        keys, matrix = self._keys[: self._count], self._matrix[: self._count]
        keys.setflags(write=False)
        matrix.setflags(write=False)
        return Vectors(self.model_id, keys, matrix)

    def _move(self, rows: slice | NDArray[np.intp], capacity: int) -> None:
        keys, matrix = self._keys[rows], self._matrix[rows]
        self._keys, self._matrix = np.empty(capacity, np.uint64), np.empty((capacity, self.dim), np.float32)
        self._keys[: len(keys)], self._matrix[: len(matrix)] = keys, matrix


def _digest(text: str) -> bytes:
    """16 bytes that stand for `text`."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _checked(rows: NDArray[np.float32], count: int, dim: int) -> Rows:
    if rows.shape != (count, dim) or not np.isfinite(rows).all():
        raise EmbeddingFailed(f"the model gave no {count} vectors of {dim} numbers")
    return rows.astype(np.float32)


def _gone(position: int) -> str:
    raise LookupError(position)


def _step_back() -> None:
    """Let others go first, where a thread can."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
