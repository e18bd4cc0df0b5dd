"""Edits JSON text without touching anything else: comments, trailing commas, order and layout stay as they are."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, cast

UNIT = "  "
"""One indentation step in the canonical layout of raw values."""


class MalformedJson(ValueError):
    """The text is not valid JSON, or has an unexpected form. The message says where, as part of a sentence."""


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of an object, and its position in the text."""

    key: str
    start: int
    """The position of the key's first quote."""
    value_start: int
    end: int
    """The position after the value."""
    comma: int | None
    """The position of the comma after the value. None if there is no comma."""


@dataclass(frozen=True, slots=True)
class _Braces:
    """The position of an object in the text."""

    start: int
    """The position of `{`."""
    end: int
    """The position of `}`."""
    members: tuple[_Member, ...]


@dataclass(frozen=True)
class JsoncDocument:
    """A JSON object as people write it: with comments and trailing commas, or an empty text.

    Raises:
        MalformedJson: the text is anything else.
    """

    text: str

    def __post_init__(self) -> None:
        _ = self.value

    @cached_property
    def value(self) -> dict[str, Any]:
        """The parsed object. A text that is empty or has only comments is an empty object."""
        value = members_of(self._parsed)
        if value is None:
            raise MalformedJson("the file must contain an object")
        return value

    @cached_property
    def _parsed(self) -> object:
        text = self._plain
        if not text.strip():
            return {}
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise MalformedJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
        except RecursionError as error:
            raise MalformedJson("nested too deeply") from error
        except ValueError as error:
            raise MalformedJson(str(error)) from error

    def at(self, path: Sequence[str]) -> dict[str, Any] | None:
        """Return the object at `path`, or None if it does not exist.

        Raises:
            MalformedJson: a value on the path is not an object, or a key is duplicate on the path or in the object.
        """
        braces = self._braces_at(path)
        there = Counter(member.key for member in braces.members) if braces is not None else Counter[str]()
        if twice := next((key for key, times in there.items() if times > 1), None):
            raise MalformedJson(f"duplicate key `{'.'.join((*path, twice))}`")
        value: Any = self.value
        for key in path:
            if key not in value:
                return None
            value = value[key]
        return value

    def raw(self, path: Sequence[str]) -> str | None:
        """Return the text of the value at `path` in canonical layout, with its comments. None if there is no value."""
        braces = self._braces_at(path[:-1])
        member = next((m for m in braces.members if m.key == path[-1]), None) if braces is not None else None
        if member is None:
            return None
        return _relaid(self.text[member.value_start : member.end], self._indent(member.start), self._unit, "", UNIT)

    @property
    def has_comments(self) -> bool:
        return self._uncommented != self.text

    def with_members(self, path: Sequence[str], changes: Mapping[str, str | None]) -> JsoncDocument:
        """Return the document with members of the object at `path` set to raw JSON, or removed for None.

        An existing member is replaced in place. A new one is added at the end. Missing objects on the path are created.

        Raises:
            MalformedJson: the text has a form in which this change would lose or damage something.
        """
        self._braces_at(path)
        expected = _with_members(self.value, path, changes)
        result = self._edited(path, changes)
        if result.value != expected:
            raise MalformedJson("the file is written in a way that cannot be changed without loss")
        return result

    def _edited(self, path: Sequence[str], changes: Mapping[str, str | None]) -> JsoncDocument:
        new = {key: raw for key, raw in changes.items() if raw is not None}
        if self._root is None:
            return JsoncDocument(self._after_comments(_nested(path, new)))
        known = len(path)
        while (braces := self._braces_at(path[:known])) is None:
            known -= 1
        if known < len(path):
            if not new:
                return self
            return self._spliced(braces, {path[known]: _nested(path[known + 1 :], new)})
        return self._spliced(braces, changes)

    def _after_comments(self, raw: str) -> str:
        before = self.text.rstrip()
        written = raw.replace("\n", self._newline) + self._newline
        return f"{before}{self._newline}{written}" if before else written

    def _spliced(self, braces: _Braces, changes: Mapping[str, str | None]) -> JsoncDocument:
        text = self.text
        there = Counter(member.key for member in braces.members)
        if twice := next((key for key in changes if there[key] > 1), None):
            raise MalformedJson(f"duplicate key `{twice}`")
        gone = [member for member in braces.members if changes.get(member.key, "") is None]
        kept = [member for member in braces.members if changes.get(member.key, "") is not None]
        new = {key: raw for key, raw in changes.items() if raw is not None and key not in there}
        if not gone and not any(raw is not None for raw in changes.values()):
            return self
        spread = self._spread(braces)
        # (start, end, replacement). Edits at the same position stay in this order.
        edits = [
            (m.value_start, m.end, self._laid(raw, self._indent(m.start)) if spread else _on_one_line(raw))
            for m in kept
            if (raw := changes.get(m.key)) is not None
        ]
        trailing = bool(braces.members) and braces.members[-1].comma is not None
        cut = [part for member in gone for part in self._parts(member)]
        if new and kept:
            last = kept[-1]
            if last.comma is None:
                edits.append((last.end, last.end, ","))
            at = last.end if last.comma is None else last.comma + 1
            indent = None
            if spread:  # put it on its own line, after comments about the last member
                at, indent = self._end_of_remarks(at), self._indent(last.start)
            edits.append((at, at, self._listed(new, indent) + ("," if trailing else "")))
        elif new and gone:  # put the new members in the place of the first removed one
            first = gone[0]
            cut = [part for member in gone[1:] for part in self._parts(member)]
            indent = self._indent(first.start)
            edits.append((first.start, first.end, self._listed(new, indent if spread else None).lstrip()))
            if first.comma is not None and not trailing:
                cut.append((first.comma, first.comma + 1))
        elif new:
            edits.append(self._filled(braces, new))
        elif kept and kept[-1].comma is not None and not trailing:
            cut.append((kept[-1].comma, kept[-1].comma + 1))
        cuts = self._cuts(cut)
        if not new and not kept and not _without(text, braces, cut).strip():
            edits, cuts = [(braces.start + 1, braces.end, "")], []
        pieces: list[str] = []
        at = 0
        for start, end, replacement in sorted([*edits, *((a, b, "") for a, b in cuts)], key=lambda edit: edit[:2]):
            pieces += (text[at:start], replacement)
            at = end
        return JsoncDocument("".join((*pieces, text[at:])))

    # -- positions ----------------------------------------------------------------------------------------------------

    @cached_property
    def _uncommented(self) -> str:
        return _COMMENT_OR_TEXT.sub(_blank, self.text)

    @cached_property
    def _plain(self) -> str:
        return _TRAILING_COMMA_OR_TEXT.sub(_blank, self._uncommented)

    @cached_property
    def _root(self) -> _Braces | None:
        start = len(self._plain) - len(self._plain.lstrip())
        return _braces(self._uncommented, start) if start < len(self._plain) else None

    def _braces_at(self, path: Sequence[str]) -> _Braces | None:
        braces = self._root
        for depth, key in enumerate(path, 1):
            if braces is None:
                return None
            found = [member for member in braces.members if member.key == key]
            where = ".".join(path[:depth])
            if len(found) > 1:
                raise MalformedJson(f"duplicate key `{where}`")
            if found and self.text[found[0].value_start] != "{":
                raise MalformedJson(f"{where}: must be an object")
            braces = _braces(self._uncommented, found[0].value_start) if found else None
        return braces

    # -- layout -------------------------------------------------------------------------------------------------------

    @cached_property
    def _newline(self) -> str:
        found = re.search(r"\r?\n|\r", self.text)
        return found[0] if found else "\n"

    @cached_property
    def _unit(self) -> str:
        """One indentation step: the indentation of the first indented key."""
        found = re.search(r'^([ \t]+)"', self.text, re.MULTILINE)
        return found[1] if found else UNIT

    def _indent(self, at: int) -> str:
        """Return the white space at the beginning of the line of this position."""
        start = max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1
        found = re.compile(r"[ \t]*").match(self.text, start)
        return found[0] if found else ""

    def _spread(self, braces: _Braces) -> bool:
        """Return whether the object has one member per line, or will have when members are added."""
        if braces.members:
            return any(c in "\r\n" for c in self.text[braces.start : braces.members[-1].start])
        return any(c in "\r\n" for c in self.text) or not self.text[: braces.start].strip()

    def _laid(self, raw: str, indent: str) -> str:
        return _relaid(raw, "", UNIT, indent, self._unit).replace("\n", self._newline)

    def _listed(self, members: Mapping[str, str], indent: str | None) -> str:
        """Format members: each on its own line after `indent`, or all on one line without `indent`."""
        if indent is None:
            return ",".join(f" {_quoted(key)}: {_on_one_line(raw)}" for key, raw in members.items())
        lines = (f"{self._newline}{indent}{_quoted(key)}: {self._laid(raw, indent)}" for key, raw in members.items())
        return ",".join(lines)

    def _filled(self, braces: _Braces, members: Mapping[str, str]) -> tuple[int, int, str]:
        """Return the edit that adds members to an empty object, after the comments in it."""
        inside = self.text[braces.start + 1 : braces.end]
        remarks = len(inside.rstrip())
        at = braces.start + 1 + remarks
        if not remarks and not self._spread(braces):
            return at, braces.end, self._listed(members, None).lstrip()
        outer = self._indent(braces.start)
        return at, braces.end, f"{self._listed(members, outer + self._unit)}{self._newline}{outer}"

    def _end_of_remarks(self, at: int) -> int:
        """Return the end of the line if only comments follow on it, otherwise `at`."""
        found = _REST_OF_REMARKS.match(self.text, at)
        return found.end() if found else at

    def _parts(self, member: _Member) -> Iterable[tuple[int, int]]:
        """Return the positions of the member and its comma. There may be a comment between them."""
        if member.comma is None:
            return ((member.start, member.end),)
        if not self.text[member.end : member.comma].strip():
            return ((member.start, member.comma + 1),)
        return ((member.start, member.end), (member.comma, member.comma + 1))

    def _cuts(self, parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the parts to remove, extended by the white space around them that would be left over."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(parts):
            if merged and not self.text[merged[-1][1] : start].strip():
                merged[-1] = (merged[-1][0], end)
            else:
                merged.append((start, end))
        return [self._with_space(*part) for part in merged]

    def _with_space(self, start: int, end: int) -> tuple[int, int]:
        text = self.text
        left, right = start, end
        while left > 0 and text[left - 1] in " \t":
            left -= 1
        while right < len(text) and text[right] in " \t":
            right += 1
        if start == left and text.startswith("/", right):  # keep the space between a comment and what is before it
            right = end
        opens = left == 0 or text[left - 1] in "\r\n"
        closes = right == len(text) or text[right] in "\r\n"
        if opens and closes:
            newline = re.compile(r"\r?\n|\r").match(text, right)
            return left, newline.end() if newline else right
        return (left if closes else start), right


def dump(value: object) -> str:
    """Format a JSON value as raw text in canonical layout."""
    text = json.dumps(value, indent=len(UNIT), ensure_ascii=False)
    # JSON can contain half a surrogate pair, but UTF-8 cannot.
    return json.dumps(value, indent=len(UNIT)) if _SURROGATE.search(text) else text


_SURROGATE = re.compile(r"[\ud800-\udfff]")
_TEXT = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_COMMENT_OR_TEXT = re.compile(rf"({_TEXT})|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA_OR_TEXT = re.compile(rf"({_TEXT})|,(?=\s*[}}\]])", re.DOTALL)
_TOKEN = re.compile(rf"{_TEXT}|[{{}}\[\]:,]|[^\s{{}}\[\]:,\"]+", re.DOTALL)
_REST_OF_REMARKS = re.compile(r"(?:[ \t]|//[^\r\n]*|/\*(?:(?!\*/)[^\r\n])*\*/)*(?=[\r\n]|$)")


