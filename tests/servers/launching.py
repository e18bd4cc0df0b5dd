"""Helpers that start the servers of this folder, write an `mcp.json` for them, and read their logs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import faulty

from toolcrib.sources.mcp import StdioServer

ROOT = Path(__file__).parents[2]
"""The root of the repository, from which modules below `tests` are imported."""

SCRIPT = str(Path(faulty.__file__))

Json = dict[str, Any]


def faulty_server(*words: str, env: Mapping[str, str] | None = None) -> StdioServer:
    """Returns the server with faults, with `words` on its command line."""
    return StdioServer(sys.executable, (SCRIPT, *words), env or {})


def faulty_entry(*words: str, **more: Any) -> Json:
    """Returns the server with faults as an entry of an `mcp.json`."""
    return {"command": sys.executable, "args": [SCRIPT, *words], **more}


@contextmanager
def http_server(*words: str, module: str = "over_http") -> Generator[str]:
    """Runs the HTTP server in a process of its own for the block, and yields its address without a path."""
    command = [sys.executable, "-m", f"tests.servers.{module}", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def write_config(path: Path, /, *, toolcrib: Json | None = None, **servers: Json) -> Path:
    """Writes an `mcp.json` at `path`. The file is replaced atomically, so that no reader sees half of it."""
    document: Json = {"mcpServers": servers} | ({"toolcrib": toolcrib} if toolcrib is not None else {})
    return replace_config(path, json.dumps(document))


def replace_config(path: Path, text: str) -> Path:
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    return beside.replace(path)


def logged(log: Path) -> list[Json]:
    """Returns the log of the server so far. The log is empty before the server starts."""
    if not log.exists():
        return []
    whole, _, _ = log.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.split("\n") if line]  # `splitlines` would cut at U+2028


def received(log: Path, method: str) -> list[Json]:
    """Returns the messages of `method` that the server has received so far."""
    return [entry["received"] for entry in logged(log) if entry.get("received", {}).get("method") == method]


def events(log: Path, event: str) -> list[Json]:
    """Returns log entries for one event of the server: `start`, `cancelled` or `stdin closed`."""
    return [entry for entry in logged(log) if entry.get("event") == event]
