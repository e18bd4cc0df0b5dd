"""Parses the subset of regular expressions that a grammar can enforce into a tree.

Everything else is refused with a reason.

The subset has literal characters and their escapes, `.`, classes with ranges, `\\d \\w \\s` and their opposites,
groups, alternatives, `* + ? {m} {m,} {m,n}` (also lazy ones, which match the same strings), `^` at the start of a
top-level alternative and `$` at its end. The meaning is that of ECMA-262, as in JSON Schema. Where validators differ,
the characters in question are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from toolcrib.definitions.grammars.codepoints import LAST, Ranges, complement, normal
from toolcrib.definitions.grammars.gbnf import MAX_REPEATS

MAX_CHARS = 2_000
"""The length of a pattern in characters."""

MAX_NESTING = 40
"""The nesting depth of groups."""

MAX_NODES = 5_000
"""The number of nodes in the tree of a pattern, after all parts that may be empty have been taken apart."""


class UnheldPattern(Exception):
    """The pattern cannot be enforced. The message gives the reason as a clause."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Both:
    """The parts one after the other. Without parts, the empty string."""

    parts: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """`part`, which is never empty, repeated `least` to `most` times."""

    part: Tree
    least: int
    most: int | None


Tree = OneOf | Both | Either | Times

ANY: Ranges = ((0, LAST),)
ANYTHING = Times(OneOf(ANY), 0, None)

_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
# U+0085 counts as a space in some implementations only.
_NO_SPACE = complement(normal((*_SPACE, (0x85, 0x85))))
_NO_BREAK = complement(normal(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))))
_CLASSES = {
    "d": _DIGIT,
    "D": complement(_DIGIT),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": _NO_SPACE,
}
_CONTROLS = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B, "0": 0x00}


def parsed(pattern: str) -> Tree:
    """Parse `pattern` into a tree of all strings that contain a match.

    Raises:
        UnheldPattern: the pattern is outside the subset, or too large.
    """
    if len(pattern) > MAX_CHARS:
        raise UnheldPattern(f"it has more than {MAX_CHARS:,} characters")
    return _Parser(pattern).whole()


def lengths(tree: Tree) -> tuple[int, int | None]:
    """Return the minimum and maximum length of the strings of `tree`. The maximum is None if there is no limit."""
    match tree:
        case OneOf():
            return 1, 1
        case Both(parts):
            found = [lengths(part) for part in parts]
            most = [high for _, high in found if high is not None]
            return sum(low for low, _ in found), sum(most) if len(most) == len(found) else None
        case Either(parts):
            found = [lengths(part) for part in parts]
            most = [high for _, high in found if high is not None]
            return min(low for low, _ in found), max(most) if len(most) == len(found) else None
        case Times(part, least, most):
            low, high = lengths(part)
            return low * least, None if most is None or high is None else high * most


