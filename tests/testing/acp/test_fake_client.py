"""The fake editor over a real stream: the behaviour of an editor and scripted faults, as an agent sees them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import acp
import anyio
import mcp_types as types
import pytest
from acp.connection import Connection
from acp.helpers import (
    plan_entry,
    start_tool_call,
    text_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_current_mode,
    update_plan,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    EnvVariable,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ResumeSessionResponse,
    SetSessionModeResponse,
    ToolCallUpdate,
)
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server

from toolcrib.testing import FakeAcpClient
from toolcrib.testing.acp.agents import AgentGone
from toolcrib.testing.acp.faults import Delay, Drop, Garbage, Hang, Hold, Instead, Refuse, WrongId
from toolcrib.testing.acp.mcp_server import McpForm, McpTool, SimpleTool
from toolcrib.testing.acp.permissions import Choice, PermissionAsked
from toolcrib.testing.acp.recorded_wire import Frame
from toolcrib.testing.acp.terminals import ScriptedCommand

pytestmark = pytest.mark.anyio

Act = Callable[[acp.Client, str], Awaitable[Any]]

ALLOW = PermissionOption(option_id="yes", name="Yes", kind="allow_once")
REJECT = PermissionOption(option_id="no", name="No", kind="reject_once")
OPTIONS = [
    ALLOW,
    REJECT,
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="never", name="Never", kind="reject_always"),
]


class TinyAgent:
    """An SDK agent that runs a function of the test in each prompt. `heard` lists the messages of the editor."""

    def __init__(self, act: Act) -> None:
        self._act = act
        self._numbers = iter(range(1, 100))
        self.heard: list[tuple[str, Any]] = []
        self.cancelled = asyncio.Event()
        self.capabilities: ClientCapabilities | None = None
        self.editor: Implementation | None = None

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        self.capabilities, self.editor = client_capabilities, client_info
        return InitializeResponse(
            protocol_version=protocol_version, agent_capabilities=AgentCapabilities(load_session=True)
        )

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **kwargs: Any) -> NewSessionResponse:
        self.heard.append((cwd, [server.name for server in mcp_servers or ()]))
        return NewSessionResponse(session_id=f"session-{next(self._numbers)}")

    async def load_session(self, cwd: str, session_id: str, **kwargs: Any) -> LoadSessionResponse:
        await self._client.session_update(session_id, update_user_message_text("Earlier."))
        return LoadSessionResponse()

    async def resume_session(self, session_id: str, cwd: str, **kwargs: Any) -> ResumeSessionResponse:
        return ResumeSessionResponse()

    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        self.heard.append(("closed", session_id))
        return CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        await self._client.session_update(session_id, update_current_mode(mode_id))
        return SetSessionModeResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        said = await self._act(self._client, session_id)
        if said is not None:
            await self._client.session_update(session_id, update_agent_message_text(str(said)))
        return PromptResponse(stop_reason="cancelled" if self.cancelled.is_set() else "end_turn")

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        self.cancelled.set()

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        agent: Any = self
        await acp.run_agent(agent, writer, reader, use_unstable_protocol=True)


async def nothing(client: acp.Client, session: str) -> None:
    """The act of an agent that needs no editor."""


async def played(client: FakeAcpClient, act: Act) -> Any:
    """Run `act` of an agent in its own prompt. Return its result, or raise its error."""
    given: list[Any] = []

    async def kept(port: acp.Client, session: str) -> None:
        try:
            given.append(await act(port, session))
        except acp.RequestError as error:
            given.append(error)

    async with client.connected_to(TinyAgent(kept).serve):
        await client.initialize()
        await client.prompt(await client.new_session("/project"), "Go.")
    if isinstance(given[0], Exception):
        raise given[0]
    return given[0]


async def refusal(client: FakeAcpClient, act: Act) -> int:
    """Return the code of the error that answers an agent's act."""
    with pytest.raises(acp.RequestError) as refused:
        await played(client, act)
    return refused.value.code


# Capabilities


async def test_the_agent_receives_the_capabilities_and_the_name_of_the_editor() -> None:
    agent = TinyAgent(nothing)
    client = FakeAcpClient(
        read_text_file=True, terminal=True, discovery=True, info=Implementation(name="ed", version="7")
    )
    async with client.connected_to(agent.serve):
        response = await client.initialize()
    assert response.agent_capabilities
    assert response.agent_capabilities.load_session
    assert agent.editor
    assert agent.editor.name == "ed"
    assert client.wire[0].params["clientCapabilities"] == {
        "fs": {"readTextFile": True},
        "terminal": True,
        "auth": {},
        "_meta": {"toolcrib": {"discoverTools": True}},
    }


async def test_an_editor_with_tools_offers_discovery_by_default() -> None:
    assert FakeAcpClient().capabilities.field_meta is None
    assert FakeAcpClient(tools=[{"name": "lint"}]).capabilities.field_meta == {"toolcrib": {"discoverTools": True}}
    assert FakeAcpClient(tools=[{"name": "lint"}], discovery=False).capabilities.field_meta is None


NEEDS_AN_OFFER: list[Act] = [
    lambda port, session: port.read_text_file(session_id=session, path="/a"),
    lambda port, session: port.write_text_file(session_id=session, path="/a", content=""),
    lambda port, session: port.create_terminal(session_id=session, command="true"),
    lambda port, session: port.terminal_output(session_id=session, terminal_id="terminal-1"),
    lambda port, session: port.wait_for_terminal_exit(session_id=session, terminal_id="terminal-1"),
    lambda port, session: port.kill_terminal(session_id=session, terminal_id="terminal-1"),
    lambda port, session: port.release_terminal(session_id=session, terminal_id="terminal-1"),
    lambda port, session: port.ext_method("toolcrib/discover_tools", {"sessionId": session}),
    lambda port, session: port.ext_method("toolcrib/call_tool", {"sessionId": session, "name": "lint"}),
    lambda port, session: port.ext_method("other/thing", {}),
]


