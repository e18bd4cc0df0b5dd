"""The declared sources of a crib, where a configuration takes the place of another."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest
from tests.waiting import until

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.crib.declared import Declarations
from toolcrib.sources.declared.definition import DeclaredTools, read_declared_source
from toolcrib.sources.limited import Capacity

pytestmark = pytest.mark.anyio


def ops(**commands: str) -> DeclaredTools:
    tools = {name: {"description": name, "command": [sys.executable, "-c", code]} for name, code in commands.items()}
    return read_declared_source("ops", {"tools": tools})


def test_what_goes_and_what_changes_is_out_of_sight_before_what_is_new_comes() -> None:
    registry = ToolRegistry()
    declarations = Declarations(registry)
    declarations.join([ops(same="1", changed="1", gone="1")])
    after = [ops(same="1", changed="2", new="1")]
    declarations.leave(after)
    assert set(registry.state.tools) == {"ops.same"}
    declarations.join(after)
    assert set(registry.state.tools) == {"ops.same", "ops.changed", "ops.new"}
    declarations.leave([])
    assert registry.state.sources == {}


async def test_no_more_programs_run_at_once_than_the_configuration_allows(tmp_path: Path) -> None:
    registry = ToolRegistry()
    declarations = Declarations(registry)
    started = tmp_path / "started"
    wanted = [ops(stay=f"import time; open({str(started)!r}, 'w').close(); time.sleep(600)", quick="print(1)")]
    declarations.join(wanted)
    declarations.join(wanted, Capacity(concurrent_calls=1, queued_calls=0))
    source, tools = registry.state.sources["ops"].source, registry.state.tools
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: source.call_tool(tools["ops.stay"], {}, LOCAL_CONTEXT))
        await until(started.exists, "the program runs")
        with pytest.raises(SourceUnavailable, match="`ops` is busy"):
            await source.call_tool(tools["ops.quick"], {}, LOCAL_CONTEXT)
        tasks.cancel_scope.cancel()
