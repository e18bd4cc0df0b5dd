"""Rename a symbol in a small project, in the five steps of the discovery protocol's own example.

The tool renames with rope, in a scratch folder. The same steps run through Python, MCP and HTTP, each in a new folder.

    python examples/rename_symbol.py
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
from mcp import Client
from rope.base.project import Project
from rope.refactor.rename import Rename

from toolcrib import Category, Toolcrib, ToolMetadata

Send = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends one operation with its arguments, and returns the answer."""

BILL = """from shop.prices import net


def total(amounts: list[float]) -> float:
    return sum(map(net, amounts))
"""

BEFORE = {
    "shop/__init__.py": "",
    "shop/prices.py": "def net(amount: float) -> float:\n    return amount / 1.19\n",
    "shop/bill.py": BILL,
    "README": "net prices are without tax\n",
}


def rename_symbol(
    project_root: str,
    symbol: str,
    new_name: str,
    language: Literal["py"] = "py",  # noqa: ARG001  the tool of the design document has it
    dry_run: bool = True,
) -> dict[str, Any]:
    """Renames a symbol project-wide and updates references.

    Args:
        project_root: The folder of the project.
        symbol: The symbol, as `package.module.name`.
        new_name: The new name of the symbol.
        language: The language. Only Python is supported.
        dry_run: Show the change and write nothing.
    """
    project: Any = Project(project_root, ropefolder="")
    try:
        module, _, name = symbol.rpartition(".")
        resource = project.get_module(module).get_resource()
        rename: Any = Rename(project, resource, resource.read().index(name))
        changes = rename.get_changes(new_name)
        result = {
            "changed_files": len(list(changes.get_changed_resources())),
            "diff_preview": changes.get_description(),
        }
        if not dry_run:
            project.do(changes)
        return result
    finally:
        project.close()


async def find_and_rename(send: Send, folder: Path) -> list[str]:
    """Do the five steps of the protocol's example, and return one line for each request."""
    lines: list[str] = []

    async def step(operation: str, **arguments: Any) -> Mapping[str, Any]:
        answer = await send(operation, arguments)
        lines.append(f"{operation} {json.dumps(arguments)[:60]}")
        return answer

    top = await step("list")
    assert ["Coding"] in [node["path"] for node in top["nodes"]]
    inside = await step("list", path=["Coding", "Refactoring"])
    assert [tool["tool_id"] for tool in inside["tools"]] == ["functions.rename_symbol"]
    found = await step("search_tool_by_category", query="rename symbol", category_path=["Coding", "Refactoring"])
    expanded = await step("expand_tool", tool_id=found["results"][0]["tool_id"])
    assert expanded["args_schema"]["required"] == ["project_root", "symbol", "new_name"]
    arguments = {"project_root": str(folder), "symbol": "shop.prices.net", "new_name": "without_tax"}
    shown = await step("call_tool", tool_id=expanded["handle"], arguments=arguments)
    assert "without_tax" not in (folder / "shop" / "bill.py").read_text(), "a dry run writes nothing"
    done = await step("call_tool", tool_id=expanded["handle"], arguments={**arguments, "dry_run": False})
    assert shown["structuredContent"] == done["structuredContent"]
    lines.append(f"changed files: {done['structuredContent']['changed_files']}")
    return lines


def scratch(folder: Path) -> Path:
    """Write a small project into `folder`."""
    for name, text in BEFORE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def catalog() -> Toolcrib:
    """Return a crib with the renaming tool in its category."""
    crib = Toolcrib()
    crib.add(rename_symbol, metadata=ToolMetadata(tags=("refactor", "rename")))
    crib.add_category(Category(("Coding",), summary="Read and change source code"))
    crib.add_category(
        Category(("Coding", "Refactoring"), summary="Change code, not what it does", tagged=("refactor",))
    )
    return crib


async def main() -> None:
    crib = catalog()
    url: list[str] = []
    async with AsyncExitStack() as stack:
        served, listening = await stack.enter_async_context(anyio.create_task_group()), anyio.Event()
        stack.callback(served.cancel_scope.cancel)

        def on_listening(address: str) -> None:
            url.append(address)
            listening.set()

        served.start_soon(lambda: crib.serve_http("127.0.0.1:0", operations="full", listening=on_listening))
        await listening.wait()
        model = await stack.enter_async_context(Client(url[0]))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url[0].removesuffix("/mcp")))

        async def by_python(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return (await crib.perform(operation, arguments)).to_wire()

        async def by_mcp(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            answer = await model.call_tool(operation, dict(arguments))
            content = answer.model_dump(by_alias=True, exclude_none=True)
            return content if operation == "call_tool" else content["structuredContent"]

        async def by_http(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            answer = await http.post(f"/v1/{operation}", json=arguments)
            return answer.raise_for_status().json()

        ways: dict[str, Send] = {"Python": by_python, "MCP": by_mcp, "HTTP": by_http}
        for name, send in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                project = scratch(Path(folder))
                steps = await find_and_rename(send, project)
                after = (project / "shop" / "bill.py").read_text()
                assert "from shop.prices import without_tax" in after
                assert "map(without_tax, amounts)" in after
                assert (project / "README").read_text() == BEFORE["README"], "a word in a text file is not a symbol"
            print(f"{name}:", *steps, sep="\n  ")


if __name__ == "__main__":
    anyio.run(main)
