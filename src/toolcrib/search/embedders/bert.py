"""Sentence transformers of the BERT family, read from `model.safetensors` and computed with numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.embedders.folders import ModelFolder, extra
from toolcrib.search.embedders.interface import EmbeddingFailed

if TYPE_CHECKING:
    from toolcrib.search.embedders.interface import FloatRows

WEIGHTS = "model.safetensors"

Pooling = Literal["mean", "cls"]

_TYPES = ("F32", "F16", "F64")
"""The types of numbers that numpy has, as safetensors names them. BF16 is not one of them."""

_AT_ONCE = 32_768
"""How many numbers go through `gelu` at once. They and the intermediate values fit into the cache of a processor."""


@dataclass(frozen=True, slots=True)
class _Linear:
    """`x @ weight.T + bias`."""

    weight: FloatRows
    """(out, in)"""
    bias: FloatRows

    def __call__(self, rows: FloatRows) -> FloatRows:
        found = rows @ self.weight.T
        found += self.bias
        return found


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalisation."""

    weight: FloatRows
    bias: FloatRows
    eps: float

    def __call__(self, rows: FloatRows) -> FloatRows:
        """Normalise `rows` (n, dim) in place."""
        rows -= rows.mean(axis=1, keepdims=True)
        variance = np.einsum("nd,nd->n", rows, rows) / np.float32(rows.shape[1])
        rows /= np.sqrt(variance + np.float32(self.eps))[:, None]
        rows *= self.weight
        rows += self.bias
        return rows


@dataclass(frozen=True, slots=True)
class _Layer:
    attended: _Linear
    """Queries, keys and values, each of `dim` numbers. The queries are already divided by the root of their size."""
    mixed: _Linear
    mixed_norm: _Norm
    wide: _Linear
    narrow: _Linear
    norm: _Norm