@pytest.mark.parametrize("act", NEEDS_AN_OFFER)
async def test_a_method_that_is_not_offered_is_refused(act: Act) -> None:
    assert await refusal(FakeAcpClient(files={"/a": "text"}), act) == -32601


async def test_explicit_capabilities_decide_what_is_offered() -> None:
    client = FakeAcpClient(capabilities=ClientCapabilities(terminal=True), commands={"true": ScriptedCommand()})
    created = await played(client, lambda port, session: port.create_terminal(session_id=session, command="true"))
    assert created.terminal_id == "terminal-1"


# Files


@pytest.mark.parametrize(
    ("line", "limit", "read"),
    [(None, None, "1\n2\r\n3\f4"), (2, None, "2\r\n3\f4"), (2, 1, "2\r\n"), (None, 1, "1\n"), (9, 1, ""), (1, 0, "")],
)
async def test_a_file_is_read_from_a_line_up_to_a_limit(line: int | None, limit: int | None, read: str) -> None:
    client = FakeAcpClient(read_text_file=True, files={"/a.txt": "1\n2\r\n3\f4"})
    response = await played(
        client, lambda port, session: port.read_text_file(session_id=session, path="/a.txt", line=line, limit=limit)
    )
    assert response.content == read


async def test_a_file_that_the_agent_writes_is_in_the_files_of_the_editor() -> None:
    client = FakeAcpClient(write_text_file=True)
    await played(
        client, lambda port, session: port.write_text_file(session_id=session, path="/new.txt", content="ä\r\n")
    )
    assert client.files == {"/new.txt": "ä\r\n"}


