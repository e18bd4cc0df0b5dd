"""Patterns that somebody else wrote, matched in time that grows with the text alone.

Python's `re` tries one way after the other, which a pattern of ten characters can make last for years, and it lets no
other thread run meanwhile. The engine behind JSON Schema's `pattern` tries all ways at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

import jsonschema_rs

from toolcrib.core.errors import ToolFailed

MAX_PATTERN_CHARS = 1_000

_ENGINE = jsonschema_rs.RegexOptions(size_limit=1_000_000)

Matcher = Callable[[str], bool]
"""Whether a text matches."""


def expression(pattern: str, *, ignores_case: bool = False) -> Matcher:
    """Whether `pattern`, a regular expression without references back and without looking around, is somewhere in a
    text.

    Raises:
        ToolFailed: it is no such expression, or too large.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolFailed(f"A pattern may have {MAX_PATTERN_CHARS} characters at most.")
    document = {"type": "string", "pattern": f"(?i){pattern}" if ignores_case else pattern}
    try:
        found = jsonschema_rs.validator_for(document, pattern_options=_ENGINE).is_valid
    except (ValueError, TypeError) as error:
        raise ToolFailed(
            f"`{pattern}` cannot be searched for.",
            hints=["It is no regular expression, too large, or it looks around or refers back, which is not possible."],
        ) from error

    def matches(text: str) -> bool:
        try:
            return found(text)
        except ValueError:  # half a surrogate pair, as file names may hold them
            return False

    return matches


def literal(text: str, *, ignores_case: bool = False) -> Matcher:
    """Whether `text`, just as it is, is somewhere in another."""
    if ignores_case:
        folded = text.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: text in line


def glob(pattern: str) -> Matcher:
    """Whether a path with `/` between its parts is one that `pattern` means.

    `*` and `?` stand for characters of one part, `**` for any parts, `[ab]` for one of them and `{a,b}` for either. A
    pattern without `/` is looked for in the last part, whatever stands before it.

    Raises:
        ToolFailed: it is too large.
    """
    pattern = pattern.removeprefix("./")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return expression(f"(?s)^{anywhere}{_translated(pattern)}$")


_SPECIAL_IN_CLASS = re.compile(r"[\\\[\]^&~-]")

_IN_CLASS = re.compile(r"(.)-(.)|(.)", re.DOTALL)
"""A range, or a character."""

_NONE = r"^\s\S"
"""No character at all, as a range that ends before it begins means."""

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\]|\{[^{}]*\}|.", re.DOTALL)


def _translated(pattern: str) -> str:
    return "".join(map(_piece, cast("list[str]", _PIECE.findall(pattern))))


def _piece(piece: str) -> str:
    match piece:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if len(piece) > 2 and piece[0] == "[":
            inside = _class(piece[1:-1].removeprefix("!"))
            return f"[^/{inside}]" if piece[1] == "!" else f"[{inside or _NONE}]"
        case _ if len(piece) > 1 and piece[0] == "{":
            return f"(?:{'|'.join(map(_translated, piece[1:-1].split(',')))})"
        case _:
            return _literally(piece)


def _class(text: str) -> str:
    """What stands in brackets, without ranges that end before they begin: there they are no error."""
    found = cast("list[tuple[str, str, str]]", _IN_CLASS.findall(text))
    parts = [(single,) if single else (first, last) for first, last, single in found if single or first <= last]
    return "".join("-".join(_SPECIAL_IN_CLASS.sub(r"\\\g<0>", character) for character in part) for part in parts)


def _literally(character: str) -> str:
    return f"\\{character}" if character in r"\.+*?()|[]{}^$#&-~/" else character
