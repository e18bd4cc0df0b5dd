"""Lint rules for tools that a model would confuse, because their descriptions are the same or nearly the same.

Comparing all pairs would take too long. Instead, signatures of the words (MinHash) are cut into bands, and only tools
that share a band are compared. Source: Broder, "On the resemblance and containment of documents" (1997); Leskovec,
Rajaraman and Ullman, "Mining of Massive Datasets", chapter 3.
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
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.linted_tool import mapping
from toolcrib.definitions.lint.tool_names import listed
from toolcrib.search.index.tokens import STOPWORDS, terms, words

SAME_WORDS = 0.8
"""The share of words that two descriptions must have in common to count as nearly the same, in [0, 1]."""

SAME_PARAMETERS = 0.6
"""The share of parameter names that two tools must have in common to count as nearly the same, in [0, 1]."""

MIN_TERMS = 4
"""The minimum number of words. Several tools may well share a description that is shorter."""

BANDS = 16
ROWS = 4
"""The number of hashes in each band. Of two tools with 0.8 of their words in common, 0.9998 share a band; at 0.3,
0.12."""

MAX_LEADERS = 8
"""How many different tools of one band a further tool is compared with. More tools probably share one template."""

MAX_COMPARED = 32
"""How many tools one tool is compared with in total. Those that share the most bands come first."""

_ALIKE = (
    "get fetch retrieve obtain", "find search lookup query", "create add make new", "delete remove erase",
    "update edit modify change", "run execute", "show display view", "start launch",
)  # fmt: skip
_SAME_AS = {word: group.split()[0] for group in _ALIKE for word in group.split()}
"""Maps verbs with the same meaning to one verb, because they do not make two tools different."""

_DIRECTIONS = frozenset({"to", "from", "into"})
"""Words in a name after which the order of the other words matters: `date_to_time`."""

_ARTICLES = frozenset({"a", "an", "the", "of", "for", "and"})

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Finds where a word starts in `searchIssuesV2` and `HTTPServer`."""

_VERSION = re.compile(r"v?\d{1,4}|v|old|legacy", re.ASCII)
"""Matches version parts of a name: `search_v2`, `get_user_2`."""

_RANDOM = np.random.default_rng(20_240_607).integers(1, 1 << 62, (3, BANDS * ROWS), dtype=np.uint64)
_FACTORS, _OFFSETS, _MIXERS = _RANDOM[0] | np.uint64(1), _RANDOM[1], (_RANDOM[2] | np.uint64(1)).reshape(BANDS, ROWS)
"""The constants of multiply-shift hashing. The seed is arbitrary but fixed, so that each run finds the same."""


@dataclass(frozen=True, slots=True)
class _Sketch:
    """The parts of one tool that are compared."""

    tool: Tool
    order: tuple[str, ...]
    """All words of the name, in order."""
    name: frozenset[str]
    """The words of the name, without articles and version parts."""
    description: frozenset[str]
    """The words of the description without stop words."""
    text: frozenset[str]
    """All words of the name and the description."""
    parameters: frozenset[str]


