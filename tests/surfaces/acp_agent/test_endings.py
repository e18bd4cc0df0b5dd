"""Tests that an ended session leaves no terminal open and stores its last prompt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import anyio
import pytest
from acp import RequestError
from tests.surfaces.acp_agent.talking import DONE, RENAME, RENAMING, Script, call, expand, talking, turn

from toolcrib.agent.conversation_store import ConversationStore, StoredConversation
from toolcrib.testing.acp.agents import AgentGone
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.faults import Hang, Hold
from toolcrib.testing.acp.mcp_server import McpTool
from toolcrib.testing.acp.updates import PromptTurn

pytestmark = pytest.mark.anyio


def acp(folder: Path, script: Script) -> list[str]:
    """Returns the command that starts an agent whose model plays `script`."""
    path = folder / "script.json"
    path.write_text(json.dumps(script))
    return [sys.executable, "-m", "toolcrib", "acp", "--model", f"scripted:{path}"]


RUN: dict[str, Any] = {"name": "run_command", "kind": "execute", "description": "", "parameters": {"type": "object"}}
RUNNING = (expand("editor.run_command"), turn(call("run_command", command="make")), DONE)


class HeldStore(ConversationStore):
    """A store whose writes wait between `hold` and `let_go`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun = 0
        """The number of writes that began since `hold`."""
        self.reached = anyio.Event()
        self._open = anyio.Event()
        self._open.set()

    def hold(self) -> None:
        self.begun, self.reached, self._open = 0, anyio.Event(), anyio.Event()

    def let_go(self) -> None:
        self._open.set()

    async def keep(self, conversation: StoredConversation) -> None:
        self.begun += 1
        self.reached.set()
        await self._open.wait()
        await super().keep(conversation)


@pytest.fixture
def store(tmp_path: Path) -> HeldStore:
    return HeldStore(tmp_path / "conversations.sqlite")


@pytest.mark.parametrize("ending", ["close", "cancel", "load"])
@pytest.mark.parametrize(
    "method",
    [
        "_toolcrib/discover_tools",
        "session/request_permission",
        "terminal/create",
        "terminal/wait_for_exit",
        "terminal/output",
        "terminal/release",
    ],
)
async def test_an_interrupted_prompt_leaves_no_terminal_and_a_usable_session(
    method: str, ending: str, store: HeldStore
) -> None:
    answered = anyio.Event()
    client = FakeAcpClient(
        terminal=True,
        tools=[RUN],
        commands=lambda _: "built",
        permission="allow_always",
        faults={method: Hold(answered)},
    )
    async with talking(client, (*RUNNING, DONE), store=store):
        session = await client.new_session("/project")
        answers: list[PromptTurn] = []

        async def ask() -> None:
            answers.append(await client.prompt(session, "Build it."))

        async def end() -> None:
            match ending:
                case "close":
                    await client.close_session(session)
                case "load":
                    await client.load_session(session, "/project")
                case _:
                    await client.cancel(session)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.until(lambda: method in client.asked)
            tasks.start_soon(end)
            await client.until(lambda: any(frame.method in ENDINGS for frame in client.wire))
            answered.set()
        (answer,) = answers
        # Loading looks the session up before ending it, and the prompt may finish in between.
        assert answer.stop_reason == "cancelled" or ending == "load"
        await client.until(lambda: not client.open_terminals)
        if ending != "close":
            assert (await client.prompt(session, "And now?")).stop_reason == "end_turn"
        kept = await store.get(session)
        assert kept is not None
        assert kept.title == "Build it."


ENDINGS = {"session/close", "session/cancel", "session/load"}


async def test_a_prompt_during_the_cancellation_of_the_previous_one_is_refused(store: HeldStore) -> None:
    client = FakeAcpClient(tools=[RENAME], permission="silent")
    async with talking(client, RENAMING, store=store):
        session = await client.new_session("/project")
        store.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.prompt, session, "One.")
            await client.until(lambda: client.permissions_asked)
            await client.cancel(session)
            await store.reached.wait()
            with pytest.raises(RequestError, match="Invalid request"):
                await client.prompt(session, "Two.")
            store.let_go()
        assert (await client.prompt(session, "Two.")).stop_reason == "end_turn"


