"""A lookup of values by patterns of tool ids, which does not test every pattern for each tool."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import translate
from typing import Generic, TypeVar

from toolcrib.core.schema import nearest

ValueT = TypeVar("ValueT")

_WILD = re.compile(r"[*?[]")


def is_pattern(text: str) -> bool:
    """Return whether `text` can match several ids."""
    return _WILD.search(text) is not None


def nearest_id(wanted: str, ids: Iterable[str]) -> str | None:
    """Return the tool id from `ids` that was probably meant by `wanted`, an id or a pattern; None if none is similar.

    Source and name are compared separately, because all ids of one source are similar in any case.
    """
    source, dot, name = wanted.partition(".")
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for tool_id in ids:
        by_source[tool_id.partition(".")[0]].append(tool_id)
    if not dot:
        by_name = {tool_id.partition(".")[2]: tool_id for known in by_source.values() for tool_id in known}
        return by_name.get(nearest(wanted, by_name) or "")
    there = nearest(source, by_source)
    if there is None:
        return None
    by_name = {tool_id.partition(".")[2]: tool_id for tool_id in by_source[there]}
    return by_name.get(nearest(name, by_name) or "")


class Patterns(Generic[ValueT]):
    """A lookup by patterns as for file names: `*` matches any characters, `?` one character, `[...]` one of several."""

    def __init__(self, given: Iterable[tuple[str, ValueT]] = ()) -> None:
        """Make a lookup from pairs of pattern and value."""
        self._by_id: defaultdict[str, list[tuple[int, ValueT]]] = defaultdict(list)
        self._by_source: defaultdict[str, list[tuple[re.Pattern[str], int, ValueT]]] = defaultdict(list)
        """The patterns that match only ids of one source, by source."""
        self._anywhere: list[tuple[re.Pattern[str], int, ValueT]] = []
        for position, (glob, value) in enumerate(given):
            source, dot, _ = glob.partition(".")
            if not is_pattern(glob):
                self._by_id[glob].append((position, value))
            elif dot and not is_pattern(source):
                self._by_source[source].append((re.compile(translate(glob)), position, value))
            else:
                self._anywhere.append((re.compile(translate(glob)), position, value))
        self._any = re.compile("|".join(ids.pattern for ids, _, _ in self._anywhere)) if self._anywhere else None

    def of(self, tool_id: str) -> tuple[ValueT, ...]:
        """Return the values whose patterns match `tool_id`, in the order in which they were given."""
        met = [*self._by_id.get(tool_id, ())]
        patterns = self._by_source.get(tool_id.partition(".")[0], ())
        if self._any is not None and self._any.fullmatch(tool_id):
            patterns = (*patterns, *self._anywhere)
        met += [(position, value) for ids, position, value in patterns if ids.fullmatch(tool_id)]
        met.sort(key=lambda each: each[0])
        return tuple(value for _, value in met)
