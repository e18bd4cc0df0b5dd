"""The tools of an editor: where they come from, how they are called, and what happens when the editor fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.sources.acp.editing import (
    ALL,
    DISCOVERING,
    GONE,
    NO_METHOD,
    SESSION,
    Editor,
    described,
    descriptor,
)

from toolcrib.core.errors import InvalidArguments, SourceUnavailable, StaleExpansion, ToolFailed
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.acp.descriptors import ToolDescriptor, kind_of
from toolcrib.sources.acp.diffs import Diff, Location, diffs_of, locations_of
from toolcrib.sources.acp.editor_source import EditorSource, ToolsFrom
from toolcrib.sources.acp.port import CALL_ID, ClientGone, ClientOffer, ClientPort, ClientRefused
from toolcrib.sources.base import Source
from toolcrib.testing.sources import check_listing, check_source

pytestmark = pytest.mark.anyio

TERMINAL_TOOLS = [
    "run_command",
    "get_terminal_output",
    "wait_for_terminal_exit",
    "kill_terminal",
    "release_terminal",
]


def catalog(*descriptors: Any) -> dict[str, Any]:
    return {"tools": [*descriptors]}


async def names(source: EditorSource) -> list[str]:
    return [tool.name for tool in (await source.list_tools()).tools]


async def tool_of(source: EditorSource, name: str) -> Tool:
    return next(tool for tool in (await source.list_tools()).tools if tool.name == name)


async def call(source: EditorSource, name: str, /, **arguments: Any) -> ToolResult:
    tool = await tool_of(source, name)
    assert not tool.arguments.violations(arguments)
    return await source.call_tool(tool, arguments, LOCAL_CONTEXT)


def test_the_in_memory_editor_is_a_client_port() -> None:
    port: ClientPort = Editor()
    source: Source = EditorSource(port, SESSION, cwd="/project")
    assert source.name == "editor"


async def test_an_editor_source_passes_the_source_contract() -> None:
    def editor() -> Source:
        return Editor(files={"/project/a": "1", "/project/b": "2"}).source()

    await check_source(editor, tool="read_file", arguments={"path": "a"}, other_arguments={"path": "b"})
    await check_listing(lambda: Editor(DISCOVERING, catalog=catalog(descriptor("rename"), {})).source())


# Which tools there are


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (ClientOffer(), []),
        (ClientOffer(read_text_file=True), ["read_file"]),
        (ClientOffer(write_text_file=True), ["write_file"]),
        (ClientOffer(read_text_file=True, write_text_file=True), ["read_file", "write_file"]),
        (ClientOffer(terminal=True), TERMINAL_TOOLS),
        (ALL, ["read_file", "write_file", *TERMINAL_TOOLS]),
    ],
)
async def test_without_discovery_the_capabilities_decide_the_tools(offer: ClientOffer, expected: list[str]) -> None:
    editor = Editor(offer, catalog=catalog(descriptor("never asked for")))
    source = editor.source()
    assert await names(source) == expected
    assert source.tools_from is ToolsFrom.CAPABILITIES
    assert editor.methods == []


async def test_with_discovery_the_catalog_decides_the_tools() -> None:
    rename = descriptor("rename", "edit", parameters=described(["to"], to="string"), categories=["refactoring"])
    source = Editor(DISCOVERING, catalog=catalog(rename, descriptor("problems", "search"))).source()
    listing = await source.list_tools()
    assert [tool.name for tool in listing.tools] == ["rename", "problems"]
    assert source.tools_from is ToolsFrom.DISCOVERY
    assert "that your editor lists" in listing.summary
    renames = listing.tools[0]
    assert (renames.id, renames.description, kind_of(renames)) == ("editor.rename", "Does rename.", "edit")
    assert renames.input_schema == rename["parameters"]
    assert renames.metadata.requires_permission
    assert listing.tools[1].annotations.read_only


async def test_an_empty_catalog_falls_back_to_the_capabilities_with_a_warning() -> None:
    source = Editor(DISCOVERING).source()
    listing = await source.list_tools()
    assert [tool.name for tool in listing.tools] == ["read_file", "write_file", *TERMINAL_TOOLS]
    assert source.tools_from is ToolsFrom.CAPABILITIES
    assert "lists none" in listing.warnings[0]


async def test_a_catalog_of_only_invalid_descriptors_gives_no_tools() -> None:
    source = Editor(DISCOVERING, catalog=catalog("junk", {})).source()
    listing = await source.list_tools()
    assert listing.tools == ()
    assert len(listing.set_aside) == 2
    assert source.tools_from is ToolsFrom.DISCOVERY


async def test_malformed_and_duplicate_descriptors_are_set_aside() -> None:
    first, second = descriptor("a", "read"), descriptor("a", "edit")
    source = Editor(DISCOVERING, catalog=catalog(first, {"name": "b"}, second, descriptor("c"))).source()
    listing = await source.list_tools()
    assert [(tool.name, kind_of(tool)) for tool in listing.tools] == [("a", "read"), ("c", "other")]
    assert [each.name for each in listing.set_aside] == ["b", "a"]


@pytest.mark.parametrize("parameters", [described(["path"], path="string"), described(["uri"], uri="string")])
async def test_tools_that_the_capabilities_exclude_are_set_aside_from_the_catalog(parameters: dict[str, Any]) -> None:
    offer = ClientOffer(discovery=True)
    tools = [descriptor(name, parameters=parameters) for name in ("read_file", "write_file", *TERMINAL_TOOLS, "mine")]
    listing = await Editor(offer, catalog=catalog(*tools)).source().list_tools()
    assert [tool.name for tool in listing.tools] == ["mine"]
    assert [each.name for each in listing.set_aside] == ["read_file", "write_file", *TERMINAL_TOOLS]
    assert all("the editor does not support" in each.reason for each in listing.set_aside)


async def test_a_tool_named_like_a_writing_tool_requires_permission_for_every_kind() -> None:
    lying = [
        descriptor("write_file", "read", parameters=described(["path", "content"], path="string", content="string")),
        descriptor("run_command", "think", parameters=described(["line"], line="string")),
    ]
    listing = await Editor(DISCOVERING, catalog=catalog(*lying)).source().list_tools()
    assert [kind_of(tool) for tool in listing.tools] == ["edit", "execute"]
    assert all(tool.metadata.requires_permission and not tool.annotations.read_only for tool in listing.tools)


async def test_a_tool_is_placed_under_its_first_two_categories_and_tagged_with_all() -> None:
    listed = [descriptor("a", categories=["x", "y", "z"]), descriptor("b", categories=["x"]), descriptor("c")]
    one, two, none = (await Editor(DISCOVERING, catalog=catalog(*listed)).source().list_tools()).tools
    assert (one.metadata.category, one.own_path, one.metadata.tags) == (("editor", "x"), ("y",), ("x", "y", "z"))
    assert (two.metadata.category, two.own_path) == ((), ("x",))
    assert (none.metadata.category, none.own_path) == ((), ())


# When the editor does not list


@pytest.mark.parametrize(
    ("editor", "reason"),
    [
        (Editor(DISCOVERING, failing={"discover_tools": NO_METHOD}), "refused to: Method not found"),
        (Editor(DISCOVERING, failing={"discover_tools": GONE}), "no longer connected"),
        (Editor(DISCOVERING, catalog=[]), "the catalog is a list"),
        (Editor(DISCOVERING, catalog={"tool": []}), "without a list under `tools`"),
        (Editor(DISCOVERING, catalog=None), "the catalog is null"),
    ],
)
async def test_a_failed_discovery_makes_the_source_unavailable_with_the_reason(editor: Editor, reason: str) -> None:
    source = editor.source()
    with pytest.raises(SourceUnavailable, match=reason):
        await source.list_tools()
    assert source.tools_from is None


async def test_a_discovery_that_hangs_times_out() -> None:
    source = Editor(DISCOVERING, hanging={"discover_tools"}).source(timeout_s=0.01)
    with pytest.raises(SourceUnavailable, match="did not list its tools within"):
        await source.list_tools()


async def test_after_a_failed_discovery_earlier_tools_are_not_run() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")))
    source = editor.source()
    rename = await tool_of(source, "rename")
    editor.failing["discover_tools"] = NO_METHOD
    with pytest.raises(SourceUnavailable):
        await source.list_tools()
    assert source.tools_from is None
    with pytest.raises(SourceUnavailable, match="Method not found"):
        await source.call_tool(rename, {}, LOCAL_CONTEXT)
    assert "call_tool" not in editor.methods


async def test_a_failed_discovery_is_repeated_after_a_change_notification() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")), failing={"discover_tools": NO_METHOD})
    source = editor.source()
    changes = source.changes()
    with pytest.raises(SourceUnavailable):
        await source.list_tools()
    source.tools_changed()
    await anext(changes)
    editor.failing.clear()
    assert (await call(source, "rename")).content == ()


async def test_every_change_is_reported_and_pending_changes_are_merged() -> None:
    source = Editor().source()
    async with source:
        await source.list_tools()
        quiet = source.changes()
        told = source.changes()
        source.tools_changed()
        await anext(told)
        source.tools_changed()
    assert [None async for _ in quiet] == [None]  # one report for both changes


# Calling what the editor lists


async def test_a_tool_of_the_editor_is_called_by_its_name_and_its_answer_is_unchanged() -> None:
    answer = {
        "content": [{"type": "text", "text": "renamed", "annotations": {"priority": 1}}],
        "structuredContent": {"files": 2},
        "isError": False,
        "_meta": {"toolcrib": {"diffs": [{"path": "/project/a", "oldText": "x", "newText": "y"}]}, "other": 1},
    }
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")), answer=lambda name, arguments: answer)
    token = CALL_ID.set("call-7")
    try:
        result = await call(editor.source(), "rename", to="b")
    finally:
        CALL_ID.reset(token)
    assert result.wire == answer
    assert diffs_of(result) == (Diff("/project/a", "y", "x"),)
    assert editor.asked[-1] == ("call_tool", ("rename", {"to": "b"}))
    assert editor.call_ids == ["call-7"]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "done",
        {},
        {"content": "done"},
        {"content": ["done"]},
        {"content": [{"text": "done"}]},
        {"content": [], "resultType": "input_required"},
    ],
)
async def test_an_answer_that_is_not_a_tool_result_is_a_failure(answer: object) -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")), answer=lambda name, arguments: answer)
    with pytest.raises(ToolFailed, match="not a tool result"):
        await call(editor.source(), "rename")


async def test_a_refusal_of_the_editor_is_reported_in_its_words_up_to_a_limit() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")))
    editor.failing["call_tool"] = ClientRefused(-32000, "the file\nis read-only" + "!" * 1000)
    with pytest.raises(ToolFailed, match="the file is read-only!") as failed:
        await call(editor.source(), "rename")
    assert len(failed.value.message) < 400
    assert failed.value.details["upstream"]["code"] == -32000


async def test_an_editor_that_disconnects_during_a_call_makes_its_source_unavailable() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")), failing={"call_tool": GONE})
    with pytest.raises(SourceUnavailable, match="no longer connected") as gone:
        await call(editor.source(), "rename")
    assert not gone.value.retryable


async def test_a_removed_or_changed_tool_is_not_run() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename"), descriptor("problems", "read")))
    source = editor.source()
    rename, problems = (await source.list_tools()).tools
    editor.catalog = catalog(descriptor("problems", "read", requiresPermission=True))
    await source.list_tools()
    with pytest.raises(StaleExpansion, match="no longer exists"):
        await source.call_tool(rename, {}, LOCAL_CONTEXT)
    with pytest.raises(StaleExpansion, match="changed in the editor"):
        await source.call_tool(problems, {}, LOCAL_CONTEXT)
    assert "call_tool" not in editor.methods


async def test_a_tool_that_is_listed_again_unchanged_is_run() -> None:
    source = Editor(DISCOVERING, catalog=catalog(descriptor("rename"))).source()
    rename = await tool_of(source, "rename")
    await source.list_tools()
    assert not (await source.call_tool(rename, {}, LOCAL_CONTEXT)).is_error


# Tools of the protocol that are listed in a catalog


@pytest.mark.parametrize(
    "parameters",
    [
        described(["path"], path="string"),
        described(["path"], path="string", line="integer", limit="integer"),
        {**described(["path"], path="string"), "additionalProperties": False},
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "line": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
            "required": ["path"],
        },
        {"type": "object"},
        {"type": "object", "properties": {}},
    ],
)
async def test_a_known_tool_with_matching_parameters_uses_the_protocol_method(parameters: dict[str, Any]) -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("read_file", parameters=parameters)))
    editor.files["/project/a"] = "text"
    source = editor.source()
    assert (await call(source, "read_file", path="/project/a")).text == "text"
    assert "call_tool" not in editor.methods
    assert kind_of(await tool_of(source, "read_file")) == "read"


@pytest.mark.parametrize(
    "parameters",
    [
        described(["uri"], uri="string"),
        described(["path"], path="string", encoding="string"),
        described([], path="string"),
        described(["path"], path="array"),
        described(["path"], path="string", line="number"),
        {"type": "object", "properties": {"path": {"enum": ["a"]}}, "required": ["path"]},
        {"type": "object", "additionalProperties": False},
    ],
)
async def test_a_known_tool_with_different_parameters_is_called_in_the_editor(parameters: dict[str, Any]) -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("read_file", parameters=parameters)))
    source = editor.source()
    tool = await tool_of(source, "read_file")
    assert tool.input_schema == parameters
    await source.call_tool(tool, {"path": "a"}, LOCAL_CONTEXT)
    assert editor.asked[-1] == ("call_tool", ("read_file", {"path": "a"}))


async def test_a_known_tool_without_schema_and_description_gets_those_of_the_protocol() -> None:
    source = Editor(DISCOVERING, catalog=catalog(descriptor("read_file", description=" "))).source()
    tool = await tool_of(source, "read_file")
    assert tool.input_schema["required"] == ["path"]
    assert "unsaved changes" in tool.description


async def test_arguments_that_match_the_schema_but_not_the_protocol_are_refused() -> None:
    editor = Editor(
        DISCOVERING, catalog=catalog(descriptor("read_file", parameters=described(["path"], path="string")))
    )
    with pytest.raises(InvalidArguments, match="do not fit the protocol"):
        await call(editor.source(), "read_file", path="")
    assert editor.methods == ["discover_tools"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"details": "spawn ls -la ENOENT"}, "Internal error: spawn ls -la ENOENT"),
        ("spawn ENOENT", "Internal error: spawn ENOENT"),
        ({"errno": -2, "path": "a"}, 'Internal error: {"errno":-2,"path":"a"}'),
        (None, "Internal error"),
    ],
)
async def test_the_cause_in_an_error_of_the_editor_reaches_the_model(data: object, said: str) -> None:
    editor = Editor()
    editor.failing["create_terminal"] = ClientRefused(-32603, "Internal error", data)
    async with editor.source() as source:
        with pytest.raises(ToolFailed) as caught:
            await call(source, "run_command", command="ls")
    assert caught.value.message == f"The editor answered the call of `run_command` with an error: {said}"
    assert caught.value.hints == ()


@pytest.mark.parametrize("length", [10, 1_000_000])
async def test_the_cause_in_an_error_is_short_and_on_one_line(length: int) -> None:
    editor = Editor()
    editor.failing["create_terminal"] = ClientRefused(-32603, "Internal error", {"details": "a\nb" * length})
    async with editor.source() as source:
        with pytest.raises(ToolFailed) as caught:
            await call(source, "run_command", command="ls")
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"command": "ls -la 'my folder'"}, {"command": "ls", "args": ["-la", "my folder"]}),
        ({"command": "ls -la", "args": ["x"]}, None),
        ({"command": "ls"}, None),
        ({"command": "it's one"}, None),
    ],
)
async def test_a_refused_command_line_gets_a_hint_with_program_and_arguments(
    given: dict[str, Any], meant: dict[str, Any] | None
) -> None:
    editor = Editor()
    editor.failing["create_terminal"] = ClientRefused(-32603, "Internal error", {"details": "ENOENT"})
    async with editor.source() as source:
        with pytest.raises(ToolFailed) as caught:
            await call(source, "run_command", **given)
    hinted = [json.loads(hint.partition("for example: ")[2]) for hint in caught.value.hints]
    assert hinted == ([] if meant is None else [meant])


# Files


async def test_a_part_of_a_file_is_read_by_relative_path() -> None:
    editor = Editor(files={"/project/src/a.py": "one\ntwo\nthree\n"})
    result = await call(editor.source(), "read_file", path="lib/../src/a.py", line=2, limit=1)
    assert result.text == "two\n"
    assert result.structured_content == {"path": "/project/src/a.py", "line": 2, "text": "two\n", "is_cut": False}
    assert locations_of(result) == (Location("/project/src/a.py", 2),)
    assert diffs_of(result) == ()
    assert editor.asked == [("read_text_file", ("/project/src/a.py", 2, 1))]


async def test_an_empty_file_is_reported_as_empty() -> None:
    assert (await call(Editor(files={"/a": ""}).source(), "read_file", path="/a")).text == "[The file is empty.]"


async def test_a_lone_surrogate_in_a_file_is_replaced() -> None:
    assert (await call(Editor(files={"/a": "a\ud800"}).source(), "read_file", path="/a")).text == "a?"


async def test_a_missing_file_fails_with_the_message_of_the_editor() -> None:
    with pytest.raises(ToolFailed, match="no such file: /project/gone"):
        await call(Editor().source(), "read_file", path="gone")


async def test_windows_paths_of_an_editor_are_resolved() -> None:
    editor = Editor(files={"C:\\work\\src\\a.py": "text"})
    assert (await call(editor.source(cwd="C:\\work"), "read_file", path="src/a.py")).text == "text"


async def test_writing_a_file_reports_the_diff() -> None:
    editor = Editor(files={"/project/a": "old"})
    result = await call(editor.source(), "write_file", path="a", content="new")
    assert editor.files == {"/project/a": "new"}
    assert diffs_of(result) == (Diff("/project/a", "new", "old"),)
    assert locations_of(result) == (Location("/project/a"),)
    assert not result.is_error


async def test_the_diff_of_a_new_file_has_no_old_text() -> None:
    result = await call(Editor().source(), "write_file", path="a", content="new")
    assert diffs_of(result) == (Diff("/project/a", "new"),)


async def test_an_editor_that_cannot_read_is_not_asked_for_the_old_text() -> None:
    editor = Editor(ClientOffer(write_text_file=True), files={"/project/a": "old"})
    await call(editor.source(), "write_file", path="a", content="new")
    assert editor.methods == ["write_text_file"]


async def test_a_file_is_written_even_if_reading_its_old_text_times_out() -> None:
    editor = Editor(hanging={"read_text_file"})
    result = await call(editor.source(timeout_s=0.01), "write_file", path="a", content="new")
    assert editor.files == {"/project/a": "new"}
    assert diffs_of(result) == (Diff("/project/a", "new"),)


@pytest.mark.parametrize(
    ("kind", "preview", "fault", "diffs"),
    [
        ("edit", {"diffs": [{"path": "/project/a", "newText": "y"}]}, None, (Diff("/project/a", "y"),)),
        ("edit", {"diffs": ["odd", {"path": "/project/a", "newText": "y"}]}, None, (Diff("/project/a", "y"),)),
        ("edit", {"diffs": "odd"}, None, ()),
        ("edit", "odd", None, ()),
        ("edit", {}, NO_METHOD, ()),
        ("edit", {}, ClientGone(), ()),
        ("read", {"diffs": [{"path": "/project/a", "newText": "y"}]}, None, ()),
    ],
)
async def test_the_diffs_of_an_editors_own_tool_come_from_its_preview(
    kind: str, preview: object, fault: Exception | None, diffs: tuple[Diff, ...]
) -> None:
    editor = Editor(
        replace(DISCOVERING, previews=True),
        catalog=catalog(descriptor("rename", kind)),
        preview=preview,
        failing={} if fault is None else {"preview_tool": fault},
    )
    source = editor.source()
    assert await source.diffs(await tool_of(source, "rename"), {"to": "b"}) == diffs
    assert "call_tool" not in editor.methods


async def test_an_editor_without_previews_is_not_asked_for_one() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename", "edit")))
    source = editor.source()
    assert await source.diffs(await tool_of(source, "rename"), {}) == ()
    assert "preview_tool" not in editor.methods


async def test_the_diff_is_known_before_the_file_is_written() -> None:
    editor = Editor(files={"/project/a": "old"})
    source = editor.source()
    tool = await tool_of(source, "write_file")
    arguments = {"path": "a", "content": "new"}
    assert await source.diffs(tool, arguments) == (Diff("/project/a", "new", "old"),)
    assert editor.files == {"/project/a": "old"}


@pytest.mark.parametrize("arguments", [{}, {"path": 3}, {"path": "a"}, {"path": "a", "content": "x" * 1_000_001}])
async def test_invalid_arguments_and_a_too_large_text_give_no_diff(arguments: dict[str, Any]) -> None:
    source = Editor().source()
    assert await source.diffs(await tool_of(source, "write_file"), arguments) == ()


@pytest.mark.parametrize(
    "editor", [Editor(failing={"read_text_file": GONE}), Editor(DISCOVERING, catalog=catalog(descriptor("a")))]
)
async def test_other_tools_and_a_disconnected_editor_give_no_diff(editor: Editor) -> None:
    source = editor.source()
    tool = (await source.list_tools()).tools[-1]
    assert await source.diffs(tool, {"path": "a", "content": "b"}) == ()
    unknown = ToolDescriptor("write_file", "edit", "", {"type": "object"}).as_tool("editor")
    assert await source.diffs(unknown, {"path": "a", "content": "b"}) == ()


async def test_listings_are_requested_from_the_editor_one_at_a_time() -> None:
    editor = Editor(DISCOVERING, catalog=catalog(descriptor("rename")))
    release = editor.let_go["discover_tools"] = anyio.Event()
    source = editor.source()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.list_tools)
        tasks.start_soon(source.list_tools)
        await anyio.wait_all_tasks_blocked()
        assert editor.methods == ["discover_tools"]
        release.set()
    assert editor.methods == ["discover_tools", "discover_tools"]