def _blank(found: re.Match[str]) -> str:
    return found[1] or re.sub(r"[^\r\n]", " ", found[0])


def _braces(text: str, start: int) -> _Braces:
    """Find the object whose `{` is at `start`, in text that is known to be JSON without comments."""
    members: list[_Member] = []
    depth, key, key_start, value_start, end = 0, "", -1, -1, start
    for token in _TOKEN.finditer(text, start):
        mark = token[0]
        if mark in "{[":
            depth += 1
            if depth == 2 and key_start >= 0 and value_start < 0:
                value_start = token.start()
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                if value_start >= 0:
                    members.append(_Member(key, key_start, value_start, end, None))
                return _Braces(start, token.start(), tuple(members))
        elif depth == 1 and mark == ",":
            members.append(_Member(key, key_start, value_start, end, token.start()))
            key_start = value_start = -1
        elif depth == 1 and mark != ":":
            if key_start < 0:
                key, key_start = json.loads(mark), token.start()
            else:
                value_start = token.start()
        end = token.end()
    raise MalformedJson("an object has no closing brace")


def _without(text: str, braces: _Braces, cut: Iterable[tuple[int, int]]) -> str:
    at, pieces = braces.start + 1, list[str]()
    for start, end in sorted(cut):
        pieces.append(text[at:start])
        at = end
    return "".join((*pieces, text[at : braces.end]))


