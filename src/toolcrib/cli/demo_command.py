"""`toolcrib demo`: run real tasks on published servers through `toolcrib serve`, and count the tokens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from rich.table import Column, Table

from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.options import json_option
from toolcrib.cli.terminal_output import asynchronous, counted, escape, print_json, size_wire, stdout
from toolcrib.core.digests import BYTES_PER_TOKEN, size_of
from toolcrib.core.errors import InvalidConfig, ToolFailed

if TYPE_CHECKING:
    from mcp import Client

FOUND = 5
"""How many results each search asks for. The right tool must be among them."""

_START_S = 300.0
"""How long the servers may take to start. The first run downloads them."""

_AGAIN_S = 0.5
"""The pause before the gateway is asked again whether all servers have started."""

SHOWN_LINES = 4
"""How many lines of a result are shown."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One search that a model would send, and the call that follows."""

    query: str
    tool_id: str
    arguments: Mapping[str, Any]
    expect: str
    """A string that the result must contain for the step to succeed."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Steps that together do what a person would ask for."""

    title: str
    steps: tuple[_Step, ...]


@dataclass(slots=True)
class _Bill:
    """How many bytes a model would have read."""

    up_front: int = 0
    """The definitions of all tools of all servers."""
    operations: int = 0
    """The definitions of the four operations, and the instructions."""
    answers: int = 0
    """The results of all searches and expansions."""

    @property
    def with_toolcrib(self) -> int:
        return self.operations + self.answers


@dataclass(slots=True)
class _Report:
    """What the demo did, for `--json`."""

    servers: dict[str, int] = field(default_factory=dict[str, int])
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    bill: _Bill = field(default_factory=_Bill)

    @property
    def worked(self) -> bool:
        return all(step["worked"] for step in self.steps)

    def to_wire(self) -> dict[str, Any]:
        bill = self.bill
        return {
            "servers": self.servers,
            "tool_count": sum(self.servers.values()),
            "steps": self.steps,
            "worked": self.worked,
            "cost": {
                "up_front": size_wire(bill.up_front),
                "toolcrib": {**size_wire(bill.with_toolcrib), "operations": bill.operations, "answers": bill.answers},
                "ratio": round(bill.up_front / bill.with_toolcrib, 2) if bill.with_toolcrib else None,
            },
        }


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder that the demo creates.")
@json_option
@asynchronous
async def demo(*, keep: bool, as_json: bool) -> int:
    """Start published MCP servers, run real tasks through them, and count the tokens that this takes.

    This needs uvx (from uv) on the PATH. The first run downloads the servers. Exits with 1 if a task failed.
    """
    report = _Report()
    with ExitStack() as stack:
        if keep:
            folder = Path(tempfile.mkdtemp(prefix="toolcrib-demo-"))
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-demo-")))
        repository = _repository(folder)
        config = folder / "mcp.json"
        config.write_text(json.dumps(servers(folder, repository), indent=2))
        if not as_json:
            _introduce(config, keep=keep)
        await _weigh(config, report, as_json=as_json)
        await _work(config, tasks(folder, repository), report, as_json=as_json)
        if as_json:
            print_json(report.to_wire())
        else:
            _sum_up(report)
            if keep:
                stdout.print(f"\nThe files are in {folder}.", markup=False)
    return int(not report.worked)


def servers(folder: Path, repository: Path) -> dict[str, Any]:
    """Return the `mcp.json` of the demo: six published servers, none of them ours, each at a fixed version."""
    uvx = shutil.which("uvx") or shutil.which("uvx", path=Path(sys.executable).parent)
    if uvx is None:
        raise InvalidConfig(
            "The demo starts its servers with `uvx`, which is not on the PATH.",
            hints=["Install it with `pip install uv`."],
        )

    def published(package: str, *command: str, below: str | None = None) -> dict[str, Any]:
        pinned = ["--from", package] + (["--with", below] if below else [])
        return {"command": uvx, "args": ["--quiet", *pinned, *command]}

    return {
        "mcpServers": {
            "git": published("mcp-server-git==2026.10.19", "mcp-server-git", "--repository", str(repository)),
            "sqlite": published(
                "mcp-server-sqlite==2025.4.25", "mcp-server-sqlite", "--db-path", str(folder / "shop.db"), below="mcp<2"
            ),
            "excel": published("excel-mcp-server==2.2.2", "excel-mcp-server", "stdio", "--allow-dir", str(folder)),
            "word": published("office-word-mcp-server==1.1.11", "word_mcp_server"),
            "powerpoint": published("office-powerpoint-mcp-server==2.0.7", "ppt_mcp_server", below="mcp<2"),
            "time": published("mcp-server-time==2026.10.19", "mcp-server-time"),
        }
    }


