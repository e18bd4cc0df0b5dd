"""Tests for the pages on ACP: messages match the wire, the editor runs, and limits match the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import pytest
from acp.schema import ClientCapabilities, InitializeRequest, StopReason
from click import Context
from tests.surfaces.acp_agent.talking import call, expand, outcome, talking, turn

from toolcrib.cli import main as commands
from toolcrib.core.schema import Schema
from toolcrib.sources.acp.descriptors import (
    ASKING,
    KINDS,
    MAX_CATEGORIES,
    MAX_NAME_CHARS,
    MAX_TOOLS,
    READING,
    ToolCatalog,
)
from toolcrib.sources.acp.diffs import MAX_DIFF_CHARS, MAX_FILES
from toolcrib.sources.acp.protocol_tools import PROTOCOL_TOOLS
from toolcrib.surfaces.acp_agent.agent import MODES
from toolcrib.surfaces.acp_agent.port import offer_of
from toolcrib.testing.acp.fake_client import FakeAcpClient

ROOT = Path(__file__).parents[2]
TOOLCRIB = Path(sys.executable).parent / "toolcrib"
DISCOVERY = (ROOT / "docs" / "acp-discovery.md").read_text()
USING = (ROOT / "docs" / "acp.md").read_text()
TESTING = (ROOT / "docs" / "acp-testing.md").read_text()

BEFORE = "def saw():\n    return 'blunt'\n"


def shown(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def row(page: str, *cells: str) -> list[str]:
    """Returns the cells of the table row that begins with `cells`."""
    (found,) = [line for line in page.splitlines() if line.startswith(f"| {' | '.join(cells)} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


MESSAGES: list[dict[str, Any]] = [json.loads(text) for text in shown(DISCOVERY, "json") if '"jsonrpc"' in text]
LISTED, CALLED, PREVIEWED = (
    next(each["result"] for each in MESSAGES if key in each.get("result", ())) for key in ("tools", "content", "diffs")
)
"""The results of listing tools, of a call, and of a preview."""
DEFS: Mapping[str, Any] = next(json.loads(text)["$defs"] for text in shown(DISCOVERY, "json") if '"$defs"' in text)


def checked_parts(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Checks each message of the extension with the schema of the page, and yields the names of what it checked."""
    methods: dict[Any, str] = {}
    for message in messages:
        method = message.get("method", "")
        if method.startswith("_toolcrib/"):
            methods[message.get("id")] = name = method.removeprefix("_toolcrib/")
            value = message["params"]
        elif (answered := methods.pop(message.get("id"), None)) is not None and "result" in message:
            name, value = f"{answered}_result", message["result"]
        else:
            continue
        schema = Schema({"$ref": f"#/$defs/{name}", "$defs": DEFS})
        assert schema.violations(value) == ()
        yield name


REQUESTS = ("discover_tools", "call_tool", "preview_tool")
PARTS = {*REQUESTS, *(f"{request}_result" for request in REQUESTS), "tools_changed"}


def test_the_messages_on_the_page_match_its_schema() -> None:
    assert set(checked_parts(MESSAGES)) == PARTS
    initialize = InitializeRequest.model_validate(MESSAGES[0]["params"])
    assert isinstance(initialize.client_capabilities, ClientCapabilities)
    assert offer_of(initialize.client_capabilities).discovery
    read, set_aside = ToolCatalog.from_wire(LISTED)
    assert [tool.name for tool in read.tools] == ["rename_symbol", "read_file"]
    assert not set_aside


@pytest.mark.anyio
async def test_the_messages_on_the_wire_match_the_schema_of_the_page() -> None:
    arguments = {"old_name": "saw", "new_name": "blade"}
    script = (
        expand("editor.rename_symbol"),
        turn(call("rename_symbol", **arguments)),
        turn(text="Done."),
        turn(text="Done."),
    )
    client = FakeAcpClient(
        tools=LISTED["tools"], answers={"rename_symbol": CALLED}, previews={"rename_symbol": PREVIEWED}
    )
    async with talking(client, script):
        session = await client.new_session("/project")
        answer = await client.prompt(session, "Rename.")
        await client.change_tools([])
        await client.prompt(session, "Thanks.")
    assert set(checked_parts([frame.message for frame in client.wire if frame.message])) == PARTS
    assert outcome(answer, "rename_symbol") == ("completed", {"files": 1})
    (edited,) = [each for each in answer.tool_calls.values() if each.kind == "edit"]
    (asked,) = client.permissions_asked
    for content in (asked.tool_call.content, edited.content):
        diffs = [each for each in content or () if each.type == "diff"]
        assert [each.model_dump(by_alias=True, include={"path", "old_text", "new_text"}) for each in diffs] == (
            PREVIEWED["diffs"]
        )


