"""Use Toolcrib as a library, with one function and the servers of an mcp.json."""

import anyio

from toolcrib import Toolcrib


def loan_fee(days: int, daily_rate: float = 1.5) -> float:
    """What it costs to borrow a tool for some days."""
    return days * daily_rate


async def main() -> None:
    crib = Toolcrib()
    crib.add(loan_fee)
    crib.add_config("mcp.json")
    async with crib:
        await crib.ready()
        found = crib.search_tools("how much does it cost to borrow this")
        tool = crib.expand_tool(found.results[0].tool_id)
        print(tool.tool_id, dict(tool.args_schema))
        result = await crib.call_tool(tool.handle, {"days": 3})
        print(result.structured_content)


anyio.run(main)
