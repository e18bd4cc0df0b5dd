"""Reads `toolcrib.search.embedder`: which model embeds texts for search, if any."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from toolcrib.config.settings import Settings
from toolcrib.core.placeholders import Problem, expanded
from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelEndpoint, ModelFolder, open_embedder

EMBEDDER_SETTINGS: Mapping[str, str] = {
    "folder": "A folder with a model2vec model or an ONNX sentence transformer. Relative to the configuration file.",
    "endpoint": "Instead of `folder`: an http or https URL with an OpenAI-compatible `/embeddings` below it.",
    "model": "The name of the model at the endpoint.",
    "api_key": "The API key for the endpoint. Use a variable, such as `${OPENAI_API_KEY}`.",
    "dimensions": "The number of dimensions to request from the endpoint (the default of the model).",
}
"""Every key below `toolcrib.search.embedder`."""

MAX_DIMENSIONS = 16_384

_OF_ENDPOINTS = ("model", "api_key", "dimensions")


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


def read_embedder(settings: Settings, environ: Mapping[str, str] = os.environ) -> EmbedderConfig | None:
    """Read the embedder from `settings`, the object under `toolcrib.search`. Returns None if no embedder is configured.

    Raises:
        InvalidConfig: a setting is invalid. A variable that is not set becomes a `problem` instead.
    """
    if settings.values.get("embedder") is None:
        return None
    given = settings.settings("embedder")
    given.only(EMBEDDER_SETTINGS)
    folder, endpoint = given.text("folder"), given.text("endpoint")
    if bool(folder) == bool(endpoint):
        raise settings.wrong("embedder", "needs either `folder` or `endpoint`")
    try:
        if folder:
            return EmbedderConfig(_folder(given, environ))
        return EmbedderConfig(_endpoint(given, environ))
    except Problem as problem:
        return EmbedderConfig(problem=f"{given.where}.{problem}")


def _folder(given: Settings, environ: Mapping[str, str]) -> ModelFolder:
    for key in _OF_ENDPOINTS:
        if key in given:
            raise given.wrong(key, "is only for an `endpoint`; the `folder` of a model already contains it")
    path = expanded(given.text("folder"), "folder", environ)
    try:
        return ModelFolder(given.path.parent / Path(path).expanduser())
    except RuntimeError as error:  # `~name`, and there is no such user
        raise Problem(f"folder: {str(error).rstrip('.')}") from error


def _endpoint(given: Settings, environ: Mapping[str, str]) -> ModelEndpoint:
    if not given.text("model"):
        raise given.wrong("model", "must be the name of the model at the endpoint")
    dimensions = given.count("dimensions", 1, 1, MAX_DIMENSIONS, "dimensions") if "dimensions" in given else None
    url = expanded(given.text("endpoint"), "endpoint", environ)
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:[/?][^#\s]*)?", url):
        raise Problem("endpoint: must be an http or https URL without a user name or a fragment")
    key = expanded(given.text("api_key"), "api_key", environ)
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise Problem("api_key: contains characters that an HTTP header cannot contain")
    return ModelEndpoint(url, expanded(given.text("model"), "model", environ), key, dimensions)
