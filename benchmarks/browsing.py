"""How far a model comes that walks the catalog instead of searching it, as JSON: `python benchmarks/browsing.py`.

A deterministic stand-in for the model (`navigator.py` beside the public sets) has eight answers for each request. It
browses with `list` alone, makes one search, or does both, with pages of 10 and of 50 entries.

Each server of a set is a source, and the categories that the set gives are the configured ones; where they are more
than fit on a page, the root is grouped as well and its groups stand before them. Sets with neither are one source. The
published servers come without requests. There, a tool keeps the first sentence of its description, and what followed is
the request: neither the catalog nor its index has read it.

Constants of the grouping were chosen on `toolbench`; the other sets are held out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import catalog
from toolcrib.catalog.grouping import MAX_GROUPS, MAX_TOOLS, grouped, summaries_of
from toolcrib.core.tools import ROOT, Path, Tool
from toolcrib.evaluation import read_queries
from toolcrib.index.fields import Document, document
from toolcrib.index.index import Index

NAVIGATOR = catalog.SHARED / "bench" / "navigator.py"
SERVERS = catalog.SHARED / "real-servers" / "tools.json"
SETS = (*catalog.SETS, "real-servers")
MODES = ("browse", "search", "both")
PAGES = (10, 50)
KEPT = 10
REQUEST_WORDS = range(8, 60)
"""How long the rest of a description is that makes a request; what is longer is cut."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Walk:
    """A catalog to walk, and requests with the ids of the tools that serve them."""

    tools: Mapping[str, Tool]
    categories: Mapping[str, Path]
    """By tool id; empty where the set has none."""
    index: Index
    requests: Sequence[tuple[str, frozenset[str]]]


@dataclass
class Tree:
    """Nodes and tools by the path they stand at, as `list` gives them."""

    nodes: dict[Path, list[Json]] = field(default_factory=lambda: {ROOT: []})
    tools: dict[Path, list[str]] = field(default_factory=lambda: {ROOT: []})

    def within(self, path: Path) -> frozenset[str]:
        below = (self.within(tuple(node["path"])) for node in self.nodes[path])
        return frozenset(self.tools[path]).union(*below)

    def add(self, path: Path, summary: str) -> None:
        self.nodes[path[:-1]].append({"name": path[-1], "path": list(path), "summary": summary})
        self.nodes[path], self.tools[path] = [], []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--requests", type=int, help="so many of each set, drawn alike each time; all without")
    parser.add_argument("--at-most", type=int, default=MAX_TOOLS, help="tools of a node that is not grouped")
    parser.add_argument("--nodes-whole", action="store_true", help="a first page holds all nodes, whatever its limit")
    asked = parser.parse_args()
    if not NAVIGATOR.exists():
        sys.exit(f"{NAVIGATOR} is not here, and the sets with it")
    navigate = _navigate()
    results = {name: _measured(name, asked, navigate) for name in asked.sets}
    print(json.dumps(results, indent=1))


