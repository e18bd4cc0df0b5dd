"""Tests that a session survives a failing, hanging or disconnecting editor, or ends with the right stop reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from acp import RequestError
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel, StreamFunctionDef
from tests.surfaces.acp_agent.talking import DONE, RENAME, RENAMING, USAGES, call, expand, outcome, talking, turn

from toolcrib import Toolcrib
from toolcrib.surfaces.acp_agent.agent import Setup
from toolcrib.surfaces.acp_agent.serving import serve_streams
from toolcrib.testing.acp.agents import AgentGone
from toolcrib.testing.acp.fake_client import FakeAcpClient
from toolcrib.testing.acp.faults import Drop, Garbage, Hang, Refuse, WrongId
from toolcrib.testing.acp.permissions import Choice, PermissionAsked
from toolcrib.testing.acp.updates import PromptTurn

pytestmark = pytest.mark.anyio

READING = (expand("editor.read_file"), turn(call("read_file", path="/project/a.txt")), DONE)
RUNNING = (expand("editor.run_command"), turn(call("run_command", command="make")), DONE)


@asynccontextmanager
async def answering(client: FakeAcpClient, answer: StreamFunctionDef) -> AsyncGenerator[None]:
    """Connects `client` to an agent whose model is a function."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with Toolcrib() as crib:
            await serve_streams(Setup(crib, FunctionModel(stream_function=answer)), reader, writer)

    async with client.connected_to(serve):
        await client.initialize()
        yield


async def test_an_unknown_editor_method_fails_only_one_call() -> None:
    client = FakeAcpClient(read_text_file=True, faults={"fs/read_text_file": Refuse()})
    async with talking(client, READING):
        answer = await client.prompt(await client.new_session("/project"), "Read.")
    assert outcome(answer, "read_file")[0] == "failed"
    assert (answer.stop_reason, answer.text) == ("end_turn", "Done.")


async def test_a_prompt_with_a_hanging_tool_can_be_cancelled() -> None:
    client = FakeAcpClient(read_text_file=True, faults={"fs/read_text_file": Hang()})
    async with talking(client, READING):
        session = await client.new_session("/project")
        first = await cancelled_at(client, session, "fs/read_text_file")
        assert first.stop_reason == "cancelled"
        assert first.tool_calls["call-1-0"].status == "failed"
        second = await client.prompt(session, "Never mind.")
    assert (second.stop_reason, second.text) == ("end_turn", "Done.")


async def cancelled_at(client: FakeAcpClient, session: str, method: str) -> PromptTurn:
    """Sends a prompt, cancels it once the agent has requested `method`, and returns the answer."""
    answers: list[PromptTurn] = []

    async def ask() -> None:
        answers.append(await client.prompt(session, "Go."))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await client.until(lambda: method in client.asked)
        await client.cancel(session)
    return answers[0]


async def test_cancelling_a_prompt_with_an_open_permission_request_runs_nothing() -> None:
    client = FakeAcpClient(tools=[RENAME], permission="silent")
    async with talking(client, RENAMING):
        session = await client.new_session("/project")
        answer = await cancelled_at(client, session, "session/request_permission")
    assert answer.stop_reason == "cancelled"
    assert not client.tools_called


@pytest.mark.parametrize("late", ["allow_once", "allow_always"])
async def test_permission_granted_after_the_cancellation_is_ignored(late: Choice) -> None:
    asked, cancelled = anyio.Event(), anyio.Event()

    async def person(question: PermissionAsked) -> Choice:
        asked.set()
        await cancelled.wait()
        return late

    client = FakeAcpClient(tools=[RENAME], permission=person)
    async with talking(client, (*RENAMING, turn(call("rename_symbol", old="a", new="b")), DONE)):
        session = await client.new_session("/project")

        async def change_my_mind() -> None:
            await asked.wait()
            await client.cancel(session, answering=False)

        changing = asyncio.create_task(change_my_mind())
        first = await client.prompt(session, "Rename.")
        await changing
        assert first.stop_reason == "cancelled"
        cancelled.set()  # now the late answer is sent
        client.permission = "reject_once"
        second = await client.prompt(session, "Go on.")
        assert second.stop_reason == "end_turn"
    assert not client.tools_called