def test_the_limits_and_kinds_on_the_page_match_the_code() -> None:
    descriptor = DEFS["descriptor"]["properties"]
    assert descriptor["name"]["maxLength"] == MAX_NAME_CHARS
    assert descriptor["categories"]["maxItems"] == MAX_CATEGORIES
    assert tuple(descriptor["kind"]["enum"]) == KINDS
    assert DEFS["discover_tools_result"]["properties"]["tools"]["maxItems"] == MAX_TOOLS
    diffs, locations = DEFS["files"]["properties"].values()
    assert diffs["maxItems"] == locations["maxItems"] == MAX_FILES
    assert {side["maxLength"] for side in list(diffs["items"]["properties"].values())[1:]} == {MAX_DIFF_CHARS}
    for kinds in (ASKING, READING):
        assert f"| {', '.join(f'`{kind}`' for kind in kinds)} |" in DISCOVERY


@pytest.mark.parametrize("name", PROTOCOL_TOOLS)
def test_each_protocol_tool_is_documented_correctly(name: str) -> None:
    tool = PROTOCOL_TOOLS[name]
    cells = row(DISCOVERY, f"`{name}`")
    required, _, others = cells[-1].partition(";")
    takes = [re.findall(r"`(\w+)`", part) for part in (required, others)]
    assert cells[3] == f"`{tool.kind}`"
    assert takes[0] == tool.parameters["required"]
    assert [*takes[0], *takes[1]] == list(tool.parameters["properties"])


@pytest.mark.parametrize(("said", "after"), [("y", "blade"), ("n", "saw")])
@pytest.mark.slow
def test_the_example_editor_renames_only_with_permission(said: str, after: str, tmp_path: Path) -> None:
    (editor,) = shown(DISCOVERY, "python")
    (script,) = [text for text in shown(DISCOVERY, "json") if text.startswith("[")]
    (tmp_path / "editor.py").write_text(editor)
    (tmp_path / "rename.json").write_text(script)
    (project := tmp_path / "project").mkdir()
    (project / "bench.py").write_text(BEFORE)
    agent = [str(TOOLCRIB), "acp", "--model", "scripted:../rename.json", "--no-sessions"]
    done = subprocess.run(
        [sys.executable, "../editor.py", *agent],
        cwd=project,
        input=f"{said}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'rename_symbol(old_name: "saw", new_name: "blade")? [y/N] It is called blade now.'
    assert (project / "bench.py").read_text() == BEFORE.replace("saw", after)


@pytest.mark.slow
def test_the_example_editor_forwards_environment_and_standard_error(tmp_path: Path) -> None:
    (editor,) = shown(DISCOVERY, "python")
    (tmp_path / "editor.py").write_text(editor)
    done = subprocess.run(
        [sys.executable, "editor.py", str(TOOLCRIB), "acp"],
        cwd=tmp_path,
        env={**os.environ, "TOOLCRIB_MODEL": "nobody:model"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "cannot use the model `nobody:model`: Unknown model: nobody:model" in done.stderr


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ([expand("editor.saw"), turn(call("saw")), turn(text="You said no.")], nullcontext()),
        ([turn(text="Sawn, I say.")], pytest.raises(AssertionError)),
    ],
    ids=["asks permission", "does not ask"],
)
@pytest.mark.slow
async def test_the_example_check_passes_only_for_an_agent_that_asks(
    script: list[dict[str, Any]], verdict: AbstractContextManager[Any], tmp_path: Path
) -> None:
    (code,) = shown(TESTING, "python")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    (tmp_path / "script.json").write_text(json.dumps(script))
    agent = [str(TOOLCRIB), "acp", "--model", f"scripted:{tmp_path / 'script.json'}", "--no-sessions"]
    with verdict:
        await namespace["check"](agent, tmp_path)


def test_every_parameter_of_the_fake_editor_is_documented() -> None:
    for name in signature(FakeAcpClient).parameters:
        assert f"`{name}`" in TESTING


@pytest.mark.anyio
async def test_the_first_example_script_runs_to_its_end() -> None:
    (script,) = [json.loads(text) for text in shown(USING, "json") if text.startswith("[")]
    client = FakeAcpClient(read_text_file=True)
    async with talking(client, script):
        answer = await client.prompt(await client.new_session("/project"), "Look.")
    assert (answer.stop_reason, answer.text) == ("end_turn", script[-1]["text"])
    assert [each.status for each in answer.tool_calls.values()] == ["completed", "completed"]


def test_every_stop_reason_and_mode_is_documented() -> None:
    for reason in get_args(StopReason):
        assert row(USING, f"`{reason}`")
    for mode in MODES:
        assert f"**{mode.name}** (`{mode.id}`)" in USING


def test_the_documented_editor_settings_pass_model_and_configuration() -> None:
    settings = [json.loads(text) for text in shown(USING, "json") if "agent_servers" in text]
    assert len(settings) == 2
    for each in settings:
        name, *args = each["agent_servers"]["Toolcrib"]["args"]
        command = commands.get_command(Context(commands), name)
        assert command is not None
        given = command.make_context(name, args).params
        assert (given["model"], str(given["config"])) == ("anthropic:claude-opus-4-8", "/path/to/mcp.json")
