"""Speed and memory of search next to other engines, on one core: `python benchmarks/search.py [--tools 1000 1000000]`.

Run it with `OPENBLAS_NUM_THREADS=1`: several threads of numpy's BLAS on one core wait for each other.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import os
import platform
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import psutil

import catalog
from toolcrib.search.index.fields import document
from toolcrib.search.index.index import Index

LIMIT = 10
ADDITIONS = 50

# Pure-Python peers take a second or more a query beyond this, so a run would measure patience.
_SLOW_PEERS_UP_TO = 10_000
_WEIGHED = ("toolcrib", "bm25s", "tantivy")
_QUERIES = {"toolcrib": 300, "toolcrib, words only": 300, "fastmcp transform": 15, "fastmcp index alone": 15}

Search = Callable[[str], Sequence[Any]]
Peer = Callable[[Sequence[catalog.Row], int], Search]
"""An engine over some tools that answers with the so many best."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    sizes: list[int] = parser.parse_args().tools
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    report = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "limit": LIMIT,
        "from_shared_sets": catalog.SHARED.exists(),
        "sizes": [measure(size) for size in sizes],
    }
    json.dump(report, sys.stdout, indent=1)
    print()


def measure(size: int) -> dict[str, Any]:
    """Everything about a catalog of `size` tools."""
    # A peer that is not installed is told of among the skipped ones.
    here = (name for name in _WEIGHED if find_spec(name) is not None)
    weighed = (name for name in here if name not in PEERS or size <= PEERS[name][1])
    resident = {name: apart(resident_per_tool, name, size) for name in weighed}
    rows = list(catalog.rows(size))
    queries = catalog.queries(300)
    started = time.perf_counter()
    documents = [document(row.tool, category=row.category, source_text=row.server) for row in rows]
    read_s = time.perf_counter() - started
    started = time.perf_counter()
    index = Index.build(documents)
    build_s = time.perf_counter() - started

    by_words = index.weighted(index.weights.without("meaning"))
    engines: dict[str, Search] = {
        "toolcrib": lambda query: index.search(query, limit=LIMIT).hits,
        "toolcrib, words only": lambda query: by_words.search(query, limit=LIMIT).hits,
    }
    skipped: dict[str, str] = {}
    for name, (make, up_to) in PEERS.items():
        if size > up_to:
            skipped[name] = f"too slow beyond {up_to:,} tools"
            continue
        try:
            engines[name] = make(rows, LIMIT)
        except ImportError as error:
            skipped[name] = str(error)
    gc.collect()
    gc.freeze()  # the peers' millions of objects would otherwise be walked in the middle of somebody's query
    seconds = interleaved(engines, queries)
    gc.unfreeze()

    return {
        "tools": size,
        "queries": {name: len(times) for name, times in seconds.items()},
        "p50_ms": {name: _ms(statistics.median(times)) for name, times in seconds.items()},
        "p95_ms": {name: _ms(statistics.quantiles(times, n=20)[-1]) for name, times in seconds.items()},
        "p50_times_words_only": _times(seconds, "toolcrib, words only"),
        "p50_times_toolcrib": _times(seconds, "toolcrib"),
        "skipped": skipped,
        "index": {
            "read_s": round(read_s, 2),
            "build_s": round(build_s, 2),
            "bytes_per_tool": round(sum(part.segment.nbytes for part in index.parts) / size),
        },
        "one_more_tool_until_found": additions(index, documents),
        "resident_bytes_per_tool": resident,
    }


def _times(seconds: dict[str, list[float]], one: str) -> dict[str, float]:
    """Return the median time of each engine divided by that of `one`, over the queries that both answered."""
    own = seconds[one]
    return {
        name: round(statistics.median(times[: len(own)]) / statistics.median(own[: len(times)]), 2)
        for name, times in seconds.items()
        if name != one
    }


def interleaved(engines: dict[str, Search], queries: Sequence[str]) -> dict[str, list[float]]:
    """Seconds of each query by engine, taken in turns so that a busy moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for search in engines.values():
        search(queries[0])
    for at, query in enumerate(queries):
        for name, search in engines.items():
            if at < _QUERIES.get(name, 100):
                started = time.perf_counter()
                search(query)
                seconds[name].append(time.perf_counter() - started)
    return seconds


def additions(index: Index, documents: Sequence[Any]) -> dict[str, float]:
    """Time from a definition's terms to a search that returns it, for tools added one by one."""
    source = random.Random(1)
    times: list[float] = []
    for at in range(ADDITIONS):
        like = source.choice(documents)
        new = replace(like, tool_id=f"added.{at}", name=(*like.name, f"zyzzyva{at}"))
        started = time.perf_counter()
        index = index.updated([new])
        hits = index.search(f"zyzzyva{at}", limit=1).hits
        times.append(time.perf_counter() - started)
        assert hits[0].tool_id == new.tool_id
    return {"additions": ADDITIONS, "p50_ms": _ms(statistics.median(times)), "max_ms": _ms(max(times))}


