"""The scripted source for tests: it follows the contract of sources and its script."""

from __future__ import annotations

import anyio
import pytest
from tests.catalogs import tool

from toolcrib.core.errors import SourceUnavailable, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.testing.scripted_source import ScriptedSource
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

ECHO = tool("scripted.echo")


async def test_a_scripted_source_passes_the_source_contract() -> None:
    await check_source(
        lambda: ScriptedSource("scripted", [ECHO]), tool="echo", arguments={"a": 1}, other_arguments={"a": 2}
    )


async def test_a_scripted_source_answers_as_scripted_and_records_its_calls() -> None:
    source = ScriptedSource(
        "scripted",
        [ECHO, tool("scripted.fixed"), tool("scripted.broken")],
        answers={
            "echo": lambda arguments: ToolResult.of(None, text=str(arguments["a"])),
            "fixed": ToolResult.of({"n": 5}, text="5"),
            "broken": ToolFailed("No."),
        },
    )

    async with source:
        assert (await source.call_tool(ECHO, {"a": 1}, CallContext())).text == "1"
        assert (await source.call_tool(tool("scripted.fixed"), {}, CallContext())).structured_content == {"n": 5}
        with pytest.raises(ToolFailed, match="No"):
            await source.call_tool(tool("scripted.broken"), {"b": 2}, CallContext())

    assert source.calls == [("echo", {"a": 1}), ("fixed", {}), ("broken", {"b": 2})]


async def test_a_failing_scripted_source_neither_lists_nor_answers() -> None:
    source = ScriptedSource("scripted", [ECHO])
    source.failure = SourceUnavailable("Away.")
    with pytest.raises(SourceUnavailable):
        await source.list_tools()
    with pytest.raises(SourceUnavailable):
        await source.call_tool(ECHO, {}, CallContext())

    source.failure = None

    assert (await source.list_tools()).tools == (ECHO,)


async def test_a_listener_is_told_of_each_new_offer_and_of_the_end() -> None:
    source = ScriptedSource("scripted")
    offers: list[int] = []

    async def follow() -> None:
        async for _ in source.changes():
            listing = await source.list_tools()
            offers.append(len(listing.tools))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, source:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            source.offer(ECHO)
            await anyio.wait_all_tasks_blocked()
            source.offer()
            await anyio.wait_all_tasks_blocked()

    assert offers == [1, 0]
