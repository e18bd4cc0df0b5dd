"""Groups the tools of large categories, and makes summaries for categories without a description."""

from __future__ import annotations

import hashlib
import heapq
import math
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, count, islice, pairwise
from typing import Generic, TypeVar

from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Tool
from toolcrib.search.index.tokens import STOPWORDS, terms, words

MAX_TOOLS = 12
"""The most tools of a category without groups."""

MAX_GROUPS = 50
"""The most groups on one level: as many as one page can show."""

SUMMARY_CHARS = 300
"""The longest generated summary of a category, in characters. Categories with few tools get a shorter one."""

MAX_READ = 5_000
"""The most tools whose texts are read to make groups or summaries. More would take too long; then only names are used.
"""

MAX_CACHED = 300
"""How many groupings are cached, and how many sets of summaries."""

_ENUMERATED = 6
"""How many names of tools are in a summary that is made from names only."""

READ_WORDS = 80
"""How many words of a description are read, from its beginning."""

NAME_CHARS = 40
"""The longest name of a group, in characters."""

_TOOLS_OF_A_GROUP = 4
"""The least average number of tools in a group."""

_NAME_WEIGHT = 2.0
"""The weight of a word in a tool's name. A word in the description or the source name has weight 1."""

_REPETITION = 10.0
"""How strongly a summary prefers words of tools that it does not cover yet."""

_SAYS_NOTHING = (
    "add all allow any api available base based contain contains create data delete detail details different "
    "display endpoint endpoints example fetch find follow following get give given http https id ids include "
    "includes info information json list make name names new note number one optional parameter parameters "
    "provide provides remove request required response result results retrieve return returns search set show "
    "specific specified string support supported tool tools two type types update url use used user using value "
    "values various www"
)
"""Words that are common in descriptions of tools on any topic."""

_Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of related tools."""

    name: str
    """The name of the group, a path element of at most `NAME_CHARS` characters."""
    summary: str
    tool_ids: tuple[str, ...]
    """The ids of its tools, sorted; at least two."""


def grouped(tools: Mapping[str, Tool], *, at_most: int = MAX_TOOLS, taken: Collection[str] = ()) -> tuple[Group, ...]:
    """Group the tools of one category, given by id. Return the groups sorted by name.

    There are no groups if there are at most `at_most` tools. Otherwise there are at most `MAX_GROUPS`; no group has all
    tools, and no group has a name from `taken`. A tool is in at most one group: if a group would be too small, its
    tools stay in the category. A group can itself have more than `at_most` tools.

    The result depends only on the tools, not on their order. Each group is defined by one word, and the words are those
    that distinguish the tools best. So an additional tool moves few others. If the tools are from several sources, the
    tools of one source stay together. Recent results are cached.
    """
    if len(tools) <= at_most:
        return ()
    if len(tools) > MAX_READ:
        return tuple(
            Group(name, enumerated(inside), tuple(sorted(tool.id for tool in inside)))
            for name, inside in _ranges(_ordered(tools.values()), at_most, taken).items()
        )
    key = at_most, frozenset(name.casefold() for name in taken), _digest(tools.values())
    return _GROUPS.get(key, lambda: _read_and_grouped(_ordered(tools.values()), at_most, taken))


def summaries_of(nodes: Mapping[str, Collection[Tool]]) -> Mapping[str, str]:
    """Return a summary for each of several sibling categories: one sentence with typical words, and names if few.

    Words that distinguish a category from the others come first. A summary has at most `SUMMARY_CHARS` characters, and
    is empty if there are no tools. Recent results are cached.
    """
    every = {tool.id: tool for inside in nodes.values() for tool in inside}
    if len(every) > MAX_READ:
        return {name: enumerated(inside) for name, inside in nodes.items()}

    def read() -> Mapping[str, str]:
        texts = _Texts.of(_ordered(every.values()))
        return {name: _summary(inside, texts) for name, inside in nodes.items()}

    return _SUMMARIES.get(frozenset((name, _digest(inside)) for name, inside in nodes.items()), read)


def enumerated(tools: Iterable[Tool]) -> str:
    """Return the first names of `tools` in sorted order, and the number of further tools."""
    names = sorted(tool.name[:NAME_CHARS] for tool in tools)
    return ", ".join(names[:_ENUMERATED]) + (f" and {len(names) - _ENUMERATED} more" if names[_ENUMERATED:] else "")


# --- caches

_K = TypeVar("_K")
_V = TypeVar("_V")


class _Kept(Generic[_K, _V]):
    """A cache with the `MAX_CACHED` entries that were used last."""

    def __init__(self) -> None:
        self._made: OrderedDict[_K, _V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _K, make: Callable[[], _V]) -> _V:
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._lock:
            made = self._made.setdefault(key, made)
            while len(self._made) > MAX_CACHED:
                self._made.popitem(last=False)
        return made


_GROUPS = _Kept[tuple[int, frozenset[str], bytes], tuple[Group, ...]]()
_SUMMARIES = _Kept[frozenset[tuple[str, bytes]], Mapping[str, str]]()


def _digest(tools: Iterable[Tool]) -> bytes:
    """Return a digest of everything that is shown about `tools`, independent of their order."""
    # Not a sum of fingerprints: an attacker who can add enough tools could find two sets with equal sums.
    fingerprints = sorted(tool.fingerprint for tool in tools)
    return hashlib.blake2b(b"".join(each.to_bytes(16, "big") for each in fingerprints), digest_size=16).digest()


# --- which tools belong together


def _ordered(tools: Iterable[Tool]) -> Sequence[Tool]:
    return sorted(tools, key=lambda tool: tool.id)


def _read_and_grouped(ordered: Sequence[Tool], at_most: int, taken: Collection[str]) -> tuple[Group, ...]:
    texts = _Texts.of(ordered)
    held = _held(_units(ordered, at_most), texts, min(MAX_GROUPS - 1, math.ceil(len(ordered) / _TOOLS_OF_A_GROUP)))
    if any(len(inside) == len(ordered) for inside in held.values()):
        named = _ranges(ordered, at_most, taken)
    else:
        named = _named(_worth_a_node(held, at_most), texts, taken)
    groups = (
        Group(name, _summary(inside, texts), tuple(sorted(tool.id for tool in inside)))
        for name, inside in named.items()
    )
    return tuple(sorted(groups, key=lambda group: group.name))


def _units(ordered: Sequence[Tool], at_most: int) -> Mapping[str, Sequence[Tool]]:
    """Return the units that are never split, sorted: a small source if there are several sources, or a single tool."""
    by_source: defaultdict[str, list[Tool]] = defaultdict(list)
    for tool in ordered:
        by_source[tool.source].append(tool)
    units: dict[str, Sequence[Tool]] = {}
    for source, inside in by_source.items():
        if len(by_source) > 1 and len(inside) <= at_most:
            units[source] = inside
        else:
            units |= {
                tool.id: [tool] for tool in inside
            }  # no conflict: only ids contain a dot, names of sources do not
    return dict(sorted(units.items()))


def _held(units: Mapping[str, Sequence[Tool]], texts: _Texts, most: int) -> Mapping[str, Sequence[Tool]]:
    """Return the tools by the term of their group, with at most `most` terms; "" has the tools without a group."""
    from toolcrib.catalog.labels import labels_of  # noqa: PLC0415  with numpy, which few catalogs need for their groups

    rows = [_sum(texts.weights[tool.id] for tool in inside) for inside in units.values()]
    held: defaultdict[str, list[Tool]] = defaultdict(list)
    for inside, label in zip(units.values(), labels_of(rows, [*map(len, units.values())], most), strict=True):
        held[label] += inside
    return dict(sorted(held.items()))


def _worth_a_node(held: Mapping[str, Sequence[Tool]], at_most: int) -> Mapping[str, Sequence[Tool]]:
    """Drop groups whose tools should stay in the category: groups of one tool, and small ones while slots are left."""
    left = dict(held)
    loose = 0
    for term in sorted(left, key=lambda term: (len(left[term]), term)):
        size = len(left[term])
        slots = at_most - loose - (len(left) - 1)
        if size == 1 or (size <= max(3, at_most // 4) and size <= slots):
            loose += size
            del left[term]
    return left


def _ranges(ordered: Sequence[Tool], at_most: int, taken: Collection[str]) -> Mapping[str, Sequence[Tool]]:
    """Split tools that no word distinguishes into runs of their sorted order, by the name of each run."""
    parts = min(MAX_GROUPS, math.ceil(len(ordered) / at_most))
    used = {name.casefold() for name in taken}
    bounds = [at * len(ordered) // parts for at in range(parts + 1)]
    runs = [ordered[start:end] for start, end in pairwise(bounds)]
    return {_unused(f"{run[0].name[:16]} to {run[-1].name[:16]}", used): run for run in runs}


# --- names


def _named(held: Mapping[str, Sequence[Tool]], texts: _Texts, taken: Collection[str]) -> Mapping[str, Sequence[Tool]]:
    used = {name.casefold() for name in taken}
    return {_unused(_name(term, inside, texts) if term else "other", used): inside for term, inside in held.items()}


def _name(term: str, inside: Sequence[Tool], texts: _Texts) -> str:
    """Return the word of `term`, or two words if most names of these tools contain both next to each other."""
    pairs = Counter(
        pair for tool in inside for pair in {*pairwise(found for found, _ in _said(tool.name))} if term in pair
    )
    pair, times = min(pairs.items(), key=lambda item: (-item[1], item[0]), default=((term, term), 0))
    chosen = dict.fromkeys(pair) if 3 * times > 2 * len(inside) else [term]
    return " ".join(texts.word(part) for part in chosen)


def _unused(name: str, used: set[str]) -> str:
    """Shorten `name`, add a number if it is in `used` (ignoring case), and add the result to `used`."""
    short = " ".join(name.split())[: NAME_CHARS - 4].strip() or "unnamed"
    numbered = (f"{short} {number}" for number in count(2))
    found = next(candidate for candidate in chain([short], numbered) if candidate.casefold() not in used)
    used.add(found.casefold())
    return found


def _summary(inside: Collection[Tool], texts: _Texts) -> str:
    """Return one sentence: what the tools are about, and their names if they are few. A lone tool says it itself."""
    ordered = sorted(inside, key=lambda tool: tool.id)
    if len(ordered) == 1 and (summary := ordered[0].summary):
        return f"{' '.join(ordered[0].name.split())[:NAME_CHARS]}: {summary}"[:SUMMARY_CHARS]
    names = sorted({" ".join(tool.name.split()) for tool in ordered}) if len(ordered) <= MAX_TOOLS else []
    if sum(len(name) + 2 for name in names) > SUMMARY_CHARS - len(_ABOUT):
        names = []
    said = {term for name in names for term, _ in _said(name)}
    chars_left = min(SUMMARY_CHARS, 100 + 10 * len(ordered)) - sum(len(name) + 2 for name in names) - len(_ABOUT)
    found: list[str] = []
    for term in _telling(ordered, texts):
        word = texts.word(term)
        chars_left -= 0 if term in said else len(word) + 2
        if chars_left < 0:
            break
        found += [] if term in said else [word]
    about = f"{_ABOUT}{_listed(found)}" if found else ""
    sentence = ": ".join(part for part in (about, _listed(names)) if part)
    return f"{sentence}." if sentence else ""


_ABOUT = "Tools about "


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def _telling(ordered: Sequence[Tool], texts: _Texts) -> Iterator[str]:
    """Yield the terms of these tools, most informative first. Terms of tools not covered so far are preferred."""
    postings: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for at, tool in enumerate(ordered):
        weighted = [(term, weight * texts.rarity[term]) for term, weight in texts.weights[tool.id].items()]
        length = math.sqrt(sum(weight * weight for _, weight in weighted))
        for term, weight in weighted:
            postings[term].append((at, weight / length))
    repeated = [0.0] * len(ordered)
    waiting = [(-sum(weight for _, weight in holders), term) for term, holders in postings.items()]
    heapq.heapify(waiting)
    while waiting:
        _, term = heapq.heappop(waiting)
        now = -sum(weight / (1 + _REPETITION * repeated[at]) for at, weight in postings[term])
        if waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, term))
            continue
        yield term
        for at, weight in postings[term]:
            repeated[at] += weight


# --- words


@dataclass(frozen=True)
class _Texts:
    """The words in the texts of some tools."""

    weights: Mapping[str, _Weights]
    """By tool id, the weight of each informative term."""
    spread: Mapping[str, int]
    """By term, the number of tools that have it."""
    words: Mapping[str, Mapping[str, int]]
    """By term, the words with this stem and how often each occurs."""

    @classmethod
    def of(cls, ordered: Sequence[Tool]) -> _Texts:
        is_mixed = len({tool.source for tool in ordered}) > 1
        seen: defaultdict[str, dict[str, int]] = defaultdict(dict)
        weights: dict[str, _Weights] = {}
        for tool in ordered:
            name = [*_said(tool.name), *_said(tool.title or "")]
            source = [*_said(tool.source)] if is_mixed else []
            description = [*islice(_said(tool.description), READ_WORDS)]
            for term, word in chain(name, source, description):
                seen[term][word] = seen[term].get(word, 0) + 1
            weights[tool.id] = _counted(name, source, description)
        return cls(weights, Counter(term for row in weights.values() for term in row), seen)

    @cached_property
    def rarity(self) -> _Weights:
        """By term, the logarithm of the inverse of the share of tools that have it."""
        return {term: math.log(1 + len(self.weights) / holders) for term, holders in self.spread.items()}

    def word(self, term: str) -> str:
        """Return the most frequent word with the stem `term`, because a stem is not a readable word."""
        words = self.words[term]
        return min(words, key=lambda word: (-words[word], len(word), word))


_Said = Sequence[tuple[str, str]]


def _counted(name: _Said, source: _Said, description: _Said) -> _Weights:
    weights: dict[str, float] = {}
    for term, _ in description:
        weights[term] = 2.0 if term in weights else 1.0  # further repetitions do not count
    for term in {term for term, _ in name}:
        weights[term] = weights.get(term, 0.0) + _NAME_WEIGHT
    for term, _ in source:
        weights.setdefault(term, 1.0)
    return {term: weights[term] for term in sorted(weights.keys() - _saying_nothing())}


@cache
def _saying_nothing() -> frozenset[str]:
    return frozenset(terms(_SAYS_NOTHING))


def _sum(rows: Iterable[_Weights]) -> _Weights:
    total: dict[str, float] = {}
    for row in rows:
        for term, weight in row.items():
            total[term] = total.get(term, 0.0) + weight
    return total


def _said(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of `text` as pairs (term, word), in order, without stopwords, numbers and single letters."""
    for chunk in text.split():
        yield from _said_in(chunk)


@lru_cache(maxsize=1 << 15)
def _said_in(chunk: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    parts = ["", "", ""]
    for word in words(chunk):
        # `words` also returns a compound such as `getGameArt` as one word, which is not useful as a name.
        is_whole = word in ("".join(parts[-2:]), "".join(parts)) and parts[-1] != word
        parts = [*parts[1:], word]
        if is_whole or word in STOPWORDS or word.isdigit() or (len(word) == 1 and word.isascii()):
            continue
        found += [(term, word) for term in terms(word)[-1:]]
    return tuple(found)
