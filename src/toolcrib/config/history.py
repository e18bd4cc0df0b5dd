"""Reads `toolcrib.search.history`: whether search learns from past calls, and which principals share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from toolcrib.config.settings import Settings
from toolcrib.search.history_config import HistoryConfig

HISTORY_SETTINGS: Mapping[str, str] = {
    "share": "Lists of patterns of principals. Principals that match one list share their past calls; others do not.",
    "max_days": "Days for which a call counts, if the audit keeps it that long (90).",
}
"""Every key below `toolcrib.search.history`."""

_KEY = "history"
_MOST_DAYS = 36_500


def read_history(settings: Settings) -> HistoryConfig | None:
    """Read the history from `settings`, the object under `toolcrib.search`. Returns None if search does not learn.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    match settings.values.get(_KEY, False):
        case True:
            return HistoryConfig()
        case False:
            return None
        case dict():
            return _read(settings.settings(_KEY))
        case _:
            raise settings.wrong(_KEY, "must be true, false or an object")


def _read(settings: Settings) -> HistoryConfig:
    settings.only(HISTORY_SETTINGS)
    max_days = settings.count("max_days", HistoryConfig().max_days, 1, _MOST_DAYS, "days")
    return HistoryConfig(_groups(settings), max_days)


def _groups(settings: Settings) -> tuple[tuple[str, ...], ...]:
    given: object = settings.values.get("share", [])
    groups = cast("list[object]", given) if isinstance(given, list) else [given]
    found: list[tuple[str, ...]] = []
    for group in groups:
        patterns = cast("list[object]", group) if isinstance(group, list) else []
        texts = tuple(pattern for pattern in patterns if isinstance(pattern, str) and pattern)
        if not texts or len(texts) != len(patterns):
            raise settings.wrong("share", 'must be lists of patterns of principals, for example [["team-*"]]')
        found.append(texts)
    return tuple(found)
