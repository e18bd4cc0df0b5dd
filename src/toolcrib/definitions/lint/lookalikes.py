"""Tools that a model would take for one another: what they say of themselves is the same, or nearly.

Comparing all pairs is out of reach, so signatures of their words (MinHash) are cut into bands, and only tools that
share a band are compared. Source: Broder, "On the resemblance and containment of documents" (1997); Leskovec, Rajaraman
and Ullman, "Mining of Massive Datasets", chapter 3.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from toolcrib.core.tools import Tool
from toolcrib.definitions.lint.definition import mapping
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.names import listed
from toolcrib.search.index.tokens import STOPWORDS, terms, words

SAME_WORDS = 0.8
"""Of all words of two descriptions, how many both must have for them to be nearly the same."""

SAME_PARAMETERS = 0.6
"""Likewise of the names of their parameters."""

MIN_TERMS = 4
"""A shorter description than of so many words may well be that of several tools."""

BANDS = 16
ROWS = 4
"""Numbers in each band: of two tools that have .8 of their words in common, .9998 share one; at .3, .12 do."""

MAX_LEADERS = 8
"""Different tools of one band that a further one is compared with; more are kinsfolk of one template."""

MAX_COMPARED = 32
"""Tools that one is compared with in all, those it shares most bands with."""

_ALIKE = (
    "get fetch retrieve obtain", "find search lookup query", "create add make new", "delete remove erase",
    "update edit modify change", "run execute", "show display view", "start launch",
)  # fmt: skip
_SAME_AS = {word: group.split()[0] for group in _ALIKE for word in group.split()}
"""Verbs that do not set two tools apart."""

_DIRECTIONS = frozenset({"to", "from", "into"})
"""Words of a name beside which the order of the others counts: `date_to_time`."""

_ARTICLES = frozenset({"a", "an", "the", "of", "for", "and"})

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word begins in `searchIssuesV2` and `HTTPServer`."""

_VERSION = re.compile(r"v?\d{1,4}|v|old|legacy", re.ASCII)
"""What a name carries besides its words: `search_v2`, `get_user_2`."""

_RANDOM = np.random.default_rng(20_240_607).integers(1, 1 << 62, (3, BANDS * ROWS), dtype=np.uint64)
_FACTORS, _OFFSETS, _MIXERS = _RANDOM[0] | np.uint64(1), _RANDOM[1], (_RANDOM[2] | np.uint64(1)).reshape(BANDS, ROWS)
"""Of multiply-shift hashing. The seed is any number, always the same: what is found must not change from run to run."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """What of one tool is compared."""

    tool: Tool
    order: tuple[str, ...]
    """All words of the name."""
    name: frozenset[str]
    """Words of the name, without what sets no tools apart."""
    description: frozenset[str]
    """Its words that say something anywhere."""
    text: frozenset[str]
    """All words of name and description."""
    parameters: frozenset[str]


def nearly_same(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Groups of tools of which names, descriptions and parameters are all the same or nearly; one problem for each.

    Nearly: no word of one's name is missing from what the other says of itself, `SAME_WORDS` of the words of their
    descriptions are the same, and `SAME_PARAMETERS` of their parameters. Every tool of a group is so like its first.
    """
    for leader, others in _groups(tools):
        yield Problem(
            f"a model cannot tell it from {listed([each.tool.id for each in others])}: {_what_is_same(leader, others)}",
            "Keep one and hide the others, or say in each description when to use it and not the other",
            ("/description",),
            tool_id=leader.tool.id,
            related=tuple(each.tool.id for each in others),
        )


