"""Tests for the setting `toolcrib.search.history`, which defines who shares past calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import parse_config
from toolcrib.core.errors import InvalidConfig
from toolcrib.search.history_config import HistoryConfig


def history(*said: Any) -> HistoryConfig | None:
    """Reads the history setting, if one is given."""
    search = dict(zip(["history"], said, strict=False))
    return parse_config(json.dumps({"toolcrib": {"search": search}}), Path("mcp.json"), {}).search.history


def test_history_is_off_by_default() -> None:
    assert history() is None
    assert history(False) is None
    assert history(True) == history({}) == HistoryConfig(share=(), max_days=90)


def test_principals_that_match_the_same_list_share_history() -> None:
    config = history({"share": [["team-*", "ada"], ["ada", "build-?"]], "max_days": 7})
    assert config is not None
    assert config.max_days == 7
    of = config.group_of
    assert of("team-a") == of("team-b") == of("ada"), "the first of two matching lists counts"
    assert of("build-1") == of("build-2") != of("ada")
    assert len({of("team-a"), of("build-1"), of("build-10"), of("Team-a"), of("")}) == 5


WRONG: list[tuple[Any, str]] = [
    ("yes", "toolcrib.search.history: must be true, false or an object"),
    ({"shared": []}, "did you mean `share`?"),
    ({"share": ["team-*"]}, "toolcrib.search.history.share: must be lists of patterns"),
    ({"share": "team-*"}, "toolcrib.search.history.share: must be lists of patterns"),
    ({"share": [[]]}, "toolcrib.search.history.share: must be lists of patterns"),
    ({"share": [["a", 1]]}, "toolcrib.search.history.share: must be lists of patterns"),
    ({"max_days": 0}, "toolcrib.search.history.max_days: must be a whole number of days"),
]


@pytest.mark.parametrize(("said", "expected"), WRONG)
def test_an_invalid_history_setting_is_reported_with_its_path(said: Any, expected: str) -> None:
    with pytest.raises(InvalidConfig, match="history") as raised:
        history(said)
    assert expected in raised.value.message
