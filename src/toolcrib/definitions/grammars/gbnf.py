"""The rules of a grammar as values, the removal of unusable rules, and the text in llama.cpp's dialect (GBNF)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_REPEATS = 1_999
"""The largest number of counted repetitions of a rule. llama.cpp refuses a grammar with 2,000 of them.

Source: llama.cpp, `src/llama-grammar.cpp`, `MAX_REPETITION_THRESHOLD`, as of 2026.
"""


@dataclass(frozen=True, slots=True)
class Literal:
    """Matches exactly these characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """Matches one character of `ranges`, or with `negated` any other character. Code points, both ends included."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """Matches what the rule with this name matches."""

    rule: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Matches a rule at least `least` and at most `most` times. At most `MAX_REPEATS`; None means no limit.

    The rule must not match the empty string, because llama.cpp treats a repeated empty rule as left recursion.
    """

    rule: str
    least: int = 0
    most: int | None = None


Symbol = Literal | Chars | Ref | Repeat
Sequence = tuple[Symbol, ...]
Rule = tuple[Sequence, ...]
"""Alternatives. Sequences have no groups, so every alternation is a rule of its own. A rule without alternatives
matches nothing, not even the empty string.
"""


def without_dead_ends(rules: Mapping[str, Rule], root: str) -> dict[str, Rule]:
    """Return the `rules` that `root` can reach, without alternatives that no finite string completes.

    Empty if `root` itself matches nothing.
    """
    holding = _holding(rules)
    if root not in holding:
        return {}
    kept: dict[str, Rule] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        possible = (_possible(sequence, holding) for sequence in rules[name])
        kept[name] = tuple(dict.fromkeys(sequence for sequence in possible if sequence is not None))
        waiting += [used for sequence in kept[name] for used in _used(sequence)]
    return {name: kept[name] for name in rules if name in kept}


def _holding(rules: Mapping[str, Rule]) -> set[str]:
    """Return the names of the rules that match at least one finite string."""
    lacking: dict[tuple[str, int], int] = {}
    users: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    waiting: list[str] = []
    for name, rule in rules.items():
        for at, sequence in enumerate(rule):
            needed = {used for symbol in sequence for used in _needed(symbol)}
            lacking[name, at] = len(needed)
            for used in needed:
                users[used].append((name, at))
            if not needed:
                waiting.append(name)
    holding: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in holding:
            continue
        holding.add(name)
        for user in users[name]:
            lacking[user] -= 1
            if lacking[user] == 0:
                waiting.append(user[0])
    return holding


def _needed(symbol: Symbol) -> Iterator[str]:
    match symbol:
        case Ref(rule):
            yield rule
        case Repeat(rule, least) if least:
            yield rule
        case _:
            pass


def _used(sequence: Sequence) -> Iterator[str]:
    for symbol in sequence:
        if isinstance(symbol, Ref | Repeat):
            yield symbol.rule


def _possible(sequence: Sequence, holding: set[str]) -> Sequence | None:
    """Return `sequence` without repetitions of rules that match nothing. None if it needs such a rule."""
    if any(used not in holding for symbol in sequence for used in _needed(symbol)):
        return None
    return tuple(symbol for symbol in sequence if not isinstance(symbol, Repeat) or symbol.rule in holding)


def written(rules: Mapping[str, Rule]) -> str:
    """Write one line for each rule, in the order given. The result is the same for the same rules."""
    return "".join(f"{name} ::= {' | '.join(map(_sequence, rule))}\n" for name, rule in rules.items())


def _sequence(sequence: Sequence) -> str:
    return " ".join(map(_symbol, sequence)) or '""'


def _symbol(symbol: Symbol) -> str:
    match symbol:
        case Literal(text):
            return f'"{"".join(map(_in_literal, text))}"'
        case Chars(ranges, negated):
            inside = "".join(_in_class(low) + (f"-{_in_class(high)}" if high > low else "") for low, high in ranges)
            return f"[{'^' if negated else ''}{inside}]"
        case Ref(rule):
            return rule
        case Repeat(rule, 0, None):
            return f"{rule}*"
        case Repeat(rule, 1, None):
            return f"{rule}+"
        case Repeat(rule, least, most):
            times = str(least) if most == least else f"{least},{'' if most is None else most}"
            return f"{rule}{{{times}}}"


_IN_LITERAL = {'"': r"\"", "\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def _in_literal(char: str) -> str:
    return _IN_LITERAL.get(char) or (f"\\x{ord(char):02X}" if char < " " or char == "\x7f" else char)


def _in_class(point: int) -> str:
    """Escape ASCII characters except letters and digits as hex, because readers differ in which ones a class must
    escape."""
    char = chr(point)
    return char if point > 0x7F or char.isalnum() else f"\\x{point:02X}"
