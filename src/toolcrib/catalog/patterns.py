"""Values by patterns of tool ids, so that asking about one tool does not ask every pattern."""

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
    """Whether `text` may stand for several ids."""
    return _WILD.search(text) is not None


def nearest_id(wanted: str, ids: Iterable[str]) -> str | None:
    """The one of the tool ids `ids` that `wanted`, an id or a pattern of ids, was probably meant to be; None for none.

    The source and the name are compared one after the other: two ids of one source are alike in any case.
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
    """Patterns are those of file names: `*` stands for any characters, `?` for one, `[...]` for one of several."""

    def __init__(self, given: Iterable[tuple[str, ValueT]] = ()) -> None:
        """Pairs of pattern and value."""
        self._by_id: defaultdict[str, list[tuple[int, ValueT]]] = defaultdict(list)
        self._by_source: defaultdict[str, list[tuple[re.Pattern[str], int, ValueT]]] = defaultdict(list)
        """Of the patterns that can only be met by ids of one source."""
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
        """The values whose patterns `tool_id` meets, in the order in which they were given."""
        met = [*self._by_id.get(tool_id, ())]
        patterns = self._by_source.get(tool_id.partition(".")[0], ())
        if self._any is not None and self._any.fullmatch(tool_id):
            patterns = (*patterns, *self._anywhere)
        met += [(position, value) for ids, position, value in patterns if ids.fullmatch(tool_id)]
        met.sort(key=lambda each: each[0])
        return tuple(value for _, value in met)
