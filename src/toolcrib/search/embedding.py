"""Embeds tools in a background thread and queries on demand. A search never waits for tool vectors."""

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

from toolcrib.core.threads import soon
from toolcrib.search.embedders import Embedder, EmbeddingFailed
from toolcrib.search.index.meaning import Keys, Rows, Understood, Vectors
from toolcrib.search.index.query import Query
from toolcrib.search.vector_store import Vectors as Kept

logger = logging.getLogger(__name__)

LOOKED_UP = 2_048
"""How many texts are looked up in the store at once."""

BATCH = 32
"""How many texts are embedded at once. With a transformer, a batch takes some tenths of a second; closing waits for
it."""

QUERIES = 1_024
"""How many query vectors are cached. With 384 dimensions, they take 1.5 MB."""

PATIENCE_S = 0.5
"""How long a search waits for the vector of its query."""

REST_S = 5.0
"""How long searches do not wait, after a query vector did not arrive in time."""

FLIGHTS = 8
"""How many remote requests for queries may run at once. Further queries are searched by words only."""

BACKOFF_S = (1.0, 600.0)
"""The delay after the first failure in a row, and the longest delay. Each delay is twice as long as the one before."""

GATHERING_S = 0.05
"""How long changes of the wanted texts are collected, because a starting catalog changes often."""

CLOSING_S = 2.0
"""How long closing waits for a running batch. A program that ends during a batch may crash."""

NICENESS = 5
"""The niceness of the thread. With a larger value, threads would wait too long for the GIL on a busy machine."""

PUBLISHED_S = 0.3
"""How long new vectors are collected before searches see them.

The first search after that has to look up the positions of all tools again.
"""

_SMALL = 1_024
"""The number of rows below which nothing is discarded."""


@dataclass(frozen=True, slots=True)
class TextsToEmbed:
    """The texts that should have vectors."""

    keys: Keys
    """(n,): equal keys belong to equal texts, and count once. Key 0 means that no vector is wanted."""
    text_at: Callable[[int], str]
    """Returns the text at a position in `keys`. Called in the background, and only for missing vectors."""

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]]) -> TextsToEmbed:
        """Make it from pairs of a key and its text."""
        pairs = list(texts)
        return cls(np.array([key for key, _ in pairs], np.uint64), lambda position: pairs[position][1])


@dataclass(frozen=True, slots=True)
class EmbeddingCondition:
    """The state of the embedding."""

    model: str | None
    """None before the model is loaded."""
    dim: int | None
    embedded: int
    """The number of `wanted` texts that have a vector."""
    wanted: int
    refused: int = 0
    """The number of texts that the model refused. Their tools are found by words only."""
    problem: str | None = None
    """Why embedding has stopped, for the owner. None if it is running."""
    is_final: bool = False
    """Whether embedding will not be tried again."""
    retry_after_s: float | None = None
    """Seconds until embedding is tried again."""


