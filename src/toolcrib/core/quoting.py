"""Formats untrusted text so that it can be placed in a text whose line beginnings have a meaning."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from toolcrib.core.characters import OBEYED_CLASS
from toolcrib.core.tools import Path

_UNSEEN = re.compile(f"[{OBEYED_CLASS}\t\n\u200b\u2060-\u2065\u206a-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]")
"""Characters that break lines, reverse them, are invisible, or cannot be written as UTF-8."""

_PLAIN_ID = re.compile(r"[\w.$/+-]+")
_PLAIN_NAME = re.compile(r"[\w.$+&-]+(?: [\w.$+&-]+)*")


def on_one_line(text: str) -> str:
    return _UNSEEN.sub("\ufffd", " ".join(text.split()))


def as_block(text: str) -> list[str]:
    """Return the lines of `text` without common indentation, and without leading, trailing or repeated blank lines."""
    lines = [_UNSEEN.sub("\ufffd", line.rstrip()) for line in inspect.cleandoc(text).splitlines()]
    return [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]


def as_id(text: str, whole: str | None = None) -> str:
    """Return `whole` (by default `text`), as a JSON string if `text` could be read as more than one word.

    `whole` begins with `text`.
    """
    return (whole or text) if _PLAIN_ID.fullmatch(text) else as_json(whole or text)


def as_path(path: Path) -> str:
    """Return `A/B`, or the path as a JSON list, as `list` accepts it, if `A/B` would be ambiguous."""
    return "/".join(path) if all(map(_PLAIN_NAME.fullmatch, path)) else as_json([*path])


def as_json(value: Any) -> str:
    """Return `value` as compact JSON on one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSEEN.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"