def apart(measure: Callable[..., int], *arguments: object) -> int:
    """What `measure` returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def resident_per_tool(name: str, size: int) -> int:
    """Bytes of resident memory that building an engine adds for each tool, the definitions not counted."""
    make = PEERS[name][0] if name in PEERS else toolcrib_search
    rows = list(catalog.rows(size))
    assert all(row.tool.id and row.tool.fingerprint for row in rows)  # which a tool remembers itself
    make(rows[:LIMIT], LIMIT)("imports what is needed")
    before = _resident()
    search = make(rows, LIMIT)
    search("reads what is read late")
    return round((_resident() - before) / size)


def _resident() -> int:
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # else what building threw away counts, where the C library is glibc
    return psutil.Process().memory_info().rss


def toolcrib_search(rows: Sequence[catalog.Row], limit: int) -> Search:
    index = Index.build(document(row.tool, category=row.category, source_text=row.server) for row in rows)
    return lambda query: index.search(query, limit=limit).hits


def _fastmcp(rows: Sequence[catalog.Row], limit: int) -> Search:
    """The transform's search over definitions, what the server's `search_tools` runs on every query."""
    from fastmcp.server.transforms.search.bm25 import BM25SearchTransform

    transform = BM25SearchTransform(max_results=limit)
    tools = _fastmcp_tools(rows)
    loop = asyncio.new_event_loop()
    return lambda query: loop.run_until_complete(transform._search(tools, query))  # noqa: SLF001


def _fastmcp_index(rows: Sequence[catalog.Row], limit: int) -> Search:
    """Its index alone, without the check that the catalog is unchanged."""
    from fastmcp.server.transforms.search.base import _extract_searchable_text
    from fastmcp.server.transforms.search.bm25 import _BM25Index

    index = _BM25Index()
    index.build([_extract_searchable_text(tool) for tool in _fastmcp_tools(rows)])
    return lambda query: index.query(query, limit)


def _fastmcp_tools(rows: Sequence[catalog.Row]) -> list[Any]:
    from fastmcp.tools.base import Tool

    return [
        Tool(name=row.tool.id, description=row.tool.description, parameters=dict(row.tool.input_schema)) for row in rows
    ]


def bm25s_search(rows: Sequence[catalog.Row], limit: int) -> Search:
    """Answers with positions in `rows`, as the other two do."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25()
    index.index(_bm25s_tokens([row.text for row in rows], stemmer), show_progress=False)

    def search(query: str) -> Sequence[int]:
        tokens = _bm25s_tokens([query], stemmer)
        return index.retrieve(tokens, k=min(limit, len(rows)), show_progress=False)[0][0].tolist()

    return search


def _bm25s_tokens(texts: list[str], stemmer: object) -> Any:
    import bm25s

    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def fts5_search(rows: Sequence[catalog.Row], limit: int) -> Search:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE tools USING fts5(name, description, content='', tokenize='porter')")
    texts = ((at, row.tool.name, row.tool.description) for at, row in enumerate(rows))
    database.executemany("INSERT INTO tools(rowid, name, description) VALUES (?, ?, ?)", texts)
    ranked = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY bm25(tools) LIMIT ?"

    def search(query: str) -> Sequence[int]:
        return [at for (at,) in database.execute(ranked, (_any_word(query), limit))]

    return search


def tantivy_search(rows: Sequence[catalog.Row], limit: int) -> Search:
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_text_field("text", tokenizer_name="en_stem")
    schema.add_unsigned_field("row", stored=True)
    index = tantivy.Index(schema.build())
    writer = index.writer(num_threads=1)
    for at, row in enumerate(rows):
        writer.add_document(tantivy.Document(text=row.text, row=at))
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> Sequence[int]:
        found = searcher.search(index.parse_query(_any_word(query), ["text"]), limit).hits
        return [searcher.doc(address)["row"][0] for _, address in found]

    return search


def _any_word(query: str) -> str:
    """The query as a disjunction in the syntax that FTS5 and tantivy share."""
    words = "".join(letter if letter.isalnum() else " " for letter in query).split()
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(words)) or '""'


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3)


PEERS: dict[str, tuple[Peer, int]] = {
    "fastmcp transform": (_fastmcp, _SLOW_PEERS_UP_TO),
    "fastmcp index alone": (_fastmcp_index, _SLOW_PEERS_UP_TO),
    "bm25s": (bm25s_search, 100_000),
    "sqlite fts5": (fts5_search, 100_000),
    "tantivy": (tantivy_search, 100_000),
}


if __name__ == "__main__":
    main()
