"""Sentence transformers: their settings, their tokens, and those in ONNX format, run by onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.embedders.bert import WEIGHTS, Bert, Pooling
from toolcrib.search.embedders.folders import ModelFolder, extra
from toolcrib.search.embedders.interface import EmbeddingFailed, unit_rows, well_formed

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

    from toolcrib.search.embedders.interface import FloatRows

GRAPHS = ("model.onnx", "onnx/model.onnx")

DEFAULT_MAX_TOKENS = 512

TOKENS_AT_ONCE = 512
"""The number of tokens in one run of the model, including padding.

With 4,096 tokens, MiniLM takes twice the time on a CPU, and 150 MB more.
"""

_CHARS_PER_TOKEN = 16
"""How many characters of a text are read, for each of its tokens. Tokenizing a megabyte would take seconds."""

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUTS = ("sentence_embedding", "last_hidden_state", "token_embeddings")
"""The names of outputs in exports. The first one needs no pooling."""

_MODULES = ("Transformer", "Pooling", "Normalize")
_PROMPTS_FOR_DOCUMENTS = ("document", "passage", "corpus")
"""The order in which sentence-transformers looks for them (5.0)."""

_READING = 1
"""Increased when the same files would give different vectors than before."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings in the files next to the graph."""

    pooling: Pooling
    told_dim: int | None
    max_tokens: int
    lowers: bool
    """Whether text is converted to lower case before tokenization."""
    for_query: str
    for_document: str
    """The prefixes of texts."""


class _Model(Protocol):
    """Turns tokens into vectors. Thread-safe."""

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[Any]:
        """(len(ids), dim): the pooled vector of each text, from the ids of its tokens. Each text has a token.

        Raises:
            EmbeddingFailed: the model cannot be run, or returns something other than vectors.
        """
        ...


class TransformerEmbedder:
    """Embeds a text in milliseconds. One model is used by the background thread and by searches."""

    is_local = True

    def __init__(self, model_id: str, tokenizer: Tokenizer, model: _Model, settings: _Settings) -> None:
        self.model_id = model_id
        self._tokenizer = tokenizer
        self._pad = _pad_id(tokenizer)
        self._model = model
        self._settings = settings
        self.dim = int(unit_rows(model.vectors([[self._pad]])).shape[1])  # also checks the numbers

    @classmethod
    def load(cls, folder: ModelFolder) -> Self:
        """Load the model in `folder`: its ONNX graph, or its weights in `model.safetensors` if it has no graph.

        Raises:
            EmbeddingFailed: the folder has no usable model, or the extra is missing.
        """
        graph = folder.file(*GRAPHS)
        weights, tokenizer_file = folder.needed(*GRAPHS, WEIGHTS), folder.needed("tokenizer.json")
        settings = _settings(folder)
        tokenizer = folder.tokenizer(tokenizer_file)
        max_tokens = settings.max_tokens
        files = [weights]
        if graph is not None:
            # Large models store their weights next to the graph, in `model.onnx_data` or `model.onnx.data`.
            files += sorted(path for path in graph.parent.glob(f"{graph.name}?data*") if path.is_file())
            model = _OnnxModel(folder, graph, settings.pooling, _pad_id(tokenizer))
        else:
            model = Bert.load(folder, settings.pooling, 1 + max(tokenizer.get_vocab().values(), default=-1))
            max_tokens = min(max_tokens, model.max_tokens)
            files.append(folder.needed("config.json"))
        tokenizer.enable_truncation(max_tokens)  # pyright: ignore[reportUnknownMemberType]
        digest = folder.digest([*files, tokenizer_file], repr(settings))
        model_id = f"transformer{_READING}:{folder.path.name}:{digest}"
        try:
            embedder = cls(model_id, tokenizer, model, settings)
        except EmbeddingFailed as error:
            raise folder.wrong(str(error)) from error
        if settings.told_dim not in {None, embedder.dim}:
            raise folder.wrong(
                f"its vectors have {embedder.dim} dimensions, but `1_Pooling/config.json` says {settings.told_dim}"
            )
        return embedder

    def embed_documents(self, texts: Sequence[str]) -> FloatRows:
        return self._embedded([f"{self._settings.for_document}{text}" for text in texts])

    def embed_queries(self, texts: Sequence[str]) -> FloatRows:
        return self._embedded([f"{self._settings.for_query}{text}" for text in texts])

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_queries([text])[0]

    def _embedded(self, texts: list[str]) -> FloatRows:
        ids = [self._ids(text) for text in texts]
        rows = np.zeros((len(texts), self.dim), np.float32)
        for positions in _batches(ids):
            rows[positions] = unit_rows(self._model.vectors([ids[position] for position in positions]))
        return rows

    def _ids(self, text: str) -> list[int]:
        text = well_formed(text[: self._settings.max_tokens * _CHARS_PER_TOKEN])
        # One by one, because a batch would use all processors.
        return self._tokenizer.encode(text.lower() if self._settings.lowers else text).ids or [self._pad]