async def test_a_real_folder_is_read_and_written_but_nothing_outside_of_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path)
    client = FakeAcpClient(read_text_file=True, write_text_file=True, files=root)

    async def act(port: acp.Client, session: str) -> str:
        await port.write_text_file(session_id=session, path=str(root / "new/a.txt"), content="ä\r\n")
        return (await port.read_text_file(session_id=session, path=str(root / "new/a.txt"))).content

    assert await played(client, act) == "ä\r\n"
    assert (root / "new/a.txt").read_bytes() == "ä\r\n".encode()
    assert [*client.files] == [str(root / "new/a.txt")]
    for path in (tmp_path / "secret.txt", root / "link" / "secret.txt", root / ".." / "secret.txt"):
        outside = str(path)
        assert (
            await refusal(client, lambda port, session, at=outside: port.read_text_file(session_id=session, path=at))
            == -32002
        )
        await refusal(
            client, lambda port, session, at=outside: port.write_text_file(session_id=session, path=at, content="")
        )
    assert (tmp_path / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize(("path", "code"), [("/missing.txt", -32002), ("relative.txt", -32602)])
async def test_a_missing_or_relative_path_is_refused(path: str, code: int) -> None:
    client = FakeAcpClient(read_text_file=True, files={"relative.txt": "text"})
    assert await refusal(client, lambda port, session: port.read_text_file(session_id=session, path=path)) == code


# Terminals


async def run(port: acp.Client, session: str, command: str, *args: str, **more: Any) -> tuple[str, Any, bool]:
    """Run a command and release it. Return its output, its exit code or signal, and whether the output was cut."""
    created = await port.create_terminal(session_id=session, command=command, args=[*args], **more)
    ended = await port.wait_for_terminal_exit(session_id=session, terminal_id=created.terminal_id)
    shown = await port.terminal_output(session_id=session, terminal_id=created.terminal_id)
    await port.release_terminal(session_id=session, terminal_id=created.terminal_id)
    assert shown.exit_status is not None
    assert shown.exit_status.exit_code == ended.exit_code
    return shown.output, ended.exit_code if ended.signal is None else ended.signal, shown.truncated


async def test_a_real_command_runs_with_its_arguments_environment_and_folder(tmp_path: Path) -> None:
    client = FakeAcpClient(terminal=True)
    environment = [EnvVariable(name="GREETING", value="hello")]
    script = 'echo "$GREETING $1"; pwd; echo oops >&2; exit 3'
    output, code, cut = await played(
        client,
        lambda port, session: run(port, session, "sh", "-c", script, "sh", "you", env=environment, cwd=str(tmp_path)),
    )
    assert (output, code, cut) == (f"hello you\n{tmp_path}\noops\n", 3, False)
    assert client.open_terminals == ()
    assert client.terminals.log[0].commanded.cwd == str(tmp_path)


async def test_a_command_line_in_one_string_runs_in_a_shell() -> None:
    client = FakeAcpClient(terminal=True)
    assert (await played(client, lambda port, session: run(port, session, "echo a | tr a b")))[0] == "b\n"


async def test_a_killed_command_ends_by_a_signal_and_its_terminal_stays_open() -> None:
    client = FakeAcpClient(terminal=True)

    async def act(port: acp.Client, session: str) -> tuple[Any, Any, Any]:
        created = await port.create_terminal(
            session_id=session, command="sh", args=["-c", "echo up; sleep 1000 & wait"]
        )
        at = created.terminal_id
        while not (before := await port.terminal_output(session_id=session, terminal_id=at)).output:
            await anyio.lowlevel.checkpoint()
        await port.kill_terminal(session_id=session, terminal_id=at)
        ended = await port.wait_for_terminal_exit(session_id=session, terminal_id=at)
        return before.exit_status, ended.signal, (await port.terminal_output(session_id=session, terminal_id=at)).output

    assert await played(client, act) == (None, "SIGKILL", "up\n")
    terminal = client.open_terminals[0]
    assert terminal.was_killed


async def test_a_command_left_running_is_killed_at_the_end_and_its_terminal_stays_listed() -> None:
    client = FakeAcpClient(terminal=True)
    created = await played(
        client, lambda port, session: port.create_terminal(session_id=session, command="sleep", args=["1000"])
    )
    assert [terminal.id for terminal in client.open_terminals] == [created.terminal_id]
    shown = client.open_terminals[0].shown
    assert shown.exit_status
    assert shown.exit_status.signal == "SIGKILL"


async def test_a_missing_program_is_an_error() -> None:
    client = FakeAcpClient(terminal=True)
    act: Act = lambda port, session: port.create_terminal(session_id=session, command="no-such-program-4b1f")  # noqa: E731
    assert await refusal(client, act) == -32603
    client.commands = {"make": ScriptedCommand("done")}
    assert await refusal(client, act) == -32603
    assert client.terminals.log == []


async def test_a_scripted_command_returns_the_scripted_output() -> None:
    client = FakeAcpClient(terminal=True, commands={"make": ScriptedCommand("done\n", exit_code=2)})
    assert await played(client, lambda port, session: run(port, session, "make")) == ("done\n", 2, False)
    client.commands = lambda commanded: " ".join(commanded.args)
    assert (await played(client, lambda port, session: run(port, session, "echo", "a", "b")))[0] == "a b"


async def test_a_scripted_command_can_run_until_it_is_killed_or_released() -> None:
    client = FakeAcpClient(terminal=True, commands={"server": ScriptedCommand("up\n", until_killed=True)})

    async def act(port: acp.Client, session: str) -> Any:
        created = await port.create_terminal(session_id=session, command="server")
        waiting = asyncio.ensure_future(
            port.wait_for_terminal_exit(session_id=session, terminal_id=created.terminal_id)
        )
        shown = await port.terminal_output(session_id=session, terminal_id=created.terminal_id)
        assert shown.exit_status is None
        await port.release_terminal(session_id=session, terminal_id=created.terminal_id)
        return (await waiting).signal

    assert await played(client, act) == "SIGKILL"


async def test_output_over_its_limit_is_cut_at_the_start_between_characters() -> None:
    client = FakeAcpClient(terminal=True, commands={"say": ScriptedCommand("aäöü")})
    assert await played(client, lambda port, session: run(port, session, "say", output_byte_limit=5)) == (
        "öü",
        0,
        True,
    )
    assert (await played(client, lambda port, session: run(port, session, "say", output_byte_limit=7)))[2] is False


async def test_a_terminal_is_unknown_after_release_and_in_other_sessions() -> None:
    client = FakeAcpClient(terminal=True, commands=lambda _: ScriptedCommand())

    async def released(port: acp.Client, session: str) -> Any:
        created = await port.create_terminal(session_id=session, command="make")
        await port.release_terminal(session_id=session, terminal_id=created.terminal_id)
        return await port.terminal_output(session_id=session, terminal_id=created.terminal_id)

    async def others(port: acp.Client, session: str) -> Any:
        created = await port.create_terminal(session_id=session, command="make")
        return await port.terminal_output(session_id="another", terminal_id=created.terminal_id)

    assert await refusal(client, released) == -32602
    assert await refusal(client, others) == -32602


# Tools


class Descriptor:
    def to_wire(self) -> Mapping[str, Any]:
        return {"name": "rename", "kind": "edit"}


async def test_the_catalog_is_sent_unchanged_including_malformed_entries() -> None:
    client = FakeAcpClient(tools=[Descriptor(), {"name": 7}, "nonsense"])
    discovered = await played(
        client, lambda port, session: port.ext_method("toolcrib/discover_tools", {"sessionId": session})
    )
    assert discovered == {"tools": [{"name": "rename", "kind": "edit"}, {"name": 7}, "nonsense"]}
    assert discovered == await client.discover_tools("session-1")
    assert client.received("_toolcrib/discover_tools") == [{"sessionId": "session-1"}]


def now(arguments: Mapping[str, Any]) -> str:
    return f"now: {arguments['a']}"


async def later(arguments: Mapping[str, Any]) -> str:
    return f"later: {arguments['a']}"


def fails(arguments: Mapping[str, Any]) -> Any:
    raise ValueError("No such symbol.")


def refuses(arguments: Mapping[str, Any]) -> Any:
    raise acp.RequestError(-32000, "Log in first")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("done", {"content": [{"type": "text", "text": "done"}]}),
        ({"n": 1}, {"content": [{"type": "text", "text": '{"n": 1}'}], "structuredContent": {"n": 1}}),
        ({"content": [], "isError": True, "_meta": {"k": 1}}, {"content": [], "isError": True, "_meta": {"k": 1}}),
        (now, {"content": [{"type": "text", "text": "now: 1"}]}),
        (later, {"content": [{"type": "text", "text": "later: 1"}]}),
        (fails, {"content": [{"type": "text", "text": "No such symbol."}], "isError": True}),
    ],
)
async def test_a_tool_answers_with_a_value_or_the_result_of_a_function(answer: Any, result: Any) -> None:
    client = FakeAcpClient(tools=[{"name": "lint"}], answers={"lint": answer})
    call = {"name": "lint", "arguments": {"a": 1}, "toolCallId": "call-1"}
    assert (
        await played(client, lambda port, session: port.ext_method("toolcrib/call_tool", {"sessionId": session} | call))
        == result
    )
    called = client.tools_called[0]
    assert (called.session_id, called.name, called.arguments) == ("session-1", "lint", {"a": 1})
    assert called.tool_call_id == "call-1"


