"""A client on the Python SDK 1.x, which only knows the handshake era. It runs in its own environment.

Like the other clients, it takes a plan as one JSON object on the command line and prints a report as one on stdout.
"""

# Type checkers see the SDK 2.x here, which has different names.
# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false, reportAssignmentType=false

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main(plan: dict) -> dict:
    async with AsyncExitStack() as stack:
        if url := plan.get("url"):
            read, write, _ = await stack.enter_async_context(streamable_http_client(url))
        else:
            nowhere = stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123, ASYNC230, SIM115  a device, not a file
            started = StdioServerParameters(command=plan["command"], args=plan["args"])
            read, write = await stack.enter_async_context(stdio_client(started, errlog=nowhere))
        session = await stack.enter_async_context(ClientSession(read, write))
        agreed = await session.initialize()
        listed = await session.list_tools()
        report = {"version": agreed.protocolVersion, "tools": [tool.name for tool in listed.tools]}

        async def call(name: str, arguments: dict):
            return await session.call_tool(name, arguments)

        if query := plan.get("query"):
            page = await call("search_tools", {"query": query})
            report["found"] = [pointer["tool_id"] for pointer in page.structuredContent["results"]]
        answers = report["answers"] = []
        for name, arguments in plan["calls"]:
            if query:
                expansion = await call("expand_tool", {"tool_id": name})
                handle = expansion.structuredContent["handle"]
                answer = await call("call_tool", {"tool_id": handle, "arguments": arguments})
            else:
                answer = await call(name, arguments)
            answers.append(answer.model_dump(mode="json", by_alias=True, exclude_none=True))
        linked = report["linked"] = []
        for block in (block for answer in answers for block in answer["content"] if block["type"] == "resource_link"):
            read = await session.read_resource(block["uri"])
            linked += [held.model_dump(mode="json", by_alias=True, exclude_none=True) for held in read.contents]
        return report


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, json.loads(sys.argv[1]))))
