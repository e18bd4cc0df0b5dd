"""In which line of a JSON file something stands, for whoever points into it: parsers do not tell."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from toolcrib.core.tools import Tool

_NAME = re.compile(r'"name"\s*:\s*("(?:[^"\\\n]|\\.)*")')
_KEY = re.compile(r'("(?:[^"\\\n]|\\.)*")\s*:')


def lines_of_tools(path: Path, tools: Iterable[Tool]) -> Mapping[str, int]:
    """The line of each of `tools`, by id, which come in the order of the file; one that is not found is left out.

    Of tools with one name, the first is where that name stands first.
    """
    lines = _lines(path, _NAME)
    return {tool.id: lines[tool.name].popleft() for tool in tools if lines[tool.name]}


def lines_of_keys(path: Path, keys: Iterable[str]) -> Mapping[str, int]:
    """The line in which each of `keys` first stands as one, by key."""
    lines = _lines(path, _KEY)
    return {key: lines[key][0] for key in keys if lines[key]}


def _lines(path: Path, pattern: re.Pattern[str]) -> defaultdict[str, deque[int]]:
    """Lines, from 1, by the text that `pattern` finds as a JSON string."""
    found: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        for match in pattern.finditer(line):
            try:
                found[json.loads(match[1])].append(number)
            except ValueError:  # an escape that is none
                continue
    return found