def same_description(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Groups of tools of one source with one description, word for word, that are otherwise different."""
    groups: defaultdict[tuple[str, tuple[str, ...]], list[Tool]] = defaultdict(list)
    for tool in tools:
        said = tuple(terms(tool.description))
        if len(said) >= MIN_TERMS:
            groups[tool.source, said].append(tool)
    for group in groups.values():
        if len(group) == 1:
            continue
        first, *others = map(_sketch, group)
        if different := [each.tool.id for each in others if not is_like(first, each)]:
            yield Problem(
                f"its description is also that of {listed(different)}, word for word",
                "Say in each what it does that the others do not",
                ("/description",),
                tool_id=first.tool.id,
                related=tuple(different),
            )


def _groups(tools: Sequence[Tool]) -> list[tuple[Sketch, list[Sketch]]]:
    """The first of each group of at least two, in the order of `tools`, with the others."""
    members: defaultdict[int, list[Sketch]] = defaultdict(list)
    leaders: list[Sketch] = []
    exact: dict[tuple[tuple[str, ...], frozenset[str], frozenset[str]], int] = {}
    bands: dict[int, tuple[int, ...]] = {}
    for sketch in map(_sketch, tools):
        key = (sketch.order or (sketch.tool.name,), sketch.description, sketch.parameters)
        at = exact.get(key)
        if at is None:
            signature = _signature(sketch.text | sketch.parameters)
            at = _leader_of(sketch, leaders, Counter(each for band in signature for each in bands.get(band, ())))
            if at is None:
                at = len(leaders)
                leaders.append(sketch)
                for band in signature:
                    if len(there := bands.get(band, ())) < MAX_LEADERS:
                        bands[band] = (*there, at)
                exact[key] = at
                continue
            exact[key] = at
        members[at].append(sketch)
    return [(leaders[at], members[at]) for at in sorted(members)]


def _leader_of(sketch: Sketch, leaders: Sequence[Sketch], near: Counter[int]) -> int | None:
    """The first that `sketch` is like of those it shares most bands with; `near`: how many, by position."""
    ranked = sorted(near, key=lambda at: (-near[at], at))[:MAX_COMPARED]
    return next((at for at in ranked if is_like(sketch, leaders[at])), None)


def _sketch(tool: Tool) -> Sketch:
    name = tuple(_plain_words(tool.name))
    description = frozenset(_plain_words(tool.description))
    parameters = frozenset(_plain_words("\n".join(map(str, mapping(tool.input_schema.get("properties")) or ()))))
    # A number that the description speaks of is more than a version: `over_1_5_goals`.
    kept = frozenset(word for word in name if _VERSION.fullmatch(word) is None or word in description)
    said = kept - _ARTICLES or frozenset(name or (tool.name,))  # of signs alone, it is the whole name that counts
    return Sketch(tool, name, said, description - STOPWORDS, description.union(name, said), parameters)


def _plain_words(text: str) -> Iterator[str]:
    """Words without their plural, each hump one; not stemmed, as to a stemmer followers are followings."""
    for word in words(_HUMP.sub(" ", text)):
        single = _singular(word)
        yield _SAME_AS.get(single, single)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def is_like(one: Sketch, other: Sketch) -> bool:
    """Whether a model would take them for one another, as `nearly_same` says it."""
    return (
        one.name <= other.text
        and other.name <= one.text
        and not (one.name == other.name and one.order != other.order and _DIRECTIONS.intersection(one.order))
        and _shared(one.description, other.description) >= SAME_WORDS
        and _shared(one.parameters, other.parameters) >= SAME_PARAMETERS
    )


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard similarity, in [0, 1]; 1 where both are empty."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _signature(features: frozenset[str]) -> list[int]:
    """A number for each band, equal where the lowest hashes of that band are."""
    if not features:
        return [0]
    hashes = np.array([_hash(word) for word in sorted(features)], dtype=np.uint64)
    lowest = ((hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)).min(axis=0).reshape(BANDS, ROWS)
    # The factors differ from band to band, so the numbers of two bands do not meet.
    return ((lowest + np.uint64(1)) * _MIXERS).sum(axis=1).tolist()


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    """32 bits spread over 64; Python's own differ from run to run."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF


def _what_is_same(leader: Sketch, others: Sequence[Sketch]) -> str:
    if all(_key(each) == _key(leader) for each in others):
        return "name, description and parameters are the same"
    alike = min(_shared(each.description, leader.description) for each in others)
    taken = min(_shared(each.parameters, leader.parameters) for each in others)
    descriptions = f"{alike:.0%} of the words of their descriptions" if leader.description else "no description"
    parameters = f"{taken:.0%} of those of their parameters" if leader.parameters else "no parameters"
    return f"the same are the words of their names, {descriptions}, {parameters}"


def _key(sketch: Sketch) -> tuple[str, str, frozenset[str]]:
    tool = sketch.tool
    return tool.name.casefold(), " ".join(tool.description.split()), sketch.parameters
