"""The command line of the MCP Inspector, which developers use to inspect servers, with the gateway."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.launching import TOOLCRIB, Json, from_npm, http_gateway, node, node_server
from tests.servers.launching import write_config

pytestmark = pytest.mark.interop

TOOL_FAILED = 5
"""The Inspector's exit code for a result that is an error."""


@dataclass(frozen=True)
class Inspector:
    target: Sequence[str]
    era: str
    home: Path
    """The folder for its settings, separate from the settings of this machine's owner."""

    def run(self, method: str, *words: str) -> subprocess.CompletedProcess[str]:
        launcher = from_npm("inspector", "clients", "launcher", "build", "index.js")
        asked = ["--cli", "--protocol-era", self.era, "--format", "json", "--method", method, *words]
        return subprocess.run(
            [node(), launcher, *asked, "--", *self.target],
            env={**os.environ, "HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ask(self, method: str, *words: str) -> Json:
        """Return the result, which must not be an error."""
        done = self.run(method, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    def call(self, operation: str, **arguments: object) -> Json:
        return self.ask("tools/call", "--tool-name", operation, "--tool-args-json", json.dumps(arguments))


@pytest.fixture(params=["stdio legacy", "http legacy", "http modern"])
def inspector(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Inspector]:
    """Yield an inspector of a gateway with a published server, over each transport and in each era."""
    transport, era = request.param.split()
    (home := tmp_path / "home").mkdir()
    config = write_config(tmp_path / "mcp.json", everything=node_server("server-everything"))
    if transport == "stdio":
        yield Inspector(
            [TOOLCRIB, "serve", str(config), "--cache", str(tmp_path / "kept.sqlite"), "--no-audit"], era, home
        )
    else:
        with http_gateway(config) as url:
            yield Inspector([url], era, home)


def test_the_inspector_lists_searches_expands_and_calls(inspector: Inspector) -> None:
    tools = inspector.ask("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["list", "search_tools", "expand_tool", "call_tool"]

    found = inspector.call("search_tools", query="tiny image")
    assert found["structuredContent"]["results"][0]["tool_id"] == "everything.get-tiny-image"
    assert json.loads(found["content"][0]["text"]) == found["structuredContent"]

    expansion = inspector.call("expand_tool", tool_id="everything.echo")["structuredContent"]
    assert expansion["args_schema"]["required"] == ["message"]
    answer = inspector.call("call_tool", tool_id=expansion["handle"], arguments={"message": "hello"})
    assert answer["content"] == [{"type": "text", "text": "Echo: hello"}]

    refused = inspector.run(
        "tools/call", "--tool-name", "call_tool", "--tool-args-json", json.dumps({"tool_id": "everything.echo"})
    )
    assert refused.returncode == TOOL_FAILED
    assert json.loads(refused.stdout)["result"]["structuredContent"]["error"]["code"] == "NOT_EXPANDED"


def test_the_inspector_finds_no_error_in_the_schemas_of_the_operations(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", everything=node_server("server-everything"))
    looking = Inspector([TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit"], "modern", tmp_path)
    done = looking.run("tools/list", "--strict")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["result"]["tools"]) == 4