def _navigate() -> Callable[..., Json]:
    spec = importlib.util.spec_from_file_location("navigator", NAVIGATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.navigate


def _measured(name: str, asked: argparse.Namespace, navigate: Callable[..., Json]) -> Json:
    walk = _published() if name == "real-servers" else _public(name)
    requests = list(walk.requests)
    random.Random(0).shuffle(requests)
    requests = requests[: asked.requests]
    tree = _tree(walk, asked.at_most)
    found: Json = {"tools": len(walk.tools), "requests": len(requests), "nodes_at_root": len(tree.nodes[ROOT])}
    for limit in PAGES:
        list_page = _list_page(walk, tree, limit, nodes_whole=asked.nodes_whole)
        search_page = _search_page(walk, tree, limit)
        for mode in MODES:
            outcomes = [navigate(text, list_page, search_page, mode, keep=KEPT) for text, _ in requests]
            recalls = (
                len(relevant.intersection(outcome["picked"])) / len(relevant)
                for (_, relevant), outcome in zip(requests, outcomes, strict=True)
            )
            found[f"{mode}, pages of {limit}"] = {
                "recall@10": _mean(recalls),
                "steps": _mean(outcome["steps"] for outcome in outcomes),
                "bytes_read": round(_mean(outcome["read"] for outcome in outcomes)),
            }
        reached = (found[f"{mode}, pages of {limit}"]["recall@10"] for mode in ("browse", "search"))
        found[f"browse / search, pages of {limit}"] = round(next(reached) / next(reached), 3)
        print(name, limit, json.dumps({k: v for k, v in found.items() if str(limit) in k}), file=sys.stderr)
    return found


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return round(sum(every) / len(every), 4)


def _public(name: str) -> Walk:
    tools: dict[str, Tool] = {}
    categories: dict[str, Path] = {}
    documents: list[Document] = []
    ids: dict[str, str] = {}
    for row in catalog.set_rows(name):
        source = re.sub(r"[^A-Za-z0-9_-]+", "-", row.server).strip("-") or name
        tool = Tool(source, row.tool.name, row.tool.description, row.tool.input_schema)
        if tool.id in tools:
            tool = Tool(source, f"{tool.name} {len(tools)}", tool.description, tool.input_schema)
        ids[row.tool.id] = tool.id
        tools[tool.id] = tool
        categories[tool.id] = row.category
        documents.append(document(tool, category=row.category, source_text=row.server))
    queries = read_queries(catalog.SHARED / "bench" / name / "queries.jsonl")
    requests = [(query.query, frozenset(ids[relevant] for relevant in query.relevant)) for query in queries]
    return Walk(tools, categories, Index.build(documents), requests)


def _published() -> Walk:
    tools: dict[str, Tool] = {}
    requests: list[tuple[str, frozenset[str]]] = []
    for server, answer in json.loads(SERVERS.read_text()).items():
        for wire in answer["tools"]:
            whole = Tool(
                server, wire["name"], wire.get("description") or "", wire["inputSchema"], title=wire.get("title")
            )
            rest = " ".join(whole.description.split()).removeprefix(whole.summary.rstrip("…")).split()
            kept = whole
            if len(rest) in REQUEST_WORDS or len(rest) >= REQUEST_WORDS.stop:
                kept = Tool(server, whole.name, whole.summary, whole.input_schema, title=whole.title)
                requests.append((" ".join(rest[: REQUEST_WORDS.stop]), frozenset([whole.id])))
            tools[kept.id] = kept
    index = Index.build(document(tool, source_text=tool.source) for tool in tools.values())
    return Walk(tools, {tool_id: (tool.source,) for tool_id, tool in tools.items()}, index, requests)


def _tree(walk: Walk, at_most: int) -> Tree:
    tree = Tree()
    by_category: defaultdict[str, dict[str, Tool]] = defaultdict(dict)
    for tool_id, tool in walk.tools.items():
        by_category[(walk.categories[tool_id] or (tool.source,))[0]][tool_id] = tool
    if len(by_category) > MAX_GROUPS:
        _fill(tree, ROOT, walk.tools, at_most, taken=[*by_category])
        tree.tools[ROOT] = []  # each of them stands in its category too
    summaries = summaries_of({name: [*inside.values()] for name, inside in by_category.items()})
    for name in sorted(by_category):
        tree.add((name,), summaries[name])
        _fill(tree, (name,), by_category[name], at_most)
    return tree


def _fill(tree: Tree, path: Path, tools: Mapping[str, Tool], at_most: int, taken: Sequence[str] = ()) -> None:
    loose = {*tools}
    for group in grouped(tools, at_most=at_most, taken=taken):
        tree.add((*path, group.name), group.summary)
        _fill(tree, (*path, group.name), {tool_id: tools[tool_id] for tool_id in group.tool_ids}, at_most)
        loose -= {*group.tool_ids}
    tree.tools[path] += sorted(loose)


def _list_page(walk: Walk, tree: Tree, limit: int, *, nodes_whole: bool) -> Callable[[list[str], str | None], Json]:
    pointers = {tool_id: {"tool_id": tool_id, "summary": tool.summary} for tool_id, tool in walk.tools.items()}

    def list_page(path: list[str], cursor: str | None) -> Json:
        nodes, tools = tree.nodes[tuple(path)], tree.tools[tuple(path)]
        start = int(cursor or 0)
        end = start + limit
        if nodes_whole and start == 0:
            end = max(end, min(len(nodes), MAX_GROUPS))
        shown = [pointers[tool_id] for tool_id in tools[max(0, start - len(nodes)) : max(0, end - len(nodes))]]
        more = {"next_cursor": str(end)} if end < len(nodes) + len(tools) else {}
        return {"nodes": nodes[start:end], "tools": shown, **more}

    return list_page


def _search_page(walk: Walk, tree: Tree, limit: int) -> Callable[[str, list[str], str | None], Json]:
    @cache
    def within(path: Path) -> frozenset[str] | None:
        return tree.within(path) if path else None

    def search_page(query: str, path: list[str], _cursor: str | None) -> Json:
        hits = walk.index.search(query, limit=limit, scope=within(tuple(path))).hits
        results = [
            {"tool_id": hit.tool_id, "summary": walk.tools[hit.tool_id].summary, "confidence": hit.confidence}
            for hit in hits
        ]
        return {"results": results}

    return search_page


if __name__ == "__main__":
    main()