def tasks(folder: Path, repository: Path) -> tuple[_Task, ...]:
    """Return the tasks. The queries use the words of a person, not the words of the tool definitions."""
    rows = [["tool", "days"], ["plane", 3], ["chisel", 5], ["total", "=SUM(B2:B3)"]]
    book, text, slides = (str(folder / name) for name in ("loans.xlsx", "report.docx", "loans.pptx"))
    return (
        _Task(
            "What happened last in this repository?",
            (
                _Step(
                    "What were the last commits in this repository?",
                    "git.git_log",
                    {"repo_path": str(repository), "max_count": 3},
                    "Commit",
                ),
            ),
        ),
        _Task(
            "Keep a table of lent tools, and say who has borrowed for longest",
            (
                _Step(
                    "make a database table for the tools we lend out",
                    "sqlite.create_table",
                    {"query": "CREATE TABLE loans (tool TEXT, person TEXT, days INTEGER)"},
                    "success",
                ),
                _Step(
                    "insert rows into the database",
                    "sqlite.write_query",
                    {"query": "INSERT INTO loans VALUES ('plane','Ada',3),('chisel','Grace',5),('vice','Ada',1)"},
                    "3",
                ),
                _Step(
                    "run a SELECT to see who borrowed the most",
                    "sqlite.read_query",
                    {"query": "SELECT person, SUM(days) AS days FROM loans GROUP BY person ORDER BY days DESC"},
                    "Grace",
                ),
            ),
        ),
        _Task(
            "Put it into a workbook that adds it up",
            (
                _Step(
                    "start a new Excel spreadsheet",
                    "excel.create_workbook",
                    {"path": book, "sheets": ["Loans"]},
                    "loans",
                ),
                _Step(
                    "write values into spreadsheet cells",
                    "excel.write_range",
                    {"path": book, "sheet": "Loans", "at": "A1", "rows": rows},
                    "A1:B4",
                ),
                _Step("read the cells of the sheet back", "excel.read_range", {"path": book, "sheet": "Loans"}, "8"),
            ),
        ),
        _Task(
            "Write a report",
            (
                _Step(
                    "create a Word document",
                    "word.create_document",
                    {"filename": text, "title": "Loans of the week", "author": "Toolcrib"},
                    "created",
                ),
                _Step(
                    "add a paragraph of text to the Word document",
                    "word.add_paragraph",
                    {"filename": text, "text": "Grace has the chisel for five days."},
                    "added",
                ),
                _Step(
                    "get all the text of the Word document", "word.get_document_text", {"filename": text}, "the chisel"
                ),
            ),
        ),
        _Task(
            "Make a slide of it",
            (
                _Step(
                    "create a new PowerPoint presentation", "powerpoint.create_presentation", {"id": "loans"}, "loans"
                ),
                _Step(
                    "add a slide with a title",
                    "powerpoint.add_slide",
                    {"layout_index": 1, "title": "Loans of the week", "presentation_id": "loans"},
                    "slide 0",
                ),
                _Step(
                    "save the presentation to a file",
                    "powerpoint.save_presentation",
                    {"file_path": slides, "presentation_id": "loans"},
                    "saved",
                ),
            ),
        ),
        _Task(
            "When can we call Tokyo?",
            (_Step("What time is it in Tokyo?", "time.get_current_time", {"timezone": "Asia/Tokyo"}, "Asia/Tokyo"),),
        ),
    )


async def _weigh(config: Path, report: _Report, *, as_json: bool) -> None:
    """Start the servers directly, as a client without Toolcrib does, and add up the size of all definitions."""
    began = time.monotonic()
    async with opened(config, None, wait_s=_START_S) as crib:
        view = crib.view()
        failed = {name: f"{e.reason} {e.diagnosis}" for name, e in view.sources.items() if e.reason}
        if failed:
            raise ToolFailed(f"Not every server started: {failed}", hints=["The first run has to download them."])
        for tool in view.tools.values():
            report.servers[tool.source] = report.servers.get(tool.source, 0) + 1
            report.bill.up_front += size_of(tool.wire)
    if not as_json:
        counts = ", ".join(f"{name} {count}" for name, count in report.servers.items())
        stdout.print(f"[bold]{sum(report.servers.values())} tools[/] in {time.monotonic() - began:.1f} s: {counts}")
        stdout.print(f"Without Toolcrib, a client sends all their definitions: {_tokens(report.bill.up_front)}.\n")


