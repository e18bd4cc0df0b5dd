"""Servers that send more requests than they read answers to, or than people can answer: the limits that apply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import anyio
import pytest
from tests.until import until

from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.principal import LOCAL_CONTEXT, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.sources.mcp import CarriedServer, Patience, backlog
from toolcrib.sources.mcp.mcp_source import McpSource

pytestmark = pytest.mark.anyio

MANY = 3_000

Json = dict[str, Any]

TOOL = {"name": "work", "inputSchema": {"type": "object"}}
ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
Call = Callable[..., Coroutine[Any, Any, ToolResult]]

ANSWERS: Mapping[str, Json] = {"initialize": ABOUT, "tools/list": {"tools": [TOOL]}}


@dataclass
class Server:
    """An in-process server that sends the messages of a test as fast as they are read."""

    reads: bool = True
    """Whether the server reads answers."""
    calls: list[Json] = field(default_factory=list[Json])
    answered: list[Json] = field(default_factory=list[Json])
    """The answers that the server received."""
    said: int = 0
    """How many messages of the test were read."""

    @asynccontextmanager
    async def open(self, server_id: str) -> AsyncGenerator[Self]:
        self._saying, self._said = anyio.create_memory_object_stream[Json](1)
        with self._saying, self._said:
            yield self

    async def send(self, message: Mapping[str, Any]) -> None:
        if "method" not in message:
            if not self.reads:
                await anyio.sleep_forever()
            self.answered.append(dict(message))
        elif message["method"] == "tools/call":
            self.calls.append(dict(message))
        elif "id" in message:
            answer = ANSWERS.get(message["method"])
            error = {"error": {"code": -32601, "message": "no"}}
            await self.say(message["id"], **({"result": answer} if answer is not None else error))

    async def receive(self) -> Json:
        return await self._said.receive()

    async def say(self, request_id: Any = None, /, **message: Any) -> None:
        await self._saying.send({"jsonrpc": "2.0", **({} if request_id is None else {"id": request_id}), **message})
        self.said += 1

    async def finish(self) -> None:
        """Answer the first call."""
        await self.say(self.calls[0]["id"], result={"content": [{"type": "text", "text": "done"}]})


@dataclass
class Thinking:
    """A client with a person who answers when the test says so."""

    log_level = None
    capabilities: Mapping[str, Any] = field(default_factory=lambda: {"elicitation": {}})
    asked: int = 0
    decided: anyio.Event = field(default_factory=anyio.Event)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked += 1
        await self.decided.wait()
        return {"action": "decline"}

    def log(self, params: Mapping[str, Any]) -> None: ...


QUESTION: Json = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


@asynccontextmanager
async def running(server: Server, client: Client | None = None) -> AsyncGenerator[Call]:
    """Yield a function that calls the server's tool. `said` counts from 0 at that point."""
    standing = client or NO_CLIENT
    carried = CarriedServer("s", server)
    async with McpSource("s", carried, patience=Patience(30, 30, 30), client=lambda: standing) as source:
        (tool,) = (await source.list_tools()).tools
        server.said = 0
        yield partial(source.call_tool, tool, {})


async def test_a_server_that_does_not_read_answers_is_not_read_beyond_a_limit() -> None:
    server = Server(reads=False)
    async with running(server), anyio.create_task_group() as tasks:

        async def flood() -> None:
            for number in range(MANY):
                await server.say(number, method="ping")

        tasks.start_soon(flood)
        await anyio.wait_all_tasks_blocked()
        assert backlog.MAX_UNANSWERED <= server.said < backlog.MAX_UNANSWERED + 10
        tasks.cancel_scope.cancel()


async def test_a_server_that_reads_gets_an_answer_to_every_request() -> None:
    server = Server()
    async with running(server):
        for number in range(MANY):
            await server.say(number, method="ping")
        await anyio.wait_all_tasks_blocked()
    assert [each["id"] for each in server.answered] == [*range(MANY)]


@pytest.mark.parametrize("text", ["", "x" * (backlog.MAX_ASKED_BYTES // 10)])
async def test_questions_beyond_the_limit_are_refused_and_calls_continue(text: str) -> None:
    server, client, results = Server(), Thinking(), list[ToolResult]()
    async with running(server, client) as call, anyio.create_task_group() as tasks:

        async def work() -> None:
            results.append(await call(CallContext(client=client)))

        tasks.start_soon(work)
        await anyio.wait_all_tasks_blocked()
        params = {**QUESTION, "message": text}
        count = MANY if not text else 20
        for number in range(count):
            await server.say(number, method="elicitation/create", params=params)
        waiting = backlog.MAX_ASKED if not text else 9
        # A thread reads long messages, so a blocked event loop does not mean that all were read.
        await until(lambda: len(server.answered) >= count - waiting, "the refusals of all further questions")
        await until(lambda: client.asked >= waiting, "the questions that people can answer")
        assert (client.asked, len(server.answered)) == (waiting, count - waiting)
        assert all("at most" in each["error"]["message"] for each in server.answered)
        await server.finish()  # while all questions are open
        await anyio.wait_all_tasks_blocked()
        assert [result.text for result in results] == ["done"]
        client.decided.set()
        await anyio.wait_all_tasks_blocked()
        assert len(server.answered) == count
        await server.say("again", method="elicitation/create", params=QUESTION)
        await anyio.wait_all_tasks_blocked()
        assert server.answered[-1]["result"] == {"action": "decline"}


async def test_a_server_that_reads_no_answers_for_long_is_disconnected_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backlog, "STUCK_S", 0.01)
    server = Server()
    failures: list[SourceUnavailable] = []
    async with running(server) as call, anyio.create_task_group() as tasks:

        async def fail() -> None:
            with pytest.raises(SourceUnavailable) as failed:
                await call(LOCAL_CONTEXT)
            failures.append(failed.value)
            tasks.cancel_scope.cancel()

        tasks.start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        server.reads = False
        for number in range(MANY):
            await server.say(number, method="ping")
    assert failures[0].diagnosis == "Its connection was ended because it sent requests and did not read the answers."


async def test_progress_beyond_a_limit_is_dropped_if_the_listener_is_slow() -> None:
    server, heard = Server(), list[float]()

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        await anyio.sleep_forever()

    async with running(server) as call, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, LOCAL_CONTEXT, progress=listen))
        await anyio.wait_all_tasks_blocked()
        token = server.calls[0]["params"]["_meta"]["progressToken"]
        for number in range(MANY):
            await server.say(method="notifications/progress", params={"progressToken": token, "progress": number})
        await anyio.wait_all_tasks_blocked()
        assert heard == [*range(backlog.MAX_PROGRESS)]
        tasks.cancel_scope.cancel()