async def test_a_tool_without_an_answer_returns_its_arguments() -> None:
    client = FakeAcpClient(tools=[{"name": "lint"}])
    call = {"name": "lint", "arguments": {"a": 1}}
    given = await played(
        client, lambda port, session: port.ext_method("toolcrib/call_tool", {"sessionId": session} | call)
    )
    assert given["structuredContent"] == {"a": 1}


async def test_a_call_of_an_unknown_or_refusing_tool_is_an_error() -> None:
    client = FakeAcpClient(tools=[{"name": "lint"}], answers={"lint": refuses, "hidden": "x"})

    def call(name: str) -> Act:
        return lambda port, session: port.ext_method("toolcrib/call_tool", {"sessionId": session, "name": name})

    assert await refusal(client, call("lint")) == -32000
    assert await refusal(client, call("hidden")) == -32602
    assert [called.name for called in client.tools_called] == ["lint"]


async def test_changed_tools_are_announced_to_every_session_or_to_one() -> None:
    agent = TinyAgent(nothing)
    client = FakeAcpClient(tools=[{"name": "lint"}])
    async with client.connected_to(agent.serve):
        await client.initialize()
        first, second = await client.new_session("/a"), await client.new_session("/b")
        agent.heard.clear()
        await client.change_tools([{"name": "rename"}], session_id=second)
        assert await client.discover_tools(first) == {"tools": [{"name": "lint"}]}
        assert await client.discover_tools(second) == {"tools": [{"name": "rename"}]}
        await client.change_tools([])
        assert await client.discover_tools(second) == {"tools": []}
        await client.close_session(first)
    told = ("toolcrib/tools_changed", {"sessionId": second})
    assert agent.heard == [told, ("toolcrib/tools_changed", {"sessionId": first}), told, ("closed", first)]


# Permission


def asks(tool: str = "call-1", options: list[PermissionOption] = OPTIONS) -> Act:
    async def act(port: acp.Client, session: str) -> Any:
        asked = ToolCallUpdate(tool_call_id=tool, title="Rename", raw_input={"a": 1})
        response = await port.request_permission(session_id=session, tool_call=asked, options=options)
        outcome = response.outcome
        return "cancelled" if outcome.outcome == "cancelled" else outcome.option_id

    return act


def no_renaming(asked: PermissionAsked) -> Choice:
    return "reject_once" if asked.tool_call.title == "Rename" else "allow_once"


@pytest.mark.parametrize(
    ("permission", "answered"),
    [
        ("allow_once", "yes"),
        ("allow_always", "always"),
        ("reject_once", "no"),
        ("reject_always", "never"),
        ("cancelled", "cancelled"),
        ("unknown", "an-option-that-was-not-offered"),
        (no_renaming, "no"),
    ],
)
async def test_the_person_answers_according_to_the_policy(permission: Any, answered: str) -> None:
    client = FakeAcpClient(permission=permission)
    assert await played(client, asks()) == answered
    asked = client.permissions_asked[0]
    assert (asked.session_id, asked.tool_call.title, asked.tool_call.raw_input) == ("session-1", "Rename", {"a": 1})
    assert asked.kinds == {"allow_once", "allow_always", "reject_once", "reject_always"}


async def test_a_permission_answer_can_be_an_error_and_an_impossible_choice_is_refused() -> None:
    assert await refusal(FakeAcpClient(permission="error"), asks()) == -32603
    assert await refusal(FakeAcpClient(permission="allow_always"), asks(options=[ALLOW])) == -32602


async def test_cancelling_answers_the_open_questions_and_the_next_prompt_asks_again() -> None:
    answers: list[Any] = []

    async def act(port: acp.Client, session: str) -> None:
        answers.append(await asks()(port, session))

    agent = TinyAgent(act)
    client = FakeAcpClient(permission="silent")
    async with client.connected_to(agent.serve):
        session = await client.new_session("/project")
        prompting = asyncio.ensure_future(client.prompt(session, "Go."))
        await client.until(lambda: client.permissions_asked)
        assert answers == []
        await client.cancel(session)
        assert (await prompting).stop_reason == "cancelled"
        client.permission = "allow_once"
        await client.prompt(session, "Again.")
    assert answers == ["cancelled", "yes"]


async def test_a_question_can_be_answered_after_the_cancellation() -> None:
    answers: list[Any] = []
    answer = asyncio.Event()

    async def act(port: acp.Client, session: str) -> None:
        answers.append(await asks()(port, session))

    async def allowed_late(asked: PermissionAsked) -> Choice:
        await answer.wait()
        return "allow_once"

    agent = TinyAgent(act)
    client = FakeAcpClient(permission=allowed_late)
    async with client.connected_to(agent.serve):
        session = await client.new_session("/project")
        prompting = asyncio.ensure_future(client.prompt(session, "Go."))
        await client.until(lambda: client.permissions_asked)
        await client.cancel(session, answering=False)
        await agent.cancelled.wait()
        assert answers == []
        answer.set()
        assert (await prompting).stop_reason == "cancelled"
    assert answers == ["yes"]


