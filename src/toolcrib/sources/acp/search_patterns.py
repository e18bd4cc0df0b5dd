"""Matches untrusted patterns in time that grows only with the text.

Python's `re` uses backtracking. A pattern of ten characters can run for years, and no other thread can run meanwhile.
The engine behind JSON Schema's `pattern` follows all alternatives at once.
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
"""Returns whether a text matches."""


def expression(pattern: str, *, ignores_case: bool = False) -> Matcher:
    """Return a matcher for texts that contain `pattern`, a regular expression without backreferences and lookaround.

    Raises:
        ToolFailed: it is not such an expression, or it is too large.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolFailed(f"A pattern can have at most {MAX_PATTERN_CHARS} characters.")
    document = {"type": "string", "pattern": f"(?i){pattern}" if ignores_case else pattern}
    try:
        found = jsonschema_rs.validator_for(document, pattern_options=_ENGINE).is_valid
    except (ValueError, TypeError) as error:
        raise ToolFailed(
            f"`{pattern}` is not a valid pattern.",
            hints=[
                "It is not a regular expression, is too large, or uses lookaround or backreferences (not supported)."
            ],
        ) from error

    def matches(text: str) -> bool:
        try:
            return found(text)
        except ValueError:  # half a surrogate pair, which file names can contain
            return False

    return matches


def literal(text: str, *, ignores_case: bool = False) -> Matcher:
    """Return a matcher for texts that contain `text` literally."""
    if ignores_case:
        folded = text.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: text in line


def glob(pattern: str) -> Matcher:
    """Return a matcher for paths with `/` between their parts that match the glob `pattern`.

    `*` and `?` match characters of one part, `**` matches any parts, `[ab]` one of the characters and `{a,b}` one of
    the alternatives. A pattern without `/` matches the last part of a path.

    Raises:
        ToolFailed: the pattern is too large.
    """
    pattern = pattern.removeprefix("./")
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return expression(f"(?s)^{anywhere}{_translated(pattern)}$")


_SPECIAL_IN_CLASS = re.compile(r"[\\\[\]^&~-]")

_IN_CLASS = re.compile(r"(.)-(.)|(.)", re.DOTALL)
"""A range, or a single character."""

_NONE = r"^\s\S"
"""Matches no character, like a range that ends before it begins."""

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
    """Return the content of brackets without ranges that end before they begin, because such a range is not an error in
    globs."""
    found = cast("list[tuple[str, str, str]]", _IN_CLASS.findall(text))
    parts = [(single,) if single else (first, last) for first, last, single in found if single or first <= last]
    return "".join("-".join(_SPECIAL_IN_CLASS.sub(r"\\\g<0>", character) for character in part) for part in parts)


def _literally(character: str) -> str:
    return f"\\{character}" if character in r"\.+*?()|[]{}^$#&-~/" else character
