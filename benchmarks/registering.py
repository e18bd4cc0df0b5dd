"""Tools that come to a large catalog, and who is told: `python benchmarks/registering.py`.

One more tool, from `register` until a search finds it: through the registry, as a caller does it, so the copy of the
catalog's maps and the new state count too. The ratio is to building the same catalog's index afresh, which is what an
index without delta segments would have to do.

Many tools, one by one and at once through `merge`; and what each `register` costs with listeners, plain and async ones,
over none. Async ones are heard before the clock stops. Ratios are of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable

import catalog
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View, document_of
from toolcrib.core.events import CatalogPublished, Event, Listener
from toolcrib.core.tools import Tool
from toolcrib.search.index.index import Index
from toolcrib.sources.base import UnavailableSource

BAR_MS = 5.0
ADDED = 200
LISTENERS = (0, 1, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--many", type=int, default=10_000)
    arguments = parser.parse_args()
    sizes: list[int] = arguments.tools
    many: int = arguments.many
    print(
        json.dumps(
            {
                "benchmark": "registering",
                "one_more": [measure(size) for size in sizes],
                "many": measure_many(many),
                "listeners": measure_listeners(min(many, 1_000)),
            },
            indent=1,
        )
    )


def measure(size: int) -> dict[str, object]:
    registry = ToolRegistry()
    entry = SourceEntry(UnavailableSource("all", "a benchmark's"), SourceStatus.READY)
    registry.register_source(entry, tools_of(size))
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
    afresh_ms = timed_ms(lambda: Index.build(documents))
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


def measure_many(size: int) -> dict[str, object]:
    some, others = tools_of(size), tools_of(size)
    registry = ToolRegistry()
    one_by_one_ms = timed_ms(lambda: [registry.register(tool) for tool in some])
    at_once_ms = timed_ms(lambda: ToolRegistry().merge(others))
    return {
        "tools": size,
        "one_by_one_ms": round(one_by_one_ms, 1),
        "at_once_ms": round(at_once_ms, 1),
        "one_by_one_over_at_once": round(one_by_one_ms / at_once_ms, 1),
    }


def measure_listeners(size: int) -> dict[str, object]:
    asyncio.run(registered_ms(size, 0, "plain"))  # to be warm
    taken_ms = {
        f"{number} {kind}": statistics.median(asyncio.run(registered_ms(size, number, kind)) for _ in range(3))
        for kind in ("plain", "async")
        for number in LISTENERS
    }
    return {
        "tools": size,
        "registering_ms": {name: round(ms, 1) for name, ms in taken_ms.items()},
        "over_none": {name: round(ms / taken_ms["0 plain"], 2) for name, ms in taken_ms.items()},
    }


async def registered_ms(size: int, listeners: int, kind: str) -> float:
    """Milliseconds until `size` tools are registered one by one and all of that is heard."""
    registry = ToolRegistry()
    left = listeners
    heard = asyncio.Event()

    def listener() -> Listener:
        def hear(event: Event) -> None:
            nonlocal left
            if event == CatalogPublished(size):
                left -= 1
                if not left:
                    heard.set()

        async def hear_async(event: Event) -> None:
            hear(event)

        return hear_async if kind == "async" else hear

    for _ in range(listeners):
        registry.subscribe(listener())
    tools = tools_of(size)
    began = time.perf_counter()
    for tool in tools:
        registry.register(tool)
    if listeners:
        await heard.wait()
    return 1000 * (time.perf_counter() - began)


def tools_of(size: int) -> list[Tool]:
    """New objects each time: nothing that is worked out once for a tool is there already."""
    tools = {row.tool.id: row.tool for row in catalog.rows(size)}
    return [Tool("all", tool_id, tool.description, tool.input_schema) for tool_id, tool in tools.items()]


def timed_ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
