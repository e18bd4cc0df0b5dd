"""The settings under `toolcrib.search`: signals of the ranking, the embedding model, and learning from past calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, cast

from toolcrib.core.json_settings import Reader, Settings, Switch, Text, whole_number, words
from toolcrib.core.placeholders import Problem, expanded
from toolcrib.core.values import read_flag
from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelEndpoint, ModelFolder, open_embedder
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.weights import SIGNALS, WEIGHTS, Weights

MAX_DIMENSIONS = 16_384
_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """The configured model. Exactly one of `model` and `problem` is set."""

    model: ModelFolder | ModelEndpoint | None = None
    problem: str | None = None
    """Why there is no model. Names the key, but never a value that was filled in."""

    def open(self) -> Embedder:
        """Read the model from its folder, or connect to the endpoint. This may take a second.

        Raises:
            EmbeddingFailed: the model cannot be used.
        """
        if self.model is None:
            raise EmbeddingFailed(self.problem or "", is_final=True)
        return open_embedder(self.model)


@dataclass(frozen=True, slots=True)
class Search:
    """How tools are found."""

    weights: Weights = WEIGHTS
    embedder: EmbedderConfig | None = None
    history: HistoryConfig | None = None
    """None if search does not learn from past calls."""


DEFAULT_SEARCH = Search()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EmbedderSettings(Settings):
    """The settings under `toolcrib.search.embedder`."""

    folder: Text = ""
    """A folder with a model2vec model or a sentence transformer. Relative to the configuration file."""
    endpoint: Text = ""
    """Instead of `folder`: an http or https URL with an OpenAI-compatible `/embeddings` below it."""
    model: Text | None = None
    """The name of the model at the endpoint."""
    api_key: Text | None = None
    """The API key for the endpoint. Use a variable, such as `${OPENAI_API_KEY}`."""
    dimensions: Annotated[int | None, whole_number(1, MAX_DIMENSIONS, "dimensions")] = None
    """The number of dimensions to request from the endpoint (the default of the model)."""

    def __post_init__(self) -> None:
        if bool(self.folder) == bool(self.endpoint):
            raise ValueError("needs either `folder` or `endpoint`")
        for key in ("model", "api_key", "dimensions"):
            if self.folder and getattr(self, key) is not None:
                raise ValueError(f".{key}: is only for an `endpoint`; the `folder` of a model already contains it")
        if self.endpoint and not self.model:
            raise ValueError(".model: must be the name of the model at the endpoint")

    def config(self, path: Path, where: str, environ: Mapping[str, str]) -> EmbedderConfig:
        """Return the embedder, with variables filled in from `environ`. One that is not set becomes a `problem`."""
        try:
            return EmbedderConfig(self._folder(path, environ) if self.folder else self._endpoint(environ))
        except Problem as problem:
            return EmbedderConfig(problem=f"{where}.{problem}")

    def _folder(self, path: Path, environ: Mapping[str, str]) -> ModelFolder:
        folder = expanded(self.folder, "folder", environ)
        try:
            return ModelFolder(path.parent / Path(folder).expanduser())
        except RuntimeError as error:  # `~name`, and there is no such user
            raise Problem(f"folder: {str(error).rstrip('.')}") from error

    def _endpoint(self, environ: Mapping[str, str]) -> ModelEndpoint:
        url = expanded(self.endpoint, "endpoint", environ)
        if not re.fullmatch(r"https?://[^/?#@\s]+(?:[/?][^#\s]*)?", url):
            raise Problem("endpoint: must be an http or https URL without a user name or a fragment")
        key = expanded(self.api_key or "", "api_key", environ)
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            raise Problem("api_key: contains characters that an HTTP header cannot contain")
        return ModelEndpoint(url, expanded(self.model or "", "model", environ), key, self.dimensions)


def _read_groups(value: object, _: str) -> tuple[tuple[str, ...], ...]:
    found: list[tuple[str, ...]] = []
    for group in cast("list[object]", value) if isinstance(value, list) else [value]:
        patterns = cast("list[object]", group) if isinstance(group, list) else []
        texts = tuple(pattern for pattern in patterns if isinstance(pattern, str) and pattern)
        if not texts or len(texts) != len(patterns):
            raise ValueError('must be lists of patterns of principals, for example [["team-*"]]')
        found.append(texts)
    return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HistorySettings(Settings):
    """The settings under `toolcrib.search.history`."""

    share: Annotated[tuple[tuple[str, ...], ...], Reader(_read_groups)] = ()
    """Lists of patterns of principal ids. Principals that match the same list share their past calls."""
    max_days: Annotated[int, whole_number(1, _MOST_DAYS, "days")] = 90
    """Days for which search uses a past call. The audit must keep the call for that long."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SearchSettings(Settings):
    """The settings under `toolcrib.search`."""

    without: Annotated[tuple[str, ...], words(SIGNALS, "a signal")] = ()
    """Signals to turn off. The signals are {SIGNALS}."""
    refuse: Annotated[bool | None, Reader(read_flag)] = None
    """What a search returns if no tool fits: `true` nothing, `false` a full page. Default: up to three weak results."""
    embedder: EmbedderSettings | None = None
    """An embedding model: a `folder`, or an `endpoint` and the name of its `model`."""
    history: Switch[HistorySettings | None] = None
    """`true` lets search learn from each principal's past calls. An object has settings, such as who shares them
    (`false`)."""

    def search(self, path: Path, where: str, environ: Mapping[str, str]) -> Search:
        """Return the settings of search. `where` is their place in the file at `path`."""
        weights = WEIGHTS.without(*self.without)
        if self.refuse is not None:
            weights = replace(weights, weak_results=0) if self.refuse else weights.refusing_nothing()
        return Search(
            weights,
            None if self.embedder is None else self.embedder.config(path, f"{where}.embedder", environ),
            None if self.history is None else HistoryConfig(self.history.share, self.history.max_days),
        )
