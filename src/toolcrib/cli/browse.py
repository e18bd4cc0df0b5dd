"""`toolcrib tree`, `search` and `expand`: looking around."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import indent

from rich.table import Table
from rich.tree import Tree

from toolcrib.catalog.view import View
from toolcrib.cli.opening import opened
from toolcrib.cli.output import escape, plain, print_json, run, stderr, stdout
from toolcrib.config import ServerConfig
from toolcrib.core.tools import ROOT, summarize
from toolcrib.core.tools import Path as NodePath
from toolcrib.disclosure.messages import Missing

TREE_TOOLS = 200
"""Tools shown below one node; the rest are counted."""


def tree(config: Path, tools: Path | None, wait_s: float, *, as_json: bool) -> None:
    """The whole catalog, as a tree."""

    async def main() -> None:
        async with opened(config, tools, wait_s=wait_s) as crib:
            view, page = crib.view(), crib.list()
            if as_json:
                print_json({**_branch(view, ROOT), **page.missing.to_wire()})
                return
            count = len(view.tools)
            root = Tree(f"[bold]{count} tool{'s' * (count != 1)}[/]")
            _grow(root, view, ROOT)
            stdout.print(root)
            _tell(page.missing)

    run(main, as_json=as_json)


def search(query: str, config: Path, tools: Path | None, limit: int, wait_s: float, *, as_json: bool) -> None:
    """The tools that serve `query`, best first."""

    async def main() -> None:
        async with opened(config, tools, wait_s=wait_s) as crib:
            page = crib.search_tools(query, limit=limit)
            if as_json:
                print_json(page.to_wire())
                return
            if not page.results:
                stderr.print("No tool matches. Try other words, or look around with `toolcrib tree`.", markup=False)
            table = Table.grid(padding=(0, 2))
            table.add_column()
            table.add_column(overflow="fold")  # an id that is cut can be given to no other command
            table.add_column()
            for pointer in page.results:
                table.add_row(
                    f"{pointer.confidence or 0:.2f}", f"[bold]{escape(pointer.tool_id)}[/]", escape(pointer.summary)
                )
            stdout.print(table, soft_wrap=False)
            _tell(page.missing)

    run(main, as_json=as_json)


def expand(tool_id: str, config: Path, tools: Path | None, wait_s: float, *, as_json: bool) -> None:
    """One tool, whole."""

    async def main() -> None:
        async with opened(config, tools, wait_s=wait_s, wanted=only_source_of(tool_id)) as crib:
            expansion = crib.expand_tool(tool_id)
            if as_json:
                print_json(expansion.to_wire())
                return
            stdout.print(f"[bold]{escape(expansion.tool_id)}[/]  [dim]{escape('/'.join(expansion.path))}[/]")
            if expansion.description:
                stdout.print(indent(plain(expansion.description), "  "), markup=False)
            for title, schema in (("takes", expansion.args_schema), ("gives", expansion.result_schema)):
                if schema is not None:
                    stdout.print(f"\n{title}")
                    stdout.print_json(data=dict(schema), indent=2)
            tool = crib.view().tools[expansion.tool_id]
            claims = [name.removesuffix("Hint") for name, claimed in expansion.annotations.items() if claimed]
            told = (
                f"claims to be: {', '.join(claims) or 'nothing'}" if tool.wire.get("annotations") else "claims nothing"
            )
            stdout.print(f"\n{told}\nhandle: {escape(expansion.handle)}")

    run(main, as_json=as_json)


def only_source_of(tool_id: str) -> Callable[[ServerConfig], bool] | None:
    """Start only the server whose tool this is, unless the id does not say which that is."""
    source = tool_id.partition(".")[0]

    def wanted(server: ServerConfig) -> bool:
        return server.name == source

    return wanted if "." in tool_id else None


def _branch(view: View, path: NodePath) -> dict[str, object]:
    ontology = view.ontology
    node = ontology.node(path)
    return {
        "name": node.name,
        "path": list(path),
        "summary": node.summary,
        "tool_count": ontology.counts[path],
        "nodes": [_branch(view, child) for child in ontology.children.get(path, ())],
        "tools": [
            {"tool_id": tool_id, "summary": view.tools[tool_id].summary} for tool_id in ontology.tools_at.get(path, ())
        ],
    }


def _grow(tree: Tree, view: View, path: NodePath) -> None:
    ontology = view.ontology
    for child in ontology.children.get(path, ()):
        node = ontology.node(child)
        told = f"{ontology.counts[child]} · {summarize(node.summary, 90)}"
        _grow(tree.add(f"[bold cyan]{escape(node.name)}[/] [dim]{escape(told)}[/]"), view, child)
    ids = ontology.tools_at.get(path, ())
    for tool_id in ids[:TREE_TOOLS]:
        tool = view.tools[tool_id]
        tree.add(f"{escape(tool.name)} [dim]{escape(summarize(tool.summary, 80))}[/]")
    if len(ids) > TREE_TOOLS:
        tree.add(f"[dim]and {len(ids) - TREE_TOOLS} more[/]")


def _tell(missing: Missing) -> None:
    if missing.unavailable:
        stderr.print(f"Unavailable: {', '.join(missing.unavailable)}. `toolcrib doctor` says why.", style="yellow")
