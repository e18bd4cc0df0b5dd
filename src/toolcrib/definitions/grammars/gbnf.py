"""Rules of a grammar as values, which of them can be used, and their text in llama.cpp's dialect (GBNF)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_REPEATS = 1_999
"""The most often a rule may be repeated by number: llama.cpp refuses a grammar at 2,000 of them.

Source: llama.cpp, `src/llama-grammar.cpp`, `MAX_REPETITION_THRESHOLD`, as of 2026.
"""


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly these characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of `ranges`, or with `negated` one of all others; code points, both ends included."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """Whatever the rule of this name holds."""

    rule: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """A rule at least `least` times and at most `most` (at most `MAX_REPEATS`; None: without end).

    The rule must not hold the empty text: llama.cpp takes a repeated empty rule for left recursion.
    """

    rule: str
    least: int = 0
    most: int | None = None


Symbol = Literal | Chars | Ref | Repeat
Sequence = tuple[Symbol, ...]
Rule = tuple[Sequence, ...]
"""Alternatives. Sequences hold no groups, so every alternation is a rule of its own; no alternative at all holds
nothing, not even the empty text."""


def without_dead_ends(rules: Mapping[str, Rule], root: str) -> dict[str, Rule]:
    """`rules` that can be reached from `root`, less the alternatives that no finite text completes.

    Empty where `root` itself holds nothing.
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
    """Names of the rules that hold at least one finite text."""
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
    """`sequence` without repetitions of what holds nothing; None where it needs such a rule."""
    if any(used not in holding for symbol in sequence for used in _needed(symbol)):
        return None
    return tuple(symbol for symbol in sequence if not isinstance(symbol, Repeat) or symbol.rule in holding)


def written(rules: Mapping[str, Rule]) -> str:
    """One line for each rule, in the order given, the same for the same rules."""
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
    """ASCII other than letters and digits as hex: readers differ on which of it a class must escape."""
    char = chr(point)
    return char if point > 0x7F or char.isalnum() else f"\\x{point:02X}"
