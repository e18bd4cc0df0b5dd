"""Which nodes a query means: those whose own words match it, and those that hold a tool which does."""

from __future__ import annotations

from collections.abc import Collection

from toolcrib.catalog.ontology import Branch
from toolcrib.catalog.view import View

LOOKED_AT = 50
"""Nodes by their words, of which the best count."""

TOOLS_LOOKED_AT = 200
"""Likewise; more than nodes, for many of the best may hang in one."""


def matching_nodes(view: View, query: str) -> list[tuple[Branch, float]]:
    """Nodes with their confidence, in [0, 1]: the better of how well a node's words match and its best tool does."""
    found = _by_words(view, query, None)
    hits = view.search(query, limit=TOOLS_LOOKED_AT, scope=view.available).hits
    confidence = {hit.tool_id: hit.confidence for hit in hits}
    for tool_id, branch in view.ontology.holders_of(confidence):
        found[branch] = max(found.get(branch, 0.0), confidence[tool_id])
    return _best_first(found)


def matching_children(view: View, here: Branch, query: str) -> list[tuple[Branch, float]]:
    """The nodes at `here` whose own words match; no groups."""
    return _best_first(_by_words(view, query, [branch.path for branch in view.ontology.children(here)]))


def _by_words(view: View, query: str, paths: Collection[tuple[str, ...]] | None) -> dict[Branch, float]:
    hits = view.ontology.search(query, limit=LOOKED_AT, among=paths)
    return {view.ontology.nodes[path]: confidence for path, confidence in hits}


def _best_first(found: dict[Branch, float]) -> list[tuple[Branch, float]]:
    return sorted(found.items(), key=lambda each: (-each[1], each[0].path))
