"""Grammar rules for integers and numbers between bounds, as alternatives of digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from toolcrib.definitions.grammars.gbnf import Chars, Literal, Ref, Repeat, Rule, Sequence, Symbol

MAX_DIGITS = 18
"""The number of digits of an integer, and before the decimal point. With any sign, the value fits into 64 bits."""

MAX_DECIMALS = 20
"""The number of digits after the decimal point: as many as the shortest spelling of a double may need."""

MAX_EXPONENT_DIGITS = 2
"""The number of digits of an exponent. No number overflows a double."""

_EXACT_DIGITS = 15
"""The number of decimal digits that a double always distinguishes."""

DIGIT = "json-digit"
ZERO = "json-zero"
INTEGER = "json-integer"
NUMBER = "json-number"
_POSITIVE = "json-number-positive"
_WHOLE = "json-whole"
_MINUS = "json-minus"
_FRACTION = "json-fraction"
_EXPONENT = "json-exponent"
_SIGN = "json-sign"
_ZEROS = "json-zeros"

_NONZERO = Chars(((0x31, 0x39),))

NUMBER_RULES: dict[str, Rule] = {
    DIGIT: ((Chars(((0x30, 0x39),)),),),
    ZERO: ((Literal("0"),),),
    _MINUS: ((), (Literal("-"),)),
    INTEGER: ((Literal("0"),), (Ref(_MINUS), _NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1))),
    _WHOLE: ((Literal("0"),), (_NONZERO, Repeat(DIGIT, 0, MAX_DIGITS - 1))),
    _FRACTION: ((), (Literal("."), Repeat(DIGIT, 1, MAX_DECIMALS))),
    _SIGN: ((), (Chars(((0x2B, 0x2B), (0x2D, 0x2D))),)),
    _EXPONENT: (
        (),
        (Chars(((0x45, 0x45), (0x65, 0x65))), Ref(_SIGN), Repeat(DIGIT, 1, MAX_EXPONENT_DIGITS)),
    ),
    _POSITIVE: ((Ref(_WHOLE), Ref(_FRACTION), Ref(_EXPONENT)),),
    NUMBER: ((Ref(_MINUS), Ref(_POSITIVE)),),
    _ZEROS: ((), (Literal("."), Repeat(ZERO, 1, MAX_DECIMALS))),
}


@dataclass(frozen=True, slots=True)
class NumberRange:
    """The range from `low` to `high`. None means no bound on that side."""

    low: Fraction | None = None
    high: Fraction | None = None
    excludes_low: bool = False
    excludes_high: bool = False

    @property
    def is_open(self) -> bool:
        return self.low is None and self.high is None


def integers(bounds: NumberRange) -> tuple[Sequence, ...]:
    """Return alternatives for the integers in `bounds` with at most `MAX_DIGITS` digits, each with one spelling.

    Empty if there is no such integer.
    """
    most = 10**MAX_DIGITS - 1
    low, high = -most, most
    if bounds.low is not None:
        low = max(low, -(-bounds.low.numerator // bounds.low.denominator))
        low += bounds.excludes_low and low == bounds.low
    if bounds.high is not None:
        high = min(high, bounds.high.numerator // bounds.high.denominator)
        high -= bounds.excludes_high and high == bounds.high
    found = list(_naturals(max(low, 0), high))
    if low < 0:
        found += [(Literal("-"), *rest) for rest in _naturals(max(1, -high), -low)]
    return tuple(found)


def can_hold(bound: Fraction) -> bool:
    """Whether a grammar can enforce this bound for numbers: it is an integer with so few digits that rounding is
    harmless."""
    return bound.denominator == 1 and abs(bound) < 10 ** (_EXACT_DIGITS - 1)


def numbers(bounds: NumberRange) -> tuple[Sequence, ...]:
    """Return alternatives for the numbers in `bounds`. `can_hold` must be true for both ends.

    Exponents are not allowed where they could lead out of the bounds.
    """
    low, high = bounds.low, bounds.high
    found: list[Sequence] = []
    if high is None or high >= 0:
        is_cut = low is not None and low >= 0
        found += _positive(
            int(low) if is_cut and low is not None else 0,
            None if high is None else int(high),
            excludes_low=is_cut and bounds.excludes_low,
            excludes_high=bounds.excludes_high,
        )
    if low is None or low < 0:
        is_cut = high is not None and high <= 0
        negative = _positive(
            -int(high) if is_cut and high is not None else 0,
            None if low is None else -int(low),
            excludes_low=is_cut and bounds.excludes_high,
            excludes_high=bounds.excludes_low,
        )
        found += [(Literal("-"), *rest) for rest in negative]
    return tuple(found)


def _positive(low: int, high: int | None, *, excludes_low: bool, excludes_high: bool) -> Iterator[Sequence]:
    """Yield alternatives for numbers without a sign from `low` to `high`."""
    if low == 0 and high is None and not excludes_low:
        yield (Ref(_POSITIVE),)
        return
    if high is not None and (high < low or (high == low and (excludes_low or excludes_high))):
        return
    end = 10**MAX_DIGITS - 1 if high is None else high - 1
    fraction: tuple[Symbol, ...] = (Ref(_FRACTION),)
    is_near = high is not None and excludes_high
    if is_near:  # so few decimals that a row of nines does not round up to the bound
        fraction = (Literal("."), Repeat(DIGIT, 1, _EXACT_DIGITS - len(str(high))))
    if excludes_low and low <= end:
        yield from _just_above(low, _EXACT_DIGITS - len(str(max(low, high or 0))), is_near=is_near)
    for whole in _naturals(low + excludes_low, end):
        yield (*whole, *fraction)
        if is_near:
            yield whole
    if high is not None and not excludes_high:
        yield (Literal(str(high)), Ref(_ZEROS))


def _just_above(low: int, places: int, *, is_near: bool) -> Iterator[Sequence]:
    """Yield alternatives for `low` with decimals that are not all zero.

    The first nonzero decimal comes so early that it does not disappear through rounding.
    """
    for zeros in range(places):
        rest = places - zeros - 1 if is_near else MAX_DECIMALS - zeros - 1
        digits = (Repeat(DIGIT, 0, rest),) if rest else ()
        yield (Literal(f"{low}.{'0' * zeros}"), _NONZERO, *digits)


def _naturals(low: int, high: int) -> Iterator[Sequence]:
    """Yield alternatives for the integers from `low` (at least 0) to `high`."""
    if low > high:
        return
    if low == 0:
        yield (Literal("0"),)
        yield from _naturals(1, high)
        return
    first, last = len(str(low)), len(str(high))
    if first == last:
        yield from _same_length(str(low), str(high))
        return
    if low == 10 ** (first - 1):
        full = first
    else:
        yield from _same_length(str(low), "9" * first)
        full = first + 1
    full_end = last if high == 10**last - 1 else last - 1
    if full <= full_end:
        yield (_NONZERO, *_digits(full - 1, full_end - 1))
    if full_end < last:
        yield from _same_length("1" + "0" * (last - 1), str(high))


def _same_length(low: str, high: str) -> Iterator[Sequence]:
    same = next((at for at, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    head: Sequence = (Literal(low[:same]),) if same else ()
    low, high = low[same:], high[same:]
    if not low:
        yield head
        return
    rest = len(low) - 1
    first, last = int(low[0]), int(high[0])
    if set(low[1:]) - {"0"}:
        yield from ((*head, Literal(low[0]), *tail) for tail in _same_length(low[1:], "9" * rest))
        first += 1
    is_cut = bool(set(high[1:]) - {"9"})
    if first <= last - is_cut:
        yield (*head, Chars(((0x30 + first, 0x30 + last - is_cut),)), *_digits(rest, rest))
    if is_cut:
        yield from ((*head, Literal(high[0]), *tail) for tail in _same_length("0" * rest, high[1:]))


def _digits(least: int, most: int) -> Sequence:
    if least == most == 1:
        return (Ref(DIGIT),)
    return (Repeat(DIGIT, least, most),) if most else ()
