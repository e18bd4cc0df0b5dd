"""Finds the line numbers of tools and keys in a JSON file, because JSON parsers do not report them."""

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
    """Return the line of each tool, by id. A tool that is not found is left out.

    `tools` must have the order of the file: the first of several tools with one name gets the first line with that
    name.
    """
    lines = _lines(path, _NAME)
    return {tool.id: lines[tool.name].popleft() for tool in tools if lines[tool.name]}


def lines_of_keys(path: Path, keys: Iterable[str]) -> Mapping[str, int]:
    """Return the line where each of `keys` first occurs as a JSON key."""
    lines = _lines(path, _KEY)
    return {key: lines[key][0] for key in keys if lines[key]}


def _lines(path: Path, pattern: re.Pattern[str]) -> defaultdict[str, deque[int]]:
    """Return line numbers, from 1, by the JSON strings that `pattern` finds."""
    found: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), start=1):
        for match in pattern.finditer(line):
            try:
                found[json.loads(match[1])].append(number)
            except ValueError:  # an invalid escape
                continue
    return found
