"""A wrapper that changes nothing passes each request to the inner source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio
import pytest
from tests.catalogs import tool
from tests.servers.launching import faulty_server

from toolcrib.core.errors import ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import FetchMethod, ProgressListener, Source
from toolcrib.sources.functions import FunctionSource
from toolcrib.sources.mcp import Patience
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.wrapper import WrapperSource
from toolcrib.testing.scripted_source import ScriptedSource
from toolcrib.testing.sources import check_listing, check_source

pytestmark = pytest.mark.anyio

SAW = tool("bench.saw", "Cut a board.")


class Asked(ScriptedSource):
    """A source with prompts and resources that records every request."""

    def __init__(self) -> None:
        super().__init__("bench", [SAW])
        self.asked: list[tuple[object, ...]] = []

    async def __aenter__(self) -> Self:
        self.asked.append(("enter",))
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.asked.append(("exit", error))
        await super().__aexit__(kind, error, traceback)

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        self.asked.append((tool, arguments, context, progress))
        return await super().call_tool(tool, arguments, context, progress=progress)

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.asked.append((method, params, context))
        return {"contents": []}

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        self.asked.append(("watch", uri, updated))

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self.asked.append(("unwatch", uri, updated))


async def hear(progress: float, total: float | None, message: str | None) -> None: ...


def updated() -> None: ...


def double(number: int) -> int:
    return 2 * number


async def test_a_wrapper_passes_the_source_contract() -> None:
    def of_functions() -> Source:
        source = FunctionSource()
        source.add(double)
        return WrapperSource(source)

    def of_a_server() -> Source:
        patient = Patience(start_s=30, list_s=30, call_s=30)
        return WrapperSource(McpSource("bench", faulty_server(), patience=patient))

    await check_source(of_functions, tool="double", arguments={"number": 1}, other_arguments={"number": 2})
    await check_listing(of_functions)
    await check_source(of_a_server, tool="add", arguments={"a": 1, "b": 2}, other_arguments={"a": 3, "b": 4})


async def test_every_request_to_a_wrapper_reaches_the_inner_source_unchanged() -> None:
    source, context, mishap = Asked(), CallContext(), ValueError("a mishap of whoever uses it")
    wrapper = WrapperSource(source)
    assert wrapper.name == "bench"
    assert await wrapper.__aenter__() is wrapper
    assert (await wrapper.list_tools()).tools == (SAW,)
    assert (await wrapper.call_tool(SAW, {"n": 1}, context, progress=hear)).structured_content == {"n": 1}
    assert await wrapper.fetch("resources/read", {"uri": "a:b"}, context) == {"contents": []}
    await wrapper.watch("a:b", updated)
    wrapper.unwatch("a:b", updated)
    await wrapper.__aexit__(ValueError, mishap, None)
    assert source.asked == [
        ("enter",),
        (SAW, {"n": 1}, context, hear),
        ("resources/read", {"uri": "a:b"}, context),
        ("watch", "a:b", updated),
        ("unwatch", "a:b", updated),
        ("exit", mishap),
    ]


async def test_a_change_of_the_inner_source_is_reported_by_the_wrapper() -> None:
    source = ScriptedSource("bench", [SAW])

    async def heard() -> None:
        await anext(WrapperSource(source).changes())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard)
            await anyio.wait_all_tasks_blocked()
            source.offer()


async def test_a_request_that_the_inner_source_does_not_support_is_refused_in_its_name() -> None:
    wrapper = WrapperSource(ScriptedSource("bench", [SAW]))
    with pytest.raises(ToolFailed, match="`bench` offers no prompts or resources"):
        await wrapper.fetch("prompts/get", {}, CallContext())
    with pytest.raises(ToolFailed, match="`bench` does not report changes"):
        await wrapper.watch("a:b", updated)
    wrapper.unwatch("a:b", updated)
