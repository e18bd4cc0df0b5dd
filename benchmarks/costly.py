"""A server over stdio whose definitions and answers take validators very long: `python benchmarks/costly.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

import servers


def schemas() -> Mapping[str, Mapping[str, Any]]:
    """For each tool of `costly_server` what it takes."""

    def of(part: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
        return {"type": "object", "properties": {"n": part}, **more}

    link = {f"l{n}": {"items": {"allOf": 2 * [{"$ref": f"#/$defs/l{n + 1}"}]}} for n in range(140)}
    branch = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "required": ["n"]}
    node = {"anyOf": [branch, {**branch, "title": "2"}]}
    return {
        "texts": of({"type": "array", "items": {"type": "string"}}),
        "chain": of({"$ref": "#/$defs/l0"}, **{"$defs": {**link, "l140": {"type": "string"}}}),
        "alternatives": of({"items": {"anyOf": [{"const": f"x{number}"} for number in range(1_500)]}}),
        "choices": of({"items": {"anyOf": [{"const": number} for number in range(5_000)]}}),
        "patterns": of({"allOf": [{"not": {"pattern": f"(?<!x.)b{number}"}} for number in range(500)]}),
        "itself": of({"$ref": "#/$defs/node"}, **{"$defs": {"node": node}}),
    }


def value_for(tool: str) -> Mapping[str, Any]:
    """What such a schema is costly for: ten times as much as once stopped the gateway, as far as a request holds it."""
    chained: object = 1
    for _ in range(140):
        chained = [chained]
    linked: object = 1
    for _ in range(140):
        linked = {"n": linked}
    return {
        "n": {
            "texts": [1] * 1_900_000,
            "chain": chained,
            "alternatives": ["x1499"] * 500_000,
            "choices": [4_999] * 800_000,
            "patterns": "ab" * 100_000,
            "itself": linked,
        }[tool]
    }


def costly_server() -> Server[Any]:
    """For each schema a tool that takes it, and one whose answer is to match it."""
    known = schemas()
    takes = [Tool(name=f"takes_{name}", input_schema=dict(schema)) for name, schema in known.items()]
    gives = [
        Tool(name=f"gives_{name}", input_schema={"type": "object"}, output_schema=dict(schema))
        for name, schema in known.items()
    ]

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[*takes, *gives])

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        told = value_for(params.name.partition("_")[2])
        return CallToolResult(content=[TextContent(type="text", text="costly")], structured_content=dict(told))

    return Server("costly", on_list_tools=list_tools, on_call_tool=call_tool)


if __name__ == "__main__":
    anyio.run(servers.over_stdio, costly_server())
