"""Errors that lead on: what was probably meant by a path, an id or a query that leads nowhere."""

from __future__ import annotations

import difflib
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import islice
from typing import Any

from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import NextAction, NoMatchInCategory, SourceUnavailable, ToolNotFound, UnknownPath
from toolcrib.core.handles import Handle
from toolcrib.core.schema import MAX_COMPARED, MAX_COMPARED_CHARS
from toolcrib.core.tools import Path
from toolcrib.disclosure.messages import Suggestion
from toolcrib.index.index import Selection

CLEARLY_MEANT = 0.85
"""The Ratcliff-Obershelp ratio from which an id that does not exist is taken for a slip in one that does."""

MAX_TRIED = 3
"""Categories that are searched to name those in which something matches: each ranks the whole catalog once more."""

MAX_TOLD = 20
"""Children of a node that a hint names."""

OTHER_WORDS = "Say it in other words, what is to be done and to what, or look at what there is."

NO_NODE = Suggestion(("No category seems to serve this.", OTHER_WORDS), NextAction("list"))
"""What to try after a search for categories that found none."""

Searched = Selection | Set[str] | None
"""The tools to search; None for all that are visible."""


def not_found(view: View, name: str) -> ToolNotFound | SourceUnavailable:
    """The error for an id that names no visible tool: whose source failed, or what visible ids come closest."""
    handle = Handle.parse(name)
    name = name if handle is None else handle.tool_id
    source = next((s for s in (name.partition(mark)[0] for mark in (".", "__")) if s in view.sources), "")
    entry = view.sources.get(source)
    if entry is not None and entry.status is not SourceStatus.READY:
        what = "is still starting" if entry.status is SourceStatus.STARTING else f"is unavailable: {entry.reason}"
        return SourceUnavailable(
            f"The source `{source}` {what}".rstrip(".") + ".",
            diagnosis=entry.diagnosis,
            next_action=NextAction("list"),
            retryable=entry.status is SourceStatus.STARTING or not entry.is_lasting,
        )
    words = name[:MAX_COMPARED_CHARS].replace(".", " ").replace("_", " ")
    near = _near(name, _comparable_ids(view, source), most=3)
    meant = near[0] if near and difflib.SequenceMatcher(None, name, near[0]).ratio() >= CLEARLY_MEANT else None
    # By words alone: nobody has looked up what an id means, and a model would be run while all others wait.
    near += [hit.tool_id for hit in replace(view, insight=None).search(words, limit=3).hits if hit.tool_id not in near]
    if meant is None and (ends := [tool_id for tool_id in near if tool_id.endswith(f".{name}")]):
        meant = ends[0] if len(ends) == 1 else None
    return ToolNotFound(
        f"There is no tool `{name[:200]}`.",
        hints=[f"Closest: {', '.join(f'`{tool_id}`' for tool_id in near[:3])}"] if near else [],
        next_action=(
            NextAction("search_tools", {"query": words})
            if meant is None
            else NextAction("expand_tool", {"tool_id": meant})
        ),
    )


def unknown_path(view: View, path: Sequence[str]) -> UnknownPath:
    """The error for a path at which no visible node stands: the closest that does, and what is below the nearest."""
    ontology = view.ontology
    depth, nearest = ontology.nearest(path)
    children = {child.name: child for child in ontology.children(nearest)}
    closest = _like(path[depth], children) or _like(path[-1], _by_name(view))
    way = closest.path if closest is not None else nearest.path
    here = shown(nearest.path)
    exists = [f"Closest that exists: {shown(way)}"] if closest is not None else []
    return UnknownPath(
        f"There is no node at {shown(tuple(path))}.",
        hints=[
            *exists,
            f"Below {here}: {', '.join(islice(children, MAX_TOLD)) or 'no nodes, only tools'}"
            + (f" and {len(children) - MAX_TOLD} more" if len(children) > MAX_TOLD else ""),
        ],
        next_action=NextAction("list", {"path": list(way)} if way else {}),
    )


def no_match(view: View, category: Path, wider: NextAction, searched: Searched, tagged: Searched) -> NoMatchInCategory:
    """The error for a query that nothing in `category` matches: the categories where something does.

    `wider` is the search of the whole catalog, over the tools `searched`; `tagged` as for `nothing_found`.
    """
    message, given = f"Nothing in {shown(category)} matches.", wider.arguments
    query: str = given["query"]
    if hits := view.search(query, limit=10, scope=searched).hits:
        elsewhere = dict.fromkeys(view.ontology.places(view.tools[hit.tool_id])[0] for hit in hits)
        # A tool that stands low on the page of the whole catalog may be too little for one of its own.
        tried = islice(elsewhere, MAX_TRIED)
        named = ", ".join(shown(path) for path in tried if _finds(view, query, path, searched))
        return NoMatchInCategory(message, hints=[f"Matches stand in: {named}"] if named else [], next_action=wider)
    include_unavailable = bool(given.get("include_unavailable"))
    lead = nothing_found(view, query, given.get("tags", ()), tagged, include_unavailable=include_unavailable)
    if lead.next_action.operation != "list":
        return NoMatchInCategory(message, hints=lead.hints, next_action=lead.next_action)
    return NoMatchInCategory(
        message,
        hints=["Nothing in the whole catalog matches either.", OTHER_WORDS],
        next_action=NextAction("list", {"path": [*category]} if category in view.ontology.nodes else {}),
    )


def nothing_found(
    view: View, query: str, tags: Sequence[str], tagged: Searched, *, include_unavailable: bool
) -> Suggestion:
    """What leads on from a search of the whole catalog that found nothing; `tagged` are all tools that carry the tags.

    A search that finds something where there is one that asks for less, else the top of the catalog.
    """
    given: dict[str, Any] = {"query": query, "tags": [*tags], "include_unavailable": include_unavailable}
    asked = {key: value for key, value in given.items() if value}
    if not include_unavailable and view.unavailable and view.search(query, limit=1, scope=tagged).hits:
        return Suggestion(
            ("What matches cannot be called before somebody has done something.",),
            NextAction("search_tools", {**asked, "include_unavailable": True}),
        )
    anywhere = None if include_unavailable else view.available
    if tags and view.search(query, limit=1, scope=anywhere).hits:
        del asked["tags"]
        return Suggestion(("Without the tags something matches.",), NextAction("search_tools", asked))
    return Suggestion(("No tool seems to serve this.", OTHER_WORDS), NextAction("list"))


def _finds(view: View, query: str, path: Path, searched: Searched) -> bool:
    """Whether a search at or below `path` finds something."""
    if (branch := view.ontology.find(path)) is None:
        return False
    inside = view.ontology.within(branch)
    scope = inside & searched if isinstance(searched, Set) else inside
    return bool(view.search(query, limit=1, scope=scope).hits)


def shown(path: Path) -> str:
    """A path in a sentence."""
    return "/".join(path)[:200] if path else "the root"


def _comparable_ids(view: View, source: str) -> Sequence[str]:
    """All ids, or in a large catalog those of one source."""
    if len(view.tools) <= MAX_COMPARED:
        return list(view.tools)
    branch = view.ontology.find((source,)) if source else None
    return sorted(view.ontology.within(branch))[:MAX_COMPARED] if branch is not None else []


def _by_name(view: View) -> dict[str, Branch]:
    """Some nodes by their names; of two with one name the one with the lesser path."""
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
    """Those of `known` that are most like `text`, the likest first; none where that is too long to be a slip."""
    return difflib.get_close_matches(text, known, n=most, cutoff=0.6) if len(text) <= MAX_COMPARED_CHARS else []
