"""Access to the catalog for the sections of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolcrib.agent.session import Session
from toolcrib.core.errors import UnknownPath
from toolcrib.core.tools import Path, ToolPointer
from toolcrib.operations.showing import MAX_LIMIT

MAX_POINTERS = 200
"""How many tools of one category a section shows. For larger categories, give the model a search."""


@dataclass(frozen=True)
class SessionCatalog:
    """A `CatalogReader` for the tools that a session may see."""

    session: Session

    def summary(self, category: Path) -> str:
        ontology = self.session.view().ontology
        branch = ontology.find(category)
        if branch is None:
            raise UnknownPath(f"Category {'/'.join(category)} not found.")
        return ontology.node(branch).summary

    def pointers(self, category: Path) -> Sequence[ToolPointer]:
        found: list[ToolPointer] = []
        cursor = None
        while len(found) < MAX_POINTERS:
            # `list` is not used, because it shows a large category as groups.
            page = self.session.search_tools(category=category, limit=MAX_LIMIT, cursor=cursor)
            found += page.results
            cursor = page.next_cursor
            if cursor is None:
                break
        return found[:MAX_POINTERS]
