"""Tiny models in folders, in the layouts of model2vec and sentence-transformers: real files for the real libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "read", "write", "file", "mail", "send", "query", "document", ":")
SPECIAL = 4


def vectors(dim: int = 3) -> NDArray[np.float32]:
    """(len(WORDS), dim): a different direction for each word."""
    return np.random.default_rng(7).standard_normal((len(WORDS), dim)).astype(np.float32)


def vector(word: str, dim: int = 3) -> NDArray[np.float32]:
    """The row of the word in `vectors`."""
    return vectors(dim)[WORDS.index(word)]


def unit(*rows: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of the rows, scaled to length 1."""
    row = np.sum(rows, axis=0)
    return row / np.linalg.norm(row)


def tokenizer(*, marks_ends: bool) -> Tokenizer:
    """A tokenizer for lower-case words, one token each; it pads to 16 tokens, as published tokenizers do."""
    made = Tokenizer(models.WordLevel({word: each for each, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if marks_ends:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    made.enable_padding(length=16)  # pyright: ignore[reportUnknownMemberType]
    return made


def static_folder(
    folder: Path,
    *,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Create a model2vec folder with one vector for each of `WORDS`, or with `tensors`."""
    folder.mkdir(parents=True)
    save_file(dict(tensors or {"embeddings": vectors()}), folder / "model.safetensors")
    tokenizer(marks_ends=False).save(str(folder / "tokenizer.json"))
    said = {"model_type": "model2vec", "normalize": True} if config is None else config
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def transformer_folder(
    folder: Path,
    *,
    graph: onnx.ModelProto | None = None,
    at: str = "model.onnx",
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Create a sentence-transformers folder whose model looks tokens up in `vectors`; `settings` is by file name."""
    (folder / at).parent.mkdir(parents=True)
    (folder / at).write_bytes((graph or lookup_graph()).SerializeToString())
    tokenizer(marks_ends=True).save(str(folder / "tokenizer.json"))
    for name, value in (settings or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


BERT: Mapping[str, Any] = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def bert_tensors() -> dict[str, NDArray[Any]]:
    """Random weights for the sizes in `BERT`, by the names of transformers."""
    dim, wide = BERT["hidden_size"], BERT["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (BERT["vocab_size"], dim),
        "embeddings.position_embeddings.weight": (BERT["max_position_embeddings"], dim),
        "embeddings.token_type_embeddings.weight": (BERT["type_vocab_size"], dim),
        "embeddings.LayerNorm.weight": (dim,),
        "embeddings.LayerNorm.bias": (dim,),
    }
    for number in range(BERT["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for name, wanted, given in (
            ("attention.self.query", dim, dim),
            ("attention.self.key", dim, dim),
            ("attention.self.value", dim, dim),
            ("attention.output.dense", dim, dim),
            ("intermediate.dense", wide, dim),
            ("output.dense", dim, wide),
        ):
            shapes |= {f"{layer}.{name}.weight": (wanted, given), f"{layer}.{name}.bias": (wanted,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (dim,), f"{layer}.{name}.bias": (dim,)}
    random = np.random.default_rng(11)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def bert_folder(
    folder: Path,
    *,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    config: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Create a sentence-transformers folder with a tiny BERT in safetensors. `config` changes members of `BERT`."""
    folder.mkdir(parents=True)
    save_file(dict(bert_tensors() if tensors is None else tensors), folder / "model.safetensors")
    tokenizer(marks_ends=True).save(str(folder / "tokenizer.json"))
    for name, value in {"config.json": {**BERT, **(config or {})}, **(settings or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    return folder


def lookup_graph(
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    *,
    kind: int = TensorProto.INT64,
    output: str = "last_hidden_state",
    table: NDArray[np.float32] | None = None,
    takes_first: bool = False,
) -> onnx.ModelProto:
    """Map (texts, tokens) ids to (texts, tokens, dim) vectors; with `takes_first`, to those of the first token."""
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["found"], axis=0)]
    if takes_first:
        nodes.append(helper.make_node("Gather", ["found", "first"], [output], axis=1))
    else:
        nodes.append(helper.make_node("Identity", ["found"], [output]))
    shape = ["texts", "dim"] if takes_first else ["texts", "tokens", "dim"]
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info(name, kind, ["texts", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [
            numpy_helper.from_array(vectors() if table is None else table, "table"),
            numpy_helper.from_array(np.array(0, np.int64), "first"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
