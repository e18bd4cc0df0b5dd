"""Model folders in the layout of sentence-transformers, run with ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, external_data_helper
from tests.search.embedders.models import lookup_graph, transformer_folder, unit, vector, vectors

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelFolder, open_embedder

READ_FILE = unit(*(vector(word) for word in ("[CLS]", "read", "file", "[SEP]")))
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}


def opened(folder: Path) -> Embedder:
    return open_embedder(ModelFolder(folder))


def test_the_vector_of_a_text_is_its_token_mean_in_any_batch(tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny"))
    assert (embedder.dim, embedder.is_local) == (3, True)
    rows = embedder.embed_documents(["read file", "send mail " * 10, "mail", ""])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], READ_FILE, atol=1e-6)
    for row, text in zip(rows, ["read file", "send mail " * 10, "mail", ""], strict=True):
        np.testing.assert_allclose(row, embedder.embed_query(text), atol=1e-6)
    assert embedder.embed_documents([]).shape == (0, 3)


def test_many_texts_are_returned_in_order(tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny"))
    texts = ["mail " * (each * 37 % 101) + "file" for each in range(300)]  # more tokens than go at once
    rows = embedder.embed_documents(texts)
    np.testing.assert_allclose(rows[::50], [embedder.embed_query(text) for text in texts[::50]], atol=1e-5)


@pytest.mark.parametrize("said", [CLS, {"pooling_mode": "cls"}])
def test_the_first_token_is_used_if_the_pooling_settings_say_so(said: dict[str, Any], tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny", settings={"1_Pooling/config.json": said}))
    np.testing.assert_allclose(embedder.embed_query("read file"), unit(vector("[CLS]")), atol=1e-6)


def test_the_pooled_output_of_a_graph_is_used(tmp_path: Path) -> None:
    graph = lookup_graph(output="sentence_embedding", takes_first=True)
    embedder = opened(transformer_folder(tmp_path / "tiny", graph=graph, at="onnx/model.onnx"))
    np.testing.assert_allclose(embedder.embed_query("read file"), unit(vector("[CLS]")), atol=1e-6)


@pytest.mark.parametrize("inputs", [("input_ids",), ("input_ids", "attention_mask")])
@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_a_graph_gets_only_the_inputs_that_it_declares(inputs: tuple[str, ...], kind: int, tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny", graph=lookup_graph(inputs, kind=kind)))
    np.testing.assert_allclose(embedder.embed_query("read file"), READ_FILE, atol=1e-6)


def test_queries_and_documents_have_their_own_prompts(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "query: ", "passage": "document: "}}
    embedder = opened(transformer_folder(tmp_path / "tiny", settings={"config_sentence_transformers.json": prompts}))
    plain = opened(transformer_folder(tmp_path / "plain"))
    np.testing.assert_array_equal(embedder.embed_query("mail"), plain.embed_query("query: mail"))
    np.testing.assert_array_equal(embedder.embed_documents(["mail"])[0], plain.embed_query("document: mail"))
    assert embedder.model_id.rpartition(":")[2] != plain.model_id.rpartition(":")[2]


def test_the_default_prompt_applies_to_queries_and_documents(tmp_path: Path) -> None:
    said = {"prompts": {"any": "query: "}, "default_prompt_name": "any"}
    embedder = opened(transformer_folder(tmp_path / "tiny", settings={"config_sentence_transformers.json": said}))
    np.testing.assert_array_equal(embedder.embed_query("mail"), embedder.embed_documents(["mail"])[0])
    plain = opened(transformer_folder(tmp_path / "plain"))
    np.testing.assert_array_equal(embedder.embed_query("mail"), plain.embed_query("query: mail"))


@pytest.mark.parametrize(
    "settings",
    [
        {"sentence_bert_config.json": {"max_seq_length": 4}},
        {"config.json": {"max_position_embeddings": 4}},
    ],
)
def test_tokens_beyond_the_maximum_length_are_ignored(settings: dict[str, Any], tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny", settings=settings))
    np.testing.assert_allclose(embedder.embed_query("read file mail send"), READ_FILE, atol=1e-6)


def test_text_is_lowercased_if_the_settings_say_so(tmp_path: Path) -> None:
    folders = [
        transformer_folder(tmp_path / str(lowers), settings={"sentence_bert_config.json": {"do_lower_case": lowers}})
        for lowers in (True, False)
    ]
    for folder in folders:  # a tokenizer that tells them apart
        tokenizer_file = folder / "tokenizer.json"
        told = json.loads(tokenizer_file.read_text())
        tokenizer_file.write_text(json.dumps({**told, "normalizer": None}))
    lowering, telling_apart = map(opened, folders)
    np.testing.assert_array_equal(lowering.embed_query("MAIL"), lowering.embed_query("mail"))
    assert (telling_apart.embed_query("MAIL") != telling_apart.embed_query("mail")).any()


@pytest.mark.parametrize("name", ["model.onnx_data", "model.onnx.data"])
def test_external_weights_are_part_of_the_model_id(name: str, tmp_path: Path) -> None:
    folders = [transformer_folder(tmp_path / each) for each in ("one", "same", "other", "without")]
    for folder in folders:
        graph = lookup_graph(table=vectors() + (folder.name == "other"))
        external_data_helper.convert_model_to_external_data(graph, location=name, size_threshold=0)
        external_data_helper.write_external_data_tensors(graph, str(folder))
        (folder / "model.onnx").write_bytes(graph.SerializeToString())
    (folders[3] / name).unlink()
    ids = [opened(folder).model_id.rpartition(":")[2] for folder in folders[:3]]
    assert ids[0] == ids[1] != ids[2]
    with pytest.raises(EmbeddingFailed, match=r"`model\.onnx` is truncated, or not a model"):
        opened(folders[3])


def test_half_of_a_surrogate_pair_is_an_unknown_word(tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny"))
    np.testing.assert_array_equal(embedder.embed_query("mail \ud800"), embedder.embed_query("mail ?"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dimension": ({"1_Pooling/config.json": {"word_embedding_dimension": 384}}, "3 dimensions, but .* says 384"),
    "pooling": (
        {"1_Pooling/config.json": {"pooling_mode_lasttoken": True}},
        "does not support its pooling mode: lasttoken",
    ),
    "two poolings": (
        {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
        "mean_tokens, max_tokens",
    ),
    "a dense layer": ({"modules.json": [{"type": "sentence_transformers.models.Dense", "path": "2"}]}, "Dense"),
    "no modules": ({"modules.json": {"no": "list"}}, "does not list modules"),
    "length": ({"sentence_bert_config.json": {"max_seq_length": "long"}}, "`max_seq_length` must be a number"),
    "prompts": ({"config_sentence_transformers.json": {"prompts": ["query: "]}}, "must be an object of strings"),
    "left out": (
        {
            "config_sentence_transformers.json": {"prompts": {"query": "query: "}},
            "1_Pooling/config.json": {"include_prompt": False},
        },
        "excludes prompts from the pooling",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_reported(name: str, tmp_path: Path) -> None:
    settings, told = REFUSED[name]
    with pytest.raises(EmbeddingFailed, match=told) as failed:
        opened(transformer_folder(tmp_path / "tiny", settings=settings))
    assert failed.value.is_final


def test_a_graph_with_unknown_inputs_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingFailed, match="unknown inputs: pixel_values"):
        opened(transformer_folder(tmp_path / "tiny", graph=lookup_graph(("input_ids", "pixel_values"))))


def test_weights_that_are_not_finite_are_reported(tmp_path: Path) -> None:
    graph = lookup_graph(table=np.full_like(vectors(), np.nan))
    with pytest.raises(EmbeddingFailed, match="not finite numbers") as failed:
        opened(transformer_folder(tmp_path / "tiny", graph=graph))
    assert failed.value.is_final


def test_tokens_outside_the_graph_are_reported_as_a_failed_run(tmp_path: Path) -> None:
    embedder = opened(transformer_folder(tmp_path / "tiny", graph=lookup_graph(table=vectors()[:5])))
    with pytest.raises(EmbeddingFailed, match="failed to run"):
        embedder.embed_query("mail")
