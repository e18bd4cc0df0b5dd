"""Untrusted text: finds invisible characters, and quotes text where the beginning of a line has a meaning."""

from __future__ import annotations

import inspect
import json
import re
import unicodedata
from typing import Any

from toolcrib.core.tools import Path

_TAGS = "\U000e0000-\U000e007f"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_MARKS = "\u200e\u200f\u061c"
_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_BLANKS = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2028\u2029"
    "\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a"
)
UNSEEN = re.compile(f"[{_TAGS}{_BIDI}{_MARKS}{_SELECTORS}{_BLANKS}]")
"""Invisible characters. Tabs and line ends are not included.

Source: Unicode's `Default_Ignorable_Code_Point` and `Bidi_Control`, and the control characters of ASCII and Latin-1.
"""

TAGS = re.compile(f"[{_TAGS}]+")
BIDI = re.compile(f"[{_BIDI}]")

OBEYED_CLASS = f"\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_MARKS}\u2028\u2029"
OBEYED = re.compile(f"[{OBEYED_CLASS}]")
"""Characters that a terminal executes instead of showing (carriage returns included), or that reorder a line.

Invisible characters that scripts and emojis need are not included, nor are line feeds and tabs.
"""

_FLAGS = frozenset(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The flags of England, Scotland and Wales: the only ones that Unicode recommends to write with tags."""
_FLAG = re.compile("|".join(sorted(_FLAGS)))

_SELECTOR = re.compile(f"[{_SELECTORS}]")
_RIGHT_TO_LEFT = frozenset({"R", "AL"})
_JOINING = re.compile("[\u0600-\u1cff\ua800-\uabff\U00010a00-\U00011fff]")
"""Scripts whose spelling uses joiners and non-joiners, and scripts that mark word ends without a space."""


def visible(text: str) -> str:
    """Return `text` on one line, with invisible characters written as `⟨U+200B⟩` and line ends as `⏎`."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", re.sub(r"\r\n|\r|\n", "⏎", text)).replace("\t", " ")


def is_tag(character: str) -> bool:
    """Return whether `character` is one of Unicode's tag characters."""
    return "\U000e0000" <= character <= "\U000e007f"


def without_flags(text: str) -> str:
    """Replace flags that are written with tags by spaces. The length of `text` does not change."""
    return _FLAG.sub(lambda found: " " * len(found[0]), text) if "\U0001f3f4" in text else text


def unspelled(text: str) -> list[int]:
    """Return the positions of invisible characters, without those that are part of a script's or emoji's spelling."""
    found = [match.start() for match in UNSEEN.finditer(text)]
    if not found:
        return []
    reads_left = any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in UNSEEN.sub("", text))
    # For speed, `_is_spelling` is not called for tags: they are never spelling after flags are removed.
    return [at for at in found if is_tag(text[at]) or not _is_spelling(text, at, reads_left)]


def _is_spelling(text: str, at: int, reads_left: bool) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    match text[at]:
        case "\u200e" | "\u200f" | "\u061c":
            return reads_left
        case "\u200d" if _is_pictured(before) and _is_pictured(after):
            return True
        case "\u200b" | "\u200c" | "\u200d":
            return bool(_JOINING.match(before) or _JOINING.match(after))
        case "\u180b" | "\u180c" | "\u180d" | "\u180e" | "\u180f":
            return bool(_JOINING.match(before))
        case "\ufe0e" | "\ufe0f":
            return bool(before) and (not before.isascii() or before in "#*0123456789") and not UNSEEN.match(before)
        case selector if _SELECTOR.match(selector):
            return unicodedata.category(before or " ") in {"Lo", "Sm"} and not UNSEEN.match(before)
        case _:
            return False


def _is_pictured(character: str) -> bool:
    """Return whether `character` is part of an emoji: a picture, a skin tone, or the emoji variation selector."""
    return character == "\ufe0f" or (bool(character) and unicodedata.category(character) in {"So", "Sk"})


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
