"""How far a model comes that walks the catalog instead of searching it, as JSON: `python benchmarks/browsing.py`.

A deterministic stand-in for the model (`navigator.py` beside the public sets) has eight answers for each request. It
browses with `list` alone, makes one search, or does both: with no limit set, and with pages of 50.

Each server of a set is a source, and the categories that the set gives are the configured ones, with `group`, because
some hold hundreds of tools. Sets with neither are one source. The published servers come without requests. There, a
tool keeps the first sentence of its description, and what followed is the request: neither the catalog nor its index
has read it.

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
from dataclasses import dataclass
from glob import escape
from typing import Any

import catalog
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.categories import Categories, Category
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.errors import NoMatchInCategory
from toolcrib.core.tools import Path, Tool
from toolcrib.operations.catalog_operations import DEFAULT_LIMIT, Operations
from toolcrib.search.evaluation import read_queries
from toolcrib.testing.scripted_source import ScriptedSource

NAVIGATOR = catalog.SHARED / "bench" / "navigator.py"
SERVERS = catalog.SHARED / "real-servers" / "tools.json"
SETS = (*catalog.SETS, "real-servers")
MODES = ("browse", "search", "both")
PAGES: Mapping[str, int | None] = {"no limit": None, "pages of 50": 50}
OPERATIONS = Operations()
KEPT = 10
REQUEST_WORDS = range(8, 60)
"""How long the rest of a description is that makes a request; what is longer is cut."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Walk:
    """A catalog to walk, and requests with the ids of the tools that serve them."""

    view: View
    requests: Sequence[tuple[str, frozenset[str]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--requests", type=int, help="so many of each set, drawn alike each time; all without")
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
    top = len(OPERATIONS.list(walk.view).nodes)
    found: Json = {"tools": len(walk.view.tools), "requests": len(requests), "nodes_shown_at_the_top": top}
    for label, limit in PAGES.items():
        pages = Pages(walk.view, limit)
        recalls: dict[str, float] = {}
        for mode in MODES:
            outcomes = [navigate(text, pages.listed, pages.found, mode, keep=KEPT) for text, _ in requests]
            recalls[mode] = _mean(
                len(relevant.intersection(outcome["picked"])) / len(relevant)
                for (_, relevant), outcome in zip(requests, outcomes, strict=True)
            )
            found[f"{mode}, {label}"] = {
                "recall@10": recalls[mode],
                "steps": _mean(outcome["steps"] for outcome in outcomes),
                "bytes_read": round(_mean(outcome["read"] for outcome in outcomes)),
            }
        found[f"browse / search, {label}"] = round(recalls["browse"] / recalls["search"], 3)
        found[f"both - search, {label}"] = round(recalls["both"] - recalls["search"], 4)
        print(name, label, json.dumps({k: v for k, v in found.items() if k.endswith(label)}), file=sys.stderr)
    return found


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return round(sum(every) / len(every), 4)


def _public(name: str) -> Walk:
    tools: dict[str, Tool] = {}
    titles: dict[str, str] = {}
    categories: defaultdict[Path, list[str]] = defaultdict(list)
    ids: dict[str, str] = {}
    for row in catalog.set_rows(name):
        source = re.sub(r"[^A-Za-z0-9_-]+", "-", row.server).strip("-") or name
        titles[source] = row.server
        tool = Tool(source, row.tool.name, row.tool.description, row.tool.input_schema)
        if tool.id in tools:
            tool = Tool(source, f"{tool.name} {len(tools)}", tool.description, tool.input_schema)
        ids[row.tool.id] = tool.id
        tools[tool.id] = tool
        if row.category:
            categories[row.category].append(escape(tool.id))
    queries = read_queries(catalog.SHARED / "bench" / name / "queries.jsonl")
    requests = [(query.query, frozenset(ids[relevant] for relevant in query.relevant)) for query in queries]
    configured = [Category(path, tools=tuple(inside), group=True) for path, inside in categories.items()]
    return Walk(_view(tools.values(), titles, configured), requests)


def _published() -> Walk:
    tools: list[Tool] = []
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
            tools.append(kept)
    return Walk(_view(tools, {}, ()), requests)


def _view(tools: Iterable[Tool], titles: Mapping[str, str], categories: Sequence[Category]) -> View:
    registry = ToolRegistry()
    registry.set_categories(Categories(categories))
    by_source: defaultdict[str, list[Tool]] = defaultdict(list)
    for tool in tools:
        by_source[tool.source].append(tool)
    for source, mine in by_source.items():
        entry = SourceEntry(ScriptedSource(source, mine), SourceStatus.READY, titles.get(source) or None)
        registry.register_source(entry, mine)
    return View.of(registry.state)


class Pages:
    """`list` and the searches as the navigator calls them; what was answered once is not worked out again."""

    def __init__(self, view: View, limit: int | None) -> None:
        self._view = view
        self._limit = limit
        self._listed: dict[tuple[tuple[str, ...], str | None], Json] = {}

    def listed(self, path: list[str], cursor: str | None) -> Json:
        key = (tuple(path), cursor)
        if key not in self._listed:
            self._listed[key] = OPERATIONS.list(self._view, path, limit=self._limit, cursor=cursor).to_wire()
        return self._listed[key]

    def found(self, query: str, path: list[str], cursor: str | None) -> Json:
        limit = self._limit or DEFAULT_LIMIT
        try:
            return OPERATIONS.search_tools(self._view, query, category=path, limit=limit, cursor=cursor).to_wire()
        except NoMatchInCategory as none:
            return {"results": [], **none.to_wire()}


if __name__ == "__main__":
    main()
