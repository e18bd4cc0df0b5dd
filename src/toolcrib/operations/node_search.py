"""Searches categories: those whose own words match a query, and those that contain a matching tool."""

from __future__ import annotations

from collections.abc import Collection

from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.view import View

LOOKED_AT = 50
"""How many categories are ranked by their own words."""

TOOLS_LOOKED_AT = 200
"""How many tools are ranked. There are more tools than categories, because many of the best can be in one category."""


def matching_nodes(view: View, query: str) -> list[tuple[Branch, float]]:
    """Return the matching categories, best first, each with its confidence in [0, 1].

    The confidence is the larger one of two: that of the category's own words, and that of its best tool.
    """
    found = _by_words(view, query, None)
    hits = view.search(query, limit=TOOLS_LOOKED_AT, scope=view.available).hits
    confidence = {hit.tool_id: hit.confidence for hit in hits}
    for tool_id, branch in view.ontology.holders_of(confidence):
        found[branch] = max(found.get(branch, 0.0), confidence[tool_id])
    return _best_first(found)


def matching_children(view: View, here: Branch, query: str) -> list[tuple[Branch, float]]:
    """Return the children of `here` whose own words match, best first, without groups."""
    return _best_first(_by_words(view, query, [branch.path for branch in view.ontology.children(here)]))


def _by_words(view: View, query: str, paths: Collection[tuple[str, ...]] | None) -> dict[Branch, float]:
    hits = view.ontology.search(query, limit=LOOKED_AT, among=paths)
    return {view.ontology.nodes[path]: confidence for path, confidence in hits}


def _best_first(found: dict[Branch, float]) -> list[tuple[Branch, float]]:
    return sorted(found.items(), key=lambda each: (-each[1], each[0].path))
