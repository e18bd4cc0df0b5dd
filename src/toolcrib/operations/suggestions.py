"""Errors with suggestions for a path, an id or a query that leads nowhere: what was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence, Set
from itertools import accumulate, islice
from typing import Any

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    NextAction,
    NoMatchInCategory,
    SignInRequired,
    SourceUnavailable,
    ToolNotFound,
    UnknownPath,
)
from toolcrib.core.handles import Handle
from toolcrib.core.schema import MAX_COMPARED, MAX_COMPARED_CHARS
from toolcrib.core.tools import Path
from toolcrib.operations.protocol_messages import Suggestion
from toolcrib.search.index.index import Selection
from toolcrib.search.index.tokens import terms

ALIKE = 0.8
"""The smallest Ratcliff-Obershelp ratio of two similar ids."""

SHARED_WORDS = 0.6
"""The smallest share of common words of two similar ids, out of the words that either of them has."""

MIN_SLIP_CHARS = 4
"""The minimum number of letters of an id that is corrected, and of a word in which a letter may be substituted.

One letter turns a shorter word into a different word, such as `get` into `set`, or `v1` into `v2`.
"""

MAX_SLIP_CHARS_READ = 500_000
"""How many characters of ids are read to find the id that was meant. In a larger catalog, none is found."""

MAX_LIKE = 3
"""The most ids that an error suggests."""

MAX_TRIED = 3
"""The most categories that are searched to name those with matches. Each search ranks the whole catalog again."""

MAX_TOLD = 20
"""The most subcategories that a hint names."""

MAX_READ = 100_000
"""The most characters of ids and names that are compared with one id."""

OTHER_WORDS = "Search with different words: say what you want to do, and to what. Or browse the categories."

NO_NODE = Suggestion(("No category matches this query well.", OTHER_WORDS), NextAction("list"))
"""What to try after a search for categories that found none."""

_SEPARATORS = re.compile(r"[\W_]+")

Searched = Selection | Set[str] | None
"""The tools to search; None for all visible tools."""


def not_found(view: View, name: str) -> ToolNotFound | SourceUnavailable:
    """Return the error for an id without a visible tool: its source is unavailable, or the error names similar ids.

    The next action expands a tool only if `name` is one edit away from the id of that tool and of no other. A handle is
    never a misspelling: its tool existed, and no different tool can replace it.
    """
    handle = Handle.parse(name)
    name = name if handle is None else handle.tool_id
    source = next((s for s in (name.partition(mark)[0] for mark in (".", "__")) if s in view.sources), "")
    if (gone := unavailable(view, source)) is not None:
        return gone
    near = _like_id(name, _comparable_ids(view, source))
    meant = _meant(name, view.tools) if handle is None else None
    if meant is not None:
        near = [meant, *(tool_id for tool_id in near if tool_id != meant)][:MAX_LIKE]
    return ToolNotFound(
        f"Tool `{name[:200]}` not found.",
        hints=[_did_you_mean(near)] if near else [],
        next_action=NextAction("expand_tool", {"tool_id": meant}) if meant is not None else searching(name),
    )


def _did_you_mean(tool_ids: Sequence[str]) -> str:
    named = ", ".join(f"`{tool_id}`" for tool_id in tool_ids)
    return f"Did you mean {named}?" if len(tool_ids) == 1 else f"Did you mean one of these: {named}?"


def searching(tool_id: str) -> NextAction:
    """Return a search for the words in the id of a tool."""
    return NextAction("search_tools", {"query": tool_id[:MAX_COMPARED_CHARS].replace(".", " ").replace("_", " ")})


def unavailable(view: View, source: str) -> SourceUnavailable | None:
    """Return the error for tools of a source that is starting or unavailable; None if it is unknown or ready."""
    entry = view.sources.get(source)
    if entry is None or entry.status is SourceStatus.READY:
        return None
    if entry.needs_sign_in:
        return SignInRequired(
            entry.reason or f"`{source}` needs a sign-in.",
            diagnosis=entry.diagnosis,
            hints=[f"Ask the user: {entry.remedy}"] if entry.remedy else (),
            next_action=NextAction("list"),
        )
    what = "is still starting" if entry.status is SourceStatus.STARTING else f"is unavailable: {entry.reason}"
    return SourceUnavailable(
        f"The source `{source}` {what}".rstrip(".") + ".",
        diagnosis=entry.diagnosis,
        next_action=NextAction("list"),
        retryable=entry.status is SourceStatus.STARTING or not entry.is_lasting,
    )


def unknown_path(
    view: View, path: Sequence[str], again: Callable[[Path], NextAction]
) -> UnknownPath | SourceUnavailable:
    """Return the error for a path without a visible category: its source is unavailable, or the closest category.

    `again` returns the same request for the closest category.
    """
    ontology = view.ontology
    if path[0] not in ontology.root.below and (gone := unavailable(view, path[0])) is not None:
        return gone
    depth, nearest = ontology.nearest(path)
    children = {child.name: child for child in ontology.children(nearest)}
    closest = _like(path[depth], children) or _like(path[-1], _by_name(view))
    way = closest.path if closest is not None else nearest.path
    here = shown(nearest.path)
    nothing_else = "none, only tools" if nearest.count else "none"
    exists = [f"The closest existing category is {shown(way)}."] if closest is not None else []
    return UnknownPath(
        f"Category {shown(tuple(path))} not found.",
        hints=[
            *exists,
            f"Categories in {here}: {', '.join(islice(children, MAX_TOLD)) or nothing_else}"
            + (f" and {len(children) - MAX_TOLD} more" if len(children) > MAX_TOLD else ""),
        ],
        next_action=again(way) if closest is not None else NextAction("list", {"path": list(way)} if way else {}),
    )


def no_match(view: View, category: Path, wider: NextAction, searched: Searched, tagged: Searched) -> NoMatchInCategory:
    """Return the error for a query without a match in `category`. It names categories with matches.

    `wider` is the search of the whole catalog, over the tools `searched`. For `tagged`, see `nothing_found`.
    """
    message, given = f"No tool in {shown(category)} matches this query.", wider.arguments
    query: str = given["query"]
    if (ranking := view.search(query, limit=10, scope=searched)).fits:
        elsewhere = dict.fromkeys(view.ontology.places(view.tools[hit.tool_id])[0] for hit in ranking.hits)
        # A search in one category can find nothing although its tool was a weak match in the whole catalog. So try it.
        tried = islice(elsewhere, MAX_TRIED)
        named = ", ".join(shown(path) for path in tried if finds(view, query, path, searched))
        hints = [f"These categories have matches: {named}"] if named else []
        return NoMatchInCategory(message, hints=hints, next_action=wider)
    include_unavailable = bool(given.get("include_unavailable"))
    lead = nothing_found(view, query, given.get("tags", ()), tagged, include_unavailable=include_unavailable)
    if lead.next_action.operation != "list":
        return NoMatchInCategory(message, hints=lead.hints, next_action=lead.next_action)
    return NoMatchInCategory(
        message,
        hints=["No tool in any other category matches either.", OTHER_WORDS],
        next_action=NextAction("list", {"path": [*category]} if category in view.ontology.nodes else {}),
    )


def nothing_found(
    view: View, query: str, tags: Sequence[str], tagged: Searched, *, include_unavailable: bool
) -> Suggestion:
    """Return what to try after a search of the whole catalog in which nothing fits. `tagged` are all tools with the
    tags.

    The next action is a search with fewer conditions if it finds something, or a list of the top-level categories.
    """
    given: dict[str, Any] = {"query": query, "tags": [*tags], "include_unavailable": include_unavailable}
    asked = {key: value for key, value in given.items() if value}
    if not include_unavailable and view.unavailable and view.search(query, limit=1, scope=tagged).fits:
        return Suggestion(
            ("There are matches, but they are unavailable. Search with `include_unavailable` to see the reasons.",),
            NextAction("search_tools", {**asked, "include_unavailable": True}),
        )
    anywhere = None if include_unavailable else view.available
    if tags and view.search(query, limit=1, scope=anywhere).fits:
        del asked["tags"]
        return Suggestion(("There are matches without the tag filter.",), NextAction("search_tools", asked))
    return Suggestion(("No tool matches this query well.", OTHER_WORDS), NextAction("list"))


def finds(view: View, query: str, path: Path, searched: Searched) -> bool:
    """Return whether a search in or below `path` finds a tool."""
    if (branch := view.ontology.find(path)) is None:
        return False
    inside = view.ontology.within(branch)
    scope = inside & searched if isinstance(searched, Set) else inside
    return view.search(query, limit=1, scope=scope).fits


def shown(path: Path) -> str:
    """Return a path as it is shown in a sentence."""
    return "/".join(path)[:200] if path else "the root"


def _like_id(name: str, ids: Sequence[str]) -> list[str]:
    """Return the `ids` that are similar to `name` in their letters or words, most similar first."""
    if len(name) > MAX_COMPARED_CHARS:
        return []
    asked, said = _with_dot(name).casefold(), frozenset(terms(name))
    read, by_words, by_letters = 0, dict[str, float](), list[tuple[float, str]]()
    for tool_id in ids:
        known = _comparable(tool_id, asked)
        read += len(known)
        if read > MAX_READ:
            break
        shared = max(_shared(said, tool_id), _shared(said, known))
        if shared >= SHARED_WORDS:
            by_words[tool_id] = shared
        if (most := _matcher(asked, known).quick_ratio()) >= ALIKE:
            by_letters.append((-most, tool_id))
    # The exact ratio is slow, so compute it only for the best candidates. A large catalog must not make this slow.
    alike = {i: _matcher(asked, _comparable(i, asked)).ratio() for _, i in sorted(by_letters)[:MAX_TOLD]}
    likeness = {i: max(alike.get(i, 0.0), by_words.get(i, 0.0)) for i in (*alike, *by_words)}
    near = sorted((-ratio, -alike.get(i, 0.0), i) for i, ratio in likeness.items() if i in by_words or ratio >= ALIKE)
    return [tool_id for _, _, tool_id in near[:MAX_LIKE]]


def _comparable(tool_id: str, asked: str) -> str:
    """Return the part of an id that is compared with `asked`: without the source if `asked` has none."""
    return (tool_id if "." in asked else tool_id.partition(".")[2]).casefold()


def _shared(words: Set[str], name: str) -> float:
    """Return the share of common words, out of the words that either side has."""
    others = frozenset(terms(name))
    return len(words & others) / (len(words | others) or 1)


def _with_dot(name: str) -> str:
    """Return `git.log` for `git__log`, which is the form of names in a model's own tool list."""
    return name if "." in name else name.replace("__", ".", 1)


