"""A GBNF reader that shares no code with the emitter, and random texts of the grammars that it reads."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

_NAME = re.compile(r"[A-Za-z0-9-]+")
_TIMES = re.compile(r"\{(\d+)(,?)(\d*)\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]", "-": "-"}
_HEX = {"x": 2, "u": 4, "U": 8}

REPEATED_MOST = 1_999

NOTHING = (True, ((0, 0x10FFFF),))
"""A character class without any character."""

Class = tuple[bool, tuple[tuple[int, int], ...]]
"""Whether the class is negated, and its ranges of code points."""

Item = tuple[str, object, int, int | None]
"""Kind (`literal`, `class`, `rule`), content, and the least and greatest number of repetitions."""


@dataclass
class Read:
    """The rules of a grammar without groups, and a random walk through them."""

    text: str
    rules: dict[str, list[list[Item]]] = field(default_factory=dict[str, list[list[Item]]])

    def __post_init__(self) -> None:
        for line in self.text.removesuffix("\n").split("\n"):
            name, arrow, body = line.partition(" ::= ")
            assert arrow, line
            assert _NAME.fullmatch(name), name
            assert name not in self.rules, name
            self.rules[name] = [list(_items(part)) for part in _alternatives(body)]
        used = {str(of) for rule in self.rules.values() for items in rule for kind, of, *_ in items if kind == "rule"}
        assert used <= set(self.rules), used - set(self.rules)
        self._depths = self._least_depths()

    def walk(self, source: random.Random, most: int = 400) -> str:
        """Return one text of the grammar. After `most` choices, the walk takes the shortest way to an end."""
        said: list[str] = []
        left = most
        waiting: list[Item] = [("rule", "root", 1, 1)]
        while waiting:
            kind, of, least, times_most = waiting.pop()
            if (least, times_most) != (1, 1):
                room = (REPEATED_MOST if times_most is None else times_most) - least
                more = min(source.choice((0, 1, 2, 5)), room) if left > 0 else 0
                waiting += [(kind, of, 1, 1)] * (least + max(more, 0))
            elif kind == "literal":
                said.append(str(of))
            elif kind == "class":
                said.append(_any_of(of, source))
            else:
                left -= 1
                rule = self.rules[str(of)]
                best = min(rule, key=self._depth)
                possible = [items for items in rule if self._depth(items) < float("inf")]
                waiting += reversed(source.choice(possible) if left > 0 else best)
        return "".join(said)

    def _depth(self, items: list[Item]) -> float:
        if any(kind == "class" and of == NOTHING for kind, of, *_ in items):
            return float("inf")
        return max((self._depths[str(of)] for kind, of, least, _ in items if kind == "rule" and least), default=0)

    def _least_depths(self) -> dict[str, float]:
        self._depths = dict.fromkeys(self.rules, float("inf"))
        names = [*self.rules]
        while True:
            names.reverse()  # referenced rules come before or after, so one of two sweeps progresses far
            before = dict(self._depths)
            for name in names:
                self._depths[name] = 1 + min(map(self._depth, self.rules[name]))
            if before == self._depths:
                ends = {name for name, depth in self._depths.items() if depth < float("inf")}
                assert ends >= set(names) - {"json-never"}, "a rule has no end"
                return self._depths

    def left_recursive(self) -> set[str]:
        """Return the rules that may begin with themselves. llama.cpp refuses them."""
        empty: set[str] = set()
        names = [*self.rules]
        while True:
            names.reverse()
            before = len(empty)
            for name in names:
                if any(all(self._may_be_empty(item, empty) for item in items) for items in self.rules[name]):
                    empty.add(name)
            if len(empty) == before:
                break
        begins: dict[str, set[str]] = {}
        for name, rule in self.rules.items():
            begins[name] = set()
            for items in rule:
                for item in items:
                    if item[0] == "rule":
                        begins[name].add(str(item[1]))
                    if not self._may_be_empty(item, empty):
                        break
        for items in (items for rule in self.rules.values() for items in rule):
            for kind, of, least, most in items:
                assert (least, most) == (1, 1) or kind != "rule" or of not in empty, f"{of} repeats what may be empty"
        return _on_circles(begins)

    @staticmethod
    def _may_be_empty(item: Item, empty: set[str]) -> bool:
        kind, of, least, _ = item
        return least == 0 or (kind == "literal" and not of) or (kind == "rule" and of in empty)


def _on_circles(begins: dict[str, set[str]]) -> set[str]:
    """Return the nodes that remain after repeatedly removing nodes that lead only to ends."""
    leading: dict[str, set[str]] = {name: set() for name in begins}
    left = {name: len(after) for name, after in begins.items()}
    for name, after in begins.items():
        for each in after:
            leading[each].add(name)
    waiting = [name for name, count in left.items() if count == 0]
    while waiting:
        name = waiting.pop()
        del left[name]
        for each in leading[name]:
            left[each] -= 1
            if left[each] == 0:
                waiting.append(each)
    return set(left)


def _alternatives(body: str) -> Iterator[str]:
    start, at = 0, 0
    ends = {'"': '"', "[": "]"}
    while at < len(body):
        if body[at] in ends:
            end = ends[body[at]]
            at += 1
            while body[at] != end:
                at += 2 if body[at] == "\\" else 1
        elif body[at] == "|":
            yield body[start:at]
            start = at + 1
        at += 1
    yield body[start:]


def _items(text: str) -> Iterator[Item]:
    at = 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        kind: str
        of: object
        if text[at] == '"':
            kind, (of, at) = "literal", _quoted(text, at + 1)
        elif text[at] == "[":
            kind, (of, at) = "class", _class(text, at + 1)
        else:
            name = _NAME.match(text, at)
            assert name, text[at:]
            kind, of, at = "rule", name[0], name.end()
        least, most = 1, 1
        if text[at : at + 1] in {"*", "+", "?"}:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[text[at]]
            at += 1
        elif times := _TIMES.match(text, at):
            least = int(times[1])
            most = int(times[3]) if times[3] else None if times[2] else least
            assert max(least, most or 0) <= REPEATED_MOST, text
            at = times.end()
        assert kind == "rule" or (least, most) == (1, 1), "only rules are repeated"
        yield kind, of, least, most


def _char(text: str, at: int) -> tuple[str, int]:
    if text[at] != "\\":
        return text[at], at + 1
    letter = text[at + 1]
    if letter in _HEX:
        end = at + 2 + _HEX[letter]
        return chr(int(text[at + 2 : end], 16)), end
    return _ESCAPES[letter], at + 2


def _quoted(text: str, at: int) -> tuple[str, int]:
    found = ""
    while text[at] != '"':
        char, at = _char(text, at)
        found += char
    return found, at + 1


def _class(text: str, at: int) -> tuple[object, int]:
    is_negated = text[at] == "^"
    at += is_negated
    ranges: list[tuple[int, int]] = []
    while text[at] != "]":
        low, at = _char(text, at)
        high = low
        if text[at] == "-" and text[at + 1] != "]":
            high, at = _char(text, at + 1)
        ranges.append((ord(low), ord(high)))
    return (is_negated, tuple(ranges)), at + 1


_SOME = [ord(char) for char in 'aZ09 _-./"\\{}[]:,éß漢😀\x00\x01\n\t\x7f\u200b']


def _any_of(of: object, source: random.Random) -> str:
    is_negated, ranges = cast("Class", of)
    if not is_negated:
        low, high = source.choice(ranges)
        return chr(source.randint(low, high))
    while True:
        point = source.choice([*_SOME, source.randint(0x20, 0xD7FF), source.randint(0xE000, 0x10FFFF)])
        if not any(low <= point <= high for low, high in ranges):
            return chr(point)
