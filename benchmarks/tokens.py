"""What a client is sent before its first search: the operations and the instructions, for catalogs of several sizes.

    python benchmarks/tokens.py

Prints one JSON object. A token is estimated as four UTF-8 bytes of compact JSON. `up_front` is what the same client
would have been sent without Toolcrib, for the catalogs whose definitions are at hand in ../shared/real-servers.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio
from mcp import Client

from toolcrib.config import Config, read_config
from toolcrib.core.digests import BYTES_PER_TOKEN
from toolcrib.core.principal import LOCAL
from toolcrib.crib.crib import Toolcrib
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway

BAR_TOKENS = 1_200
REAL_SERVERS = Path(__file__).parents[2] / "shared" / "real-servers" / "tools.json"


def size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


async def sent(summaries: Mapping[str, str]) -> int:
    """Bytes of `tools/list` and the instructions, as a client of the newer era gets them; `summaries` by server."""
    async with Gateway(Toolcrib(), configured(summaries), principal=LOCAL) as gateway, Client(gateway.server) as client:
        listed = await client.list_tools()
        tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
        return size(tools) + len((client.instructions or "").encode())


def configured(summaries: Mapping[str, str]) -> Config:
    """A configuration of servers that are never started."""
    document = {
        "mcpServers": {name: {"command": "none"} for name in summaries},
        "toolcrib": {"sources": {name: {"summary": summary} for name, summary in summaries.items()}},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mcp.json")
        path.write_text(json.dumps(document))
        return read_config(path)


async def main() -> None:
    long = (
        "Everything one could want to do with a thing of this kind, from making it to throwing it away, told at length"
    )
    catalogs: dict[str, tuple[Mapping[str, str], int | None]] = {
        "no servers": ({}, None),
        "24 servers with long summaries": ({f"server-number-{i}": long for i in range(24)}, None),
        "10,000 servers with long summaries": ({f"server-number-{i}": long for i in range(10_000)}, None),
    }
    if REAL_SERVERS.exists():
        servers = json.loads(REAL_SERVERS.read_text())
        weight = sum(size(tool) for server in servers.values() for tool in server["tools"])
        catalogs["24 published servers, 557 tools"] = (dict.fromkeys(servers, ""), weight)
    report = {}
    for name, (summaries, up_front) in catalogs.items():
        tokens = await sent(summaries) // BYTES_PER_TOKEN
        report[name] = {"estimated_tokens": tokens, "bar": BAR_TOKENS, "met": tokens <= BAR_TOKENS}
        if up_front is not None:
            report[name] |= {
                "up_front_estimated_tokens": up_front // BYTES_PER_TOKEN,
                "ratio": round(up_front / BYTES_PER_TOKEN / tokens, 1),
            }
    print(json.dumps({"benchmark": "tokens before the first search", "catalogs": report}, indent=2))


anyio.run(main)
