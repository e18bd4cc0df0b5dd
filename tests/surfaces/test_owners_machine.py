"""Tests that details of the owner's machine appear in the owner's log and in no answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.surfaces.http.here import served_here

from toolcrib import Toolcrib
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.config import read_config
from toolcrib.core.principal import LOCAL
from toolcrib.operations.operation_table import ALL, OPERATIONS, SETS
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

CANARY = "canary"
"""A word in every configured value and in no request."""

REFUSES = """
import json, sys
for line in sys.stdin:
    error = {"code": 1, "message": "no /opt/canary"}
    if "id" in (asked := json.loads(line)):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""

SERVERS: Mapping[str, Json] = {
    "absent": {"command": "/opt/canary/prog", "args": ["--canary"], "env": {"CANARY_KEY": "canary"}},
    "lost": {"command": sys.executable, "args": ["-c", "pass"], "cwd": "/no/canary"},
    "unset": {"command": "${CANARY_VARIABLE}"},
    "odd": {"command": ["canary"]},
    "ends": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no /opt/canary')"]},
    "refuses": {"command": sys.executable, "args": ["-c", REFUSES]},
    "far": {"url": "http://127.0.0.1:9/canary?key=canary", "headers": {"X-Canary": "canary"}},
}
CAPABILITIES: Mapping[str, Json] = {
    "program": {"program": "/opt/canary/prog"},
    "variable": {"env": "CANARY_VARIABLE"},
    "place": {"path": "/no/canary"},
    "address": {"address": "127.0.0.1:9"},
}
NEEDING: Mapping[str, Json] = {
    f"needs_{name}": {"description": "Needs something.", "command": ["true"]} for name in CAPABILITIES
}
TOOLS: Mapping[str, Json] = {
    **NEEDING,
    "run": {"description": "Runs a program.", "command": ["/opt/canary/prog", "canary"]},
    "run_there": {"description": "Runs a program.", "command": [sys.executable], "cwd": "/no/canary"},
    "ask": {"description": "Asks an address.", "http": {"url": "http://canary.invalid/canary"}},
    "ask_here": {"description": "Asks an address.", "http": {"url": "http://127.0.0.1:9/canary"}},
    "ask_allowed": {
        "description": "Asks an address.",
        "http": {"url": "http://127.0.0.1:9/canary", "allow_private": True},
    },
}
SETTINGS: Json = {
    "declared": {"ops": {"tools": TOOLS}},
    "capabilities": CAPABILITIES,
    "tools": {f"ops.needs_{name}": {"requires_capabilities": [name]} for name in CAPABILITIES},
    "bundles": {"whole": {"required": [f"{name}.x" for name in SERVERS] + [f"ops.{name}" for name in TOOLS]}},
    "plugins": ["no-such-plugin-4b1f"],
}

SOURCES = (*SERVERS, "ops")
TOOL_IDS = (*(f"{name}.x" for name in SERVERS), *(f"ops.{name}" for name in TOOLS))
REQUESTS: Sequence[tuple[str, Json]] = [
    *((operation, {"path": [*path]}) for operation in ["list"] for path in [(), *((name,) for name in SOURCES)]),
    ("list", {"query": "run a program", "limit": 50}),
    ("list_categories", {}),
    ("search_nodes", {"query": "program"}),
    *(
        ("search_tools", {"query": query, "include_unavailable": True, "detail_level": level})
        for query in ("", "run a program", "absent")
        for level in ("name", "summary", "full")
    ),
    *(("search_tools", {"query": "x", "category": name}) for name in SOURCES),
    *(("search_tool_by_category", {"query": "x", "category_path": [name]}) for name in SOURCES),
    *(("expand_tool", {"tool_id": tool_id}) for tool_id in TOOL_IDS),
    ("expand_tool", {"tool_ids": [*TOOL_IDS][:10]}),
    *(("call_tool", {"tool_id": tool_id}) for tool_id in TOOL_IDS),
]


async def mcp_answers(crib: Toolcrib, path: Path, exposed: str) -> list[str]:
    """Returns everything that a client receives: at the start, and in response to each request."""
    gateway = Gateway(crib, read_config(path), principal=LOCAL, exposed=exposed)
    async with gateway, Client(gateway.server) as client:
        tools = await client.list_tools()
        told = [str(client.instructions), tools.model_dump_json()]

        async def ask(name: str, arguments: Json) -> Json:
            try:
                answer = await client.call_tool(name, arguments)
            except MCPError as error:
                told.append(repr(error.error))
                return {}
            told.append(answer.model_dump_json())
            return answer.structured_content or {}

        if exposed == ALL:
            for name in [*(tool.name for tool in tools.tools), *(tool_id.replace(".", "__") for tool_id in TOOL_IDS)]:
                await ask(name, {})
            return told
        for name, arguments in REQUESTS:
            if name in SETS[exposed]:
                answer = await ask(name, arguments)
                if "handle" in answer:
                    await ask("call_tool", {"tool_id": answer["handle"]})
        return told


async def test_no_answer_on_any_surface_contains_details_of_the_owners_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CANARY_VARIABLE", raising=False)
    (folder := tmp_path / "canary").mkdir()
    crib = Toolcrib()
    async with served_here(folder, crib, settings=SETTINGS, **SERVERS) as here:  # pyright: ignore[reportArgumentType]
        await crib.ready()
        told = [each for exposed in (*SETS, ALL) for each in await mcp_answers(crib, here.config, exposed)]
        async with here.client() as client:
            told.append((await client.get("/openapi.json")).text)
            for name in OPERATIONS:
                for asked, arguments in REQUESTS:
                    if asked == name:
                        for bundle in (None, "whole"):
                            answer = await client.post(f"/v1/{name}", json={**arguments, "bundle": bundle})
                            told.append(answer.text)
                            if name == "expand_tool" and "handle" in answer.json():
                                call = {"tool_id": answer.json()["handle"]}
                                told.append((await client.post("/v1/call_tool", json=call)).text)

        failed = {name: crib.view().sources[name] for name in SERVERS}
        assert {entry.status for entry in failed.values()} == {SourceStatus.FAILED}
        assert [name for name, entry in failed.items() if CANARY not in entry.diagnosis.casefold()] == ["far"]
    assert len(told) > 200
    assert [text for text in told if CANARY in text.casefold()] == []
    logged = caplog.text.casefold()
    for cause in ("/opt/canary/prog", "/no/canary", "canary_variable", "canary.invalid"):
        assert cause in logged
