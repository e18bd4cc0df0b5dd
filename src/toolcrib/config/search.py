"""Reads `toolcrib.search`: which signals rank tools, the embedding model, and learning from past calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib.config.embedder import EmbedderConfig, read_embedder
from toolcrib.config.history import read_history
from toolcrib.config.settings import Settings
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.weights import SIGNALS, WEIGHTS, Weights

SEARCH_SETTINGS: Mapping[str, str] = {
    "without": f"Signals to turn off, of: {', '.join(f'`{name}`' for name in SIGNALS)}.",
    "refuse": "`false` always returns the best matches, even if they have little to do with the query (`true`).",
    "embedder": "An embedding model: a `folder`, or an `endpoint` and the name of its `model`.",
    "history": "`true` lets search learn from each principal's past calls; an object says who shares them (`false`).",
}
"""Every key below `toolcrib.search`."""


@dataclass(frozen=True, slots=True)
class Search:
    """The settings of search."""

    weights: Weights = WEIGHTS
    embedder: EmbedderConfig | None = None
    history: HistoryConfig | None = None
    """None if search does not learn from past calls."""


DEFAULT_SEARCH = Search()


def read_search(settings: Settings) -> Search:
    """Read `settings`, the object under `toolcrib.search`.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    settings.only(SEARCH_SETTINGS)
    without = settings.texts("without")
    for name in without:
        if name not in SIGNALS:
            raise settings.wrong("without", f"`{name}` is not a signal. Use: {', '.join(SIGNALS)}")
    weights = WEIGHTS.without(*without)
    if not settings.flag("refuse", True):
        weights = weights.refusing_nothing()
    return Search(weights, read_embedder(settings), read_history(settings))