@dataclass
class _Parser:
    pattern: str
    at: int = 0
    nesting: int = 0
    nodes: int = field(default=0)

    def whole(self) -> Tree:
        alternatives: list[Tree] = []
        while True:
            is_start = self._take("^")
            body = self._sequence()
            is_end = self._take("$")
            parts = (*(() if is_start else (ANYTHING,)), body, *(() if is_end else (ANYTHING,)))
            alternatives.append(Both(parts))
            if not self._take("|"):
                break
        if self.at < len(self.pattern):
            raise UnheldPattern(f"`{self.pattern[self.at]}` is not supported at this place")
        return _either(alternatives)

    def _alternatives(self) -> Tree:
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return _either(found)

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)^$":
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _atom(self) -> Tree:
        self._count()
        char = self.pattern[self.at]
        if char == "(":
            return self._group()
        self.at += 1
        match char:
            case "[":
                return OneOf(self._class())
            case ".":
                return OneOf(_NO_BREAK)
            case "\\":
                return OneOf(self._escape(in_class=False))
            case "*" | "+" | "?" | "{" | "}" | "]":
                raise UnheldPattern(f"`{char}` has no clear meaning at this place")
            case _:
                return OneOf(((ord(char), ord(char)),))

    def _group(self) -> Tree:
        self.at += 1
        if self._take("?") and not self._take(":"):
            raise UnheldPattern("it looks around (`(?=`, `(?!`), or names a group")
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise UnheldPattern(f"its groups are nested more than {MAX_NESTING} deep")
        inside = self._alternatives()
        if not self._take(")"):
            raise UnheldPattern("a group in it is not closed, or contains an anchor")
        self.nesting -= 1
        return inside

    def _repeated(self, part: Tree) -> Tree:
        least, most = 1, 1
        if self._take("*"):
            least, most = 0, None
        elif self._take("+"):
            least, most = 1, None
        elif self._take("?"):
            least, most = 0, 1
        elif self._take("{"):
            least, most = self._times()
        else:
            return part
        self._take("?")
        if self.pattern[self.at : self.at + 1] in {"*", "+", "{"}:
            raise UnheldPattern("it repeats a repetition")
        if max(least, most or 0) > MAX_REPEATS:
            raise UnheldPattern(f"it repeats more than {MAX_REPEATS:,} times")
        return self._times_of(part, least, most)

    def _times(self) -> tuple[int, int | None]:
        low = self._number()
        high = low
        if self._take(","):
            high = None if self.pattern[self.at : self.at + 1] == "}" else self._number()
        if not self._take("}") or (high is not None and high < low):
            raise UnheldPattern("a repetition in it is not supported")
        return low, high

    def _number(self) -> int:
        start = self.at
        while self.pattern[self.at : self.at + 1].isdecimal() and self.at - start < 6:
            self.at += 1
        if self.at == start:
            raise UnheldPattern("a repetition in it is not supported")
        return int(self.pattern[start : self.at])

    def _times_of(self, part: Tree, least: int, most: int | None) -> Tree:
        if lengths(part)[0] == 0:  # a grammar must not repeat a part that may be empty
            filled = self._filled(part)
            return Both() if filled is None or most == 0 else Times(filled, 0, most)
        return Both() if most == 0 else Times(part, least, most)

    def _filled(self, tree: Tree) -> Tree | None:
        """Return `tree` without the empty string. None if nothing is left."""
        self._count()
        match tree:
            case OneOf():
                return tree
            case Times(part, least, most):
                return Times(part, max(least, 1), most)
            case Either(parts):
                return _either([filled for part in parts if (filled := self._filled(part)) is not None] or [Both()])
            case Both(parts):
                if any(lengths(part)[0] for part in parts):
                    return tree
                found: list[Tree] = []
                for at, part in enumerate(parts):
                    filled = self._filled(part)
                    if filled is not None:
                        found.append(Both((filled, *parts[at + 1 :])))
                        self._count(len(parts) - at)
                return _either(found) if found else None

    def _class(self) -> Ranges:
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._class_part()
            is_range = self.pattern[self.at : self.at + 1] == "-" and self.pattern[self.at + 1 : self.at + 2] not in {
                "]",
                "",
            }
            if not is_range:
                ranges += low
                continue
            self.at += 1
            high = self._class_part()
            if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                raise UnheldPattern("a range in it does not start and end with a single character")
            if low[0][0] > high[0][0]:
                raise UnheldPattern("a range in it ends before it begins")
            ranges.append((low[0][0], high[0][0]))
        found = normal(ranges)
        if not is_negated:
            return found
        # Where `\s` is excluded, also exclude U+0085, because validators disagree about it.
        unsure = ((0x85, 0x85),) if set(_SPACE) <= set(found) else ()
        return complement(normal((*found, *unsure)))

    def _class_part(self) -> Ranges:
        if self.at >= len(self.pattern):
            raise UnheldPattern("a character class in it is not closed")
        char = self.pattern[self.at]
        self.at += 1
        if char == "\\":
            return self._escape(in_class=True)
        if char == "[" or self.pattern[self.at - 1 : self.at + 1] in {"&&", "--", "~~"}:
            raise UnheldPattern("a character class in it has different meanings in different implementations")
        return ((ord(char), ord(char)),)

    def _escape(self, *, in_class: bool) -> Ranges:
        if self.at >= len(self.pattern):
            raise UnheldPattern("it ends in a backslash")
        char = self.pattern[self.at]
        self.at += 1
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            point = _CONTROLS[char]
        elif char in "xu":
            point = self._hex(2 if char == "x" else 4)
        elif char.isalnum() and not (char == "b" and in_class):
            raise UnheldPattern(f"`\\{char}` is not supported")
        else:
            point = 0x08 if char == "b" else ord(char)
        return ((point, point),)

    def _hex(self, digits: int) -> int:
        text = self.pattern[self.at : self.at + digits]
        if len(text) < digits or set(text) - set("0123456789abcdefABCDEF"):
            raise UnheldPattern("a hex escape in it is not valid")
        self.at += digits
        return int(text, 16)

    def _take(self, char: str) -> bool:
        is_there = self.pattern[self.at : self.at + 1] == char
        self.at += is_there
        return is_there

    def _count(self, nodes: int = 1) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise UnheldPattern("it is too complex")


def _either(parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else Either(tuple(parts))


_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
FORMATS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
"""The enforced formats, as patterns. Days are those of the Gregorian calendar. No leap seconds. `T` and `Z` in upper
case. Source: RFC 3339, section 5.6; RFC 9562, section 4.
"""