# Faults


def reads(port: acp.Client, session: str) -> Awaitable[Any]:
    return port.read_text_file(session_id=session, path="/a")


def editor(**changes: Any) -> FakeAcpClient:
    return FakeAcpClient(read_text_file=True, files={"/a": "text"}, **changes)


async def test_a_method_can_be_refused_with_any_error() -> None:
    assert await refusal(editor(faults={"fs/read_text_file": Refuse()}), reads) == -32601
    assert await refusal(editor(faults={"fs/read_text_file": Refuse(-32000, "No", {"a": 1})}), reads) == -32000


async def test_a_fault_can_be_removed() -> None:
    client = editor(faults={"fs/read_text_file": Refuse()})
    assert await refusal(client, reads) == -32601
    del client.faults["fs/read_text_file"]
    assert (await played(client, reads)).content == "text"


async def test_a_method_can_be_answered_with_a_different_result() -> None:
    faults = {"_toolcrib/discover_tools": Instead(["no object"])}
    client = FakeAcpClient(discovery=True, faults=faults)
    discovered = await played(
        client, lambda port, session: port.ext_method("toolcrib/discover_tools", {"sessionId": session})
    )
    assert discovered == ["no object"]


@pytest.mark.parametrize("fault", [Hang(), WrongId()])
async def test_a_method_can_stay_unanswered(fault: Hang | WrongId) -> None:
    async def act(port: acp.Client, session: str) -> str:
        reading = asyncio.ensure_future(reads(port, session))
        # When a later question is answered, the answer to the first one is overdue.
        await asks()(port, session)
        await asks()(port, session)
        assert not reading.done()
        reading.cancel()
        return "unanswered"

    client = editor(faults={"fs/read_text_file": fault})
    assert await played(client, act) == "unanswered"
    assert sorted(client.asked) == ["fs/read_text_file", *["session/request_permission"] * 2]
    answers = [frame.message for frame in client.wire if frame.message and "result" in frame.message]
    read = [answer["id"] for answer in answers if answer["result"] == {"content": "text"}]
    assert [number > 1000 for number in read] == ([True] if isinstance(fault, WrongId) else [])


async def test_a_method_can_be_held_while_others_are_answered() -> None:
    until = anyio.Event()

    async def act(port: acp.Client, session: str) -> str:
        reading = asyncio.ensure_future(reads(port, session))
        await asks()(port, session)
        await asks()(port, session)
        assert not reading.done()
        until.set()
        return (await reading).content

    assert await played(editor(faults={"fs/read_text_file": Hold(until)}), act) == "text"


async def test_a_method_can_be_answered_with_a_delay() -> None:
    assert (await played(editor(faults={"fs/read_text_file": Delay(0.001)}), reads)).content == "text"


async def test_an_invalid_line_can_be_sent_before_an_answer() -> None:
    client = editor(faults={"fs/read_text_file": Garbage(b"<html>")})
    assert (await played(client, reads)).content == "text"
    assert Frame("client", None, b"<html>\n") in client.wire


@pytest.mark.parametrize("after", [False, True])
async def test_the_connection_can_be_dropped_at_a_request_of_the_agent(after: bool) -> None:
    seen: list[BaseException] = []

    async def act(port: acp.Client, session: str) -> None:
        try:
            await port.write_text_file(session_id=session, path="/a", content="changed")
        except BaseException as error:
            seen.append(error)
            raise

    client = editor(write_text_file=True, faults={"fs/write_text_file": Drop(after)})
    async with client.connected_to(TinyAgent(act).serve):
        session = await client.new_session("/project")
        with pytest.raises(AgentGone, match="editor dropped"):
            await client.prompt(session, "Go.")
        assert not client.is_connected
    assert len(seen) == 1
    assert client.files == {"/a": "changed" if after else "text"}


@pytest.mark.parametrize("after", [False, True])
async def test_the_connection_can_be_dropped_at_a_prompt(after: bool) -> None:
    prompted = asyncio.Event()

    async def act(port: acp.Client, session: str) -> None:
        prompted.set()
        await anyio.sleep_forever()

    client = FakeAcpClient(faults={"session/prompt": Drop(after)})
    async with client.connected_to(TinyAgent(act).serve):
        session = await client.new_session("/project")
        with pytest.raises(AgentGone):
            await client.prompt(session, "Go.")
    assert not after or prompted.is_set() or client.wire[-1].method == "session/prompt"


async def test_an_editor_can_reconnect_after_a_drop_and_keeps_its_state() -> None:
    client = editor()
    async with client.connected_to(TinyAgent(reads).serve):
        client.drop()
        with pytest.raises(AgentGone):
            await client.new_session("/project")
    assert (await played(client, reads)).content == "text"
    assert client.asked == ["fs/read_text_file"]


# Updates of an agent