async def test_the_latest_state_of_a_session_is_stored_last(store: HeldStore) -> None:
    async with talking(FakeAcpClient(), (DONE,), store=store) as client:
        session = await client.new_session("/project")
        store.hold()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.set_mode, session, "read_only")
            await store.reached.wait()
            tasks.start_soon(client.set_mode, session, "ask")
            await client.request("session/list", {})  # its answer shows that earlier requests were processed
            assert store.begun == 1
            store.let_go()
        kept = await store.get(session)
    assert kept is not None
    assert kept.mode == "ask"


async def test_a_session_loaded_during_a_prompt_replays_that_prompt(store: HeldStore) -> None:
    client = FakeAcpClient(tools=[RENAME], permission="silent")
    async with talking(client, RENAMING, store=store):
        session = await client.new_session("/project")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.prompt, session, "Rename it.")
            await client.until(lambda: client.permissions_asked)
            await client.load_session(session, "/project")
        (loaded,) = (
            at for at, frame in enumerate(client.wire) if frame.sender == "client" and frame.method == "session/load"
        )
        told = [frame.params["update"] for frame in client.wire[loaded:] if frame.method == "session/update"]
    assert [each["content"]["text"] for each in told if each["sessionUpdate"] == "user_message_chunk"] == ["Rename it."]


async def test_concurrent_loads_of_one_session_open_one_connection(store: HeldStore) -> None:
    client = FakeAcpClient(mcp_servers={"bench": {"add": McpTool(lambda given: given["a"])}})
    async with talking(client, (DONE,), store=store):
        session = await client.new_session("/project")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client.load_session, session, "/project")
        await client.prompt(session, "Are you there?")
        assert len(client.mcp.connections) == 1


async def test_a_signal_releases_terminals_and_stores_the_conversation(tmp_path: Path) -> None:
    script = (
        expand("editor.run_command"),
        turn(call("run_command", command="serve", background=True)),
        turn(call("run_command", command="make")),
    )
    client = FakeAcpClient(
        terminal=True,
        commands=lambda _: "…",
        permission="allow_always",
        faults={"terminal/wait_for_exit": Hang()},
    )
    # The shell writes its process id to a file, so that the test can send a signal.
    command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(tmp_path / "pid"), *acp(tmp_path, script)]
    async with client.started(command, env={"XDG_STATE_HOME": str(tmp_path)}):
        await client.initialize()
        session = await client.new_session(tmp_path)

        async def ask() -> None:
            with suppress(AgentGone):
                await client.prompt(session, "Build it.")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.until(lambda: "terminal/wait_for_exit" in client.asked)
            assert len(client.open_terminals) == 2
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
            await client.until(lambda: not client.open_terminals)
    assert client.exit_code == 0
    kept = await ConversationStore(tmp_path / "toolcrib" / "conversations.sqlite").get(session)
    assert kept is not None
    assert kept.title == "Build it."


@pytest.mark.slow
def test_a_signal_stops_an_agent_whose_editor_does_not_read(tmp_path: Path) -> None:
    large = {"text": "x" * 3_000_000}
    with subprocess.Popen(
        [*acp(tmp_path, (large,)), "--no-sessions"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None

        def send(request_id: int, method: str, **params: Any) -> None:
            request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
            cast("IO[bytes]", program.stdin).write(json.dumps(request).encode() + b"\n")
            cast("IO[bytes]", program.stdin).flush()

        send(1, "initialize", protocolVersion=1)
        program.stdout.readline()
        send(2, "session/new", cwd=str(tmp_path), mcpServers=[])
        session = json.loads(program.stdout.readline())["result"]["sessionId"]
        send(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Tell me all."}])
        assert program.stdout.read(1) == b"{"  # the response has begun, and is larger than the buffer of a pipe
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=60) == 0