async def test_a_connection_lost_during_a_prompt_ends_the_agent() -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"session/request_permission": Drop()})
    async with talking(client, RENAMING):
        session = await client.new_session("/project")
        with pytest.raises(AgentGone):
            await client.prompt(session, "Rename.")
    assert not client.tools_called


@pytest.mark.parametrize(
    "fault", [Garbage(), Garbage(b"[]"), Garbage(b'{"id": 1.5}'), Garbage(b'{"method": 7, "id": []}')]
)
async def test_invalid_lines_on_the_stream_are_ignored(fault: Garbage) -> None:
    client = FakeAcpClient(read_text_file=True, files={"/project/a.txt": "hello"}, faults={"fs/read_text_file": fault})
    async with talking(client, READING):
        answer = await client.prompt(await client.new_session("/project"), "Read.")
    assert outcome(answer, "read_file")[0] == "completed"


async def test_a_response_with_an_unknown_id_is_ignored() -> None:
    client = FakeAcpClient(read_text_file=True, faults={"fs/read_text_file": WrongId()})
    async with talking(client, READING):
        session = await client.new_session("/project")
        answer = await cancelled_at(client, session, "fs/read_text_file")
    assert answer.stop_reason == "cancelled"


@pytest.mark.parametrize("method", ["terminal/wait_for_exit", "terminal/output"])
async def test_a_cancelled_prompt_releases_its_terminals(method: str) -> None:
    client = FakeAcpClient(terminal=True, commands=lambda _: "built", faults={method: Hang()})
    async with talking(client, RUNNING):
        session = await client.new_session("/project")
        answer = await cancelled_at(client, session, method)
        assert answer.stop_reason == "cancelled"
        await client.until(lambda: not client.open_terminals)


async def test_a_background_terminal_is_released_when_its_session_closes() -> None:
    client = FakeAcpClient(terminal=True, commands=lambda _: "serving")
    script = (expand("editor.run_command"), turn(call("run_command", command="serve", background=True)), DONE)
    async with talking(client, script):
        session = await client.new_session("/project")
        await client.prompt(session, "Serve.")
        assert client.open_terminals
        await client.close_session(session)
        assert not client.open_terminals


async def test_fifty_concurrent_sessions_are_isolated() -> None:
    client = FakeAcpClient(
        tools=[RENAME], answers={"rename_symbol": lambda given: given["old"]}, permission="allow_always"
    )
    async with talking(client, RENAMING):
        sessions = [await client.new_session(f"/project/{number}") for number in range(50)]
        answers = dict[str, str]()

        async def ask(session: str) -> None:
            answers[session] = (await client.prompt(session, "Rename.")).stop_reason

        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(ask, session)
    assert answers == dict.fromkeys(sessions, "end_turn")
    # Each session asked its own person: `allow_always` in one session does not count in a different one.
    assert sorted(asked.session_id for asked in client.permissions_asked) == sorted(sessions)
    assert sorted(called.session_id for called in client.tools_called) == sorted(sessions)


async def test_a_second_concurrent_prompt_in_a_session_is_refused() -> None:
    client = FakeAcpClient(tools=[RENAME], permission="silent")
    async with talking(client, RENAMING):
        session = await client.new_session("/project")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.prompt, session, "Rename.")
            await client.until(lambda: client.permissions_asked)
            with pytest.raises(RequestError, match="Invalid request"):
                await client.request(
                    "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "And?"}]}
                )
            await client.cancel(session)


async def test_a_model_error_fails_only_one_prompt() -> None:
    client = FakeAcpClient(tools=[USAGES])
    async with talking(client, (DONE,)):
        session = await client.new_session("/project")
        await client.prompt(session, "One.")
        with pytest.raises(RequestError, match="The model request failed"):
            await client.prompt(session, "Two.")
        other = await client.new_session("/project")
        assert (await client.prompt(other, "One.")).stop_reason == "end_turn"


