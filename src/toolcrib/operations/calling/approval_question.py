"""The question that a person is asked before a tool runs. It shows the complete call, or says what it leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from toolcrib.core.errors import NotAuthorized
from toolcrib.core.events import Consent

ONCE: Final = "once"
ALWAYS: Final = "always"
NO: Final = "no"

MAX_SHOWN_CHARS = 2_000
"""The most characters for the values of all arguments. Each has an equal share, at least `MIN_SHOWN_CHARS`."""

MIN_SHOWN_CHARS = 60
MAX_NAME_CHARS = 200
"""The most characters of a name, or of the path to an argument."""

MAX_SUMMARY_CHARS = 300
MAX_ARGUMENTS = 50
"""The most arguments that are shown. Nested arguments are shown one by one if they fit. A call with more top-level
arguments is refused."""

MAX_DEPTH = 5
"""The depth to which nested arguments are shown one by one. Deeper ones are shown as one value."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")

_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that Python counts as printable, but that are invisible.

Source: Unicode 15, `Default_Ignorable_Code_Point`; and U+2800, the Braille pattern without dots.
"""


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that needs a person's approval."""

    principal: str
    subject: str
    """The tool id, or a description of a prompt or resource."""
    definition: str = ""
    """The digest of the definition. If it is empty, no permanent approval is possible."""
    summary: str = ""
    """The tool's own summary."""
    arguments: Mapping[str, Any] | None = None
    server: str = ""
    """What identifies the server, if `definition` is empty."""
    may_wait: bool = True
    """Whether the call can wait for an answer that is given outside the client."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question to a person about an intent, and the possible answers."""

    message: str
    choices: tuple[str, ...]

    @classmethod
    def about(cls, intent: Intent) -> Self:
        """Write the question. Untrusted text is quoted, on its own line, with invisible characters made visible.

        Raises:
            NotAuthorized: the call has more arguments than can be shown.
        """
        subject, principal = _quoted(intent.subject, MAX_NAME_CHARS), _quoted(intent.principal, MAX_NAME_CHARS)
        summary = _quoted(intent.summary, MAX_SUMMARY_CHARS)
        arguments = _arguments(intent)
        lines = [f"Toolcrib asks: run {subject.text} for {principal.text}?"]
        if intent.summary:
            lines += ["", f"The tool describes itself as: {summary.text}"]
        if intent.arguments is not None:
            lines += ["", "Arguments:", *(f"{path.text}: {value.text}" for path, value in arguments)]
        pieces = [subject, principal, summary, *(piece for pair in arguments for piece in pair)]
        if not (is_whole := all(piece.is_whole for piece in pieces)):
            lines += ["", "Values that end in … are longer than shown here. The tool receives them in full."]
        # A call that was not shown completely cannot be approved permanently.
        lasting = intent.definition and is_whole
        return cls("\n".join(lines), (ONCE, ALWAYS, NO) if lasting else (ONCE, NO))

    def to_wire(self) -> dict[str, Any]:
        """Return the parameters of MCP's `elicitation/create`."""
        answer = {
            "type": "string",
            "title": "Run it?",
            "description": _EXPLAINED if ALWAYS in self.choices else "once: run it now",
            "enum": [*self.choices],
        }
        schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        return {"mode": "form", "message": self.message, "requestedSchema": schema}

    def settled_by(self, answer: Mapping[str, Any]) -> Consent:
        """Return the consent in an answer to `elicitation/create`. Only a matching one of the `choices` is a yes."""
        match answer:
            case {"action": "accept", "content": {"answer": "once" | "always" as given}} if given in self.choices:
                return given
            case {"action": "decline"} | {"action": "accept", "content": {"answer": "no"}}:
                return "refused"
            case _:  # cancelled, or no answer to this question
                return "unanswered"


_EXPLAINED = "once: run it now. always: run it now, and do not ask again until its definition changes"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Untrusted text as it is shown."""

    text: str
    is_whole: bool


def _quoted(value: object, limit: int) -> _Piece:
    """Return `value` as JSON on one line, with invisible characters escaped. If it is cut, it ends with its size."""
    whole = json.dumps(value, ensure_ascii=False, default=str)
    return _cut(whole, limit)


def in_one_line(value: object, limit: int) -> str:
    """Return an untrusted `value` as JSON for people, in about `limit` characters, with invisible ones escaped."""
    return _quoted(value, limit).text


def _cut(whole: str, limit: int) -> _Piece:
    shown = "".join(char if _is_seen(char) else json.dumps(char)[1:-1] for char in whole[:limit])
    if len(whole) <= limit and len(shown) <= limit:
        return _Piece(shown, is_whole=True)
    return _Piece(f"{shown[:limit]}… ({len(whole):,} characters)", is_whole=False)


def _is_seen(char: str) -> bool:
    """Return whether `char` is visible.

    Python's `isprintable` excludes controls, direction marks, tags, half surrogate pairs and unusual spaces.
    """
    return char.isprintable() and _INVISIBLE.match(char) is None


def _arguments(intent: Intent) -> list[tuple[_Piece, _Piece]]:
    """Return the path and value of every argument, in the order in which they were sent.

    Raises:
        NotAuthorized: there are more than `MAX_ARGUMENTS`.
    """
    given = intent.arguments or {}
    rows = [*_rows(given, MAX_DEPTH)]
    if len(rows) > MAX_ARGUMENTS:
        rows = [*_rows(given, 1)]
    if len(rows) > MAX_ARGUMENTS:
        raise NotAuthorized(
            f"`{intent.subject}` did not run: it needs approval, and {len(rows)} arguments are too many to show. "
            f"Use at most {MAX_ARGUMENTS}."
        )
    share = max(MIN_SHOWN_CHARS, MAX_SHOWN_CHARS // max(1, len(rows)))
    return [(_cut(path, MAX_NAME_CHARS), _quoted(value, share)) for path, value in rows]


def _rows(given: Mapping[str, Any], depth: int, above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in given.items():
        path = above + (key if _PLAIN_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False))
        if depth > 1 and value and isinstance(value, Mapping):
            yield from _rows(cast("Mapping[str, Any]", value), depth - 1, f"{path}.")
        else:
            yield path, value