async def test_updates_are_merged_into_the_state_that_an_editor_shows() -> None:
    async def act(port: acp.Client, session: str) -> None:
        for update in (
            update_agent_thought_text("Hm."),
            update_plan([plan_entry("Look", status="in_progress")]),
            start_tool_call("1", "Rename", kind="edit", status="pending", raw_input={"to": "x"}),
            update_agent_message_text("Renam"),
            update_tool_call("1", status="in_progress"),
            start_tool_call("2", "Read", kind="read"),
            update_tool_call("1", status="completed", raw_output="ok"),
            update_agent_message_text("ed."),
            update_plan([plan_entry("Look", status="completed")]),
        ):
            await port.session_update(session, update)

    client = FakeAcpClient()
    async with client.connected_to(TinyAgent(act).serve):
        session = await client.new_session("/project")
        turn = await client.prompt(session, [text_block("Rename it.")])
        again = await client.prompt(session, "And again.")
    assert (turn.stop_reason, turn.text, turn.updates.thoughts) == ("end_turn", "Renamed.", "Hm.")
    assert [*turn.tool_calls] == ["1", "2"]
    call = turn.tool_calls["1"]
    assert (call.title, call.kind, call.status) == ("Rename", "edit", "completed")
    assert (call.raw_input, call.raw_output) == ({"to": "x"}, "ok")
    assert turn.updates.statuses("1") == ("pending", "in_progress", "completed")
    assert [plan[0].status for plan in turn.updates.plans] == ["in_progress", "completed"]
    assert again.text == "Renamed."
    assert client.updates[session] == (*turn.updates, *again.updates)


async def test_sessions_can_be_opened_loaded_resumed_switched_to_a_mode_and_closed() -> None:
    agent = TinyAgent(nothing)
    client = FakeAcpClient()
    async with client.connected_to(agent.serve):
        session = await client.new_session("/project")
        await client.load_session("old", "/project")
        assert client.updates["old"].user_text == "Earlier."
        await client.resume_session("older", "/project")
        await client.set_mode(session, "careful")
        assert client.updates[session].mode == "careful"
        assert client.sessions == [session, "old", "older"]
        await client.close_session("old")
        assert client.sessions == [session, "older"]
    assert agent.heard == [("/project", []), ("closed", "old")]
    assert client.sessions == []


async def test_all_frames_of_both_directions_are_recorded_in_order() -> None:
    client = editor()
    await played(client, reads)
    assert [(frame.sender, frame.method) for frame in client.wire] == [
        ("client", "initialize"),
        ("agent", None),
        ("client", "session/new"),
        ("agent", None),
        ("client", "session/prompt"),
        ("agent", "fs/read_text_file"),
        ("client", None),
        ("agent", None),
    ]
    assert client.received("fs/read_text_file") == [{"path": "/a", "sessionId": "session-1"}]


async def test_an_invalid_line_of_an_agent_is_recorded() -> None:
    async def chatty(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Starting...\n[1]\n")
        await TinyAgent(nothing).serve(reader, writer)

    client = FakeAcpClient()
    async with client.connected_to(chatty):
        await client.initialize()
    assert client.wire[:3].count(Frame("agent", None, b"Starting...\n")) == 1
    assert client.wire[:3].count(Frame("agent", None, b"[1]\n")) == 1


# Waiting, and the end of an agent


async def test_waiting_for_a_condition_ends_when_the_agent_ends() -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()

    client = FakeAcpClient()
    async with client.connected_to(leaves):
        await client.send_line(b"{}")
        with pytest.raises(AgentGone, match="agent ended"):
            await client.until(lambda: client.permissions_asked)


async def test_messages_sent_before_the_end_are_seen_before_the_end() -> None:
    async def tells_and_leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        update = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"bye"}}'
        params = f'{{"sessionId":"s","update":{update}}}'
        writer.write(f'{{"jsonrpc":"2.0","method":"session/update","params":{params}}}\n'.encode())

    client = FakeAcpClient()
    async with client.connected_to(tells_and_leaves):
        assert (await client.until(lambda: client.updates.get("s"))).text == "bye"


async def test_an_error_of_the_agent_is_chained_to_the_editors_error_and_never_lost() -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        raise LookupError("Broken.")

    client = FakeAcpClient()
    with pytest.raises(AgentGone) as gone:
        async with client.connected_to(breaks):
            await client.initialize()
    assert isinstance(gone.value.__cause__, LookupError)
    with pytest.raises(LookupError):
        async with client.connected_to(breaks):
            await client.send_line(b"{}")


async def test_an_agent_that_does_not_end_with_its_stream_is_cancelled() -> None:
    ended: list[str] = []

    async def stubborn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    async with FakeAcpClient(grace_s=0.01).connected_to(stubborn):
        await anyio.lowlevel.checkpoint()
    assert ended == ["cancelled"]


# Programs

PROGRAM = textwrap.dedent(
    """
    import asyncio, os, sys, threading, time
    import acp
    from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse

    class Agent:
        def on_connect(self, conn):
            self.client = conn

        async def initialize(self, protocol_version, **kwargs):
            return InitializeResponse(protocol_version=protocol_version)

        async def new_session(self, cwd, **kwargs):
            return NewSessionResponse(session_id=os.environ.get("SESSION", "session") + os.getcwd())

        async def prompt(self, session_id, prompt, **kwargs):
            if prompt[0].text == "break":
                print("out of order", file=sys.stderr, flush=True)
                os._exit(7)
            if prompt[0].text == "hang":
                threading.Thread(target=time.sleep, args=(1000,)).start()
            read = await self.client.read_text_file(session_id=session_id, path="/a")
            await self.client.session_update(session_id, acp.update_agent_message_text(read.content))
            return PromptResponse(stop_reason="end_turn")

    asyncio.run(acp.run_agent(Agent()))
    """
)
COMMAND = [sys.executable, "-c", PROGRAM]


async def test_a_program_is_started_with_its_environment_and_folder_and_ends(tmp_path: Path) -> None:
    client = editor()
    async with client.started(COMMAND, env={"SESSION": "mine"}, cwd=tmp_path):
        await client.initialize()
        session = await client.new_session("/project")
        assert session == f"mine{tmp_path}"
        assert (await client.prompt(session, "Go.")).text == "text"
        assert client.exit_code is None
    assert client.exit_code == 0


