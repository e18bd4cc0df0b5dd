"""Errors that lead on: what was probably meant by a path, an id or a query that leads nowhere."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from itertools import islice

from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import NextAction, NoMatchInCategory, SourceUnavailable, ToolNotFound, UnknownPath
from toolcrib.core.handles import Handle
from toolcrib.core.schema import MAX_COMPARED, MAX_COMPARED_CHARS
from toolcrib.core.tools import Path
from toolcrib.index.index import Selection

CLEARLY_MEANT = 0.85
"""The Ratcliff-Obershelp ratio from which an id that does not exist is taken for a slip in one that does."""

MAX_TOLD = 20
"""Children of a node that a hint names."""


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
            hints=["`toolcrib doctor` tells its owner more."] if entry.diagnosis else [],
            next_action=NextAction("list"),
            retryable=entry.status is SourceStatus.STARTING or not entry.is_lasting,
        )
    words = name[:MAX_COMPARED_CHARS].replace(".", " ").replace("_", " ")
    near = _near(name, _comparable_ids(view, source), most=3)
    meant = near[0] if near and difflib.SequenceMatcher(None, name, near[0]).ratio() >= CLEARLY_MEANT else None
    near += [hit.tool_id for hit in view.search(words, limit=3).hits if hit.tool_id not in near]
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


def no_match(
    view: View, category: Path, wider: NextAction, searched: Selection | Collection[str] | None
) -> NoMatchInCategory:
    """The error for a query that nothing in `category` matches: the categories where something does.

    `wider` is the search of the whole catalog, over the tools `searched`, None for all.
    """
    hits = view.search(wider.arguments["query"], limit=10, scope=searched).hits
    elsewhere = dict.fromkeys(view.ontology.places(view.tools[hit.tool_id])[0] for hit in hits)
    paths = [shown(path) for path in islice(elsewhere, 3)]
    return NoMatchInCategory(
        f"Nothing in {shown(category)} matches.",
        hints=[f"Matches stand in: {', '.join(paths)}"] if paths else ["Nothing in the whole catalog matches either."],
        next_action=wider if paths else NextAction("list"),
    )


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
