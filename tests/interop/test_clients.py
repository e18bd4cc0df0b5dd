"""Clients of other SDKs with the gateway: they get the same answers as from the servers directly."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from mcp_types import SERVER_INFO_META_KEY
from tests.interop.launching import (
    CLIENTS,
    TOOLCRIB,
    Json,
    fixture_server,
    from_npm,
    http_gateway,
    node,
    node_server,
    python_sdk_1,
)
from tests.servers.launching import write_config

pytestmark = pytest.mark.interop

Transport = Literal["stdio", "http"]

SERVERS: dict[str, Callable[[], Json]] = {
    "everything": lambda: node_server("server-everything"),
    "fixture": fixture_server,
}
"""A published server on the TypeScript SDK, and one on the Python SDK with content types that the first lacks."""

CALLS: dict[str, dict[str, Json]] = {
    "everything": {
        "echo": {"message": "Straße 鋸 🪚"},
        "get-tiny-image": {},
        "get-structured-content": {"location": "Chicago"},
        "get-resource-links": {"count": 2},
        "get-annotated-message": {"messageType": "error", "includeImage": True},
    },
    "fixture": {
        "test_audio_content": {},
        "test_embedded_resource": {},
        "test_multiple_content_types": {},
        "test_error_handling": {},
    },
}


def typescript_1() -> list[str]:
    from_npm("sdk", "package.json")
    return [node(), str(CLIENTS / "typescript_1.mjs")]


def typescript_2() -> list[str]:
    from_npm("client", "package.json")
    return [node(), str(CLIENTS / "typescript_2.mjs")]


def python_1() -> list[str]:
    return [python_sdk_1(), str(CLIENTS / "python_1.py")]


def reported(client: list[str], plan: Json) -> Json:
    """Run a client with `plan`, and return its report."""
    done = subprocess.run([*client, json.dumps(plan)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def gateway_by(transport: Transport, config: Path) -> Generator[Json]:
    """Run a gateway for the block, and yield its entry for a plan."""
    with ExitStack() as stack:
        if transport == "http":
            yield {"url": stack.enter_context(http_gateway(config))}
        else:
            yield {"command": TOOLCRIB, "args": ["serve", str(config), "--no-cache", "--no-audit"]}


def content_of(answer: Json) -> Json:
    """Return an answer without the gateway's own parts: its server info and its resource addresses."""
    meta = {key: value for key, value in answer.get("_meta", {}).items() if key != SERVER_INFO_META_KEY}
    content: list[Json] = []
    for block in answer["content"]:
        match block:
            case {"type": "resource_link", "uri": str(uri)}:
                content.append({**block, "uri": own_uri(uri)})
            case {"type": "resource", "resource": {"uri": str(uri)}}:
                content.append({**block, "resource": {**block["resource"], "uri": own_uri(uri)}})
            case _:
                content.append(block)
    return {**answer, "_meta": meta, "content": content}


def own_uri(uri: str) -> str:
    """Return a resource's address as its server names it."""
    return re.sub(r"^toolcrib://[^/]+/", "", uri)


@cache
def answers_without_the_gateway(client: Callable[[], list[str]], mode: str) -> list[Json]:
    """Return the answers to `CALLS` from the servers directly."""
    reports = [
        reported(client(), {**entry(), "mode": mode, "calls": list(CALLS[name].items())})
        for name, entry in SERVERS.items()
    ]
    return [content_of(answer) for report in reports for answer in report["answers"]]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("client", "mode", "version"),
    [
        pytest.param(python_1, "legacy", "2025-11-25", id="python 1"),
        pytest.param(typescript_1, "legacy", "2025-11-25", id="typescript 1"),
        pytest.param(typescript_2, "legacy", "2025-11-25", id="typescript 2, older era"),
        pytest.param(typescript_2, "auto", "2026-07-28", id="typescript 2, newer era"),
    ],
)
def test_a_client_finds_tools_and_gets_the_same_answers_as_from_the_servers(
    client: Callable[[], list[str]], mode: str, version: str, transport: Transport, tmp_path: Path
) -> None:
    calls = [(f"{name}.{tool}", arguments) for name, tools in CALLS.items() for tool, arguments in tools.items()]
    config = write_config(tmp_path / "mcp.json", **{name: entry() for name, entry in SERVERS.items()})
    with gateway_by(transport, config) as gateway:
        report = reported(client(), {**gateway, "mode": mode, "query": "tiny image", "calls": calls})

    assert report["version"] == version
    assert report["tools"] == ["list", "search_tools", "expand_tool", "call_tool"]
    assert report["found"][0] == "everything.get-tiny-image"
    assert [content_of(answer) for answer in report["answers"]] == answers_without_the_gateway(client, mode)

    kinds = {block["type"] for answer in report["answers"] for block in answer["content"]}
    assert kinds == {"text", "image", "audio", "resource", "resource_link"}
    assert any(answer.get("structuredContent") for answer in report["answers"])
    assert any(answer.get("isError") for answer in report["answers"])
    blob, text = report["linked"]
    assert b"Resource 1: " in base64.b64decode(blob["blob"])
    assert text["text"].startswith("Resource 2: ")