async def test_a_program_that_crashes_is_reported_with_its_standard_error() -> None:
    client = editor()
    async with client.started(COMMAND):
        session = await client.new_session("/project")
        with pytest.raises(AgentGone, match=r"ended with 7.*\n.*out of order"):
            await client.prompt(session, "break")
    assert client.exit_code == 7
    assert client.stderr == "out of order\n"


async def test_a_program_that_hangs_is_killed() -> None:
    client = editor(grace_s=0.05)
    async with client.started(COMMAND):
        await client.prompt(await client.new_session("/project"), "hang")
    assert client.exit_code == -9


async def test_a_program_ends_when_its_test_is_cancelled() -> None:
    client = editor()
    with anyio.CancelScope() as scope:
        async with client.started(COMMAND):
            await client.initialize()
            scope.cancel()
            await anyio.sleep_forever()
    assert client.exit_code == 0


# MCP over ACP


class RawAgent:
    """An agent on raw frames, for messages that the SDK's agent has no methods for."""

    def __init__(self, act: Callable[[Connection], Awaitable[Any]]) -> None:
        self._act = act
        self.given: Any = None
        self.told: list[tuple[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self._answer, writer, reader, listening=False)
        self._connection = connection
        try:
            await connection.main_loop()
        finally:
            await connection.close()

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        if method == "session/new":
            self.servers = params["mcpServers"]
            return {"sessionId": "s"}
        if method == "session/prompt":
            self.given = await self._act(self._connection)
            return {"stopReason": "end_turn"}
        self.told.append((method, params))
        return {"roots": []} if not is_notification else None


async def carried(client: FakeAcpClient, act: Callable[[Connection], Awaitable[Any]]) -> RawAgent:
    agent = RawAgent(act)
    async with client.connected_to(agent.serve):
        await client.prompt(await client.new_session("/project"), "Go.")
    return agent


INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
ENVELOPE: dict[str, Any] = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
TOOLS: dict[str, SimpleTool] = {
    "add": McpTool(lambda arguments: {"sum": arguments["a"] + arguments["b"]}, "Add two numbers.")
}


async def connected(wire: Connection, server: str = "acp:math") -> str:
    connection = (await wire.send_request("mcp/connect", {"serverId": server}))["connectionId"]
    await said(wire, connection, "initialize", INITIALIZE)
    await wire.send_notification("mcp/message", {"connectionId": connection, "method": "notifications/initialized"})
    return connection


async def said(wire: Connection, connection: str, method: str, params: Any = None) -> Any:
    return await wire.send_request("mcp/message", {"connectionId": connection, "method": method, "params": params})


def own(method: str, request: str = "r1", **params: Any) -> dict[str, Any]:
    return {"serverId": "acp:math", "requestId": request, "method": method, "params": params | ENVELOPE}


async def test_servers_over_acp_are_included_in_every_new_session() -> None:
    async def act(wire: Connection) -> None: ...

    agent = await carried(FakeAcpClient(mcp_servers={"math": TOOLS}), act)
    assert agent.servers == [{"type": "acp", "name": "math", "serverId": "acp:math"}]


async def test_a_server_can_be_used_over_a_connection() -> None:
    async def act(wire: Connection) -> Any:
        connection = await connected(wire)
        listed = await said(wire, connection, "tools/list")
        called = await said(wire, connection, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        assert await wire.send_request("mcp/disconnect", {"connectionId": connection}) == {}
        with pytest.raises(acp.RequestError) as gone:
            await said(wire, connection, "tools/list")
        return listed, called, gone.value.code

    client = FakeAcpClient(mcp_servers={"math": TOOLS | {"echo": now}})
    listed, called, code = (await carried(client, act)).given
    assert [(tool["name"], tool.get("description")) for tool in listed["tools"]] == [
        ("add", "Add two numbers."),
        ("echo", None),
    ]
    assert called["structuredContent"] == {"sum": 3}
    assert code == -32602
    assert client.mcp.connections == {}


async def test_a_server_can_be_used_with_self_contained_requests() -> None:
    async def act(wire: Connection) -> Any:
        with pytest.raises(acp.RequestError) as refused:
            await wire.send_request("mcp/connect", {"serverId": "acp:math"})
        return (
            refused.value.code,
            await wire.send_request("mcp/message", own("server/discover")),
            await wire.send_request("mcp/message", own("tools/list")),
            await wire.send_request("mcp/message", own("tools/call", name="add", arguments={"a": 1, "b": 2})),
        )

    client = FakeAcpClient(mcp_servers={"math": TOOLS}, mcp_form="requests")
    code, discovered, listed, called = (await carried(client, act)).given
    assert code == -32601
    assert "2026-07-28" in discovered["result"]["supportedVersions"]
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    assert called["result"]["structuredContent"] == {"sum": 3}


async def test_an_inner_error_is_an_error_answer_only_over_a_connection() -> None:
    async def over(wire: Connection) -> Any:
        with pytest.raises(acp.RequestError) as refused:
            await said(wire, await connected(wire), "no/such/method")
        return refused.value.code

    async def without(wire: Connection) -> Any:
        return await wire.send_request("mcp/message", own("no/such/method"))

    assert (await carried(FakeAcpClient(mcp_servers={"math": TOOLS}), over)).given == -32601
    client = FakeAcpClient(mcp_servers={"math": TOOLS}, mcp_form="requests")
    assert (await carried(client, without)).given["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": "2025-11-25"}, -32022),
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
    ],
)
async def test_a_request_without_version_or_capabilities_is_an_inner_error(meta: Any, code: int) -> None:
    async def act(wire: Connection) -> Any:
        return await wire.send_request("mcp/message", own("tools/list") | {"params": {"_meta": meta}})

    client = FakeAcpClient(mcp_servers={"math": TOOLS}, mcp_form="requests")
    assert (await carried(client, act)).given["error"]["code"] == code


