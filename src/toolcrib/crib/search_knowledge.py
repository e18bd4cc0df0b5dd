"""What search knows about a request in addition to its words: its meaning, and the outcome of similar requests."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from toolcrib.catalog.catalog_state import CatalogState
from toolcrib.catalog.isolated_sources import IsolatedSources
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import embedded_text_of
from toolcrib.config import Config
from toolcrib.config.search_settings import DEFAULT_SEARCH, Search
from toolcrib.core.events import CatalogPublished, Event
from toolcrib.core.principal import Principal
from toolcrib.core.properties import cached_property
from toolcrib.search.embedders import Embedder
from toolcrib.search.index.query import Query

if TYPE_CHECKING:
    from toolcrib.search.embedding import Embedding, TextsToEmbed
    from toolcrib.search.index.history import History
    from toolcrib.search.index.meaning import Understood
    from toolcrib.search.past_calls import Histories
    from toolcrib.search.vector_store import Vectors

logger = logging.getLogger(__name__)

_SHARED = None
"""The owner of vectors for tools that all principals share. Other owners are principal ids."""

_COMPUTING = 4
"""How many requests a local model embeds at the same time."""


class SearchKnowledge:
    """An `QueryKnowledge` that follows the catalog. It embeds new tools in the background."""

    def __init__(
        self,
        registry: ToolRegistry,
        isolated_sources: IsolatedSources[Any],
        store: Vectors | None,
        embedder: Embedder | None = None,
    ) -> None:
        """`embedder` takes precedence over the embedder of a configuration.

        Raises:
            TypeError: `embedder` does not implement the protocol.
        """
        if embedder is not None and not isinstance(cast("object", embedder), Embedder):
            raise TypeError(
                f"{embedder!r} is not an embedder: it does not implement `toolcrib.search.embedders.Embedder`"
            )
        self._registry = registry
        self._isolated_sources = isolated_sources
        self._store = store
        self._search = DEFAULT_SEARCH
        self._applied: Config | None = None
        self._is_resting = False
        self._audit: Path | None = None
        self._histories: Histories | None = None
        self._wanting = threading.Lock()
        """Held while the catalog is read and passed on. Without it, an older state could replace a newer one."""
        self._threads = anyio.CapacityLimiter(_COMPUTING)
        """A limiter of its own, so that slow tool functions do not delay searches."""
        self.embedding: Embedding | None = None
        """None if no embedding model is configured."""
        self._given = embedder
        self._take_given()

    def apply(self, config: Config) -> None:
        """Apply the search settings of `config`. A model that could not be used is tried once more."""
        if self._is_resting:
            return
        self._applied = config
        search, audit = config.search, config.audit.place if config.audit is not None else None
        known = self.embedding
        is_lost = known is not None and known.condition.is_final
        if self._given is not None:
            self._take_given()
        elif search.embedder != self._search.embedder or is_lost:
            self._close_embedding()
            if search.embedder is not None:
                self._embed(search.embedder.open)
        self._remember(search, audit)
        self._search = search

    def resume(self) -> None:
        """Continue after `aclose`. Without an earlier `aclose`, nothing happens."""
        self._take_given()
        if self._search is DEFAULT_SEARCH and self._applied is not None:
            self.apply(self._applied)

    def rest(self) -> None:
        """Use no model and no history, whatever a configuration says. For programs that do not search."""
        self._detach()
        self._is_resting = True

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every tool has a vector or a known problem, and the history of past calls is loaded.

        Returns False if that takes longer than `timeout_s`.
        """
        until = time.monotonic() + timeout_s
        waits: list[Callable[[float], bool]] = []
        if self.embedding is not None:
            waits.append(partial(self.embedding.settle, patient=False))
        if self._histories is not None:
            waits.append(self._histories.settle)
        for wait in waits:
            left_s = max(0.0, until - time.monotonic())
            if not await to_thread.run_sync(wait, left_s, abandon_on_cancel=True):
                return False
        return True

    async def aclose(self) -> None:
        """Stop embedding tools and discard the embedded queries. Searches continue by words.

        Waits for running work, but only for a few seconds.
        """
        embedding, histories = self.embedding, self._histories
        self._detach()
        with anyio.CancelScope(shield=True):
            for ending in (embedding, histories):
                if ending is not None:
                    await to_thread.run_sync(ending.close, limiter=self._threads)

    # -- what is known ------------------------------------------------------------------------------------------------

    def understood(self, query: Query) -> Understood | None:
        embedding = self.embedding
        return embedding.understood(query) if embedding is not None else None

    def history_for(self, principal: Principal) -> History | None:
        histories = self._histories
        return histories.history_for(principal) if histories is not None else None

    async def prepare(self, text: str) -> None:
        """Embed `text` in advance where that takes time, so that a search does not wait. Returns after a short time
        limit.
        """
        if (embedding := self.embedding) is not None:
            texts = Query.parse(text).texts
            await embedding.prepare(texts)
            if embedding.computes(texts):
                from toolcrib.search.embedding import PATIENCE_S  # noqa: PLC0415  already imported here

                with anyio.move_on_after(PATIENCE_S) as scope:
                    await to_thread.run_sync(embedding.queries, texts, limiter=self._threads, abandon_on_cancel=True)
                if scope.cancelled_caught:
                    embedding.rest()  # otherwise the search would run the model once more, and wait

    # -- vectors ------------------------------------------------------------------------------------------------------

    def _take_given(self) -> None:
        if self._given is not None and self.embedding is None and not self._is_resting:
            self._embed(partial(_as_it_is, self._given))

    def _embed(self, open_embedder: Callable[[], Embedder]) -> None:
        from toolcrib.search.embedding import Embedding  # noqa: PLC0415  imports numpy; only needed with a model

        self.embedding = Embedding(open_embedder, store=self._store)
        self._registry.subscribe(self._note)
        self._isolated_sources.subscribe(self._want)
        for owner in (_SHARED, *self._isolated_sources.open_ids):
            self._want(owner)

    def _close_embedding(self) -> None:
        if (embedding := self.embedding) is not None:
            self._registry.unsubscribe(self._note)
            self._isolated_sources.unsubscribe(self._want)
            self.embedding = None
            embedding.close(wait_s=0)

    def _note(self, event: Event) -> None:
        if isinstance(event, CatalogPublished):
            self._want(_SHARED)

    def _want(self, owner: str | None) -> None:
        with self._wanting:
            if (embedding := self.embedding) is not None:
                state = self._registry.state if owner is None else self._isolated_sources.open_state(owner)
                embedding.want(owner, _wanted(state) if state is not None else None)

    # -- the past -----------------------------------------------------------------------------------------------------

    def _remember(self, search: Search, audit: Path | None) -> None:
        if search.history is not None and audit is None:
            logger.warning("nothing is learned from past calls: `toolcrib.audit` is off, so no calls are recorded")
        if search.history is None or audit is None or audit != self._audit:
            self._close_histories()
        if search.history is not None and audit is not None:
            from toolcrib.search.past_calls import Histories  # noqa: PLC0415  only if history is configured

            if self._histories is None:
                self._histories, self._audit = Histories(audit), audit
            self._histories.apply(search.history)

    def _close_histories(self) -> None:
        if (histories := self._histories) is not None:
            self._histories = self._audit = None
            histories.close(wait_s=0)

    def _detach(self) -> None:
        """Close the embedding and the history without waiting for them."""
        self._close_embedding()
        self._close_histories()
        self._search = DEFAULT_SEARCH


def _as_it_is(embedder: Embedder) -> Embedder:
    return embedder


def _wanted(state: CatalogState) -> TextsToEmbed:
    import numpy as np  # noqa: PLC0415  only needed with a model

    from toolcrib.search.embedding import TextsToEmbed  # noqa: PLC0415  imports numpy too

    keys = [part.segment.keys[part.mask] for part in state.index.parts]
    return TextsToEmbed(np.concatenate(keys) if keys else np.empty(0, np.uint64), _Texts(state).at)


@dataclass
class _Texts:
    """The texts to embed for the tools of one catalog state, in the order of its index."""

    state: CatalogState

    @cached_property
    def _ids(self) -> list[str]:
        return [*self.state.index]

    def at(self, position: int) -> str:
        state = self.state
        return embedded_text_of(state.sources, state.categories, state.tools[self._ids[position]])