class Embedding:
    """One model, one thread that embeds, and a snapshot of the vectors so far.

    The owners of tools call `want` whenever the texts that should have vectors change. Unwanted vectors are discarded
    once they are more than half of all vectors. After a failure, the model is not used for a delay that grows. A model
    that cannot be used at all is not tried again. The methods never raise because of a failing model.
    """

    def __init__(
        self,
        opening: Callable[[], Embedder],
        *,
        store: Kept | None = None,
        backoff_s: tuple[float, float] = BACKOFF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`opening` returns the embedder or raises `EmbeddingFailed`. It is called when a text is first wanted."""
        self._opening = opening
        self._store = store
        self._backoff_s = backoff_s
        self._clock = clock
        self._changed = threading.Condition()
        # The following attributes are protected by that lock. The later ones belong to the thread.
        self._wanted: OrderedDict[Hashable, TextsToEmbed] = OrderedDict()
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

    # -- wanted texts
    # ----------------------------------------------------------------------------------------------------

    @property
    def vectors(self) -> Vectors | None:
        """A snapshot of the vectors so far. None before the model is loaded."""
        return self._vectors

    def want(self, owner: Hashable, wanted: TextsToEmbed | None) -> None:
        """Replace the texts that `owner` wants with `wanted`. None means that it wants nothing.

        The texts that were requested last are embedded first.
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
        """Wait until the model is loaded or fails. Returns False if that takes longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._condition.model or self._condition.problem or self._is_settled), timeout_s
            )

    def settle(self, timeout_s: float, *, patient: bool = True) -> bool:
        """Wait until all wanted texts have vectors, or never will. Returns False if that takes longer than `timeout_s`.

        Without `patient`, return as soon as there is a problem, even if it is temporary.
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
        """Stop embedding. Waits at most `wait_s` for a running batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait_s)

    # -- queries
    # ---------------------------------------------------------------------------------------------------------

    def understood(self, query: Query) -> Understood | None:
        """Return the vectors of `query` and of the tools. None if either is not available yet."""
        if not self._vectors or (texts := self.queries(query.texts)) is None:
            return None
        return Understood(self._vectors, texts)

    def queries(self, texts: Sequence[str]) -> Rows | None:
        """(len(texts), dim), unit rows: the vectors of queries, if they are available at once.

        A local model runs on the caller's thread. For a remote model, only the results of `prepare` are available.
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
        """Whether `queries` would run a model for some of `texts`, which takes time."""
        with self._changed:
            return self._embedder is not None and self._embedder.is_local and bool(self._remembered(texts)[1])

    async def prepare(self, texts: Sequence[str], timeout_s: float = PATIENCE_S) -> None:
        """Request the vectors of `texts` from a remote model, so that `queries` has them. Does nothing for a local
        model.

        Waits at most `timeout_s`. Vectors that arrive later are used next time. After a failure or a timeout, nothing
        is requested or waited for during some seconds.
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
        """Do not compute or wait for new query vectors during some seconds."""
        with self._changed:
            self._rests_until = self._clock() + REST_S

    def _boarded(self, texts: Sequence[str]) -> set[_Flight]:
        """Return the running requests for some of `texts`, and start a new one for the rest. Empty if some cannot be
        had."""
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
        except RuntimeError:  # the system has no threads left
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
            with suppress(RuntimeError):  # its loop is closed, so there is no waiter left
                ended()

    def _remembered(self, texts: Sequence[str]) -> tuple[dict[str, Rows], list[str]]:
        """Return the cached vectors by text, and the texts without one, each once. Call it with the lock held."""
        known: dict[str, Rows] = {}
        for text in texts:
            if (vector := self._queries.get(digest := _digest(text))) is not None:
                self._queries.move_to_end(digest)
                known[text] = vector
        return known, [*dict.fromkeys(text for text in texts if text not in known)]

    def _asked(self, embedder: Embedder, texts: Sequence[str]) -> dict[str, Rows] | None:
        """Embed `texts`, and cache the vectors. Returns them by text, or None if the model fails."""
        try:
            rows = _checked(embedder.embed_queries(texts), len(texts), embedder.dim)
        except EmbeddingFailed as error:
            logger.info("could not embed a query: %s", error)
        except Exception:
            logger.exception("could not embed a query")
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
                failures = self._wait(failures, f"internal error: {type(error).__name__}", None)
            else:
                failures = 0

    def _open(self) -> None:
        embedder = self._opening()
        self._table = _Table(embedder.model_id, embedder.dim)
        with self._changed:
            self._embedder = embedder
        self._publish()

    def _step(self) -> bool:
        """Embed some texts, or wait until there is work. Returns False when the embedding is closed."""
        wanted: list[TextsToEmbed] | None = None
        with self._changed:
            if self._is_settled:
                self._changed.wait_for(lambda: self._is_dirty or self._is_closed)
            if self._is_closed:
                return False
            if self._is_dirty:
                self._changed.wait_for(lambda: self._is_closed, GATHERING_S)
                self._is_dirty = False
                # The last wanted texts are embedded first.
                wanted = list(reversed(self._wanted.values()))
        if wanted is not None:
            self._plan(wanted)
        if not self._advance():
            self._publish_more()
            self._rest_assured()
        return True

    def _plan(self, wanted: list[TextsToEmbed]) -> None:
        """Find the wanted texts without vectors, and discard unwanted vectors if they are too many."""
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
        """Process the next waiting texts. Returns False if no text waits."""
        places = list(islice(self._waiting, LOOKED_UP))
        if not places:
            return False
        missing = self._from_store(places)
        if missing:
            self._publish_more()  # the model may take a long time
        for start in range(0, len(missing), BATCH):
            if self._is_closed or self._is_dirty:
                break
            self._embed(missing[start : start + BATCH])
        return True

    def _from_store(self, places: list[_Place]) -> list[_Place]:
        """Add the stored vectors. Returns the places that are not stored."""
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
            # If the model refuses even this text, the problem is not the texts.
            embedder.embed_documents(["tool"])
            if len(places) == 1:
                self._refuse(places[0])
                return
            half = len(places) // 2
            self._embed(places[:half])
            self._embed(places[half:])
            return
        # Use the stored precision, so that no ranking changes with the next start.
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
        """Let searches see the current vectors."""
        table = self._opened_table
        vectors = table.snapshot()
        self._published_at = self._clock()
        with self._changed:
            self._vectors = vectors
            self._condition = replace(self._condition, model=table.model_id, dim=table.dim)
            self._changed.notify_all()

    def _publish_more(self) -> None:
        """Publish if searches do not see all vectors yet."""
        if self._vectors is not None and len(self._opened_table.keys) > len(self._vectors):
            self._publish()

    def _rest_assured(self) -> None:
        """Record that all work is done."""
        with self._changed:
            if self._is_dirty:
                return
            # Their texts are not needed again, and the function would keep their catalog in memory.
            self._wanted = OrderedDict((owner, replace(each, text_at=_gone)) for owner, each in self._wanted.items())
            self._condition = replace(self._condition, problem=None, refused=len(self._refused))
            self._is_settled = True
            self._changed.notify_all()

    def _wait(self, failures: int, why: str, retry_after_s: float | None) -> int:
        """Pause after a failure. Returns the number of failures in a row."""
        first, most = self._backoff_s
        delay_s = max(min(first * 2.0 ** min(failures, 60), most), retry_after_s or 0.0)
        logger.info("embedding pauses for %g s: %s", delay_s, why)
        self._publish_more()
        with self._changed:
            self._condition = replace(self._condition, problem=why, wanted=self._count_wanted())
            self._next_try_at = self._clock() + delay_s
            self._is_dirty = True  # some of the waiting texts may have been embedded
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_closed, delay_s)
            self._next_try_at = None
        return failures + 1

    def _give_up(self, why: str) -> None:
        logger.warning("tools are found by their words only: %s", why)
        with self._changed:
            self._condition = replace(self._condition, problem=why, is_final=True, wanted=self._count_wanted())
            self._wanted.clear()
            self._is_settled = True
            self._changed.notify_all()

    def _count_wanted(self) -> int:
        return self._condition.wanted or sum(len(each.keys) for each in self._wanted.values())

    @property
    def _opened_table(self) -> _Table:
        assert self._table is not None  # noqa: S101  the thread opens the table first
        return self._table


@dataclass(eq=False, slots=True)
class _Flight:
    """A running request to a remote model, and the callbacks for its end."""

    waiting: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class _Place:
    """A text that waits for its vector."""

    key: int
    text: str

    @property
    def digest(self) -> bytes:
        """The key of the text in the store."""
        return _digest(self.text)


def _places(wanted: Sequence[TextsToEmbed], starts: NDArray[np.int64], places: NDArray[np.int64]) -> Iterator[_Place]:
    """Yield the texts at `places`, which are positions in all wanted texts concatenated. Each is read when needed."""
    owners: NDArray[np.int64] = np.searchsorted(starts, places, side="right") - 1
    within: list[int] = (places - starts[owners]).tolist()
    for owner, position in zip(cast("list[int]", owners.tolist()), within, strict=True):
        yield _Place(int(wanted[owner].keys[position]), wanted[owner].text_at(position))


class _Table:
    """The current vectors, in arrays that grow by doubling. Rows that were handed out are never written again."""

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
        """Append `rows`."""
        end = self._count + len(keys)
        if end > len(self._keys):
            self._move(slice(0, self._count), max(end, 2 * len(self._keys)))
        self._keys[self._count : end] = np.array(keys, np.uint64)
        self._matrix[self._count : end] = rows
        self._count = end

    def keep(self, wanted: Keys) -> bool:
        """Discard unwanted rows if they are more than half, and enough to matter. Returns whether it did."""
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
    """Return a 16-byte digest of `text`."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _checked(rows: NDArray[np.float32], count: int, dim: int) -> Rows:
    if rows.shape != (count, dim) or not np.isfinite(rows).all():
        raise EmbeddingFailed(f"the model did not return {count} vectors of {dim} numbers")
    return rows.astype(np.float32)


def _gone(position: int) -> str:
    raise LookupError(position)


def _step_back() -> None:
    """Lower the priority of this thread, where the system supports that."""
    # Only Linux accepts the id of a single thread here.
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
