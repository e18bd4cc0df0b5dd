"""`toolcrib eval`: how well search finds the right tools of a file of definitions."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from toolcrib.cli.opening import opened
from toolcrib.cli.output import plain, print_json, run, stderr, stdout
from toolcrib.evaluation import evaluate as measured
from toolcrib.evaluation import read_queries
from toolcrib.sources.catalog_file import CatalogFileSource


def evaluate(tools: Path, queries: Path, *, as_json: bool) -> None:
    """Ask every query of the whole catalog and average; relevant tools are named by tool id or by row id."""

    async def main() -> None:
        judged = read_queries(queries)
        async with opened(tools, tools, wait_s=600) as crib:
            view = crib.view()
            sources = [entry.source for entry in view.sources.values()]
            ids = ChainMap(*(dict(source.row_ids) for source in sources if isinstance(source, CatalogFileSource)))
            asked = [replace(q, relevant=frozenset(ids.get(name, name) for name in q.relevant)) for q in judged]
            unknown = {name for query in asked for name in query.relevant if name not in view.tools}
            if unknown:
                some = ", ".join(sorted(unknown)[:3])
                stderr.print(
                    f"{len(unknown)} relevant ids are in no definition, e.g. {plain(some)}",
                    style="yellow",
                    markup=False,
                )

            def search(query: str, limit: int) -> list[str]:
                return [hit.tool_id for hit in view.search(query, limit=limit).hits]

            result = measured(search, asked, tools=len(view.tools))
        if as_json:
            print_json(result.to_wire())
            return
        table = Table(box=None, header_style="dim", padding=(0, 3, 0, 0))
        for name in result.to_wire()["metrics"]:
            table.add_column(name, justify="right")
        table.add_row(*(f"{value:.3f}" for value in result.to_wire()["metrics"].values()))
        stdout.print(table)
        stdout.print(f"{result.queries} queries over {result.tools} tools")

    run(main, as_json=as_json)
