"""The operations that show the catalog: list, the searches and expand_tool. All surfaces use these."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, islice, takewhile
from typing import Any

from toolcrib.catalog.access import Access
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.ontology import Branch, Ontology
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction, ToolcribError
from toolcrib.core.tools import ROOT, Path, Tool, ToolPointer, summarize
from toolcrib.operations.cursors import CursorSeal
from toolcrib.operations.protocol_messages import (
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
from toolcrib.operations.suggestions import NO_NODE, Searched, finds, no_match, not_found, nothing_found, unknown_path

DEFAULT_LIMIT = 10
MAX_LIMIT = 50
"""The largest page. Source: discovery protocol v0.1, `list`."""

MAX_EXPANDED = 10
"""The most tools that one answer expands. A client that needs more should choose first."""

MAX_OFTEN_NEXT = 3
"""The most tools that an expansion names because they often follow."""

MAX_NAMED = 20
"""The most tool ids of a category where it is first shown."""

MAX_NAMED_ON_PAGE = 200
"""The most tool ids on one page of categories."""

MAX_QUERY_CHARS = 2_000
"""How many characters of a query are read. A longer query is a document, and its beginning says what it is about."""

_RANKED_CATEGORIES = 50
"""How many categories are ranked by their own words."""

_RANKED_TOOLS = 200
"""How many tools are ranked. There are more tools than categories, because many of the best can be in one category."""

_OBSTACLES = {
    Access.SEE: "You can see this tool, but you are not allowed to call it.",
    Access.ASK: "A person must approve each call of this tool, unless it was approved permanently.",
}


@dataclass(frozen=True)
class Operations:
    """The operations as pure functions of a view. The seal binds the cursor of a page to its request."""

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
        """List the categories and tools at `path`. Categories come first.

        With a query, the result has the categories at `path` whose own words match, and the matching tools in or below
        `path`, best first. With `tags`, it has only tools with all of the tags, and categories that contain such a
        tool.

        With `limit` (1 to 50), a page has at most so many categories and tools together. The pages together have every
        tool of the category; those that one of its groups also shows come last. Without `limit`, all categories are on
        the first page, because a reader who sees only some of them cannot choose. Then follow 10 tools per page, with
        at most 50 entries in total. A group replaces the tools in it.

        Raises:
            UnknownPath: no visible category is at `path`; the hints name the closest one.
            InvalidCursor: `cursor` belongs to a different request or view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `list`.
        """
        view = view.steady()
        here = _existing(view, path, _again("list", "path", {"tags": [*tags], "query": query, "limit": limit}))
        request = _checked("list", {"path": [*here.path], "tags": [*tags], "query": query, "limit": limit})
        room = _PageSize(request["limit"])
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
        """List the top-level categories, in the order of `list`, and the ids of all their tools.

        The first pages show every category once: at most `limit` per page (1 to 50; the default is 50), each with its
        first ids. These are 20 ids, or an equal share of 200 on a page with more than ten categories. Later pages show
        the categories with more tools again, with the ids that were not shown yet, at most 200 per page. So all pages
        together name every tool of each category exactly once, in the order of the ids.

        A source whose tools are all in other categories is not a top-level category. It is left out here, too, because
        each of its tools would count twice.

        Raises:
            InvalidCursor: `cursor` belongs to a different request or view.
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
        """Rank the visible tools in or below `category` by relevance to `query`.

        A query without a letter or digit returns all of them, sorted by id. `category` is a path, or a string with one
        name or with names separated by `/`.

        Returns at most `limit` results (1 to 50), best first; ties are ordered by tool id. If nothing fits the query
        well, the page has at most three weak results and a suggestion. With `tags`, only tools with all of them are
        searched. Tools that cannot be called until a person acts are left out; with `include_unavailable`, they are
        shown with the reason. `DetailLevel.FULL` expands each result, so `limit` is then at most 10.

        Raises:
            UnknownPath: no visible category is at `category`; the hints name the closest one.
            NoMatchInCategory: no tool in or below `category` matches; the hints name categories with matches.
            InvalidCursor: `cursor` belongs to a different request or view.
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `search_tool_by_category`, here over the whole catalog; discovery plugin,
        `search_tools`.
        """
        view = view.steady()
        detail_level = DetailLevel(detail_level)  # a client sends the string
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
        pointers, more, is_weak = _ranked(view, query, _inside(view, here, anywhere), limit=limit, offset=offset)
        if here is not None and (is_weak or not pointers) and _has_words(query):
            wider = {"query": query[:MAX_QUERY_CHARS], "tags": [*tags], "include_unavailable": include_unavailable}
            raise no_match(view, here.path, NextAction("search_tools", wider), anywhere, _tagged(view, tags))
        is_nothing = (is_weak or not pointers) and _has_words(query) and bool(view.tools)
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
            is_weak=is_weak,
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
        """Rank the visible tools in or below `category_path` by relevance to `query`.

        Returns at most `limit` pointers (1 to 50), best first; ties are ordered by tool id.

        Raises:
            UnknownPath, NoMatchInCategory, InvalidCursor, InvalidArguments: see `search_tools`.

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
        pointers, more, is_weak = _ranked(view, query, _inside(view, here, anywhere), limit=limit, offset=offset)
        if (is_weak or not pointers) and _has_words(query):
            wider = NextAction("search_tools", {"query": query[:MAX_QUERY_CHARS]})
            raise no_match(view, here.path, wider, anywhere, None)
        return SearchPage(
            results=pointers,
            next_cursor=self._next(view, "search_tool_by_category", request, offset + limit) if more else None,
            missing=_missing(view),
            category_path=here.path,
        )

    def search_nodes(self, view: View, query: str, *, limit: int = DEFAULT_LIMIT) -> NodePage:
        """Rank the categories by how well their own words, or a tool directly in them, match `query`.

        Only categories that `list` shows are ranked. Returns at most `limit` of them (1 to 50), best first; ties are
        ordered by path. A query without words finds nothing. An empty page has a suggestion.

        Raises:
            InvalidArguments: `limit` is out of range.

        Source: discovery protocol v0.1, `search_nodes`.
        """
        limit = _checked("search_nodes", {"query": query, "limit": limit})["limit"]
        found = _matching_nodes(view, query[:MAX_QUERY_CHARS])
        return NodePage(
            tuple(_node(view, branch, confidence) for branch, confidence in found[:limit]),
            _missing(view),
            None if found else NO_NODE,
        )

    def expand_tool(self, view: View, tool_id: str) -> Expansion:
        """Return the full schemas of one tool and the handle to call it by.

        Names at most three visible tools that can be called and that often followed this one in past calls.

        Raises:
            ToolNotFound: no visible tool has this id.
            SourceUnavailable: its source is known, but is starting or could not be listed.

        Source: discovery protocol v0.1, `expand_tool`.
        """
        tool, _ = view.resolve(tool_id)  # for an old handle, return the current definition
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
            often_next=tuple(islice(_callable(view, view.often_next(tool)), MAX_OFTEN_NEXT)),
        )

    def expand_tools(self, view: View, tool_ids: Iterable[str]) -> Expansions:
        """Expand several tools, each once, in the requested order. A tool that cannot be expanded is in `errors`.

        Raises:
            InvalidArguments: no tool or more than `MAX_EXPANDED` tools are requested.
        """
        asked = list(dict.fromkeys(tool_ids))
        if not 1 <= len(asked) <= MAX_EXPANDED:
            first = NextAction("expand_tool", {"tool_ids": asked[:MAX_EXPANDED]})
            raise InvalidArguments(
                f"`tool_ids` must have 1 to {MAX_EXPANDED} ids, not {len(asked)}.",
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

    def expand(
        self, view: View, tool_id: str | None = None, tool_ids: Sequence[str] | None = None
    ) -> Expansion | Expansions:
        """Expand one tool or several: `expand_tool` as a client sends it.

        Raises:
            InvalidArguments: both or neither are given.
            ToolcribError: see `expand_tool` and `expand_tools`.
        """
        if tool_id is not None and tool_ids is None:
            return self.expand_tool(view, tool_id)
        if tool_ids is not None and tool_id is None:
            return self.expand_tools(view, tool_ids)
        both = [*dict.fromkeys([tool_id, *tool_ids])][:MAX_EXPANDED] if tool_id is not None and tool_ids else []
        raise InvalidArguments(
            "Pass either `tool_id` (one tool) or `tool_ids` (several). Nothing was expanded.",
            next_action=NextAction("expand_tool", {"tool_ids": both}) if both else NextAction("list"),
        )

    def _offset(self, view: View, operation: str, request: Mapping[str, Any], cursor: str | None) -> int:
        if cursor is None:
            return 0
        return self.seal.open(cursor, _bound(view, operation, request), restart=_step(operation, request))

    def _next(self, view: View, operation: str, request: Mapping[str, Any], offset: int) -> str:
        return self.seal.make(offset, _bound(view, operation, request))


@dataclass(slots=True)
class _PageSize:
    """Counts what fits on one page of a list."""

    limit: int | None
    nodes: int = 0
    tools: int = 0
    is_full: bool = False
    """Whether an entry did not fit."""

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
    # With a page size, the client gets every tool of the category, including those that a group also shows.
    ids = chain(ontology.tool_ids(here), () if is_overview else ontology.grouped_tool_ids(here))
    return chain(nodes, (_pointer(view, view.tools[i]) for i in ids if tagged is None or i in tagged))


def _matching_at(
    view: View, here: Branch, tagged: Set[str] | None, query: str, most: int
) -> Iterable[NodePointer | ToolPointer]:
    """Return the matching categories and tools in or below `here`; at most `most` tools."""
    query = query[:MAX_QUERY_CHARS]
    nodes = (
        _node(view, branch, confidence)
        for branch, confidence in _matching_children(view, here, query)
        if tagged is None or not view.ontology.within(branch).isdisjoint(tagged)
    )
    ranking = view.search(query, limit=most, scope=_inside(view, here, _searched(view, tagged)))
    hits = ranking.hits if ranking.fits else ()
    return chain(nodes, (_pointer(view, view.tools[hit.tool_id], hit.confidence) for hit in hits))


def _matching_nodes(view: View, query: str) -> list[tuple[Branch, float]]:
    """Return the matching categories, best first, each with its confidence in [0, 1].

    The confidence is the larger one of two: that of the category's own words, and that of its best tool.
    """
    found = _matching_words(view, query, None)
    ranking = view.search(query, limit=_RANKED_TOOLS, scope=view.available)
    confidence = {hit.tool_id: hit.confidence for hit in ranking.hits} if ranking.fits else {}
    for tool_id, branch in view.ontology.holders_of(confidence):
        found[branch] = max(found.get(branch, 0.0), confidence[tool_id])
    return _best_first(found)


def _matching_children(view: View, here: Branch, query: str) -> list[tuple[Branch, float]]:
    """Return the children of `here` whose own words match, best first, without groups."""
    return _best_first(_matching_words(view, query, [branch.path for branch in view.ontology.children(here)]))


def _matching_words(view: View, query: str, paths: Collection[tuple[str, ...]] | None) -> dict[Branch, float]:
    hits = view.ontology.search(query, limit=_RANKED_CATEGORIES, among=paths)
    return {view.ontology.nodes[path]: confidence for path, confidence in hits}


def _best_first(found: dict[Branch, float]) -> list[tuple[Branch, float]]:
    return sorted(found.items(), key=lambda each: (-each[1], each[0].path))


def _ranked(
    view: View, query: str, scope: Searched, *, limit: int, offset: int
) -> tuple[tuple[ToolPointer, ...], bool, bool]:
    """Return one page of results, whether there are more, and whether none of them fits well."""
    if not _has_words(query):
        ids = sorted(view.tools if scope is None else scope)
        page = ids[offset : offset + limit]
        return tuple(_pointer(view, view.tools[tool_id]) for tool_id in page), len(ids) > offset + limit, False
    ranking = view.search(query[:MAX_QUERY_CHARS], limit=limit, offset=offset, scope=scope)
    pointers = tuple(_pointer(view, view.tools[hit.tool_id], hit.confidence) for hit in ranking.hits)
    return pointers, ranking.total > offset + limit, ranking.is_weak


def _has_words(query: str) -> bool:
    """Return whether the part of `query` that is read has a letter or digit. Without one, it asks for nothing."""
    return any(map(str.isalnum, query[:MAX_QUERY_CHARS]))


def _searched(view: View, tagged: Set[str] | None = None, *, include_unavailable: bool = False) -> Searched:
    """Return the tools to search in the whole catalog."""
    if include_unavailable or not view.unavailable:
        return tagged
    return view.available if tagged is None else tagged - view.unavailable.keys()


def _inside(view: View, here: Branch | None, searched: Searched) -> Searched:
    """Return the tools of `searched` that are in or below `here`.

    `here` must belong to an ontology that has only tools that can be searched.
    """
    if here is None or here.above is None:
        return searched
    inside = view.ontology.within(here)
    return inside & searched if isinstance(searched, Set) else inside


def _tagged(view: View, tags: Sequence[str]) -> Set[str] | None:
    """Return the ids of the tools that have all of `tags`; None if there are no tags."""
    carriers = [view.tagged.get(tag, frozenset()) for tag in dict.fromkeys(tags)]
    return frozenset[str].intersection(*carriers) if carriers else None


def _bound(view: View, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    bound = {"operation": operation, "principal": view.principal.id, "view": view.fingerprint, **request}
    if (query := request.get("query")) and (mark := view.mark(query[:MAX_QUERY_CHARS])):
        bound["known"] = mark
    return bound


def _names(category: Sequence[str]) -> Sequence[str]:
    """Return `category` as a path; it can be a single string."""
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
    """Return the category at `path`.

    Case can differ if the name is unambiguous, and a name such as `A/B` can stand for the two names A and B.

    Raises:
        UnknownPath, SourceUnavailable: no such category exists.
    """
    ontology = ontology or view.ontology
    if (branch := ontology.find(path)) is not None:
        return branch
    parts = [part for name in path for part in name.split("/") if part]
    if (branch := ontology.find(parts)) is None:
        raise unknown_path(view, parts or path, again)
    return branch


def _checked(operation: str, request: Mapping[str, Any], most: int = MAX_LIMIT) -> dict[str, Any]:
    """Check the limit of `request`, and return the request with the limit as an integer.

    Raises:
        InvalidArguments: the limit is out of range.
    """
    limit = request["limit"]
    if limit is None:
        return dict(request)
    if not 1 <= limit <= most:
        within: dict[str, Any] = {**request, "limit": min(max(limit, 1), most)}
        raise InvalidArguments(
            f"`limit` must be from 1 to {most} here, not {limit}.", next_action=_step(operation, within)
        )
    return {**request, "limit": int(limit)}  # JSON Schema also accepts 10.0 as an integer


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
    """Return how many ids the category at `position` has where it is first shown, on a page of `size` categories."""
    on_page = min(size, len(top) - position // size * size)
    return min(MAX_NAMED, MAX_NAMED_ON_PAGE // on_page)


def _introduced(view: View, top: Sequence[Branch], offset: int, size: int) -> tuple[CategoryPointer, ...]:
    """Return the categories from `offset`, each with its first ids."""
    named = _named_of(top, offset, size) if top else 0
    return tuple(
        _category(view, branch, nsmallest(named, view.ontology.within(branch)))
        for branch in top[offset : offset + size]
    )


def _continued(view: View, top: Sequence[Branch], offset: int, size: int) -> tuple[CategoryPointer, ...]:
    """Return categories with the ids after the first ones. `offset` counts these ids over all categories."""
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
    """Return why a visible tool cannot be called, in words for any caller; None if it can be called."""
    return view.unavailable.get(tool.id) or (_OBSTACLES[Access.SEE] if view.access_to(tool) is Access.SEE else None)


def _callable(view: View, tool_ids: Iterable[str]) -> Iterable[str]:
    return (tool_id for tool_id in tool_ids if why_unavailable(view, view.tools[tool_id]) is None)


def _node(view: View, branch: Branch, confidence: float) -> NodePointer:
    return NodePointer(view.ontology.node(branch), branch.count, confidence)


def _missing(view: View) -> Missing:
    def of(status: SourceStatus) -> tuple[str, ...]:
        return tuple(sorted(entry.name for entry in view.sources.values() if entry.status is status))

    return Missing(starting=of(SourceStatus.STARTING), unavailable=of(SourceStatus.FAILED))
