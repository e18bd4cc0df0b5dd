"""Static embeddings in the format of model2vec: a vector for each token, and the mean of them for a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.embedders.folders import ModelFolder, extra
from toolcrib.search.embedders.interface import unit_rows, well_formed

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from toolcrib.search.embedders.interface import FloatRows

TENSORS = ("embeddings", "embedding.weight")
"""The names of the vectors in model2vec and in sentence-transformers."""

TOKENIZERS = ("tokenizer.json", "0_StaticEmbedding/tokenizer.json")
WEIGHTS = ("model.safetensors", "0_StaticEmbedding/model.safetensors")

DEFAULT_MAX_TOKENS = 512
MAX_CHARS = 100_000
"""The length of a text if the model has no limit of its own."""

_AT_ONCE = 256
"""The number of texts whose token vectors are looked up at once."""

_READING = 1
"""Increased when the same files would give different vectors than before."""


class StaticEmbedder:
    """Embeds a text in microseconds, without a runtime. 30,000 tokens with 256 dimensions take about 30 MB.

    Source: model2vec 0.10, `StaticModel`. Vectors always have length 1, even if the model's `normalize` is off, because
    they are only used for cosines.
    """

    is_local = True

    def __init__(
        self,
        model_id: str,
        *,
        tokenizer: Tokenizer,
        vectors: NDArray[Any],
        mapping: NDArray[np.int64] | None,
        weights: NDArray[np.float32] | None,
        max_tokens: int | None,
    ) -> None:
        self.model_id = model_id
        self._tokenizer = tokenizer
        self._vectors = vectors
        self._mapping = mapping
        self._weights = weights
        self._unknown = _unknown_id(tokenizer)
        lengths = sorted(map(len, tokenizer.get_vocab()))
        self._max_tokens = max_tokens
        self._max_chars = MAX_CHARS if max_tokens is None else max_tokens * int(np.median(lengths))

    @property
    def dim(self) -> int:
        return int(self._vectors.shape[1])

    @classmethod
    def load(cls, folder: ModelFolder) -> Self:
        """Load the model in `folder`.

        Raises:
            EmbeddingFailed: the folder has no usable model, or the extra is missing.
        """
        weights_file = folder.needed(*WEIGHTS)
        tokenizer_file = folder.needed(*TOKENIZERS)
        settings = folder.json("config.json")
        found = _read_tensors(folder, weights_file)
        vectors = next(found[name] for name in TENSORS if name in found)
        tokenizer = folder.tokenizer(tokenizer_file)
        vocabulary = tokenizer.get_vocab()
        if len(vocabulary) != max(vocabulary.values(), default=-1) + 1:
            raise folder.wrong("the ids of its tokens have gaps")
        mapping, weights = _checked(folder, vectors, found, len(vocabulary))
        max_tokens = folder.count(settings, "max_length", DEFAULT_MAX_TOKENS)
        digest = folder.digest([weights_file, tokenizer_file], str(max_tokens))
        model_id = f"static{_READING}:{folder.path.name}:{digest}"
        return cls(
            model_id, tokenizer=tokenizer, vectors=vectors, mapping=mapping, weights=weights, max_tokens=max_tokens
        )

    def embed_documents(self, texts: Sequence[str]) -> FloatRows:
        rows = np.zeros((len(texts), self.dim), np.float32)
        for start in range(0, len(texts), _AT_ONCE):
            ids = [self._ids(text) for text in texts[start : start + _AT_ONCE]]
            told = [position for position, each in enumerate(ids) if each]
            if told:
                rows[[start + position for position in told]] = self._sums([ids[position] for position in told])
        return unit_rows(rows)

    def embed_queries(self, texts: Sequence[str]) -> FloatRows:
        return self.embed_documents(texts)

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_documents([text])[0]

    def _ids(self, text: str) -> list[int]:
        # One by one, because a batch would use all processors.
        ids = self._tokenizer.encode(well_formed(text[: self._max_chars]), add_special_tokens=False).ids
        return [each for each in ids[: self._max_tokens] if each != self._unknown]

    def _sums(self, ids: list[list[int]]) -> FloatRows:
        """The mean vector of each text's tokens, except for its length. Each text must have at least one token."""
        tokens = np.concatenate([np.asarray(each, np.int64) for each in ids])
        rows = self._vectors[tokens if self._mapping is None else self._mapping[tokens]].astype(np.float32)
        if self._weights is not None:
            rows *= self._weights[tokens][:, None]
        ends = np.cumsum([0, *map(len, ids)])
        # `reduceat` would add rows one after the other. A pairwise sum has smaller rounding errors.
        return np.stack([rows[start:end].mean(axis=0) for start, end in pairwise(ends)])


def _read_tensors(folder: ModelFolder, path: Path) -> dict[str, NDArray[Any]]:
    safetensors = extra("safetensors")
    names = folder.tensors(path)
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            return {name: file.get_tensor(name) for name in (*TENSORS, "mapping", "weights") if name in names}
    except Exception as error:  # the library raises plain `Exception`; a type that numpy lacks is a `TypeError`
        raise folder.wrong(f"`{path.name}` is truncated or damaged: {error}") from error


def _checked(
    folder: ModelFolder, vectors: NDArray[Any], found: dict[str, NDArray[Any]], vocabulary: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.float32] | None]:
    """Return the mapping from tokens to rows of `vectors`, and the weights of tokens. Each is None if it is missing.

    Raises:
        EmbeddingFailed: their shapes or values do not match.
    """
    if vectors.ndim != 2 or not vectors.size or vectors.dtype.kind not in "fi":
        raise folder.wrong(f"its vectors must be a table of numbers, not {vectors.dtype} of shape {vectors.shape}")
    for start in range(0, len(vectors), 65_536):
        if not np.isfinite(vectors[start : start + 65_536]).all():
            raise folder.wrong("its vectors contain values that are not finite numbers")
    mapping, weights = found.get("mapping"), found.get("weights")
    if mapping is None:
        if len(vectors) != vocabulary:
            raise folder.wrong(f"it has {len(vectors)} vectors for {vocabulary} tokens")
    elif (
        mapping.shape != (vocabulary,)
        or mapping.dtype.kind not in "iu"
        or mapping.min() < 0
        or mapping.max() >= len(vectors)
    ):
        raise folder.wrong(f"its `mapping` does not map {vocabulary} tokens to {len(vectors)} vectors")
    if weights is not None and (weights.shape != (vocabulary,) or not np.isfinite(weights).all()):
        raise folder.wrong(f"its `weights` must have one number for each of {vocabulary} tokens")
    return (
        None if mapping is None else mapping.astype(np.int64),
        None if weights is None else weights.astype(np.float32),
    )


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    """Return the id of the token for unknown text, which has no meaning. None if there is no such token."""
    model = cast("dict[str, Any]", json.loads(tokenizer.to_str())["model"])
    if (token := model.get("unk_token")) is not None:
        return tokenizer.token_to_id(token)
    return cast("int | None", model.get("unk_id"))
