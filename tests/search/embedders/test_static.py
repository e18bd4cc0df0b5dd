"""Model folders in the layout of model2vec give the same vectors as model2vec."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.search.embedders.models import SPECIAL, WORDS, static_folder, tokenizer, unit, vector, vectors

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelFolder, open_embedder


def opened(folder: Path) -> Embedder:
    return open_embedder(ModelFolder(folder))


def test_the_vector_of_a_text_is_the_normalized_mean_of_its_words(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    assert (embedder.dim, embedder.is_local) == (3, True)
    rows = embedder.embed_documents(["Read file", "mail", "read file"])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], unit(vector("read") + vector("file")), atol=1e-6)
    np.testing.assert_allclose(rows[1], unit(vector("mail")), atol=1e-6)
    np.testing.assert_array_equal(rows[2], rows[0])
    np.testing.assert_array_equal(embedder.embed_query("mail"), rows[1])


def test_unknown_words_are_ignored_and_a_text_of_only_unknown_words_is_zero(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    with_unknown, without, nothing, empty = embedder.embed_documents(["send zebra mail", "send mail", "zebra", ""])
    np.testing.assert_array_equal(with_unknown, without)
    assert not nothing.any()
    assert not empty.any()
    assert embedder.embed_documents([]).shape == (0, 3)


def test_shared_vectors_with_mapping_and_weights_are_supported(tmp_path: Path) -> None:
    shared = vectors()[:2]
    mapping = np.array([0] * SPECIAL + [each % 2 for each in range(len(WORDS) - SPECIAL)])
    weights = np.linspace(0.5, 2, len(WORDS))
    tensors = {"embeddings": shared, "mapping": mapping, "weights": weights}
    embedder = opened(static_folder(tmp_path / "tiny", tensors=tensors))
    tokens = [WORDS.index("read"), WORDS.index("file"), WORDS.index("send")]
    expected = unit(*(shared[mapping[token]] * weights[token] for token in tokens))
    np.testing.assert_allclose(embedder.embed_query("read file send"), expected, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, np.int8])
def test_vectors_with_small_number_types_are_supported(kind: type[np.generic], tmp_path: Path) -> None:
    small = (vectors() * 50).astype(kind)
    embedder = opened(static_folder(tmp_path / "tiny", tensors={"embeddings": small}))
    rows = small.astype(np.float32)
    expected = unit(rows[WORDS.index("read")] + rows[WORDS.index("file")])
    np.testing.assert_allclose(embedder.embed_query("read file"), expected, atol=1e-3)


def test_the_subfolder_layout_of_sentence_transformers_is_supported(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny" / "0_StaticEmbedding", tensors={"embedding.weight": vectors()}).parent
    np.testing.assert_allclose(opened(folder).embed_query("mail"), unit(vector("mail")), atol=1e-6)


def test_tokens_beyond_the_maximum_length_are_ignored(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny", config={"max_length": 2}))
    np.testing.assert_array_equal(embedder.embed_query("read file mail"), embedder.embed_query("read file"))
    endless = opened(static_folder(tmp_path / "endless", config={"max_length": None}))
    assert (endless.embed_query("read file mail") != endless.embed_query("read file")).any()


def test_an_extremely_long_word_is_ignored(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny", config={"max_length": 2}))
    assert not embedder.embed_query(f"{'read' * 1_000} mail").any()


def test_half_of_a_surrogate_pair_is_ignored(tmp_path: Path) -> None:
    embedder = opened(static_folder(tmp_path / "tiny"))
    np.testing.assert_array_equal(embedder.embed_query("mail \ud800"), embedder.embed_query("mail"))


def test_the_model_id_depends_on_weights_and_settings(tmp_path: Path) -> None:
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
def test_inconsistent_tensors_are_reported(name: str, tmp_path: Path) -> None:
    tensors, told = DAMAGED[name]
    with pytest.raises(EmbeddingFailed, match=told) as failed:
        opened(static_folder(tmp_path / "tiny", tensors=tensors))
    assert failed.value.is_final
    assert str(failed.value).startswith(str(tmp_path / "tiny"))


def test_gaps_in_token_numbers_are_reported(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    told = json.loads((folder / "tokenizer.json").read_text())
    told["model"]["vocab"][WORDS[-1]] = 40
    (folder / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(EmbeddingFailed, match="have gaps"):
        opened(folder)


def test_a_tokenizer_of_a_different_model_is_reported(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    other = tokenizer(marks_ends=False)
    other.add_tokens(["another"])  # pyright: ignore[reportUnknownMemberType]
    other.save(str(folder / "tokenizer.json"))
    with pytest.raises(EmbeddingFailed, match=f"{len(WORDS)} vectors for {len(WORDS) + 1} tokens"):
        opened(folder)
