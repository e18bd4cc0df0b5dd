"""Tests for the work that a gateway does before its first answer and after it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.launching import faulty_entry, write_config
from tests.surfaces.serving import Conversation

_WATCHED = """
import gc, json, sys
from toolcrib.cli import main, serve_command as command
from toolcrib.surfaces.mcp_gateway import stdio

start, serve = command.log_warnings, stdio.serve_stdio
found = {}

def starting():
    found["collects_at_first"] = gc.isenabled()
    start()

async def serving(*given, **named):
    found.update(collects=gc.isenabled(), frozen=gc.get_freeze_count())
    await serve(*given, **named)

command.log_warnings, stdio.serve_stdio = starting, serving
stdio.LIST_FIRST_S = 3600  # only a request starts the work after the tool list
try:
    main(["serve", *sys.argv[1:]])
finally:
    print(json.dumps({**found, "modules": [*sys.modules]}), file=sys.stderr)
"""

LATER = {
    "numpy",
    "rich",
    "toolcrib.catalog.capability_checks",
    "toolcrib.catalog.labels",
    "toolcrib.config.registrations",
    "toolcrib.agent.conversation",
    "toolcrib.search.embedding",
    "toolcrib.agent.formats",
    "toolcrib.search.past_calls",
    "toolcrib.search.index.ranking",
    "toolcrib.search.index.searching",
    "toolcrib.search.index.segment",
    "toolcrib.agent.sections",
    "toolcrib.sources.declared.definition",
}
"""Modules that the first tool list must not import. Each took milliseconds of the start, and numpy fifty."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "mcp.json", bench=faulty_entry())


def test_the_first_tool_list_imports_no_modules_of_later_answers(config: Path) -> None:
    with _watched(config) as process:
        gateway = Conversation(process)
        gateway.shake_hands()
        assert gateway.ask("tools/list")["tools"]
        assert gateway.end() == 0
        assert {*_report(process)["modules"]} & LATER == set()


def test_a_search_imports_the_modules_that_it_needs(config: Path) -> None:
    with _watched(config) as process:
        gateway = Conversation(process)
        gateway.shake_hands()
        assert gateway.call("search_tools", {"query": "add"})["structuredContent"]["results"]
        assert gateway.end() == 0
        assert {*_report(process)["modules"]} & LATER >= {
            "numpy",
            "toolcrib.search.index.searching",
            "toolcrib.search.index.segment",
        }


def test_garbage_collection_starts_with_serving_and_skips_startup_objects(config: Path) -> None:
    with _watched(config) as process:
        assert Conversation(process).end() == 0
        told = _report(process)
        assert (told["collects_at_first"], told["collects"]) == (False, True)
        assert told["frozen"] > 0


def _watched(config: Path) -> subprocess.Popen[bytes]:
    """Starts a gateway that prints its imported modules as the last line of standard error."""
    command = [sys.executable, "-c", _WATCHED, str(config), "--no-cache", "--no-audit"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _report(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stderr is not None
    return json.loads(process.stderr.read().splitlines()[-1])
