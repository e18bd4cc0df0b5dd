"""The operations that show a catalog: list, search_tools and expand_tool. Every surface speaks only these."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

from toolcrib.catalog.ontology import Ontology, primary_path
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import (
    InvalidArguments,
    NextAction,
    NoMatchInCategory,
    SourceUnavailable,
    ToolcribError,
    ToolNotFound,
    UnknownPath,
)
from toolcrib.core.tools import ROOT, Path, Tool, ToolPointer
from toolcrib.disclosure.cursors import CursorSeal
from toolcrib.disclosure.messages import Expansion, Expansions, ListPage, Missing, NodePointer, SearchPage

DEFAULT_LIMIT = 10
MAX_LIMIT = 50
"""Source: discovery protocol v0.1, `list`."""

MAX_EXPANDED = 10
"""Tools that one `expand_tool` gives out; whoever needs more has not chosen."""

MAX_COMPARED = 2_000
"""Ids that are compared with one that is not there, letter by letter; in a larger catalog only those of its source."""

CLEARLY_MEANT = 0.85
"""The Ratcliff-Obershelp ratio from which an id that does not exist is taken for a slip in one that does."""

MAX_QUERY_CHARS = 2_000
"""What of a query is read; a longer one is a document, and its beginning says what it is about."""


@dataclass(frozen=True)
class Operations:
    """Pure over the view they are given; the seal makes a page's cursor belong to its request."""

    seal: CursorSeal = field(default_factory=CursorSeal)

    def list(
        self,
        view: View,
        path: Sequence[str] = ROOT,
        *,
        tags: Sequence[str] = (),
        query: str | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> ListPage:
        """The nodes and tools at `path`; with a query, the tools at or below it that match, best first.

        At most `limit` (1 to 50) nodes and tools together, nodes first. With `tags`, only tools that carry all of
        them, and nodes with such a tool at or below them.

        Raises:
            UnknownPath: nothing visible stands at `path`; hints name the nearest that does.
            InvalidCursor: `cursor` is not of this request over this view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `list`.
        """
        here = _existing(view, path)
        limit = _checked(limit)
        request = {"path": [*here], "tags": [*tags], "query": query, "limit": limit}
        offset = self._offset(view, "list", request, cursor)
        ontology = view.ontology if not tags else _tagged(view, frozenset(tags))
        if query:
            # Without tags the search pages by itself; else what it finds is thinned first.
            skipped, wanted = (offset, limit + 1) if not tags else (0, len(view.tools))
            ranking = view.search(query[:MAX_QUERY_CHARS], limit=wanted, offset=skipped, within=here)
            hits = [hit for hit in ranking.hits if hit.tool_id in ontology.tools]
            page: list[NodePointer | ToolPointer] = [
                _pointer(view.tools[hit.tool_id], hit.confidence) for hit in hits[offset - skipped :][: limit + 1]
            ]
        else:
            nodes = (NodePointer(ontology.node(p), ontology.counts[p]) for p in ontology.children.get(here, ()))
            tools = (_pointer(view.tools[tool_id]) for tool_id in ontology.tools_at.get(here, ()))
            page = [*islice(chain(nodes, tools), offset, offset + limit + 1)]
        shown = page[:limit]
        return ListPage(
            path=here,
            nodes=tuple(entry for entry in shown if isinstance(entry, NodePointer)),
            tools=tuple(entry for entry in shown if isinstance(entry, ToolPointer)),
            next_cursor=self._next(view, "list", request, offset + limit) if len(page) > limit else None,
            missing=_missing(view) if here == ROOT else Missing(),
        )

    def search_tools(
        self,
        view: View,
        query: str,
        *,
        category: Sequence[str] = ROOT,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> SearchPage:
        """Rank the visible tools at or below `category` by relevance to `query`.

        At most `limit` pointers (1 to 50), best first; ties fall to the tool id.

        Raises:
            UnknownPath: nothing visible stands at `category`; hints name the nearest that does.
            NoMatchInCategory: nothing at or below `category` matches; hints name categories where something does.
            InvalidCursor: `cursor` is not of this request over this view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `search_tool_by_category`, here over the whole catalog.
        """
        here = _existing(view, category)
        limit = _checked(limit)
        request = {"query": query, "category": [*here], "limit": limit}
        offset = self._offset(view, "search_tools", request, cursor)
        ranking = view.search(query[:MAX_QUERY_CHARS], limit=limit, offset=offset, within=here)
        if here and not ranking.total and query.strip():
            raise _no_match(view, query[:MAX_QUERY_CHARS], here)
        more = ranking.total > offset + limit
        return SearchPage(
            results=tuple(_pointer(view.tools[hit.tool_id], hit.confidence) for hit in ranking.hits),
            next_cursor=self._next(view, "search_tools", request, offset + limit) if more else None,
            missing=_missing(view),
        )

    def expand_tool(self, view: View, tool_id: str) -> Expansion:
        """The full schemas of one tool, and the handle to call it by.

        Raises:
            ToolNotFound: no visible tool has this id.
            SourceUnavailable: its source is known and could not be listed.

        Source: discovery protocol v0.1, `expand_tool`.
        """
        tool = view.find(tool_id)
        if tool is None:
            name, at, _ = tool_id.rpartition("@")  # a handle: whoever sends one wants what stands there now
            tool = view.find(name) if at else None
        if tool is None:
            raise not_found(view, tool_id)
        return Expansion(
            tool_id=tool.id,
            handle=tool.handle,
            path=primary_path(tool),
            summary=tool.summary,
            description=tool.description.strip(),
            args_schema=tool.input_schema,
            result_schema=tool.output_schema,
            annotations=tool.annotations.to_wire(),
            usage_hint=tool.metadata.usage_hint,
            examples=tool.metadata.examples,
        )

    def expand_tools(self, view: View, tool_ids: Iterable[str]) -> Expansions:
        """Several at once, in the order asked for, each once; what cannot be expanded is named with its error.

        Raises:
            InvalidArguments: more than `MAX_EXPANDED` are asked for.
        """
        asked = list(dict.fromkeys(tool_ids))
        if not 1 <= len(asked) <= MAX_EXPANDED:
            raise InvalidArguments(f"`tool_ids` takes 1 to {MAX_EXPANDED} ids, not {len(asked)}.")
        tools: list[Expansion] = []
        errors: dict[str, ToolcribError] = {}
        for tool_id in asked:
            try:
                tools.append(self.expand_tool(view, tool_id))
            except ToolcribError as error:
                errors[tool_id] = error
        return Expansions(tuple(tools), errors)

    def _offset(self, view: View, operation: str, request: Mapping[str, Any], cursor: str | None) -> int:
        if cursor is None:
            return 0
        restart = NextAction(operation, {key: value for key, value in request.items() if value not in (None, [])})
        return self.seal.open(cursor, _bound(view, operation, request), restart=restart)

    def _next(self, view: View, operation: str, request: Mapping[str, Any], offset: int) -> str:
        return self.seal.make(offset, _bound(view, operation, request))


def not_found(view: View, name: str) -> ToolNotFound | SourceUnavailable:
    """The error for an id that names no visible tool: whose source failed, or what visible ids come closest."""
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
    words = name.replace(".", " ").replace("_", " ")
    alike = view.tools if len(view.tools) <= MAX_COMPARED else islice(view.ontology.within((source,)), MAX_COMPARED)
    near = difflib.get_close_matches(name, alike, n=3, cutoff=0.6)
    meant = near[0] if near and difflib.SequenceMatcher(None, name, near[0]).ratio() >= CLEARLY_MEANT else None
    near += [hit.tool_id for hit in view.search(words[:200], limit=3).hits if hit.tool_id not in near]
    if meant is None and (ends := [tool_id for tool_id in near if tool_id.endswith(f".{name}")]):
        meant = ends[0] if len(ends) == 1 else None
    return ToolNotFound(
        f"There is no tool `{name[:200]}`.",
        hints=[f"Closest: {', '.join(f'`{tool_id}`' for tool_id in near[:3])}"] if near else [],
        next_action=(
            NextAction("search_tools", {"query": words[:200]})
            if meant is None
            else NextAction("expand_tool", {"tool_id": meant})
        ),
    )


def _no_match(view: View, query: str, category: Path) -> NoMatchInCategory:
    elsewhere = dict.fromkeys(
        primary_path(view.tools[hit.tool_id]) for hit in view.search(query, limit=DEFAULT_LIMIT).hits
    )
    paths = [_shown(path) for path in islice(elsewhere, 3)]
    return NoMatchInCategory(
        f"Nothing in {_shown(category)} matches.",
        hints=[f"Matches stand in: {', '.join(paths)}"] if paths else ["Nothing in the whole catalog matches either."],
        next_action=NextAction("search_tools", {"query": query}) if paths else NextAction("list"),
    )


def _tagged(view: View, wanted: frozenset[str]) -> Ontology:
    tools = {tool_id: tool for tool_id, tool in view.tools.items() if wanted <= {*tool.metadata.tags}}
    return replace(view.ontology, tools=tools)


def _bound(view: View, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"operation": operation, "principal": view.principal.id, "view": view.fingerprint, **request}


def _existing(view: View, path: Sequence[str]) -> Path:
    """`path` as it stands in the view; upper and lower case may differ where only one node can be meant."""
    if not path:
        return ROOT
    here = tuple(path)
    ontology = view.ontology
    if here in ontology:
        return here
    folded = [known for known in ontology.counts if _fold(known) == _fold(here)]
    if len(folded) == 1:
        return folded[0]
    ancestor = here
    while ancestor not in ontology:
        ancestor = ancestor[:-1]
    names = {child[-1]: child for child in ontology.children.get(ancestor, ())}
    near = difflib.get_close_matches(here[len(ancestor)], names, n=1, cutoff=0.5)
    way = names[near[0]] if near else ancestor
    raise UnknownPath(
        f"There is no node at {_shown(here)}.",
        hints=[
            f"Nearest that exists: {_shown(way)}" if near else f"{_shown(ancestor)} exists",
            f"Below {_shown(ancestor)}: {', '.join(islice(names, 20)) or 'no nodes, only tools'}",
        ],
        next_action=NextAction("list", {"path": list(way)} if way else {}),
    )


def _fold(path: Path) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path)


def _shown(path: Path) -> str:
    return "/".join(path)[:200] if path else "the root"


def _checked(limit: int) -> int:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArguments(f"`limit` is 1 to {MAX_LIMIT}, not {limit}.")
    return int(limit)  # 10.0 is an integer to JSON Schema, and none to Python


def _pointer(tool: Tool, confidence: float | None = None) -> ToolPointer:
    return ToolPointer(tool.id, primary_path(tool), tool.summary, tool.metadata.tags, confidence)


def _missing(view: View) -> Missing:
    def of(status: SourceStatus) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in view.sources.values() if entry.status is status))

    return Missing(starting=of(SourceStatus.STARTING), unavailable=of(SourceStatus.FAILED))
