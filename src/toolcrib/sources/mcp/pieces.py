"""Reads a long JSON text piece by piece, so that no step takes long."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pydantic_core import from_json

from toolcrib.sources.aside import breathe

WINDOW_BYTES = 131_072
"""How many bytes of the text are decoded in one step, which takes a millisecond or two."""

MANY_CHARS = 8_192
"""The maximum number of characters of a list that are read at once."""

MAX_DEPTH = 200
"""The maximum nesting of objects and lists. The reader of shorter texts has the same limit."""

_decoder = json.JSONDecoder()
_ODD = "".join(map(chr, range(0xDC80, 0xDD00)))
"""The characters that stand for bytes that are not UTF-8."""

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"[-+.0-9A-Za-z]*\Z")
"""Matches if the rest of the window could belong to a number."""

_WHOLE = re.compile(
    r"(?:[^\"\\]++|\\[^u]"
    r"|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u(?![dD][89abAB]).{4}"
    r"|\\u[dD][89abAB]..(?=.{6}))*",  # the second half of the pair is missing, or it would match here
    re.DOTALL,
)
"""Matches as much of a string as may be cut off, without splitting an escape or a surrogate pair."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]|"', re.DOTALL)


def read_pieces(text: bytes, decoder: json.JSONDecoder = _decoder) -> Any:
    """Return the value of the JSON `text`. Invalid Unicode becomes a question mark.

    `decoder` reads short values, as the standard library's decoder does.

    Raises:
        ValueError: the text is not valid JSON, or is nested too deeply.
    """
    reader = _Reader(text, decoder)
    try:
        value = reader.value(0)
    except RecursionError as error:  # in the scanner, or because the caller left little room on the stack
        raise ValueError("it is nested too deeply") from error
    reader.end()
    return value


