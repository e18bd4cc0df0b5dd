"""Splits the protocol document into pieces that requirements cover."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

DOCUMENT = Path(__file__).parents[3] / "shared" / "specs" / "discovery-protocol-v0.1.md"

_SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.?!])\s+(?=[A-Z])")
_ITEM = re.compile(r"^(?:[-*]|\d+\.)\s+")
_COMMENT = re.compile(r'"(\w+)":.*?//\s*(.*)$')


def key(piece: str) -> str:
    """Return the key of a piece: 12 hex digits of its SHA-256, without white space and markup."""
    return hashlib.sha256(_normal(piece).encode()).hexdigest()[:12]


def pieces(text: str) -> list[str]:
    """Return every heading and sentence, in paragraphs, list items and table rows, and every member of a JSON
    example with its path and its comment.

    The values in an example are not pieces.
    """
    found: list[str] = []
    paragraph: list[str] = []
    section = label = ""
    lines = iter(text.splitlines())

    def end_paragraph() -> None:
        sentences = _SENTENCE_END.split(_normal(" ".join(paragraph)))
        found.extend(sentence for sentence in sentences if sentence)
        paragraph.clear()

    for line in lines:
        stripped = line.strip()
        if stripped.startswith("```"):
            end_paragraph()
            label = found[-1]
            found += _members(f"{section} {label}", _block(lines))
        elif stripped.startswith("#"):
            end_paragraph()
            section = _normal(stripped.lstrip("#"))
            found.append(section)
        elif not stripped:
            end_paragraph()
        else:
            if _ITEM.match(stripped) or stripped.startswith("|"):
                end_paragraph()
            paragraph.append(_ITEM.sub("", stripped))
    end_paragraph()
    return found


def _block(lines: Iterator[str]) -> list[str]:
    block: list[str] = []
    for line in lines:
        if line.strip().startswith("```"):
            return block
        block.append(line)
    raise ValueError("a code block has no end")


def _members(where: str, block: list[str]) -> Iterator[str]:
    for line in block:
        if (remark := _COMMENT.search(line)) is not None:
            yield f"{where} {remark[1]}: {remark[2]}"
    bare = "\n".join(re.sub(r"//.*$", "", line) for line in block)
    yield from dict.fromkeys(_places(where, json.loads(bare)))


def _places(where: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, member in cast("dict[str, object]", value).items():
            yield f"{where}/{name}"
            yield from _places(f"{where}/{name}", member)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _places(f"{where}/*", item)


def _normal(text: str) -> str:
    return " ".join(re.sub(r"[*`]", "", text).split())
