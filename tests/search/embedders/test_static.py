"""Folders as model2vec writes them give the vectors that model2vec gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.search.embedders.models import SPECIAL, WORDS, static_folder, tokenizer, unit, vector, vectors

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelFolder, open_embedder


def opened(folder: Path) -> Embedder:
    return open_embedder(ModelFolder(folder))


def test_a_text_is_the_mean_of_its_words_at_length_one(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    assert (embedder.dim, embedder.is_local) == (3, True)
    rows = embedder.embed_documents(["Read file", "mail", "read file"])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], unit(vector("read") + vector("file")), atol=1e-6)
    np.testing.assert_allclose(rows[1], unit(vector("mail")), atol=1e-6)
    np.testing.assert_array_equal(rows[2], rows[0])
    np.testing.assert_array_equal(embedder.embed_query("mail"), rows[1])


def test_words_that_the_model_does_not_know_say_nothing(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    with_unknown, without, nothing, empty = embedder.embed_documents(["send zebra mail", "send mail", "zebra", ""])
    np.testing.assert_array_equal(with_unknown, without)
    assert not nothing.any()
    assert not empty.any()
    assert embedder.embed_documents([]).shape == (0, 3)


def test_a_vocabulary_that_shares_vectors_has_a_mapping_and_weights(tmp_path: Path) -> None:
    shared = vectors()[:2]
    mapping = np.array([0] * SPECIAL + [each % 2 for each in range(len(WORDS) - SPECIAL)])
    weights = np.linspace(0.5, 2, len(WORDS))
    tensors = {"embeddings": shared, "mapping": mapping, "weights": weights}
    embedder = opened(static_folder(tmp_path / "tiny", tensors=tensors))
    tokens = [WORDS.index("read"), WORDS.index("file"), WORDS.index("send")]
    expected = unit(*(shared[mapping[token]] * weights[token] for token in tokens))
    np.testing.assert_allclose(embedder.embed_query("read file send"), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, np.int8])
def test_vectors_that_are_kept_small_are_read(kind: type[np.generic], tmp_path: Path) -> None:
    small = (vectors() * 50).astype(kind)
    embedder = opened(static_folder(tmp_path / "tiny", tensors={"embeddings": small}))
    rows = small.astype(np.float32)
    expected = unit(rows[WORDS.index("read")] + rows[WORDS.index("file")])
    np.testing.assert_allclose(embedder.embed_query("read file"), expected, atol=1e-3)


def test_sentence_transformers_keep_them_in_a_folder_of_their_own(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny" / "0_StaticEmbedding", tensors={"embedding.weight": vectors()}).parent
    np.testing.assert_allclose(opened(folder).embed_query("mail"), unit(vector("mail")), atol=1e-6)


def test_what_is_beyond_the_length_of_the_model_does_not_count(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny", config={"max_length": 2}))
    np.testing.assert_array_equal(embedder.embed_query("read file mail"), embedder.embed_query("read file"))
    endless = opened(static_folder(tmp_path / "endless", config={"max_length": None}))
    assert (endless.embed_query("read file mail") != endless.embed_query("read file")).any()


def test_a_word_without_end_does_not_count_either(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny", config={"max_length": 2}))
    assert not embedder.embed_query(f"{'read' * 1_000} mail").any()


def test_half_of_a_surrogate_pair_is_passed_over(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    np.testing.assert_array_equal(embedder.embed_query("mail \ud800"), embedder.embed_query("mail"))


def test_an_id_stands_for_weights_and_settings(tmp_path: Path) -> None:
    ids = {
        opened(static_folder(tmp_path / where / "tiny", tensors=tensors, config=config)).model_id
        for where, tensors, config in [
            ("one", None, {}),
            ("same", None, {}),
            ("weights", {"embeddings": vectors() + 1}, {}),
            ("length", None, {"max_length": 2}),
        ]
    }
    assert len(ids) == 3


DAMAGED = {
    "shape": ({"embeddings": vectors()[0]}, "must be a table of numbers"),
    "vocabulary": ({"embeddings": vectors()[:-1]}, f"{len(WORDS) - 1} vectors for {len(WORDS)} tokens"),
    "nan": ({"embeddings": np.full((len(WORDS), 2), np.nan, np.float32)}, "not finite numbers"),
    "mapping": (
        {"embeddings": vectors()[:2], "mapping": np.full(len(WORDS), 2)},
        f"does not map {len(WORDS)} tokens to 2 vectors",
    ),
    "weights": ({"embeddings": vectors(), "weights": np.ones(2)}, "must have one number for each"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_tensors_that_do_not_go_together_are_told_of(name: str, tmp_path: Path) -> None:
    tensors, told = DAMAGED[name]
    with pytest.raises(EmbeddingFailed, match=told) as failed:
        opened(static_folder(tmp_path / "tiny", tensors=tensors))
    assert failed.value.is_final
    assert str(failed.value).startswith(str(tmp_path / "tiny"))


def test_tokens_that_are_not_numbered_one_by_one_are_told_of(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    told = json.loads((folder / "tokenizer.json").read_text())
    told["model"]["vocab"][WORDS[-1]] = 40
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(EmbeddingFailed, match="have gaps"):
        opened(folder)


def test_a_tokenizer_of_another_model_is_told_of(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    other = tokenizer(marks_ends=False)
    other.add_tokens(["another"])  # pyright: ignore[reportUnknownMemberType]
    other.save(str(folder / "tokenizer.json"))
    with pytest.raises(EmbeddingFailed, match=f"{len(WORDS)} vectors for {len(WORDS) + 1} tokens"):
        opened(folder)