def _matcher(asked: str, known: str) -> difflib.SequenceMatcher[str]:
    return difflib.SequenceMatcher(None, asked, known, autojunk=False)


def _meant(name: str, ids: Iterable[str]) -> str | None:
    """Return the only id that differs from `name` by one edit, with or without its source; None for none or several.

    Differences in case and in separators do not count as edits. An id that differs in nothing else takes precedence
    over ids that differ by one edit.
    """
    if len(name) > MAX_COMPARED_CHARS or len(asked := _folded(name)) < MIN_SLIP_CHARS:
        return None
    equal, near, read = list[str](), list[str](), 0
    for tool_id in ids:
        read += len(tool_id)
        if read > MAX_SLIP_CHARS_READ:
            return None  # an id that was not read could be as close
        if len(tool_id) > 2 * MAX_COMPARED_CHARS:
            continue
        known = {_folded(each): each for each in (tool_id, tool_id.partition(".")[2])}
        if asked in known:
            equal.append(tool_id)
        elif any(_is_slip(asked, folded, each) for folded, each in known.items()):
            near.append(tool_id)
    meant = equal or near
    return meant[0] if len(meant) == 1 else None


def _is_slip(asked: str, there: str, known: str) -> bool:
    """Return whether `asked` is `there` with one edit that does not turn a short word into a different word.

    Both are folded. `known` is the original form of `there`.
    """
    if abs(len(asked) - len(there)) > 1 or not _is_one_edit(asked, there):
        return False
    wrong = [at for at, (a, b) in enumerate(zip(asked, there, strict=False)) if a != b]
    if len(asked) != len(there) or len(wrong) != 1:
        return True
    ends = accumulate(map(len, _SEPARATORS.split(known.casefold())))
    start = 0
    for end in ends:
        if wrong[0] < end:
            return end - start >= MIN_SLIP_CHARS
        start = end
    return False