class _Reader:
    """Reads with the scanner of the standard library, which reports where a value ends, in a window of the text.

    A value that does not end in the window is an object, a list or a string. The members of an object or list are then
    read one by one.
    """

    def __init__(self, text: bytes, decoder: json.JSONDecoder) -> None:
        self._text = text
        self._decoder = decoder
        self._base = 0
        """Where the window begins, in bytes."""
        self._window: str = ""
        self._at: int = 0
        """The current position, in characters of the window."""
        self._cut = 0
        """How many characters at the end of the window may be parts of a character that the window cuts."""
        self._long: set[int] = set()
        """Where long objects and lists begin in the window. Trying each of them would take quadratic time in their
        depth."""
        self._look()

    def value(self, depth: int) -> Any:
        self._skip_blanks()
        if self._at not in self._long:
            for _ in range(2):
                try:
                    value, end = self._decoder.raw_decode(self._window, self._at)
                except ValueError:
                    pass
                else:
                    # A number may continue: of `1e5`, only `1` can be read if the window ends after the `e`.
                    if self._is_last or _NUMBER.match(self._window, end) is None:
                        value = _clean(value, self._window[self._at : end], depth)
                        self._at = end
                        return value
                if not self._at:
                    break
                self._look()  # once more, with the window at the start of the value
            if not self._is_last:
                self._note_long()
        match self._window[self._at : self._at + 1]:
            case "{" if depth < MAX_DEPTH:
                return dict(self._members("}", depth))
            case "[" if depth < MAX_DEPTH:
                return self._list(depth)
            case '"' if not self._is_last:
                return self._string()
            case _:
                raise ValueError(f"no value begins at {self._here}")

    def end(self) -> None:
        """Check that nothing follows.

        Raises:
            ValueError: more text follows.
        """
        self._skip_blanks()
        if not self._is_last or self._at < len(self._window):
            raise ValueError(f"more follows at {self._here}")

    def _list(self, depth: int) -> list[Any]:
        """Read the list that begins here. Many items are read at once where they can be separated easily."""
        values: list[Any] = []
        singly, pause = 0, 0
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return values
        while True:
            many = None if singly else self._many(depth + 1)
            if many is None:
                values.append(self.value(depth + 1))
                # Failed attempts take time as well, so they become rarer.
                singly = singly - 1 if singly else (pause := 2 * pause + 16)
            else:
                values += many
                pause //= 2
            breathe()
            if self._next() == "]":
                self._at += 1
                return values
            self._take(",")

    def _many(self, depth: int) -> list[Any] | None:
        """Read the items of a list up to a comma further on; None if that comma is inside an item.

        In that case the text before the comma is not a list of values, because an item in it does not end.
        """
        if not self._is_last and len(self._window) - self._at < MANY_CHARS:
            self._look()
        for between in (",", "},", "],"):
            end = self._window.rfind(between, self._at, self._at + MANY_CHARS) + len(between) - 1
            if end > self._at:
                text = f"[{self._window[self._at : end]}]"
                with suppress(ValueError, RecursionError):
                    values, read = self._decoder.raw_decode(text)
                    if read == len(text):
                        self._at = end
                        return _clean(values, text, depth - 1)
        return None

    def _members(self, closing: str, depth: int) -> Iterator[tuple[str, Any]]:
        """Yield the members of the object that begins here."""
        self._at += 1
        if self._next() == closing:
            self._at += 1
            return
        while True:
            key = ""
            if closing == "}":
                # Checked first, because `value` would count the depth of an object in place of a key from 0 again.
                if self._next() != '"':
                    raise ValueError(f"no key begins at {self._here}")
                key = self.value(0)
                self._take(":")
            yield key, self.value(depth + 1)
            breathe()
            if self._next() == closing:
                self._at += 1
                return
            self._take(",")

    def _string(self) -> str:
        """Read the string that begins here and continues beyond the window."""
        parts: list[str] = []
        self._at += 1
        while True:
            padded = self._window + " " * 6 if self._is_last else self._window
            match = _WHOLE.match(padded, self._at, len(padded) if self._is_last else len(padded) - self._cut)
            end = self._at if match is None else min(match.end(), len(self._window))
            part = self._window[self._at : end]
            parts.append(_clean(json.loads(f'"{part}"'), part, 0))
            has_moved, self._at = end > self._at, end
            if self._window[end : end + 1] == '"':
                self._at += 1
                return "".join(parts)
            if self._is_last or not (has_moved or self._base):
                raise ValueError(f"a string does not end at {self._here}")
            self._look()

    def _note_long(self) -> None:
        """Record which objects and lists that begin in the first half of the window continue beyond it."""
        open_at: list[int] = []
        for token in _TOKEN.finditer(self._window, self._at):
            match token[0]:
                case "{" | "[":
                    open_at.append(token.start())
                case "}" | "]":
                    if not open_at:
                        break
                    open_at.pop()
                case '"':  # a string that continues beyond the window
                    break
                case _:
                    pass
        half = self._at + (len(self._window) - self._at) // 2
        self._long.update(at for at in open_at[: MAX_DEPTH + 1] if at < half)

    @property
    def _here(self) -> int:
        """The current position, in bytes of the text."""
        before = self._window[: self._at]
        return self._base + (self._at if before.isascii() else len(before.encode("utf-8", "surrogateescape")))

    @property
    def _is_last(self) -> bool:
        """Whether the window reaches the end of the text."""
        return self._base + WINDOW_BYTES >= len(self._text)

    def _look(self) -> None:
        """Move the window to the current position."""
        self._long = {at - self._at for at in self._long if at >= self._at}
        self._base, self._at = self._here, 0
        self._window = self._text[self._base : self._base + WINDOW_BYTES].decode("utf-8", "surrogateescape")
        end = self._window[-3:]
        self._cut = len(end) - len(end.rstrip(_ODD))
        breathe()

    def _next(self) -> str:
        self._skip_blanks()
        return self._window[self._at : self._at + 1]

    def _take(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(f"`{character}` is expected at {self._here}")
        self._at += 1

    def _skip_blanks(self) -> None:
        while True:
            match = _BLANK.match(self._window, self._at)
            self._at = match.end() if match is not None else self._at
            if self._at < len(self._window) or self._is_last:
                return
            self._look()


def _clean(value: Any, raw: str, depth: int) -> Any:
    """Return `value`, which `raw` contains at this depth, with lone surrogates replaced, because they cannot be
    written.

    Raises:
        ValueError: the value is nested too deeply.
        RecursionError: the value is nested far too deeply.
    """
    if not raw.isascii() or "\\ud" in raw or "\\uD" in raw:
        raw = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
        value = json.loads(raw)
    if depth + raw.count("[") + raw.count("{") > MAX_DEPTH:
        from_json("[" * depth + raw + "]" * depth)  # only for its depth check
    return value
