"""`toolcrib.search.embedder`: which model turns texts into vectors, if any does."""

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
    "folder": "A folder with a model: model2vec, or a sentence transformer in ONNX. As seen from the file.",
    "endpoint": "In place of that: an http or https address that `/embeddings` is added to, as OpenAI has it.",
    "model": "What the endpoint calls the model.",
    "api_key": "What the endpoint is shown; best a variable, as in `${OPENAI_API_KEY}`.",
    "dimensions": "How many numbers of a vector to ask the endpoint for (as many as the model gives).",
}
"""Every key of it."""

MAX_DIMENSIONS = 16_384

_OF_ENDPOINTS = ("model", "api_key", "dimensions")


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """Exactly one of `model` and `problem` is set."""

    model: ModelFolder | ModelEndpoint | None = None
    problem: str | None = None
    """Why there is none, naming the key; no value that was filled in."""

    def open(self) -> Embedder:
        """The embedder; reads the model, or asks the endpoint, which may take a second.

        Raises:
            EmbeddingFailed: it cannot be used.
        """
        if self.model is None:
            raise EmbeddingFailed(self.problem or "", is_final=True)
        return open_embedder(self.model)


def read_embedder(settings: Settings, environ: Mapping[str, str] = os.environ) -> EmbedderConfig | None:
    """What `settings`, those of `toolcrib.search`, say of it; None where they say nothing.

    Raises:
        InvalidConfig: it is wrong; not where only a variable is not set, which is a `problem`.
    """
    if settings.values.get("embedder") is None:
        return None
    given = settings.settings("embedder")
    given.only(EMBEDDER_SETTINGS)
    folder, endpoint = given.text("folder"), given.text("endpoint")
    if bool(folder) == bool(endpoint):
        raise settings.wrong("embedder", "either a `folder` or an `endpoint` is expected in it")
    try:
        if folder:
            return EmbedderConfig(_folder(given, environ))
        return EmbedderConfig(_endpoint(given, environ))
    except Problem as problem:
        return EmbedderConfig(problem=f"{given.where}.{problem}")


def _folder(given: Settings, environ: Mapping[str, str]) -> ModelFolder:
    for key in _OF_ENDPOINTS:
        if key in given:
            raise given.wrong(key, "this is of an `endpoint`; a `folder` says it itself")
    path = expanded(given.text("folder"), "folder", environ)
    try:
        return ModelFolder(given.path.parent / Path(path).expanduser())
    except RuntimeError as error:  # `~name` of nobody
        raise Problem(f"folder: {str(error).rstrip('.')}") from error


def _endpoint(given: Settings, environ: Mapping[str, str]) -> ModelEndpoint:
    if not given.text("model"):
        raise given.wrong("model", "the name of the endpoint's model is expected here")
    dimensions = given.count("dimensions", 1, 1, MAX_DIMENSIONS, "dimensions") if "dimensions" in given else None
    url = expanded(given.text("endpoint"), "endpoint", environ)
    if not re.fullmatch(r"https?://[^/?#@\s]+(?:[/?][^#\s]*)?", url):
        raise Problem("endpoint: no http or https address, or one with a user or a fragment in it")
    key = expanded(given.text("api_key"), "api_key", environ)
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise Problem("api_key: it holds something that no header can hold")
    return ModelEndpoint(url, expanded(given.text("model"), "model", environ), key, dimensions)