def _folded(name: str) -> str:
    """Return the letters and digits of `name`, case-folded."""
    plain = name.casefold().replace("_", "").replace(".", "").replace("-", "")
    return plain if plain.isalnum() else _SEPARATORS.sub("", plain)  # the regular expression takes five times as long


def _is_one_edit(one: str, other: str) -> bool:
    """Return whether the words differ by at most one letter inserted, deleted or substituted, or two neighbors swapped.

    That is a Damerau-Levenshtein distance of at most 1.
    """
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    one, other = one[start:], other[start:]
    return (
        one[1:] == other[1:]
        or one[1:] == other
        or one == other[1:]
        or (one[:2] == other[1::-1] and one[2:] == other[2:])
    )


def _comparable_ids(view: View, source: str) -> Sequence[str]:
    """Return all ids or, in a large catalog, the ids of one source."""
    if len(view.tools) <= MAX_COMPARED:
        return list(view.tools)
    branch = view.ontology.find((source,)) if source else None
    return sorted(view.ontology.within(branch))[:MAX_COMPARED] if branch is not None else []


def _by_name(view: View) -> dict[str, Branch]:
    """Return up to `MAX_COMPARED` categories by name. If two have the same name, the smaller path counts."""
    by_name: dict[str, Branch] = {}
    for path, branch in islice(view.ontology.nodes.items(), MAX_COMPARED):
        by_name.setdefault(path[-1], branch)
    return by_name


def _like(name: str, known: dict[str, Branch]) -> Branch | None:
    short = (each for each in known if len(each) <= MAX_COMPARED_CHARS)
    folded = {each.casefold(): known[each] for each in islice(short, MAX_COMPARED)}
    near = _near(name.casefold(), [*folded], most=1)
    return folded[near[0]] if near else None


def _near(text: str, known: Sequence[str], *, most: int) -> list[str]:
    """Return the `known` strings most similar to `text`, best first; none if `text` is too long for a name."""
    return difflib.get_close_matches(text, known, n=most, cutoff=0.6) if len(text) <= MAX_COMPARED_CHARS else []
