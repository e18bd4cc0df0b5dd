"""Quality of search on the public sets beside lexical peers, as JSON and as a table: `python benchmarks/retrieval.py`.

Constants were chosen on `toolbench`; the other sets are held out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import catalog
import search
from toolcrib.evaluation import Evaluation, evaluate, read_queries
from toolcrib.index.fields import document
from toolcrib.index.index import Index


@dataclass(frozen=True, slots=True)
class Ranker:
    """A search engine over the tools of one set, and what it reads of them."""

    name: str
    make: Callable[[Sequence[catalog.Row]], Callable[[str, int], Sequence[str]]]


def main() -> None:
    if not catalog.SHARED.exists():
        sys.exit(f"{catalog.SHARED} is not here, and the sets with it")
    results = {name: _evaluations(name) for name in catalog.SETS}
    wire = {
        name: {ranker: evaluation.to_wire() for ranker, evaluation in found.items()} for name, found in results.items()
    }
    print(json.dumps(wire, indent=1))
    rankers = [ranker.name for ranker in RANKERS]
    print(f"\n| set | tools | queries | {' | '.join(rankers)} |\n|{'---|' * (3 + len(rankers))}")
    for name, found in results.items():
        first = next(iter(found.values()))
        cells = (f"{found[ranker].ndcg_at_10:.3f} / {found[ranker].recall_at_5:.3f}" for ranker in rankers)
        print(f"| {name} | {first.tools:,} | {first.queries:,} | {' | '.join(cells)} |")
    print("\nnDCG@10 / recall@5. Peers index name and description with their own defaults.")


def _evaluations(name: str) -> dict[str, Evaluation]:
    rows = list(catalog.set_rows(name))
    queries = read_queries(catalog.SHARED / "bench" / name / "queries.jsonl")
    return {ranker.name: evaluate(ranker.make(rows), queries, tools=len(rows)) for ranker in RANKERS}


def _toolcrib(rows: Sequence[catalog.Row]) -> Callable[[str, int], Sequence[str]]:
    index = Index.build(document(row.tool, category=row.category, source_text=row.server) for row in rows)
    return lambda query, limit: [hit.tool_id for hit in index.search(query, limit=limit).hits]


def _bm25s(rows: Sequence[catalog.Row]) -> Callable[[str, int], Sequence[str]]:
    find = search.bm25s_search(rows)
    return lambda query, limit: [rows[int(at)].tool.id for at in find(query)[:limit]]


def _fts5(rows: Sequence[catalog.Row]) -> Callable[[str, int], Sequence[str]]:
    find = search.fts5_search(rows)
    return lambda query, limit: [rows[at].tool.id for (at,) in find(query)[:limit]]


RANKERS = (Ranker("toolcrib", _toolcrib), Ranker("bm25s + stemming", _bm25s), Ranker("SQLite FTS5 porter", _fts5))


if __name__ == "__main__":
    main()