def nearly_same(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Find groups of tools whose names, descriptions and parameters are the same or nearly the same.

    Yields one problem for each group. Two tools are nearly the same if three conditions hold. Each word of one name
    occurs in the name or description of the other. The share of common words in their descriptions is at least
    `SAME_WORDS`. The share of common parameters is at least `SAME_PARAMETERS`. Every tool of a group is nearly the same
    as its first.
    """
    for leader, others in _groups(tools):
        yield Problem(
            f"too similar to {listed([each.tool.id for each in others])}: {_what_is_same(leader, others)}. "
            "A model cannot tell them apart",
            "Keep one and hide the others, or explain in each description when to use which",
            ("/description",),
            tool_id=leader.tool.id,
            related=tuple(each.tool.id for each in others),
        )


def same_description(tools: Sequence[Tool]) -> Iterator[Problem]:
    """Find groups of tools of one source that have exactly the same description but are otherwise different."""
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
                f"it has exactly the same description as {listed(different)}",
                "Describe in each what it does that the others do not",
                ("/description",),
                tool_id=first.tool.id,
                related=tuple(different),
            )


def _groups(tools: Sequence[Tool]) -> list[tuple[_Sketch, list[_Sketch]]]:
    """Return the groups with at least two tools: the first tool, in the order of `tools`, and the others."""
    members: defaultdict[int, list[_Sketch]] = defaultdict(list)
    leaders: list[_Sketch] = []
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


def _leader_of(sketch: _Sketch, leaders: Sequence[_Sketch], near: Counter[int]) -> int | None:
    """Return the position of the leader that `sketch` is nearly the same as, or None.

    `near` counts the shared bands by position. Leaders with the most shared bands are tried first.
    """
    ranked = sorted(near, key=lambda at: (-near[at], at))[:MAX_COMPARED]
    return next((at for at in ranked if is_like(sketch, leaders[at])), None)


def _sketch(tool: Tool) -> _Sketch:
    name = tuple(_plain_words(tool.name))
    description = frozenset(_plain_words(tool.description))
    parameters = frozenset(_plain_words("\n".join(map(str, mapping(tool.input_schema.get("properties")) or ()))))
    # A number that the description mentions is more than a version: `over_1_5_goals`.
    kept = frozenset(word for word in name if _VERSION.fullmatch(word) is None or word in description)
    said = kept - _ARTICLES or frozenset(name or (tool.name,))  # if the name has only such parts, the whole name counts
    return _Sketch(tool, name, said, description - STOPWORDS, description.union(name, said), parameters)


def _plain_words(text: str) -> Iterator[str]:
    """Yield the words of `text` in singular, with each hump as a word.

    The words are not stemmed: a stemmer would treat "followers" and "followings" as the same.
    """
    for word in words(_HUMP.sub(" ", text)):
        single = _singular(word)
        yield _SAME_AS.get(single, single)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def is_like(one: _Sketch, other: _Sketch) -> bool:
    """Whether a model would confuse the two tools, as `nearly_same` defines it."""
    return (
        one.name <= other.text
        and other.name <= one.text
        and not (one.name == other.name and one.order != other.order and _DIRECTIONS.intersection(one.order))
        and _shared(one.description, other.description) >= SAME_WORDS
        and _shared(one.parameters, other.parameters) >= SAME_PARAMETERS
    )


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    """The Jaccard similarity, in [0, 1]. Two empty sets have similarity 1."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0


def _signature(features: frozenset[str]) -> list[int]:
    """Return a number for each band. Two numbers are equal if the lowest hashes of the band are equal."""
    if not features:
        return [0]
    hashes = np.array([_hash(word) for word in sorted(features)], dtype=np.uint64)
    lowest = ((hashes[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)).min(axis=0).reshape(BANDS, ROWS)
    # The factors differ between bands, so numbers of different bands do not collide.
    return ((lowest + np.uint64(1)) * _MIXERS).sum(axis=1).tolist()


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    """A 32-bit hash spread over 64 bits. Python's own string hashes differ between runs."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF


def _what_is_same(leader: _Sketch, others: Sequence[_Sketch]) -> str:
    if all(_key(each) == _key(leader) for each in others):
        return "same name, description and parameters"
    alike = min(_shared(each.description, leader.description) for each in others)
    taken = min(_shared(each.parameters, leader.parameters) for each in others)
    descriptions = f"{alike:.0%} of the words in the descriptions" if leader.description else "no description"
    parameters = f"{taken:.0%} of the words in the parameter names" if leader.parameters else "no parameters"
    return f"they share the words of their names, {descriptions}, {parameters}"


def _key(sketch: _Sketch) -> tuple[str, str, frozenset[str]]:
    tool = sketch.tool
    return tool.name.casefold(), " ".join(tool.description.split()), sketch.parameters
