"""The operations that show a catalog: list, the searches and expand_tool. Every surface speaks only these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, islice, takewhile
from typing import Any

from toolcrib.catalog.access import Access
from toolcrib.catalog.ontology import Branch, Ontology
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction, ToolcribError
from toolcrib.core.tools import ROOT, Path, Tool, ToolPointer, summarize
from toolcrib.operations.cursors import CursorSeal
from toolcrib.operations.messages import (
    CategoryPage,
    CategoryPointer,
    DetailLevel,
    Expansion,
    Expansions,
    ListPage,
    Missing,
    NodePage,
    NodePointer,
    SearchPage,
)
from toolcrib.operations.node_search import matching_children, matching_nodes
from toolcrib.operations.suggestions import NO_NODE, Searched, finds, no_match, not_found, nothing_found, unknown_path

DEFAULT_LIMIT = 10
MAX_LIMIT = 50
"""Source: discovery protocol v0.1, `list`."""

MAX_EXPANDED = 10
"""Tools that one answer expands; whoever needs more has not chosen."""

MAX_NAMED = 20
"""Ids of tools in one category where it is shown for the first time."""

MAX_NAMED_ON_PAGE = 200
"""Ids of tools on one page of categories."""

MAX_QUERY_CHARS = 2_000
"""What of a query is read; a longer one is a document, and its beginning says what it is about."""

_OBSTACLES = {
    Access.SEE: "You may see this tool and not call it.",
    Access.ASK: "A person is asked before it runs, unless one approved of it for good.",
}


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
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ListPage:
        """The nodes and tools at `path`.

        With a query, the nodes at `path` whose own words match and the tools at or below it that do, best first. With
        `tags`, only tools that carry all of them, and nodes with such a tool at or below them. Nodes come first.

        With `limit` (1 to 50), the pages hold at most so many nodes and tools together, and every tool that hangs in
        the node: last those that one of its groups shows as well. Without it, all nodes are on the first page, because
        a reader who sees only some of them cannot choose, then 10 tools a page, no more than 50 entries in all; a group
        takes the place of the tools in it.

        Raises:
            UnknownPath: nothing visible stands at `path`; hints name the nearest that does.
            InvalidCursor: `cursor` is not of this request over this view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `list`.
        """
        view = view.steady()
        here = _existing(view, path, _again("list", "path", {"tags": [*tags], "query": query, "limit": limit}))
        request = _checked("list", {"path": [*here.path], "tags": [*tags], "query": query, "limit": limit})
        room = _Room(request["limit"])
        offset = self._offset(view, "list", request, cursor)
        tagged = _tagged(view, tags)
        found = (
            _matching_at(view, here, tagged, query, offset + MAX_LIMIT + 1)
            if query and _has_words(query)
            else _all_at(view, here, tagged, is_overview=limit is None)
        )
        shown = [*takewhile(room.takes, islice(found, offset, None))]
        return ListPage(
            path=here.path,
            nodes=tuple(entry for entry in shown if isinstance(entry, NodePointer)),
            tools=tuple(entry for entry in shown if isinstance(entry, ToolPointer)),
            next_cursor=self._next(view, "list", request, offset + len(shown)) if room.is_full else None,
            missing=_missing(view) if here.above is None else Missing(),
        )

    def list_categories(self, view: View, *, limit: int | None = None, cursor: str | None = None) -> CategoryPage:
        """The nodes at the top of the catalog, in the order in which `list` shows them, and the ids of all their tools.

        The first pages show every category once, at most `limit` of them (1 to 50, 50 by default) with the first ids of
        each: 20, or on a page of more than ten categories an equal share of 200. The pages after these show again the
        categories with more tools, with the ids that were not shown yet, at most 200 on a page. So a walk names every
        tool of each category exactly once, in the order of the ids.

        A source whose tools are all in categories is not a node of the top. It is left out here too, because each of
        its tools would count twice.

        Raises:
            InvalidCursor: `cursor` is not of this request over this view.
            InvalidArguments: `limit` is out of range.

        Source: discovery plugin, `list_categories`.
        """
        request = _checked("list_categories", {"limit": limit})
        offset = self._offset(view, "list_categories", request, cursor)
        top = view.ontology.children(view.ontology.root)
        size = request["limit"] or MAX_LIMIT
        if offset < len(top) or not top:
            shown = _introduced(view, top, offset, size)
            end = offset + len(shown)
        else:
            shown = _continued(view, top, offset - len(top), size)
            end = offset + sum(len(each.tools) for each in shown)
        named = sum(min(branch.count, _named_of(top, i, size)) for i, branch in enumerate(top))
        everything = len(top) + sum(branch.count for branch in top) - named
        return CategoryPage(
            shown,
            next_cursor=self._next(view, "list_categories", request, end) if end < everything else None,
            missing=_missing(view),
        )

    def search_tools(
        self,
        view: View,
        query: str = "",
        *,
        category: Sequence[str] = ROOT,
        tags: Sequence[str] = (),
        detail_level: DetailLevel = DetailLevel.SUMMARY,
        include_unavailable: bool = False,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> SearchPage:
        """Rank the visible tools at or below `category` by relevance to `query`.

        A query without a letter or digit gives all of them by id.
        `category` is a path, or as one text a name or names with `/` between them.

        At most `limit` results (1 to 50), best first; ties fall to the tool id. Where nothing serves the query the page
        is empty, and says what leads on. With `tags`, only tools that carry all
        of them. Tools that cannot be called before their owner has done something are left out, or with
        `include_unavailable` shown with the reason. `DetailLevel.FULL` expands each, so there `limit` is at most 10.

        Raises:
            UnknownPath: nothing visible stands at `category`; hints name the nearest that does.
            NoMatchInCategory: nothing at or below `category` matches; hints name categories where something does.
            InvalidCursor: `cursor` is not of this request over this view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `search_tool_by_category`, here over the whole catalog; discovery plugin,
        `search_tools`.
        """
        view = view.steady()
        ontology = view.whole_ontology if include_unavailable else view.ontology
        category = _names(category)
        again = {
            "query": query,
            "tags": [*tags],
            "detail_level": None if detail_level is DetailLevel.SUMMARY else str(detail_level),
            "include_unavailable": include_unavailable,
            "limit": None if limit == DEFAULT_LIMIT else limit,
        }

        def matches(path: Path) -> bool:
            searched = _searched(view, _tagged(view, tags), include_unavailable=include_unavailable)
            return not _has_words(query) or finds(view, query[:MAX_QUERY_CHARS], path, searched)

        most = MAX_EXPANDED if detail_level is DetailLevel.FULL else MAX_LIMIT
        here = (
            _existing(view, category, _again("search_tools", "category", again, matches, most), ontology)
            if category
            else None
        )
        request = _checked(
            "search_tools",
            {
                "query": query,
                "category": [*(here.path if here is not None else ROOT)],
                "tags": [*tags],
                "detail_level": str(detail_level),
                "include_unavailable": include_unavailable,
                "limit": limit,
            },
            most,
        )
        limit = request["limit"]
        offset = self._offset(view, "search_tools", request, cursor)
        anywhere = _searched(view, _tagged(view, tags), include_unavailable=include_unavailable)
        pointers, more = _ranked(view, query, _inside(view, here, anywhere), limit=limit, offset=offset)
        if here is not None and not pointers and _has_words(query):
            wider = {"query": query[:MAX_QUERY_CHARS], "tags": [*tags], "include_unavailable": include_unavailable}
            raise no_match(view, here.path, NextAction("search_tools", wider), anywhere, _tagged(view, tags))
        is_nothing = not pointers and _has_words(query) and bool(view.tools)
        return SearchPage(
            results=pointers,
            next_cursor=self._next(view, "search_tools", request, offset + limit) if more else None,
            missing=_missing(view),
            detail_level=detail_level,
            expansions=tuple(self.expand_tool(view, pointer.tool_id) for pointer in pointers)
            if detail_level is DetailLevel.FULL
            else (),
            suggestion=nothing_found(
                view, query[:MAX_QUERY_CHARS], tags, _tagged(view, tags), include_unavailable=include_unavailable
            )
            if is_nothing
            else None,
        )

    def search_tool_by_category(
        self,
        view: View,
        query: str,
        *,
        category_path: Sequence[str] = ROOT,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> SearchPage:
        """Rank the visible tools at or below `category_path` by relevance to `query`.

        At most `limit` pointers (1 to 50), best first; ties fall to the tool id.

        Raises:
            UnknownPath, NoMatchInCategory, InvalidCursor, InvalidArguments: as `search_tools` does.

        Source: discovery protocol v0.1, `search_tool_by_category`.
        """
        view = view.steady()
        again = {"query": query, "limit": None if limit == DEFAULT_LIMIT else limit}

        def matches(path: Path) -> bool:
            return _has_words(query) and finds(view, query[:MAX_QUERY_CHARS], path, _searched(view))

        here = _existing(view, category_path, _again("search_tool_by_category", "category_path", again, matches))
        asked = {"query": query, "category_path": [*here.path], "limit": limit}
        request = _checked("search_tool_by_category", asked)
        limit = request["limit"]
        offset = self._offset(view, "search_tool_by_category", request, cursor)
        anywhere = _searched(view)
        pointers, more = _ranked(view, query, _inside(view, here, anywhere), limit=limit, offset=offset)
        if not pointers and _has_words(query):
            wider = NextAction("search_tools", {"query": query[:MAX_QUERY_CHARS]})
            raise no_match(view, here.path, wider, anywhere, None)
        return SearchPage(
            results=pointers,
            next_cursor=self._next(view, "search_tool_by_category", request, offset + limit) if more else None,
            missing=_missing(view),
            category_path=here.path,
        )

    def search_nodes(self, view: View, query: str, *, limit: int = DEFAULT_LIMIT) -> NodePage:
        """Rank the nodes by how well their own words match `query`, or a tool directly in them does.

        Only nodes that `list` shows. At most `limit` (1 to 50), best first; ties fall to the path. Without words in the
        query, none. An empty page says what to try.

        Raises:
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `search_nodes`.
        """
        limit = _checked("search_nodes", {"query": query, "limit": limit})["limit"]
        found = matching_nodes(view, query[:MAX_QUERY_CHARS])
        return NodePage(
            tuple(_node(view, branch, confidence) for branch, confidence in found[:limit]),
            _missing(view),
            None if found else NO_NODE,
        )

    def expand_tool(self, view: View, tool_id: str) -> Expansion:
        """The full schemas of one tool, and the handle to call it by.

        Raises:
            ToolNotFound: no visible tool has this id.
            SourceUnavailable: its source is known and could not be listed.

        Source: discovery protocol v0.1, `expand_tool`.
        """
        tool, _ = view.resolve(tool_id)  # whoever sends an old handle wants what stands there now
        if tool is None:
            raise not_found(view, tool_id)
        judgement = view.judgement_of(tool)
        version = judgement.shown_version if judgement is not None else None
        return Expansion(
            tool_id=tool.id,
            handle=tool.handle,
            path=view.ontology.places(tool)[0],
            summary=tool.summary,
            description=tool.description.strip(),
            args_schema=tool.input_schema,
            result_schema=tool.output_schema,
            annotations=tool.annotations.to_wire(),
            metadata=tool.metadata,
            version=str(version) if version is not None else None,
            obstacle=view.unavailable.get(tool.id) or _OBSTACLES.get(view.access_to(tool)),
            warnings=judgement.warnings if judgement is not None else (),
        )

    def expand_tools(self, view: View, tool_ids: Iterable[str]) -> Expansions:
        """Several at once, in the order asked for, each once; what cannot be expanded is named with its error.

        Raises:
            InvalidArguments: more than `MAX_EXPANDED` are asked for.
        """
        asked = list(dict.fromkeys(tool_ids))
        if not 1 <= len(asked) <= MAX_EXPANDED:
            first = NextAction("expand_tool", {"tool_ids": asked[:MAX_EXPANDED]})
            raise InvalidArguments(
                f"`tool_ids` takes 1 to {MAX_EXPANDED} ids, not {len(asked)}.",
                next_action=first if asked else NextAction("list"),
            )
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
        return self.seal.open(cursor, _bound(view, operation, request), restart=_step(operation, request))

    def _next(self, view: View, operation: str, request: Mapping[str, Any], offset: int) -> str:
        return self.seal.make(offset, _bound(view, operation, request))


@dataclass(slots=True)
class _Room:
    """What of a list fits on one page."""

    limit: int | None
    nodes: int = 0
    tools: int = 0
    is_full: bool = False
    """Whether something did not fit."""

    def takes(self, entry: NodePointer | ToolPointer) -> bool:
        is_node = isinstance(entry, NodePointer)
        if self.limit is not None:
            self.is_full = self.nodes + self.tools >= self.limit
        else:
            self.is_full = self.nodes + self.tools >= MAX_LIMIT or self.tools >= DEFAULT_LIMIT
        self.nodes, self.tools = self.nodes + is_node, self.tools + (not is_node)
        return not self.is_full


def _all_at(
    view: View, here: Branch, tagged: Set[str] | None, *, is_overview: bool
) -> Iterable[NodePointer | ToolPointer]:
    ontology = view.ontology
    nodes = (
        NodePointer(ontology.node(child), count)
        for child in ontology.children(here)
        if (count := child.count if tagged is None else len(ontology.within(child) & tagged))
    )
    # Whoever asks for pages of a size gets all that pointers say is here, in whichever group it is shown.
    ids = chain(ontology.tool_ids(here), () if is_overview else ontology.grouped_tool_ids(here))
    return chain(nodes, (_pointer(view, view.tools[i]) for i in ids if tagged is None or i in tagged))


def _matching_at(
    view: View, here: Branch, tagged: Set[str] | None, query: str, most: int
) -> Iterable[NodePointer | ToolPointer]:
    """`most`: how many tools anybody looks at."""
    query = query[:MAX_QUERY_CHARS]
    nodes = (
        _node(view, branch, confidence)
        for branch, confidence in matching_children(view, here, query)
        if tagged is None or not view.ontology.within(branch).isdisjoint(tagged)
    )
    ranking = view.search(query, limit=most, scope=_inside(view, here, _searched(view, tagged)))
    return chain(nodes, (_pointer(view, view.tools[hit.tool_id], hit.confidence) for hit in ranking.hits))


def _ranked(
    view: View, query: str, scope: Searched, *, limit: int, offset: int
) -> tuple[tuple[ToolPointer, ...], bool]:
    """One page, and whether there are more."""
    if not _has_words(query):
        ids = sorted(view.tools if scope is None else scope)
        page = ids[offset : offset + limit]
        return tuple(_pointer(view, view.tools[tool_id]) for tool_id in page), len(ids) > offset + limit
    ranking = view.search(query[:MAX_QUERY_CHARS], limit=limit, offset=offset, scope=scope)
    pointers = tuple(_pointer(view, view.tools[hit.tool_id], hit.confidence) for hit in ranking.hits)
    return pointers, ranking.total > offset + limit


def _has_words(query: str) -> bool:
    """Whether a letter or a digit is in what is read of `query`. Without one it asks for nothing in particular."""
    return any(map(str.isalnum, query[:MAX_QUERY_CHARS]))


def _searched(view: View, tagged: Set[str] | None = None, *, include_unavailable: bool = False) -> Searched:
    """Those to search anywhere."""
    if include_unavailable or not view.unavailable:
        return tagged
    return view.available if tagged is None else tagged - view.unavailable.keys()


def _inside(view: View, here: Branch | None, searched: Searched) -> Searched:
    """Those of `searched` that hang at or below `here`, a node of an ontology of nothing but what may be searched."""
    if here is None or here.above is None:
        return searched
    inside = view.ontology.within(here)
    return inside & searched if isinstance(searched, Set) else inside


def _tagged(view: View, tags: Sequence[str]) -> Set[str] | None:
    """Ids of the tools that carry all of `tags`; None where there are none to carry."""
    carriers = [view.tagged.get(tag, frozenset()) for tag in dict.fromkeys(tags)]
    return frozenset[str].intersection(*carriers) if carriers else None


def _bound(view: View, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    bound = {"operation": operation, "principal": view.principal.id, "view": view.fingerprint, **request}
    if (query := request.get("query")) and (mark := view.mark(query[:MAX_QUERY_CHARS])):
        bound["known"] = mark
    return bound


def _names(category: Sequence[str]) -> Sequence[str]:
    """A path that may be one text, as a path."""
    if not isinstance(category, str):
        return category
    return (category,) if category.strip() else ROOT


def _again(
    operation: str, key: str, request: Mapping[str, Any], is_right: Callable[[Path], bool] = bool, most: int = MAX_LIMIT
) -> Callable[[Path], NextAction]:
    """Return a function that makes the same request for a different path, which it puts under `key`.

    It makes a `list` of that path instead if `is_right` returns false for the path. The limit is
    brought within its bounds.
    """

    def at(path: Path) -> NextAction:
        if not is_right(path):
            return NextAction("list", {"path": [*path]} if path else {})
        asked = {name: value for name, value in request.items() if value not in (None, False, [], "")}
        if "query" in asked:
            asked["query"] = asked["query"][:MAX_QUERY_CHARS]
        if "limit" in asked:
            asked["limit"] = int(min(max(asked["limit"], 1), most))
        return NextAction(operation, {**asked, key: [*path]})

    return at


def _existing(
    view: View, path: Sequence[str], again: Callable[[Path], NextAction], ontology: Ontology | None = None
) -> Branch:
    """The node at `path`; upper and lower case may differ where only one can be meant, and so may `A/B` for A, B."""
    ontology = ontology or view.ontology
    if (branch := ontology.find(path)) is not None:
        return branch
    parts = [part for name in path for part in name.split("/") if part]
    if (branch := ontology.find(parts)) is None:
        raise unknown_path(view, parts or path, again)
    return branch


def _checked(operation: str, request: Mapping[str, Any], most: int = MAX_LIMIT) -> dict[str, Any]:
    """`request` with its limit as Python has it."""
    limit = request["limit"]
    if limit is None:
        return dict(request)
    if not 1 <= limit <= most:
        within: dict[str, Any] = {**request, "limit": min(max(limit, 1), most)}
        raise InvalidArguments(f"`limit` is 1 to {most} here, not {limit}.", next_action=_step(operation, within))
    return {**request, "limit": int(limit)}  # 10.0 is an integer to JSON Schema, and none to Python


def _step(operation: str, request: Mapping[str, Any]) -> NextAction:
    return NextAction(operation, {key: value for key, value in request.items() if value is not None})


def _pointer(view: View, tool: Tool, confidence: float | None = None) -> ToolPointer:
    return ToolPointer(
        tool.id,
        view.ontology.places(tool)[0],
        tool.summary,
        tool.metadata.tags,
        confidence,
        tool.metadata.optionality,
        summarize(tool.metadata.usage_hint or ""),
        why_unavailable(view, tool),
    )


def _named_of(top: Sequence[Branch], position: int, size: int) -> int:
    """How many ids the category at `position` may have where it is shown first, on a page of `size` categories."""
    on_page = min(size, len(top) - position // size * size)
    return min(MAX_NAMED, MAX_NAMED_ON_PAGE // on_page)


def _introduced(view: View, top: Sequence[Branch], offset: int, size: int) -> tuple[CategoryPointer, ...]:
    """The categories from `offset`, with the first ids of each."""
    named = _named_of(top, offset, size) if top else 0
    return tuple(
        _category(view, branch, nsmallest(named, view.ontology.within(branch)))
        for branch in top[offset : offset + size]
    )


def _continued(view: View, top: Sequence[Branch], offset: int, size: int) -> tuple[CategoryPointer, ...]:
    """Categories with ids that follow the first ones of each; `offset` counts such ids over all categories."""
    shown: list[CategoryPointer] = []
    room = MAX_NAMED_ON_PAGE
    for position, branch in enumerate(top):
        named = _named_of(top, position, size)
        more = max(branch.count - named, 0)
        if offset >= more:
            offset -= more
            continue
        if not room or len(shown) == size:
            break
        tool_ids = sorted(view.ontology.within(branch))[named + offset :][:room]
        shown.append(_category(view, branch, tool_ids))
        room, offset = room - len(tool_ids), 0
    return tuple(shown)


def _category(view: View, branch: Branch, tool_ids: Iterable[str]) -> CategoryPointer:
    node = view.ontology.node(branch)
    source = view.sources.get(branch.name) if branch.path == (branch.name,) else None
    return CategoryPointer(node, branch.count, tuple(tool_ids), source.version if source is not None else None)


def why_unavailable(view: View, tool: Tool) -> str | None:
    """Why a visible tool cannot be called, in words for any caller; None where it can."""
    return view.unavailable.get(tool.id) or (_OBSTACLES[Access.SEE] if view.access_to(tool) is Access.SEE else None)


def _node(view: View, branch: Branch, confidence: float) -> NodePointer:
    return NodePointer(view.ontology.node(branch), branch.count, confidence)


def _missing(view: View) -> Missing:
    def of(status: SourceStatus) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in view.sources.values() if entry.status is status))

    return Missing(starting=of(SourceStatus.STARTING), unavailable=of(SourceStatus.FAILED))