async def _work(config: Path, tasks: tuple[_Task, ...], report: _Report, *, as_json: bool) -> None:
    """Run the tasks through `toolcrib serve` over its protocol. This code takes the place of the model."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    command = ["-m", "toolcrib", "serve", str(config), "--no-cache", "--no-audit"]
    gateway = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(gateway) as client:
        listed = await client.list_tools()
        shown = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
        report.bill.operations = sum(map(size_of, shown)) + len((client.instructions or "").encode())
        if not as_json:
            names = ", ".join(tool.name for tool in listed.tools)
            stdout.print(f"With Toolcrib, it sends {names}: {_tokens(report.bill.operations)}.\n")
        await _started(client)
        for task in tasks:
            if not as_json:
                stdout.print(f"[bold cyan]{escape(task.title)}[/]")
            for step in task.steps:
                outcome = await _take(client, step, report.bill)
                report.steps.append({"task": task.title, **outcome})
                if not as_json:
                    _show(outcome)
            if not as_json:
                stdout.print()


async def _started(client: Client) -> None:
    """Wait until no answer names a server that is still starting. A gateway answers before, on a slow machine."""
    starting: list[str] = []
    with anyio.move_on_after(_START_S):
        while True:
            answer = await client.call_tool("search_tools", {"query": "time", "limit": 1})
            if not (starting := answer.structured_content.get("starting", [])):
                return
            await anyio.sleep(_AGAIN_S)
    raise ToolFailed(f"These servers did not start within {_START_S:g} s: {', '.join(starting)}.")


async def _take(client: Client, step: _Step, bill: _Bill) -> dict[str, Any]:
    """Search, expand and call, and add what a model would have read to `bill`."""
    found = await client.call_tool("search_tools", {"query": step.query, "limit": FOUND})
    bill.answers += size_of(found.structured_content)
    ids = [result["tool_id"] for result in found.structured_content.get("results", ())]
    outcome: dict[str, Any] = {
        "query": step.query,
        "tool_id": step.tool_id,
        "rank": ids.index(step.tool_id) + 1 if step.tool_id in ids else None,
        "worked": False,
    }
    if step.tool_id not in ids:
        return {**outcome, "result": f"not among the top {FOUND}: {', '.join(ids)}"}
    expanded = await client.call_tool("expand_tool", {"tool_id": step.tool_id})
    bill.answers += size_of(expanded.structured_content)
    began = time.monotonic()
    arguments = {"tool_id": expanded.structured_content["handle"], "arguments": dict(step.arguments)}
    called = await client.call_tool("call_tool", arguments)
    took_ms = round(1000 * (time.monotonic() - began), 1)
    text = "\n".join(block.text for block in called.content if block.type == "text")
    worked = not called.is_error and step.expect in text
    return {**outcome, "worked": worked, "result": text, "milliseconds": took_ms}


def _repository(folder: Path) -> Path:
    """Return the git repository of the current folder, or create a small one in `folder` if it is not in one."""
    here = subprocess.run(["git", "rev-parse", "--show-toplevel", "HEAD"], capture_output=True, text=True, check=False)
    if here.returncode == 0:
        return Path(here.stdout.splitlines()[0])
    made = folder / "repository"
    made.mkdir()
    (made / "notes.txt").write_text("plane, chisel, vice\n")
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for command in (
        ["init", "--quiet"],
        ["add", "notes.txt"],
        [*identity, "commit", "--quiet", "-m", "Count the tools"],
    ):
        subprocess.run(["git", *command], cwd=made, check=True, capture_output=True)
    return made


def _introduce(config: Path, *, keep: bool) -> None:
    stdout.print("Six published MCP servers, with one gateway in front of them.", style="bold")
    stdout.print("The first run downloads the servers, which can take a minute." + f" Configuration: {config}" * keep)


def _show(outcome: Mapping[str, Any]) -> None:
    mark = "[green]ok[/]" if outcome["worked"] else "[red]failed[/]"
    rank = f"found at rank {outcome['rank']}" if outcome["rank"] else "not found"
    stdout.print(f"  {mark}  “{escape(outcome['query'])}”  [dim]{rank}[/]")
    stdout.print(f"      [bold]{escape(outcome['tool_id'])}[/]")
    lines = [line for line in str(outcome["result"]).splitlines() if line.strip()]
    for line in lines[:SHOWN_LINES]:
        stdout.print(f"      [dim]{escape(line[:110])}[/]")
    if len(lines) > SHOWN_LINES:
        stdout.print(f"      [dim]… {counted(len(lines) - SHOWN_LINES, 'more line')}[/]")


def _sum_up(report: _Report) -> None:
    bill = report.bill
    title = "What a model would have read"
    columns = ("", Column("bytes", justify="right"), Column("≈ tokens", justify="right"))
    table = Table(*columns, title=title, title_justify="left", box=None, padding=(0, 3, 0, 0))
    for label, size in (
        ("all definitions up front", bill.up_front),
        ("with Toolcrib", bill.with_toolcrib),
        ("  four operations and instructions", bill.operations),
        (f"  results of {len(report.steps)} searches and expansions", bill.answers),
    ):
        table.add_row(label, f"{size:,}", f"{size // BYTES_PER_TOKEN:,}")
    stdout.print(table)
    worked = sum(step["worked"] for step in report.steps)
    less = f"{bill.up_front / bill.with_toolcrib:.1f} times less to read" if bill.with_toolcrib else ""
    stdout.print(f"\n[bold]{worked} of {len(report.steps)} steps worked, {less}.[/]")
    stdout.print("[dim]A token is estimated as four bytes. Results of the tools are the same in both cases.[/]")


def _tokens(size: int) -> str:
    return f"{size:,} bytes, about {size // BYTES_PER_TOKEN:,} tokens"