@pytest.mark.parametrize("steps", range(24))
async def test_cancelling_near_the_end_of_a_response_leaves_no_open_call(steps: int) -> None:
    """Providers refuse a prompt that follows a call without a result."""
    cancelling: list[asyncio.Task[None]] = []

    async def cancel() -> None:
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        await client.cancel(session)

    async def answer(_: list[ModelMessage], __: AgentInfo) -> AsyncGenerator[str | DeltaToolCalls]:
        if cancelling:
            yield "Done."
            return
        yield {0: DeltaToolCall("list", "{}", tool_call_id="one"), 1: DeltaToolCall("list", "{}", tool_call_id="two")}
        cancelling.append(asyncio.create_task(cancel()))

    client = FakeAcpClient(tools=[USAGES])
    async with answering(client, answer):
        session = await client.new_session("/project")
        await client.prompt(session, "Go.")
        await cancelling[0]
        assert (await client.prompt(session, "Again.")).text == "Done."


async def test_tools_are_listed_again_after_a_cancellation_during_listing() -> None:
    client = FakeAcpClient(tools=[USAGES], answers={"find_usages": "none"}, faults={"_toolcrib/discover_tools": Hang()})
    script = (expand("editor.find_usages"), turn(call("find_usages", symbol="total")), DONE)
    async with talking(client, script):
        session = await client.new_session("/project")
        await cancelled_at(client, session, "_toolcrib/discover_tools")
        client.faults.clear()
        answer = await client.prompt(session, "Go on.")
    assert outcome(answer, "find_usages") == ("completed", "none")


@pytest.mark.parametrize("late", ["allow_once", "allow_always"])
async def test_permission_that_arrives_right_after_the_cancellation_is_ignored(late: str) -> None:
    client = FakeAcpClient(tools=[RENAME], faults={"session/request_permission": Hang()})
    async with talking(client, RENAMING):
        session = await client.new_session("/project")
        answers: list[PromptTurn] = []

        async def ask() -> None:
            answers.append(await client.prompt(session, "Rename."))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.until(lambda: "session/request_permission" in client.asked)
            asked = next(frame for frame in client.wire if frame.method == "session/request_permission")
            assert asked.message is not None
            cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
            outcome = {"outcome": "selected", "optionId": late}
            answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": {"outcome": outcome}}
            await client.send_line(f"{json.dumps(cancel)}\n{json.dumps(answer)}\n".encode())
    assert [answer.stop_reason for answer in answers] == ["cancelled"]
    assert not client.tools_called


@pytest.mark.parametrize("error", ["no", [], None, {"message": "no"}, {"code": "no", "message": 5}])
async def test_a_malformed_error_response_fails_only_one_call(error: object) -> None:
    client = FakeAcpClient(read_text_file=True, faults={"fs/read_text_file": Hang()})
    async with talking(client, READING):
        session = await client.new_session("/project")
        answers: list[PromptTurn] = []

        async def ask() -> None:
            answers.append(await client.prompt(session, "Read."))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await client.until(lambda: "fs/read_text_file" in client.asked)
            asked = next(frame for frame in client.wire if frame.method == "fs/read_text_file")
            assert asked.message is not None
            answer = {"jsonrpc": "2.0", "id": asked.message["id"], "error": error}
            await client.send_line(json.dumps(answer).encode() + b"\n")
    assert outcome(answers[0], "read_file")[0] == "failed"
    assert answers[0].stop_reason == "end_turn"


@pytest.mark.parametrize("arguments", ['{"symbol": "\\ud800"}', '{"symbol": "a", "n": 1180591620717411303424}', "[1"])
async def test_unencodable_arguments_fail_at_most_one_call(arguments: str) -> None:
    client = FakeAcpClient(tools=[USAGES], answers={"find_usages": "none"})
    called = turn({"name": "find_usages", "arguments": arguments})
    async with talking(client, (expand("editor.find_usages"), called, DONE)):
        answer = await client.prompt(await client.new_session("/project"), "Look.")
    assert (answer.stop_reason, answer.text) == ("end_turn", "Done.")
    assert answer.tool_calls["call-1-0"].status in {"completed", "failed"}


async def test_a_model_error_during_cancellation_counts_as_cancelled() -> None:
    asked = anyio.Event()

    async def answer(_: list[ModelMessage], __: AgentInfo) -> AsyncGenerator[str]:
        asked.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise ModelAPIError("model", "The connection was aborted.") from None
        yield ""

    client = FakeAcpClient()
    answers: list[PromptTurn] = []
    async with answering(client, answer):
        session = await client.new_session("/project")

        async def ask() -> None:
            answers.append(await client.prompt(session, "Go."))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            await client.cancel(session)
    assert [answer.stop_reason for answer in answers] == ["cancelled"]
