"""How many files and functions of Toolcrib one warm call over the gateway enters.

    python benchmarks/main_path.py

A client of the SDK calls the gateway over stdio, and the gateway calls a server over stdio. There is no policy, no
audit and no cache. The call is warm: the same tool was called before, so everything that is computed once is there.

`sys.setprofile` reports every Python function that any thread of the gateway enters between the request and the
answer. Counted are the distinct files of `src/toolcrib`, and the distinct functions in them: methods, properties and
nested functions too, but not comprehensions. The gateway also does things in between that belong to no call, such as
looking at its configuration file. So several calls are counted, and the smallest count is reported, once for a client
of each protocol era.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal

import anyio
from anyio import to_thread
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import servers

MAX_FILES, MAX_FUNCTIONS = 34, 100
"""The bars."""

GATEWAY = "--gateway"
"""The first argument of the process in which the gateway runs and is counted."""

CALLS = 5
"""How many calls are counted, after as many that are not."""

ERAS: dict[str, Literal["auto", "legacy"]] = {"2026-07-28": "auto", "handshake": "legacy"}
"""The mode of the SDK's client for each protocol era."""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="also list the functions")
    given = parser.parse_args()
    eras = {era: await measure(mode, names=given.names) for era, mode in ERAS.items()}
    met = {era: counts["files"] <= MAX_FILES and counts["functions"] <= MAX_FUNCTIONS for era, counts in eras.items()}
    bar = {"files": MAX_FILES, "functions": MAX_FUNCTIONS}
    print(json.dumps({"benchmark": "the main path", "eras": eras, "bar": bar, "met": met}, indent=1))


async def measure(mode: Literal["auto", "legacy"], *, names: bool) -> dict[str, Any]:
    """Return the files and functions of one call."""
    with tempfile.TemporaryDirectory() as folder:
        config, counts = Path(folder) / "mcp.json", Path(folder) / "counts"
        config.write_text(json.dumps({"mcpServers": {"echo": servers.started("echo")}}))
        env = {**os.environ, "XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder, "XDG_CONFIG_HOME": folder}
        gateway = StdioServerParameters(
            command=sys.executable, args=[__file__, GATEWAY, str(config), str(counts)], env=env
        )
        async with Client(stdio_client(gateway), mode=mode) as client:
            expanded = await client.call_tool("expand_tool", {"tool_id": "echo.echo"})
            called = {"tool_id": expanded.structured_content["handle"], "arguments": {"text": "x"}}
            for _ in range(CALLS):
                await client.call_tool("call_tool", called)
            for _ in range(CALLS):
                await to_thread.run_sync(_toggle, counts)
                answer = await client.call_tool("call_tool", called)
                await to_thread.run_sync(_toggle, counts)
                assert not answer.is_error, answer
        each = [json.loads(line) for line in _lines(counts) if line.startswith("[")]
    entered: list[str] = min(each, key=len)
    files = sorted({name.partition(":")[0] for name in entered})
    return {"files": len(files), "functions": len(entered)} | ({"entered": entered} if names else {})


def _toggle(counts: Path) -> None:
    """Tell the gateway to begin or end a count, and wait until it has."""
    lines = _lines(counts)
    os.kill(int(counts.with_suffix(".pid").read_text()), signal.SIGUSR1)
    until = time.monotonic() + 10
    while _lines(counts) == lines:
        if time.monotonic() > until:
            raise TimeoutError("the gateway does not count")
        time.sleep(0.01)


def _lines(counts: Path) -> list[str]:
    return counts.read_text().splitlines() if counts.exists() else []


def serve_counted(config: str, counts: str) -> None:
    """Run the gateway in this process. SIGUSR1 begins a count, and ends it."""
    import toolcrib

    home = str(Path(toolcrib.__file__).parent)
    entered: set[CodeType] | None = None

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and entered is not None and frame.f_code.co_filename.startswith(home):
            entered.add(frame.f_code)

    def toggle(_: int, __: FrameType | None) -> None:
        nonlocal entered
        if entered is None:
            line, entered = "begun", set()
        else:
            line, entered = json.dumps(sorted(filter(None, map(_name, entered)))), None
        with Path(counts).open("a") as file:
            file.write(f"{line}\n")

    def _name(code: CodeType) -> str | None:
        if code.co_name in {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}:
            return None
        return f"{Path(code.co_filename).relative_to(home).as_posix()}:{code.co_firstlineno} {code.co_qualname}"

    signal.signal(signal.SIGUSR1, toggle)
    Path(counts).with_suffix(".pid").write_text(str(os.getpid()))
    threading.setprofile(profile)
    sys.setprofile(profile)
    from toolcrib.cli import main as command_line

    sys.argv = ["toolcrib", "serve", config, "--no-cache", "--no-audit"]
    command_line()


if __name__ == "__main__":
    if sys.argv[1:2] == [GATEWAY]:
        serve_counted(*sys.argv[2:])
    else:
        anyio.run(main)
