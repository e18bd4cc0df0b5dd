"""What a client is sent before its first search: the operations and the instructions, for catalogs of several sizes.

    python benchmarks/tokens.py

Prints one JSON object. A token is estimated as four UTF-8 bytes of compact JSON. `up_front` is what the same client
would have been sent without Toolcrib, for the catalogs whose definitions are at hand in ../shared/real-servers.
"""

from __future__ import annotations

import json
from pathlib import Path

import anyio
from mcp import Client

from toolcrib.crib import Toolcrib
from toolcrib.protocol.rules import Top
from toolcrib.surfaces.mcp_gateway.server import Gateway

BAR_TOKENS = 1_200
BYTES_PER_TOKEN = 4
REAL_SERVERS = Path(__file__).parents[2] / "shared" / "real-servers" / "tools.json"


def size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


async def sent(tops: list[Top]) -> int:
    """Bytes of `tools/list` and the instructions, as a client of the newer era gets them."""
    async with Client(Gateway(Toolcrib(), tops).server) as client:
        listed = await client.list_tools()
        tools = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools]
        return size(tools) + len((client.instructions or "").encode())


async def main() -> None:
    long = (
        "Everything one could want to do with a thing of this kind, from making it to throwing it away, told at length"
    )
    catalogs = {
        "no servers": ([], None),
        "24 servers with long summaries": ([Top(f"server-number-{i}", long) for i in range(24)], None),
        "10,000 servers with long summaries": ([Top(f"server-number-{i}", long) for i in range(10_000)], None),
    }
    if REAL_SERVERS.exists():
        servers = json.loads(REAL_SERVERS.read_text())
        weight = sum(size(tool) for server in servers.values() for tool in server["tools"])
        catalogs["24 published servers, 557 tools"] = ([Top(name) for name in servers], weight)
    report = {}
    for name, (tops, up_front) in catalogs.items():
        tokens = await sent(tops) // BYTES_PER_TOKEN
        report[name] = {"estimated_tokens": tokens, "bar": BAR_TOKENS, "met": tokens <= BAR_TOKENS}
        if up_front is not None:
            report[name] |= {
                "up_front_estimated_tokens": up_front // BYTES_PER_TOKEN,
                "ratio": round(up_front / BYTES_PER_TOKEN / tokens, 1),
            }
    print(json.dumps({"benchmark": "tokens before the first search", "catalogs": report}, indent=2))


anyio.run(main)