class Bert:
    """The encoder of BERT with the pooling of sentence-transformers.

    It computes the tokens of all texts of a batch as one table, without padding. Only attention is computed for each
    text.

    Source: Devlin et al. 2019, "BERT"; the names and the order of operations are those of `BertModel` in transformers.
    """

    def __init__(
        self,
        *,
        words: FloatRows,
        positions: FloatRows,
        norm: _Norm,
        layers: Sequence[_Layer],
        heads: int,
        pooling: Pooling,
    ) -> None:
        self._words = words
        self._positions = positions
        self._norm = norm
        self._layers = layers
        self._heads = heads
        self._pooling: Pooling = pooling

    @property
    def max_tokens(self) -> int:
        """The length of the longest text that the model knows positions for."""
        return len(self._positions)

    @classmethod
    def load(cls, folder: ModelFolder, pooling: Pooling, vocabulary: int) -> Self:
        """Load the model in `folder`. `vocabulary` is one more than the largest id of a token of its tokenizer.

        Raises:
            EmbeddingFailed: the files do not contain a BERT model that Toolcrib supports, or the extra is missing.
        """
        _limiter()  # fails before the weights are read if the extra is missing
        config = _Config.read(folder)
        if config.vocabulary < vocabulary:
            raise folder.wrong(
                f"it has vectors for {config.vocabulary} tokens, but the ids of its tokenizer go up to {vocabulary - 1}"
            )
        with _opened(folder) as tensor:
            dim = config.dim
            words = tensor("embeddings.word_embeddings.weight", config.vocabulary, dim)
            positions = tensor("embeddings.position_embeddings.weight", config.positions, dim)
            # Texts have no second part here, so all tokens are of type 0.
            positions += tensor("embeddings.token_type_embeddings.weight", config.types, dim)[0]
            norm = _norm(tensor, "embeddings.LayerNorm", config)
            layers = [_layer(tensor, f"encoder.layer.{number}", config) for number in range(config.layers)]
        return cls(words=words, positions=positions, norm=norm, layers=layers, heads=config.heads, pooling=pooling)

    def vectors(self, ids: Sequence[Sequence[int]]) -> FloatRows:
        """(len(ids), dim): the pooled vector of each text, from the ids of its tokens. Each text needs a token."""
        with _limiter()():
            return self._pooled(ids)

    def _pooled(self, ids: Sequence[Sequence[int]]) -> FloatRows:
        lengths = [len(each) for each in ids]
        tokens = np.concatenate([np.asarray(each, np.int64) for each in ids])
        rows = self._words[tokens]
        rows += self._positions[np.concatenate([np.arange(length) for length in lengths])]
        self._norm(rows)
        for layer in self._layers:
            mixed = layer.mixed(self._attention(layer.attended(rows), lengths))
            mixed += rows
            rows = layer.mixed_norm(mixed)
            narrow = layer.narrow(gelu(layer.wide(rows)))
            narrow += rows
            rows = layer.norm(narrow)
        starts = np.cumsum([0, *lengths[:-1]])
        if self._pooling == "cls":
            return rows[starts]
        return np.stack(
            [rows[start : start + length].mean(axis=0) for start, length in zip(starts, lengths, strict=True)]
        )

    def _attention(self, attended: FloatRows, lengths: Sequence[int]) -> FloatRows:
        """(n, dim): for each token, the values of the tokens of its text, weighted by how well they fit its query.

        `attended` is (n, 3 * dim).
        """
        found = np.empty((len(attended), attended.shape[1] // 3), np.float32)
        start = 0
        for length, same in groupby(lengths):
            end = start + length * len([*same])
            # (3, texts, heads, tokens, size)
            parts = attended[start:end].reshape(-1, length, 3, self._heads, found.shape[1] // self._heads)
            queries, keys, values = parts.transpose(2, 0, 3, 1, 4)
            scores = queries @ keys.swapaxes(-1, -2)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            found[start:end] = (scores @ values).swapaxes(1, 2).reshape(end - start, -1)
            start = end
        return found


class _OneThread:
    """Keeps the library that multiplies for numpy on the calling thread, while any text is embedded.

    By default, OpenBLAS uses all processors. Its threads wait actively for each other. On a busy machine with two
    processors, a query took nine times as long with two threads as with one. The limit applies to the whole process,
    so it is removed as soon as no text is embedded.
    """

    def __init__(self) -> None:
        self._blas = extra("threadpoolctl").ThreadpoolController().select(user_api="blas")
        self._lock = threading.Lock()
        self._running = 0
        self._limit: Any = None

    @contextmanager
    def __call__(self) -> Generator[None]:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._take_control()
                self._limit = self._blas.limit(limits=1, user_api="blas")
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._take_control()
                    self._limit.restore_original_limits()
                    self._take_control()

    def _take_control(self) -> None:
        """Let this thread change the limit. From 3.8, threadpoolctl ignores all threads but the first that did.

        The last text may end on a different thread than the first began on.
        """
        for library in self._blas.lib_controllers:
            if (clear := getattr(library, "clear_controlling_thread", None)) is not None:
                clear(force=True)


@cache
def _limiter() -> _OneThread:
    """Return the one limiter of this process.

    Raises:
        EmbeddingFailed: the extra is missing.
    """
    return _OneThread()


def gelu(rows: FloatRows) -> FloatRows:
    """Replace each x of the contiguous `rows` by `x / 2 * (1 + erf(x / sqrt(2)))`, and return `rows`.

    numpy has no `erf`. The absolute error is below 5e-7 for sizes up to 12, about that of a float32.

    Source: Abramowitz and Stegun 1964, formula 7.1.26.
    """
    flat = rows.reshape(-1)
    for start in range(0, len(flat), _AT_ONCE):
        x = flat[start : start + _AT_ONCE]
        size = np.abs(x)
        size *= np.float32(sqrt(0.5))
        t = 1 / (1 + np.float32(0.3275911) * size)
        tail = t * np.float32(1.061405429)
        for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            tail += np.float32(factor)
            tail *= t
        size *= size
        np.negative(size, out=size)
        tail *= np.exp(size, out=size)  # 1 - erf(|x| / sqrt(2))
        tail *= np.float32(0.5)
        x *= np.where(x < 0, tail, 1 - tail)
    return rows


@dataclass(frozen=True, slots=True)
class _Config:
    """The sizes in `config.json`."""

    dim: int
    layers: int
    heads: int
    wide: int
    vocabulary: int
    positions: int
    types: int
    eps: float

    @classmethod
    def read(cls, folder: ModelFolder) -> Self:
        """Read `config.json`.

        Raises:
            EmbeddingFailed: it describes a different kind of model, or lacks a size.
        """
        config = folder.json("config.json")
        kind = config.get("model_type")
        if kind != "bert":
            raise folder.wrong(
                f"its `config.json` has the `model_type` {kind!r}. Toolcrib reads `{WEIGHTS}` only of the type 'bert'."
                " Export other models to ONNX"
            )
        for key, supported in (
            ("hidden_act", ("gelu",)),
            ("position_embedding_type", ("absolute", None)),
            ("is_decoder", (False, None)),
        ):
            if config.get(key) not in supported:
                raise folder.wrong(f"Toolcrib does not support its `{key}`, which is {config.get(key)!r}")
        eps = config.get("layer_norm_eps", 1e-12)
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < 1:
            raise folder.wrong("its `layer_norm_eps` must be a number from 0 to 1")
        found = cls(
            dim=_size(folder, config, "hidden_size"),
            layers=_size(folder, config, "num_hidden_layers"),
            heads=_size(folder, config, "num_attention_heads"),
            wide=_size(folder, config, "intermediate_size"),
            vocabulary=_size(folder, config, "vocab_size"),
            positions=_size(folder, config, "max_position_embeddings"),
            types=_size(folder, config, "type_vocab_size"),
            eps=float(eps),
        )
        if found.dim % found.heads:
            raise folder.wrong(f"its `hidden_size` {found.dim} cannot be divided by its {found.heads} attention heads")
        return found


def _size(folder: ModelFolder, config: Mapping[str, Any], key: str) -> int:
    if (size := folder.count(config, key, None)) is None:
        raise folder.wrong(f"its `config.json` has no `{key}`")
    return size


_Tensor = Callable[..., "FloatRows"]
"""Returns the tensor with a name and a shape, as float32."""


def _opened(folder: ModelFolder) -> AbstractContextManager[_Tensor]:
    """Open the weights in `folder`. Nothing is read before a tensor is requested.

    So the memory depends on the size of the file, and not on numbers that a damaged file claims.

    Raises:
        EmbeddingFailed: the file is truncated or damaged, or the extra is missing. The result raises it too, for a
            tensor that is missing or has a different shape or type.
    """
    path = folder.needed(WEIGHTS)
    names = folder.tensors(path)
    # Models that were saved together with a head have a prefix.
    prefix = "bert." if "bert.embeddings.word_embeddings.weight" in names else ""
    safetensors = extra("safetensors")

    @contextmanager
    def opened() -> Generator[_Tensor]:
        try:
            with safetensors.safe_open(str(path), framework="numpy") as file:

                def tensor(name: str, *shape: int) -> FloatRows:
                    return _read(folder, file, names, f"{prefix}{name}", shape)

                yield tensor
        except EmbeddingFailed:
            raise
        except Exception as error:  # the library raises plain `Exception`
            raise folder.wrong(f"`{path.name}` is truncated or damaged: {error}") from error

    return opened()


def _read(folder: ModelFolder, file: Any, names: frozenset[str], name: str, shape: tuple[int, ...]) -> FloatRows:
    if name not in names:
        raise folder.wrong(f"`{WEIGHTS}` has no tensor `{name}`")
    header = file.get_slice(name)
    if (kind := header.get_dtype()) not in _TYPES:
        raise folder.wrong(f"its tensor `{name}` has the type {kind}. Toolcrib supports {', '.join(_TYPES)}")
    if tuple(header.get_shape()) != shape:
        raise folder.wrong(f"its tensor `{name}` has the shape {header.get_shape()}, but it should be {[*shape]}")
    found: NDArray[Any] = file.get_tensor(name).astype(np.float32, copy=False)
    if not np.isfinite(found).all():
        raise folder.wrong(f"its tensor `{name}` contains values that are not finite numbers")
    return found


def _linear(tensor: _Tensor, name: str, wanted: int, given: int) -> _Linear:
    return _Linear(tensor(f"{name}.weight", wanted, given), tensor(f"{name}.bias", wanted))


def _norm(tensor: _Tensor, name: str, config: _Config) -> _Norm:
    return _Norm(tensor(f"{name}.weight", config.dim), tensor(f"{name}.bias", config.dim), config.eps)


def _layer(tensor: _Tensor, name: str, config: _Config) -> _Layer:
    dim = config.dim
    queries, keys, values = (
        _linear(tensor, f"{name}.attention.self.{each}", dim, dim) for each in ("query", "key", "value")
    )
    scale = np.float32(1 / sqrt(dim // config.heads))
    return _Layer(
        _Linear(
            np.concatenate([queries.weight * scale, keys.weight, values.weight]),
            np.concatenate([queries.bias * scale, keys.bias, values.bias]),
        ),
        _linear(tensor, f"{name}.attention.output.dense", dim, dim),
        _norm(tensor, f"{name}.attention.output.LayerNorm", config),
        _linear(tensor, f"{name}.intermediate.dense", config.wide, dim),
        _linear(tensor, f"{name}.output.dense", dim, config.wide),
        _norm(tensor, f"{name}.output.LayerNorm", config),
    )
