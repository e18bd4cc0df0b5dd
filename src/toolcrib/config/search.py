"""`toolcrib.search`: which signals rank tools, which model knows what words mean, and whether the past counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib.config.embedder import EmbedderConfig, read_embedder
from toolcrib.config.history import read_history
from toolcrib.config.settings import Settings
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.weights import SIGNALS, WEIGHTS, Weights

SEARCH_SETTINGS: Mapping[str, str] = {
    "without": f"Signals that are switched off, of: {', '.join(f'`{name}`' for name in SIGNALS)}.",
    "refuse": "`false` shows the best there is of whatever is asked for, however little it has to do with it (`true`).",
    "embedder": "A model that knows what words mean: a `folder`, or an `endpoint` and the name of its `model`.",
    "history": "`true` where past calls count for who made them, or an object that says who shares them (`false`).",
}
"""Every key below `toolcrib.search`."""


@dataclass(frozen=True, slots=True)
class Search:
    """How tools are searched."""

    weights: Weights = WEIGHTS
    embedder: EmbedderConfig | None = None
    history: HistoryConfig | None = None
    """None where nothing is learned from what was asked before."""


DEFAULT_SEARCH = Search()


def read_search(settings: Settings) -> Search:
    """What `settings`, the object under `toolcrib.search`, says.

    Raises:
        InvalidConfig: it says it wrongly.
    """
    settings.only(SEARCH_SETTINGS)
    without = settings.texts("without")
    for name in without:
        if name not in SIGNALS:
            raise settings.wrong("without", f"`{name}` is no signal; there are: {', '.join(SIGNALS)}")
    weights = WEIGHTS.without(*without)
    if not settings.flag("refuse", True):
        weights = weights.refusing_nothing()
    return Search(weights, read_embedder(settings), read_history(settings))
