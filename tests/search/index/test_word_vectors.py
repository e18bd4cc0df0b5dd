"""The shipped table of word vectors: its file, and the vectors of texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from toolcrib.core.tools import Tool
from toolcrib.search.index import word_vectors
from toolcrib.search.index.fields import document
from toolcrib.search.index.index import Index
from toolcrib.search.index.word_vectors import (
    COARSE_DIM,
    DIM,
    FILE,
    MAGIC,
    QUERY_SCALE,
    SCALE,
    TableDamaged,
    WordVectors,
    shipped,
)

PAGE = Path(__file__).parents[3] / "docs" / "word-vectors.md"


@pytest.fixture(scope="module")
def table() -> WordVectors:
    return WordVectors.load(FILE)


def _cosine(table: WordVectors, one: str, other: str) -> float:
    first, second = _units(table, one, other)
    return float(first @ second)


def _units(table: WordVectors, *texts: str) -> NDArray[np.float32]:
    return table.of_queries(texts) / np.float32(QUERY_SCALE)


def test_the_file_holds_what_its_head_says_and_fits_into_8_megabytes(table: WordVectors) -> None:
    facts = table.facts
    content = FILE.read_bytes()
    body = content.partition(MAGIC)[2].partition(b"\n")[2]

    assert len(content) < 8_000_000
    assert sha256(body).hexdigest() == facts["sha256"]
    assert table.rows.shape == (facts["words"] + facts["pairs"] + facts["buckets"], DIM)
    assert len(table.words) == facts["words"]
    assert len(table.pairs) == facts["pairs"]


def test_the_page_names_the_digest_and_every_source_with_its_licence(table: WordVectors) -> None:
    page = PAGE.read_text()

    assert table.facts["sha256"] in page
    for source in table.facts["sources"]:
        assert f"| {source['name']} | {source['texts']:,} | {source['licence']} |" in page


@pytest.mark.parametrize(
    ("word", "near", "far"),
    [
        ("folder", "directory", "weather"),
        ("remove", "delete", "forecast"),
        ("photo", "image", "database"),
        ("make a folder", "create_directory", "delete_branch"),
    ],
)
def test_texts_of_similar_meaning_are_closer_than_others(table: WordVectors, word: str, near: str, far: str) -> None:
    assert _cosine(table, word, near) > _cosine(table, word, far) + 0.2


def test_a_misspelled_word_is_close_to_the_right_one(table: WordVectors) -> None:
    assert "spreadsheeet" not in table.words
    assert _cosine(table, "open spreadsheeet", "spreadsheet") > _cosine(table, "open spreadsheeet", "weather") + 0.1


def test_nonsense_has_no_vector_though_a_tool_with_an_unknown_name_has_one(table: WordVectors) -> None:
    assert not table.of_queries(["asdfq qwerx"]).any()
    assert table.of_fields(("asdfq qwerx", "")).any()


@pytest.mark.parametrize("text", ["", " ", "!?", "文件", "123456789", "файл"])
def test_a_text_without_a_known_word_has_no_vector(table: WordVectors, text: str) -> None:
    assert not table.of_queries([text]).any()
    assert not table.of_fields((text,) * 6).any()


@pytest.mark.parametrize("text", ["a" * 30_000, "word " * 30_000, "\ud800 half", "x_" * 9_000, "\0", "naïve café"])
def test_any_text_has_a_vector_of_length_1_or_none(table: WordVectors, text: str) -> None:
    length = float(np.linalg.norm(_units(table, text)))
    assert length == pytest.approx(1, abs=1e-3) or length == 0


def test_a_name_counts_more_than_a_description(table: WordVectors) -> None:
    tool = table.of_fields(("weather", "calendar")).astype(np.float32) / SCALE
    weather, calendar = _units(table, "weather", "calendar")
    assert tool @ weather > tool @ calendar


def test_products_of_tools_and_queries_are_exact_whole_numbers(table: WordVectors) -> None:
    tools = np.stack([table.of_fields((word, "")) for word in list(table.words)[:2_000]])
    queries = table.of_queries(["make a folder", "what day is it today"])
    products = tools.astype(np.int64) @ queries.astype(np.int64).T

    assert (np.abs(tools.astype(np.int64)) @ np.abs(queries.astype(np.int64)).T).max() < 2**24
    assert np.array_equal(tools.astype(np.float32) @ queries.T, products)
    assert np.array_equal(queries, np.rint(queries))
    assert SCALE * QUERY_SCALE < 2**24
    assert 0 < COARSE_DIM < DIM


# -- a file that cannot be used


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the table, with a copy that a test may change. What is cached of the real one is set aside."""
    path = tmp_path / "word_vectors.bin"
    path.write_bytes(FILE.read_bytes())
    monkeypatch.setattr(word_vectors, "FILE", path)
    shipped.cache_clear()
    yield path
    shipped.cache_clear()


def _changed(content: bytes) -> bytes:
    return content[:1_000_000] + bytes([content[1_000_000] ^ 1]) + content[1_000_001:]


def _of_other_dim(content: bytes) -> bytes:
    head, _, body = content.removeprefix(MAGIC).partition(b"\n")
    return MAGIC + json.dumps({**json.loads(head), "dim": 64}).encode() + b"\n" + body


_DAMAGED: list[Callable[[bytes], bytes]] = [
    lambda _: b"",
    lambda content: content[:-1],
    lambda content: content[:5_000],
    lambda content: b"x" + content,
    lambda _: MAGIC,
    lambda _: MAGIC + b"[]\n",
    lambda _: MAGIC + b"{}\n",
    lambda _: MAGIC + b'{"crc32": 0, "dim": 128}\n',
    _changed,
    _of_other_dim,
]


@pytest.mark.parametrize("change", _DAMAGED)
def test_a_damaged_file_is_refused(damaged: Path, change: Callable[[bytes], bytes]) -> None:
    damaged.write_bytes(change(damaged.read_bytes()))
    with pytest.raises(TableDamaged):
        WordVectors.load(damaged)


@pytest.mark.parametrize("is_missing", [True, False])
def test_without_a_usable_file_search_goes_on_by_words_and_says_so_once(
    damaged: Path, caplog: pytest.LogCaptureFixture, is_missing: bool
) -> None:
    if is_missing:
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:100_000])
    tools = [Tool("files", "create_directory", "Create a new directory."), Tool("files", "read_file", "Read a file.")]

    with caplog.at_level(logging.WARNING, logger=word_vectors.logger.name):
        index = Index.build(map(document, tools)).updated([document(Tool("time", "now", "The current time."))])
        found = [hit.tool_id for hit in index.search("create directory", limit=5).hits]

    assert found[0] == "files.create_directory"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "word vectors" in caplog.text


_odd = ["", "東京 weather", "é", "createIssue2 getHTTPServer", "x" * 90, "kube " * 120, "pull request " * 70, "\ud800"]
_field = st.lists(st.sampled_from([*_odd, "pull", "request", "weather forecast", "asdfq"]), max_size=4).map(" ".join)


@given(st.lists(st.lists(_field, max_size=7).map(tuple), max_size=6))
def test_many_tools_get_the_vectors_that_each_gets_alone(table: WordVectors, documents: list[tuple[str, ...]]) -> None:
    together = table.of_many(documents * 12)
    alone = [table.of_fields(texts).tolist() for texts in documents]

    assert together.tolist() == alone * 12
