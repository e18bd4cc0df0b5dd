"""Tests for the setting `toolcrib.search` and its errors."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Config, parse_config
from toolcrib.config.search_settings import DEFAULT_SEARCH, EmbedderConfig, Search, SearchSettings
from toolcrib.core.errors import InvalidConfig
from toolcrib.search.embedders import ModelFolder
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.weights import SIGNALS, WEIGHTS

FILE = Path("/there/mcp.json")


def read(search: Any) -> Config:
    return parse_config(json.dumps({"toolcrib": {"search": search}}), FILE, {})


def search(**said: Any) -> Search:
    return read(said).search


def test_search_uses_all_signals_without_embedder_and_history_by_default() -> None:
    assert parse_config("{}", FILE, {}).search == search() == DEFAULT_SEARCH
    assert Search(WEIGHTS, None, None) == DEFAULT_SEARCH


@pytest.mark.parametrize("signal", SIGNALS)
def test_each_signal_can_be_disabled(signal: str) -> None:
    weights = search(without=[signal]).weights
    assert weights == WEIGHTS.without(signal) != WEIGHTS
    assert getattr(weights, signal) == 0


def test_all_search_settings_can_be_combined() -> None:
    everything: dict[str, Any] = {
        "without": ["clauses", "synonyms"],
        "refuse": False,
        "embedder": {"folder": "models/tiny"},
        "history": {"share": [["team-*"]], "max_days": 7},
    }
    assert {*everything} == {field.name for field in fields(SearchSettings)}
    assert search(**everything) == Search(
        WEIGHTS.without("clauses", "synonyms").refusing_nothing(),
        EmbedderConfig(ModelFolder(Path("/there/models/tiny"))),
        HistoryConfig((("team-*",),), 7),
    )
    assert search(refuse=True) == replace(DEFAULT_SEARCH, weights=replace(WEIGHTS, weak_results=0))


WRONG: list[tuple[Any, str]] = [
    ([], "toolcrib.search: "),
    ({"withuot": []}, "did you mean `without`?"),
    ({"without": [1]}, "toolcrib.search.without.0: "),
    ({"without": ["bm25"]}, "toolcrib.search.without: `bm25` is not a signal. Use: synonyms, partial_words"),
    ({"without": ["name"]}, "`name` is not a signal"),
    ({"refuse": "no"}, "toolcrib.search.refuse: "),
    ({"refuse": None}, "toolcrib.search.refuse: must be true or false"),
    ({"embedder": "models/tiny"}, "toolcrib.search.embedder: "),
    ({"embedder": {}}, "toolcrib.search.embedder: "),
    ({"embedder": {"folder": "a", "endpoint": "https://b"}}, "toolcrib.search.embedder: "),
    ({"embedder": {"folder": "a", "modle": "b"}}, "did you mean `model`?"),
    ({"history": 1}, "toolcrib.search.history: "),
    ({"history": {"days": 3}}, "toolcrib.search.history"),
]


@pytest.mark.parametrize(("said", "expected"), WRONG)
def test_an_invalid_search_setting_is_reported_with_its_path(said: Any, expected: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        read(said)
    assert str(FILE) in raised.value.message
    assert expected in raised.value.message