@pytest.mark.parametrize("form", ["connections", "requests"])
async def test_an_unknown_server_is_an_outer_error(form: McpForm) -> None:
    async def act(wire: Connection) -> Any:
        method = "mcp/connect" if form == "connections" else "mcp/message"
        with pytest.raises(acp.RequestError) as refused:
            await wire.send_request(method, own("tools/list") | {"serverId": "acp:other"})
        return refused.value.code

    assert (await carried(FakeAcpClient(mcp_servers={"math": TOOLS}, mcp_form=form), act)).given == -33001


def slow_server(started: asyncio.Event, ended: list[str]) -> Server[Any]:
    """Return a server that reports progress, and then answers, sends a ping, or waits to be cancelled."""

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        await context.session.report_progress(1, 2, "half")
        if params.name == "wait":
            started.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("cancelled")
        if params.name == "ask":
            await context.session.send_ping()
        return types.CallToolResult(content=[types.TextContent(type="text", text="done")])

    return Server("slow", on_call_tool=call_tool)


@pytest.mark.parametrize("form", ["connections", "requests"])
async def test_a_server_of_the_sdk_sends_progress_before_its_answer(form: McpForm) -> None:
    async def act(wire: Connection) -> Any:
        call: dict[str, Any] = {"name": "go", "arguments": {}, "_meta": {"progressToken": "p"}}
        if form == "connections":
            return await said(wire, await connected(wire), "tools/call", call)
        call["_meta"] = {"progressToken": "p"} | ENVELOPE["_meta"]
        return (await wire.send_request("mcp/message", own("tools/call") | {"params": call}))["result"]

    client = FakeAcpClient(mcp_servers={"math": slow_server(asyncio.Event(), [])}, mcp_form=form)
    agent = await carried(client, act)
    assert agent.given["content"][0]["text"] == "done"
    (method, params) = agent.told[0]
    assert (method, params["method"], params["params"]["message"]) == ("mcp/message", "notifications/progress", "half")
    assert ("connectionId" in params) == (form == "connections")
    assert (params.get("serverId"), params.get("requestId")) == (
        (None, None) if form == "connections" else ("acp:math", "r1")
    )


async def test_a_server_can_send_requests_to_the_agent_over_its_connection() -> None:
    async def act(wire: Connection) -> Any:
        return await said(wire, await connected(wire), "tools/call", {"name": "ask", "arguments": {}})

    agent = await carried(FakeAcpClient(mcp_servers={"math": slow_server(asyncio.Event(), [])}), act)
    assert agent.given["content"][0]["text"] == "done"
    assert agent.told[-1][1]["method"] == "ping"


@pytest.mark.parametrize("form", ["connections", "requests"])
async def test_a_request_to_a_server_can_be_cancelled(form: McpForm) -> None:
    started, ended = asyncio.Event(), list[str]()

    async def act(wire: Connection) -> Any:
        call: dict[str, Any] = {"name": "wait", "arguments": {}}
        params: dict[str, Any] = own("tools/call", **call)
        if form == "connections":
            params = {"connectionId": await connected(wire), "method": "tools/call", "params": call}
        calling = asyncio.ensure_future(wire.send_request("mcp/message", params))
        await started.wait()
        number = next(frame.message["id"] for frame in client.wire if frame.message and frame.params == params)
        await wire.send_notification("$/cancel_request", {"requestId": number})
        with pytest.raises(acp.RequestError) as cancelled:
            await calling
        return cancelled.value.code

    client = FakeAcpClient(mcp_servers={"math": slow_server(started, ended)}, mcp_form=form)
    assert (await carried(client, act)).given == -32800
    assert ended == ["cancelled"]


async def test_faults_also_apply_to_frames_of_servers() -> None:
    async def act(wire: Connection) -> Any:
        with pytest.raises(acp.RequestError) as refused:
            await wire.send_request("mcp/connect", {"serverId": "acp:math"})
        return refused.value.code

    client = FakeAcpClient(mcp_servers={"math": TOOLS}, faults={"mcp/connect": Refuse(-32000, "Later")})
    assert (await carried(client, act)).given == -32000


# Other requests


async def test_a_request_of_any_method_gets_the_answer_of_the_agent() -> None:
    async def answers(wire: Connection) -> Any: ...

    client = FakeAcpClient()
    async with client.connected_to(RawAgent(answers).serve):
        assert await client.request("anything/at_all", {"a": 1}) == {"roots": []}
    async with client.connected_to(TinyAgent(nothing).serve):
        with pytest.raises(acp.RequestError):
            await client.request("anything/at_all")


def test_the_fakes_are_importable_without_the_sdk_and_without_pytest() -> None:
    program = "import sys; sys.modules['acp'] = sys.modules['pytest'] = None; import toolcrib.testing"
    subprocess.run([sys.executable, "-c", program], check=True)
    program = "import sys; sys.modules['pytest'] = None; from toolcrib.testing import FakeAcpClient; FakeAcpClient()"
    subprocess.run([sys.executable, "-c", program], check=True)
