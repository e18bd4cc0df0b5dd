"""The source of declared tools: its tools can be replaced while it runs."""

from __future__ import annotations

import pytest
from tests.sources.declared.declaring import call_of, declared, python, source_of

from toolcrib.core.errors import StaleExpansion, ToolFailed
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.sources.declared.declared_source import DeclaredSource
from toolcrib.sources.declared.definition import DeclaredTools

pytestmark = pytest.mark.anyio

HELLO, GOODBYE = declared(python("print('hello')")), declared(python("print('goodbye')"))


async def test_replaced_tools_are_reported_as_a_change_and_used_at_once() -> None:
    source = DeclaredSource(DeclaredTools("ops", tools=(HELLO,)))
    changes = source.changes()
    source.put(DeclaredTools("ops", "Operations", "Does it.", (GOODBYE,)))
    await anext(changes)
    listing = await source.list_tools()
    assert (listing.title, listing.summary) == ("Operations", "Does it.")
    assert (await call_of(source)).text == "goodbye\n"


async def test_no_change_is_reported_after_the_source_is_closed() -> None:
    async with DeclaredSource(DeclaredTools("ops")) as source:
        changes = source.changes()
    assert [None async for _ in changes] == []


async def test_a_tool_with_a_changed_command_is_not_run() -> None:
    source = DeclaredSource(DeclaredTools("ops", tools=(HELLO,)))
    source.put(DeclaredTools("ops", tools=(GOODBYE,)))
    with pytest.raises(StaleExpansion):
        await source.call_tool(HELLO.tool, {}, LOCAL_CONTEXT)


async def test_a_removed_tool_is_not_run() -> None:
    source = source_of()
    with pytest.raises(ToolFailed, match="`ops` has no tool `tool`"):
        await source.call_tool(HELLO.tool, {}, LOCAL_CONTEXT)
