"""The declared sources of a crib when one configuration replaces a different one."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from tests.until import until

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.crib.declared_sources import DeclaredSources
from toolcrib.sources.declared.definition import DeclaredTools, read_declared_source
from toolcrib.sources.limited import Capacity

pytestmark = pytest.mark.anyio


def ops(**commands: str) -> DeclaredTools:
    tools = {name: {"description": name, "command": [sys.executable, "-c", code]} for name, code in commands.items()}
    return read_declared_source("ops", {"tools": tools})


def test_removed_and_changed_tools_disappear_before_new_tools_appear() -> None:
    registry = ToolRegistry()
    sources = DeclaredSources(registry)
    sources.change_to([ops(same="1", changed="1", gone="1")]).join()
    change = sources.change_to([ops(same="1", changed="2", new="1")])
    change.leave()
    assert set(registry.state.tools) == {"ops.same"}
    change.join()
    assert set(registry.state.tools) == {"ops.same", "ops.changed", "ops.new"}
    sources.change_to([]).leave()
    assert registry.state.sources == {}


async def test_the_number_of_concurrent_programs_is_limited_by_the_configuration(tmp_path: Path) -> None:
    registry = ToolRegistry()
    sources = DeclaredSources(registry)
    started = tmp_path / "started"
    wanted = [ops(stay=f"import time; open({str(started)!r}, 'w').close(); time.sleep(600)", quick="print(1)")]
    sources.change_to(wanted).join()
    sources.change_to(wanted, Capacity(concurrent_calls=1, queued_calls=0)).join()
    source, tools = registry.state.sources["ops"].source, registry.state.tools
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: source.call_tool(tools["ops.stay"], {}, LOCAL_CONTEXT))
        await until(started.exists, "the program runs")
        with pytest.raises(SourceUnavailable, match="`ops` is busy"):
            await source.call_tool(tools["ops.quick"], {}, LOCAL_CONTEXT)
        tasks.cancel_scope.cancel()