def _with_members(value: Mapping[str, Any], path: Sequence[str], changes: Mapping[str, str | None]) -> dict[str, Any]:
    if path:
        if path[0] not in value and all(raw is None for raw in changes.values()):
            return dict(value)
        return {**value, path[0]: _with_members(value.get(path[0], {}), path[1:], changes)}
    kept = {key: member for key, member in value.items() if key not in changes}
    return kept | {key: JsoncDocument(f'{{"": {raw}}}').value[""] for key, raw in changes.items() if raw is not None}


def _nested(path: Sequence[str], members: Mapping[str, str]) -> str:
    """Return the raw text of nested objects along `path`, with these members in the innermost one."""
    if path:
        members = {path[0]: _nested(path[1:], members)}
    lines = (f"\n{UNIT}{_quoted(key)}: {_relaid(raw, '', UNIT, UNIT, UNIT)}" for key, raw in members.items())
    return f"{{{','.join(lines)}\n}}" if members else "{}"


def _relaid(raw: str, indent: str, unit: str, new_indent: str, new_unit: str) -> str:
    """Change the indentation of all lines of `raw` except the first, from `indent` to `new_indent`, step by step."""
    first, *rest = re.split(r"\r\n|\r|\n", raw)
    return "\n".join((first, *(_moved(line, indent, unit, new_indent, new_unit) for line in rest)))


def _moved(line: str, indent: str, unit: str, new_indent: str, new_unit: str) -> str:
    line = line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t")
    if not line.strip():
        return ""
    steps = 0
    while line.startswith(unit, steps * len(unit)):
        steps += 1
    return new_indent + new_unit * steps + line[steps * len(unit) :]


def _on_one_line(raw: str) -> str:
    """Put raw JSON on one line, unless it contains a comment that must end with its line."""
    document = JsoncDocument(f'{{"": {raw}}}')
    if document.has_comments:
        return raw
    return " ".join(line.strip() for line in raw.splitlines())


def _quoted(key: str) -> str:
    return dump(key)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is not valid JSON")


def members_of(value: object) -> dict[str, Any] | None:
    """Return `value` if it is a JSON object, otherwise None."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
