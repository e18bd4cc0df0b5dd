"""The published contract check of sources: our sources pass it, and sources that break the contract fail it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from toolcrib.core.errors import ToolFailed
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Listing, Source
from toolcrib.sources.catalog_file import load_catalog_file
from toolcrib.sources.functions import FunctionSource
from toolcrib.testing.sources import check_listing, check_source

if TYPE_CHECKING:
    from pathlib import Path

    from toolcrib.core.principal import CallContext
    from toolcrib.sources.base import ProgressListener

pytestmark = pytest.mark.anyio


def double(number: int) -> int:
    return 2 * number


async def greet(name: str) -> str:
    return f"Hello, {name}"


def functions() -> Source:
    source = FunctionSource()
    source.add(double)
    source.add(greet)
    return source


async def test_synchronous_functions_pass_the_source_contract() -> None:
    await check_source(functions, tool="double", arguments={"number": 1}, other_arguments={"number": 2})


async def test_asynchronous_functions_pass_the_source_contract() -> None:
    await check_source(functions, tool="greet", arguments={"name": "Ada"}, other_arguments={"name": "Grace"})


async def test_a_catalog_file_passes_the_contract_check_of_listing(tmp_path: Path) -> None:
    path = tmp_path / "pets.json"
    path.write_text('[{"name": "feed", "inputSchema": {}}, {"name": "walk", "inputSchema": {}}, {}]')
    await check_listing(lambda: load_catalog_file(path)[0])


class Faulty:
    """A source that follows the contract, except for its `fault`."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self._last: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        return "a.b" if self.fault == "dot" else "faulty"

    async def __aenter__(self) -> Source:
        return Faulty("") if self.fault == "enters a different source" else self

    async def __aexit__(self, *_: object) -> None:
        return

    async def list_tools(self) -> Listing:
        tool = Tool("faulty", "echo")
        match self.fault:
            case "other source":
                return Listing((replace(tool, source="another"),))
            case "twice":
                return Listing((tool, tool))
            case "bad schema":
                return Listing((replace(tool, input_schema={"type": "nothing"}),))
            case _:
                return Listing((tool,))

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        if tool.name != "echo" and self.fault != "takes any name":
            raise ToolFailed("there is no such tool")
        mixed = self.fault == "mixes up" and self._last
        answer, self._last = (self._last if mixed else arguments), arguments
        if self.fault == "no content":
            return ToolResult({})
        return ToolResult.of(None, text=str(answer))

    async def changes(self) -> AsyncIterator[None]:
        return
        yield


async def test_a_correct_source_passes_the_contract_check() -> None:
    await check_source(lambda: Faulty(""), tool="echo", arguments={}, other_arguments={"a": 1})


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("dot", "contains a dot"),
        ("enters a different source", "returns a different object"),
        ("other source", "is listed by"),
        ("twice", "duplicate ids"),
        ("bad schema", "cannot be called"),
        ("no content", "not a list"),
        ("takes any name", "does not exist succeeds"),
        ("mixes up", "answer of a different call"),
    ],
)
async def test_a_source_that_breaks_the_contract_fails_with_the_reason(fault: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        await check_source(lambda: Faulty(fault), tool="echo", arguments={}, other_arguments={"a": 1})
