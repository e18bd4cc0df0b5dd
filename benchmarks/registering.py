"""One more tool in a large catalog, from `register` until a search finds it: `python benchmarks/registering.py`.

Through the registry, as a caller does it, so the copy of the catalog's maps and the new state count too. The ratio is
to building the same catalog's index afresh, which is what an index without delta segments would have to do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import catalog
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View, document_of
from toolcrib.core.tools import Tool
from toolcrib.index.index import Index
from toolcrib.sources.unavailable import UnavailableSource

BAR_MS = 5.0
ADDED = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, nargs="+", default=[10_000, 100_000])
    sizes: list[int] = parser.parse_args().tools
    print(json.dumps({"benchmark": "registering one tool", "sizes": [measure(size) for size in sizes]}, indent=1))


def measure(size: int) -> dict[str, object]:
    registry = ToolRegistry()
    entry = SourceEntry(UnavailableSource("all", "a benchmark's"), SourceStatus.READY)
    tools = {
        row.tool.id: Tool("all", row.tool.id, row.tool.description, row.tool.input_schema) for row in catalog.rows(size)
    }
    registry.put_source(entry, tools.values())
    taken: list[float] = []
    for number in range(ADDED):
        tool = Tool("all", f"newcomer_{number}", f"Winds the xyzzy{number} clock of the town hall.")
        began = time.perf_counter()
        registry.register(tool)
        hits = View.of(registry.state).search(f"xyzzy{number}", limit=1).hits
        taken.append(1000 * (time.perf_counter() - began))
        if [hit.tool_id for hit in hits] != [tool.id]:
            raise SystemExit(f"{tool.id} was not found")
    state = registry.state
    documents = [document_of(state.sources, state.categories, tool) for tool in state.tools.values()]
    began = time.perf_counter()
    Index.build(documents)
    afresh_ms = 1000 * (time.perf_counter() - began)
    p50 = statistics.median(taken)
    return {
        "tools": size,
        "until_found_ms": {
            "p50": round(p50, 3),
            "p95": round(sorted(taken)[int(0.95 * ADDED)], 3),
            "max": round(max(taken), 3),
        },
        "building_afresh_ms": round(afresh_ms, 1),
        "afresh_over_one_more": round(afresh_ms / p50),
        "bar_ms": BAR_MS,
        "met": p50 <= BAR_MS,
    }


if __name__ == "__main__":
    main()