class _OnnxModel:
    """A graph that onnxruntime runs."""

    def __init__(self, folder: ModelFolder, graph: Path, pooling: Pooling, pad: int) -> None:
        """Load `graph`, a file in `folder`. `pad` is the id of the token that fills shorter texts of a batch.

        Raises:
            EmbeddingFailed: the file is not a model of text, or the extra is missing.
        """
        try:
            session = _session(str(graph))
        except EmbeddingFailed:
            raise
        except Exception as error:  # the library raises about a dozen kinds of plain exceptions
            raise folder.wrong(f"`{graph.name}` is truncated, or not a model: {_first_line(error)}") from error
        if strange := {each.name for each in session.get_inputs()} - {*_INPUTS}:
            raise folder.wrong(f"the model has unknown inputs: {', '.join(sorted(strange))}")
        self._session = session
        self._pooling: Pooling = pooling
        self._pad = pad
        self._inputs: Mapping[str, type[Any]] = {
            each.name: np.int32 if each.type == "tensor(int32)" else np.int64 for each in session.get_inputs()
        }
        names = [each.name for each in session.get_outputs()]
        self._output: str = next((name for name in _OUTPUTS if name in names), names[0])

    def vectors(self, ids: Sequence[Sequence[int]]) -> NDArray[Any]:
        tokens = np.full((len(ids), max(map(len, ids))), self._pad, np.int64)
        mask = np.zeros_like(tokens)
        for row, each in enumerate(ids):
            tokens[row, : len(each)] = each
            mask[row, : len(each)] = 1
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        fed = {name: given[name].astype(kind) for name, kind in self._inputs.items()}
        try:
            found: Any = self._session.run([self._output], fed)[0]
        except Exception as error:  # see `__init__`
            raise EmbeddingFailed(f"the model failed to run: {_first_line(error)}") from error
        states: NDArray[Any] = np.asarray(found)
        if states.dtype.kind == "f" and states.ndim == 3 and states.shape[:2] == tokens.shape:
            return _pooled(states, mask, self._pooling)
        if states.dtype.kind == "f" and states.ndim == 2 and len(states) == len(ids):
            return states
        what = f"{states.dtype} of shape {states.shape}"
        raise EmbeddingFailed(f"the model's `{self._output}` must contain vectors, not {what}")


def _pooled(states: NDArray[Any], mask: NDArray[np.int64], pooling: Pooling) -> NDArray[Any]:
    """Return one vector for each text, from the vectors (n, tokens, dim) of its tokens."""
    if pooling == "cls":
        return states[:, 0]
    share = mask / mask.sum(axis=1, keepdims=True)
    return np.einsum("ntd,nt->nd", states, share.astype(states.dtype))


def _batches(ids: list[list[int]]) -> Iterator[list[int]]:
    """Yield positions of texts with similar lengths, so that a run has little padding."""
    batch: list[int] = []
    for position in sorted(range(len(ids)), key=lambda each: len(ids[each])):
        if batch and len(ids[position]) * (len(batch) + 1) > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _session(graph: str) -> Any:
    onnxruntime = extra("onnxruntime")
    options = onnxruntime.SessionOptions()
    # At most half of the processors, so that searches can use the others.
    options.intra_op_num_threads = max(1, min(4, (os.cpu_count() or 1) // 2))
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Every batch has a different shape, so memory that is prepared for one is of no use for the next.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _settings(folder: ModelFolder) -> _Settings:
    modules = folder.modules()
    if strange := [kind for kind, _ in modules if kind not in _MODULES]:
        raise folder.wrong(f"`modules.json` names an unknown part: {strange[0]}")
    pooling = folder.json(f"{next((path for kind, path in modules if kind == 'Pooling'), '1_Pooling')}/config.json")
    sentence = folder.json("sentence_bert_config.json")
    most = folder.count(folder.json("config.json"), "max_position_embeddings", DEFAULT_MAX_TOKENS)
    for_query, for_document = _prompts(folder)
    if (for_query or for_document) and pooling.get("include_prompt") is False:
        raise folder.wrong("it excludes prompts from the pooling, which Toolcrib does not support")
    return _Settings(
        _pooling(folder, pooling),
        folder.count(pooling, "word_embedding_dimension", None),
        folder.count(sentence, "max_seq_length", None) or most or DEFAULT_MAX_TOKENS,
        sentence.get("do_lower_case") is True,
        for_query,
        for_document,
    )


def _pooling(folder: ModelFolder, settings: Mapping[str, Any]) -> Pooling:
    """Read the pooling mode, from the flags of older versions or from the single setting of newer ones."""
    modes = [key.removeprefix("pooling_mode_") for key, value in settings.items() if value is True]
    modes = [mode for mode in modes if f"pooling_mode_{mode}" in settings]
    if isinstance(settings.get("pooling_mode"), str):
        modes = [settings["pooling_mode"]]
    match modes:
        case [] | ["mean_tokens"] | ["mean"]:
            return "mean"
        case ["cls_token"] | ["cls"]:
            return "cls"
        case _:
            raise folder.wrong(f"Toolcrib does not support its pooling mode: {', '.join(modes)}")


def _prompts(folder: ModelFolder) -> tuple[str, str]:
    """Return the prefixes for a query and for a document."""
    settings = folder.json("config_sentence_transformers.json")
    found: object = settings.get("prompts") or {}
    prompts = cast("Mapping[str, Any]", found if isinstance(found, Mapping) else {"": None})
    if not all(isinstance(each, str) for each in prompts.values()):
        raise folder.wrong("its `prompts` must be an object of strings")
    otherwise = prompts.get(settings.get("default_prompt_name") or "", "")
    documents = next((prompts[name] for name in _PROMPTS_FOR_DOCUMENTS if prompts.get(name)), otherwise)
    return prompts.get("query") or otherwise, documents


def _pad_id(tokenizer: Tokenizer) -> int:
    """Return the id of the padding token. Without one, any id works, because padding is masked."""
    found = (tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>"))
    return next((each for each in found if each is not None), 0)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]
