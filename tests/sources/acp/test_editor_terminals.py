"""Commands in an editor's terminals: their results, and the release of every terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from tests.sources.acp.editing import GONE, Editor

from toolcrib.core.errors import SourceUnavailable, ToolFailed
from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.editor_source import EditorSource
from toolcrib.sources.acp.port import CALL_ID, ClientRefused, TerminalExit

pytestmark = pytest.mark.anyio

REFUSED = ClientRefused(-32603, "no more terminals")


async def call(source: EditorSource, name: str, /, **arguments: Any) -> ToolResult:
    tool = next(tool for tool in (await source.list_tools()).tools if tool.name == name)
    assert not tool.arguments.violations(arguments)
    return await source.call_tool(tool, arguments, LOCAL_CONTEXT)


async def run(editor: Editor, **arguments: Any) -> ToolResult:
    async with editor.source() as source:
        result = await call(source, "run_command", command="make", **arguments)
        assert source.open_terminals == frozenset()
        assert editor.terminals == {}
        return result


async def test_a_command_runs_to_its_end_and_its_output_is_returned() -> None:
    editor = Editor(output="built\n")
    result = await run(editor)
    assert not result.is_error
    assert result.text == "The command ended with exit code 0.\nbuilt\n"
    assert result.structured_content == {
        "is_running": False,
        "exit_code": 0,
        "signal": None,
        "output": "built\n",
        "is_cut": False,
    }
    assert editor.methods == ["create_terminal", "wait_for_terminal_exit", "terminal_output", "release_terminal"]


async def test_a_command_gets_its_arguments_folder_and_environment() -> None:
    editor = Editor(exit=None)
    async with editor.source() as source:
        given = {"args": ["-k", "all"], "cwd": "sub", "env": {"CI": "1"}, "output_byte_limit": 10}
        await call(source, "run_command", command="make", background=True, **given)
        (running,) = editor.terminals.values()
        assert (running.command, running.cwd) == (["make", "-k", "all"], "/project/sub")
        assert (running.env, running.limit) == ({"CI": "1"}, 10)


@pytest.mark.parametrize(
    ("ended", "is_error", "told"),
    [
        (TerminalExit(2), True, "The command ended with exit code 2."),
        (TerminalExit(signal="SIGSEGV"), True, "The command was ended by signal SIGSEGV."),
        (TerminalExit(), False, "The command has ended."),
    ],
)
async def test_the_result_says_how_the_command_ended(ended: TerminalExit, is_error: bool, told: str) -> None:
    result = await run(Editor(exit=ended))
    assert (result.is_error, result.text) == (is_error, told)
    assert result.structured_content["exit_code"] == ended.code


async def test_only_the_end_of_a_long_output_is_kept_even_if_the_editor_sends_all() -> None:
    result = await run(Editor(output="ä" * 100 + "end"), output_byte_limit=6)
    assert result.structured_content["output"] == "äend"
    assert result.structured_content["is_cut"]
    assert "the beginning of its output was left out" in result.text


async def test_an_output_that_the_editor_cut_is_marked_as_cut() -> None:
    assert (await run(Editor(output="end", is_truncated=True))).structured_content["is_cut"]


async def test_a_command_that_exceeds_its_time_limit_is_killed_and_its_output_returned() -> None:
    editor = Editor(exit=None, output="so far")
    result = await run(editor, timeout_s=0.01)
    assert result.is_error
    assert "The command was killed, because it did not end within 0.01 s." in result.text
    assert "so far" in result.text
    assert result.structured_content["timed_out"]
    assert editor.methods[2:] == ["kill_terminal", "terminal_output", "release_terminal"]


async def test_a_cancelled_command_is_killed_and_its_terminal_released() -> None:
    editor = Editor(exit=None)
    async with editor.source() as source:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(source, "run_command", command="make"))
            await editor.until("wait_for_terminal_exit")
            tasks.cancel_scope.cancel()
        assert editor.terminals == {}
        assert editor.methods[-2:] == ["kill_terminal", "release_terminal"]


async def test_a_terminal_created_after_its_call_was_cancelled_is_released() -> None:
    editor = Editor(exit=None)
    release = editor.let_go["create_terminal"] = anyio.Event()
    async with editor.source() as source:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(source, "run_command", command="make", background=True))
            await editor.until("create_terminal")
            tasks.cancel_scope.cancel()
        assert editor.terminals == {}
        release.set()
        await editor.until("release_terminal")
    assert editor.methods == ["create_terminal", "kill_terminal", "release_terminal"]
    assert editor.terminals == {}


async def test_a_terminal_created_at_the_moment_of_cancellation_is_released() -> None:
    class Leaving(Editor):
        async def create_terminal(self, session_id: str, command: str, args: Sequence[str] = (), **more: Any) -> str:
            terminal_id = await super().create_terminal(session_id, command, args, **more)
            tasks.cancel_scope.cancel()
            return terminal_id

    editor = Leaving(exit=None)
    async with editor.source() as source:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(source, "run_command", command="make", background=True))
        assert editor.methods == ["create_terminal", "kill_terminal", "release_terminal"]
        assert source.open_terminals == frozenset()
    assert editor.terminals == {}


async def test_a_terminal_created_while_the_session_ends_is_released() -> None:
    editor = Editor(exit=None)
    release = editor.let_go["create_terminal"] = anyio.Event()

    async def session() -> None:
        async with editor.source() as source:
            await call(source, "run_command", command="make")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session)
        await editor.until("create_terminal")
        tasks.cancel_scope.cancel()
        release.set()
    assert editor.methods == ["create_terminal", "kill_terminal", "release_terminal"]
    assert editor.terminals == {}


async def test_a_session_ends_even_if_the_editor_never_creates_the_terminal() -> None:
    editor = Editor(hanging={"create_terminal"})
    refused = anyio.Event()

    async def run_until_refused(source: EditorSource) -> None:
        with pytest.raises(SourceUnavailable):
            await call(source, "run_command", command="make")
        refused.set()

    async with anyio.create_task_group() as tasks:
        async with editor.source(grace_s=0.01) as source:
            tasks.start_soon(run_until_refused, source)
            await editor.until("create_terminal")
    assert refused.is_set()


@pytest.mark.parametrize("method", ["wait_for_terminal_exit", "terminal_output"])
@pytest.mark.parametrize(("failure", "expected"), [(REFUSED, ToolFailed), (GONE, SourceUnavailable)])
async def test_a_terminal_is_released_if_the_editor_fails_during_the_command(
    method: str, failure: Exception, expected: type[Exception]
) -> None:
    editor = Editor(exit=None if method == "wait_for_terminal_exit" else TerminalExit(0), failing={method: failure})
    async with editor.source() as source:
        with pytest.raises(expected):
            await call(source, "run_command", command="make")
        assert editor.terminals == {}
    assert editor.methods.count("release_terminal") == 1


async def test_a_refused_terminal_fails_with_the_message_of_the_editor() -> None:
    editor = Editor(failing={"create_terminal": REFUSED})
    async with editor.source() as source:
        with pytest.raises(ToolFailed, match="no more terminals"):
            await call(source, "run_command", command="make")
    assert editor.methods == ["create_terminal"]


@pytest.mark.parametrize("failure", [REFUSED, GONE])
async def test_a_failed_release_does_not_lose_the_answer(failure: Exception) -> None:
    editor = Editor(output="built", failing={"release_terminal": failure})
    async with editor.source() as source:
        assert "built" in (await call(source, "run_command", command="make")).text
        assert source.open_terminals == frozenset()


async def test_a_release_that_hangs_is_repeated_when_the_session_ends() -> None:
    editor = Editor(hanging={"release_terminal"})
    async with editor.source(grace_s=0.01) as source:
        await call(source, "run_command", command="make")
        assert source.open_terminals == {"t1"}
        editor.hanging.clear()
    assert editor.terminals == {}


async def test_a_kill_that_hangs_does_not_keep_the_terminal_open() -> None:
    editor = Editor(exit=None, hanging={"kill_terminal"})
    async with editor.source(grace_s=0.01) as source:
        await call(source, "run_command", command="make", background=True)
    assert editor.terminals == {}


async def test_a_background_command_can_be_polled_awaited_killed_and_released() -> None:
    editor = Editor(exit=None, output="listening")
    async with editor.source() as source:
        started = await call(source, "run_command", command="serve", background=True)
        terminal = started.structured_content
        assert terminal == {"terminal_id": "t1"}
        looked = await call(source, "get_terminal_output", **terminal)
        assert looked.text == "The command is still running.\nlistening"
        waited = await call(source, "wait_for_terminal_exit", **terminal, timeout_s=0.01)
        assert waited.structured_content == {"is_running": True}
        assert not editor.terminals["t1"].is_killed
        await call(source, "kill_terminal", **terminal)
        ended = await call(source, "wait_for_terminal_exit", **terminal)
        assert ended.structured_content["signal"] == "SIGKILL"
        await call(source, "release_terminal", **terminal)
        assert (editor.terminals, source.open_terminals) == ({}, frozenset())
    assert editor.methods.count("release_terminal") == 1


async def test_background_commands_are_killed_when_the_source_is_closed() -> None:
    editor = Editor(exit=None)
    async with editor.source() as source:
        for _ in range(3):
            await call(source, "run_command", command="serve", background=True)
        assert len(editor.terminals) == 3
    assert editor.terminals == {}
    assert editor.methods.count("kill_terminal") == 3


async def test_background_commands_are_killed_when_the_session_is_cancelled() -> None:
    editor = Editor(exit=None)

    async def session() -> None:
        async with editor.source() as source:
            await call(source, "run_command", command="serve", background=True)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session)
        await editor.until("create_terminal")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert editor.terminals == {}


async def test_an_unknown_terminal_is_refused_with_the_message_of_the_editor() -> None:
    async with Editor().source() as source:
        with pytest.raises(ToolFailed, match="no such terminal: t9"):
            await call(source, "kill_terminal", terminal_id="t9")


@pytest.mark.parametrize("arguments", [{}, {"background": True}])
async def test_the_listener_is_called_while_the_terminal_is_open(arguments: Mapping[str, Any]) -> None:
    editor, heard = Editor(), list[tuple[str | None, str, bool]]()

    async def listen(call_id: str | None, terminal_id: str) -> None:
        heard.append((call_id, terminal_id, terminal_id in editor.terminals))

    async with editor.source(on_terminal=listen) as source:
        token = CALL_ID.set("call-1")
        try:
            await call(source, "run_command", command="make", **arguments)
        finally:
            CALL_ID.reset(token)
    assert heard == [("call-1", "t1", True)]


async def test_a_terminal_is_released_if_the_listener_fails() -> None:
    async def fail(call_id: str | None, terminal_id: str) -> None:
        raise GONE

    editor = Editor(exit=None)
    async with editor.source(on_terminal=fail) as source:
        with pytest.raises(SourceUnavailable):
            await call(source, "run_command", command="serve", background=True)
        assert editor.terminals == {}


async def test_a_source_that_was_not_entered_runs_no_command() -> None:
    editor = Editor()
    source = editor.source()
    with pytest.raises(SourceUnavailable):
        await call(source, "run_command", command="make")
    assert editor.methods == []
