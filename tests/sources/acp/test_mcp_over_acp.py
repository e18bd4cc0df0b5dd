"""MCP servers in an editor, through `McpSource`, in both forms of MCP-over-ACP and over a real socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.acp.editor import KINDS, SERVER_ID, Json, Kind, carried, editing
from tests.until import until

from toolcrib.core.client import Client
from toolcrib.core.errors import SourceUnavailable, ToolFailed
from toolcrib.core.principal import LOCAL_CONTEXT, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.sources.acp.mcp_over_acp import OUR_IDS, McpOverAcp
from toolcrib.sources.base import Listing, ProgressListener, Source
from toolcrib.sources.mcp import CarriedServer, Patience
from toolcrib.sources.mcp import watching as changes_of_servers
from toolcrib.sources.mcp.carrier import Unreachable
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.server_spec import address, identity
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

PATIENT = Patience(start_s=30, list_s=30, call_s=30)

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
CONNECTED = pytest.mark.parametrize("kind", KINDS[:2])
KEY = "io.modelcontextprotocol/subscriptionId"
TOOLS = {"add", "steps", "hold", "given_up", "change", "edit", "greet"}


@asynccontextmanager
async def source_of(frames: McpOverAcp, **more: Any) -> AsyncGenerator[McpSource]:
    async with McpSource("editor", carried(frames), patience=PATIENT, **more) as source:
        yield source


async def call(
    source: Source,
    tool: str,
    /,
    context: CallContext = LOCAL_CONTEXT,
    progress: ProgressListener | None = None,
    **arguments: Any,
) -> ToolResult:
    offered = next(one for one in (await source.list_tools()).tools if one.name == tool)
    return await source.call_tool(offered, arguments, context, progress=progress)


def names(listing: Listing) -> set[str]:
    return {tool.name for tool in listing.tools}


@EVERY_KIND
async def test_a_server_in_the_editor_passes_the_source_contract(kind: Kind) -> None:
    async with editing(kind) as (_, frames):

        def make() -> Source:
            return McpSource("editor", carried(frames), patience=PATIENT)

        await check_source(make, tool="add", arguments={"a": 1, "b": 2}, other_arguments={"a": 3, "b": 4})


@EVERY_KIND
async def test_a_server_in_the_editor_is_listed_with_its_own_title_and_called(kind: Kind) -> None:
    async with editing(kind) as (editor, frames):
        async with source_of(frames) as source:
            listing = await source.list_tools()
            assert names(listing) == TOOLS
            assert (listing.title, listing.summary) == ("A bench", "Tools in the editor.")
            assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}
        assert all(one["id"].startswith(OUR_IDS) for one in editor.got if "id" in one)
        ids = [one["id"] for one in editor.got if "id" in one]
        assert len(ids) == len(set(ids))
        if kind == "on its own":
            requests = [one["params"] for one in editor.got if one["method"] == "mcp/message"]
            assert {one["serverId"] for one in requests} == {SERVER_ID}
            assert "initialize" not in {one["method"] for one in requests}
        else:
            assert editor.got[0]["method"] == "mcp/connect"
            assert editor.got[-1]["method"] == "mcp/disconnect"
            assert {one["params"]["connectionId"] for one in editor.got[1:]} == {"connection-1"}


@EVERY_KIND
async def test_progress_of_a_call_arrives_while_it_runs(kind: Kind) -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with editing(kind) as (_, frames), source_of(frames) as source:
        assert (await call(source, "steps", progress=progress, count=2)).text == "done"
    assert told == [(1, 2, "step 1"), (2, 2, "step 2")]


@EVERY_KIND
@pytest.mark.parametrize("renumbers", [False, True])
async def test_a_change_of_the_tools_is_reported_and_the_new_tool_can_be_called(
    kind: Kind, renumbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_of_servers, "FIRST_WAIT_S", 600.0)  # a lost stream also reports a change
    async with editing(kind) as (editor, frames):
        editor.renumbers = renumbers
        async with source_of(frames) as source:
            changes = source.changes()
            await source.list_tools()
            if kind != "connected, legacy":
                await until(lambda: editor.frames_of("subscriptions/listen"), "asking to be told of changes")
            with anyio.fail_after(30):
                while "late" not in names(await source.list_tools()):
                    await call(source, "change", name="late")
                    await anext(changes)
            assert (await call(source, "late")).text == "late"


@pytest.mark.parametrize(("kind", "renumbers"), [(KINDS[1], False), (KINDS[1], True), (KINDS[2], False)])
async def test_a_stream_of_changes_is_recognized_under_any_id_the_editor_gives_it(kind: Kind, renumbers: bool) -> None:
    updated = anyio.Event()
    async with editing(kind) as (editor, frames):
        editor.renumbers = renumbers
        async with source_of(frames) as source:
            with anyio.fail_after(30):
                await source.list_tools()
                await source.watch("memo://bench", updated.set)  # returns once the stream is acknowledged
                await call(source, "edit")
                await updated.wait()


@EVERY_KIND
async def test_a_cancelled_call_is_cancelled_at_the_server(kind: Kind) -> None:
    async with editing(kind) as (editor, frames), source_of(frames) as source:
        async with anyio.create_task_group() as tasks:

            async def holding(progress: float, total: float | None, message: str | None) -> None:
                tasks.cancel_scope.cancel()

            async def hold() -> None:
                await call(source, "hold", progress=holding)

            tasks.start_soon(hold)
        (asked,) = [one for one in editor.frames_of("tools/call") if one["params"]["params"]["name"] == "hold"]
        with anyio.fail_after(30):
            while (await call(source, "given_up")).structured_content != {"result": 1}:
                await anyio.lowlevel.checkpoint()
        withdrawn = [one["params"] for one in editor.got if one["method"] == "$/cancel_request"]
        assert withdrawn == [{"requestId": asked["id"]}]
        told = [one["params"]["params"]["requestId"] for one in editor.frames_of("notifications/cancelled")]
        assert told == ([] if kind == "on its own" else [asked["id"]])


async def test_without_a_connection_open_streams_are_cancelled_at_the_end() -> None:
    async with editing("on its own") as (editor, frames):
        async with source_of(frames) as source:
            await source.list_tools()
            await until(lambda: editor.frames_of("subscriptions/listen"), "asking to be told of changes")
        (listening,) = editor.frames_of("subscriptions/listen")

        def is_withdrawn() -> bool:
            params = {"requestId": listening["id"]}
            return any(one["method"] == "$/cancel_request" and one["params"] == params for one in editor.got)

        await until(is_withdrawn, "the cancellation of the stream")


class Person:
    """A client with a person who answers every question with a name."""

    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}}}
    log_level = None

    def __init__(self) -> None:
        self.asked: list[Json] = []

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append({"method": method, **params})
        return {"action": "accept", "content": {"name": "Ada"}}

    def log(self, params: Mapping[str, Any]) -> None:
        raise AssertionError(params)


async def test_a_legacy_server_can_ask_a_person_during_a_call() -> None:
    person: Client = Person()
    async with (
        editing("connected, legacy") as (editor, frames),
        source_of(frames, client=lambda: person) as source,
    ):
        greeting = await call(source, "greet", CallContext(client=person))
        assert greeting.text == "hello Ada"
        assert isinstance(person, Person)
        assert [one["message"] for one in person.asked] == ["Who is there?"]
        (answer,) = [one for one in editor.got if "result" in one]
        assert answer["result"]["content"] == {"name": "Ada"}


@CONNECTED
async def test_a_request_of_a_server_is_answered_under_the_id_of_its_frame(kind: Kind) -> None:
    async with editing(kind) as (editor, frames), source_of(frames) as source:
        await source.list_tools()
        on_it = {"connectionId": "connection-1"}
        await editor.say({"jsonrpc": "2.0", "id": "p", "method": "mcp/message", "params": {**on_it, "method": "ping"}})
        await editor.say(
            {"jsonrpc": "2.0", "id": "q", "method": "mcp/message", "params": {**on_it, "method": "no/such"}}
        )
        await editor.say({"jsonrpc": "2.0", "id": "r", "method": "mcp/message", "params": on_it})
        ping = await editor.answer_to("p")
        assert kind == "connected, modern" or ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
        assert "error" in await editor.answer_to("q")
        assert (await editor.answer_to("r"))["error"]["code"] == -32602


class Silent(Person):
    """A client with a person who never answers. Events say when the person is asked and left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = anyio.Event()
        self.is_left_alone = anyio.Event()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.is_asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.is_left_alone.set()
        raise AssertionError


@pytest.mark.parametrize(
    "withdrawal",
    [
        {"method": "$/cancel_request", "params": {"requestId": "q"}},
        {
            "method": "mcp/message",
            "params": {
                "connectionId": "connection-1",
                "method": "notifications/cancelled",
                "params": {"requestId": "q"},
            },
        },
    ],
    ids=["by ACP", "by MCP"],
)
async def test_a_withdrawn_question_is_cancelled_and_its_frame_gets_an_answer(
    withdrawal: Json,
) -> None:
    person = Silent()
    async with editing("connected, legacy") as (editor, frames), source_of(frames, client=lambda: person) as source:
        await source.list_tools()
        question: Json = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        params: Json = {"connectionId": "connection-1", "method": "elicitation/create", "params": question}
        await editor.say({"jsonrpc": "2.0", "id": "q", "method": "mcp/message", "params": params})
        with anyio.fail_after(30):
            await person.is_asked.wait()
            await editor.say({"jsonrpc": "2.0", **withdrawal})
            await person.is_left_alone.wait()
        assert (await editor.answer_to("q"))["error"]["code"] == -32800


async def test_two_streams_of_changes_on_one_connection_are_acknowledged_in_any_order() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def listen_twice() -> None:
            async with wire.frames.open(SERVER_ID) as channel:
                for own in ("listen-1", "listen-2"):
                    await channel.send({"jsonrpc": "2.0", "id": own, "method": "subscriptions/listen", "params": {}})
                first, second = (one["id"] for one in wire.sent[1:])
                for stream in (second, first):
                    agreed = {"method": "notifications/subscriptions/acknowledged", "params": {"_meta": {KEY: stream}}}
                    assert wire.frames.take({"method": "mcp/message", "params": {"connectionId": "c", **agreed}})
                named = [await channel.receive(), await channel.receive()]
                assert [one["params"]["_meta"][KEY] for one in named if isinstance(one, dict)] == [
                    "listen-2",
                    "listen-1",
                ]
                wire.frames.close()

        tasks.start_soon(listen_twice)
        assert wire.frames.take({"id": (await wire.first_sent())["id"], "result": {"connectionId": "c"}})


async def test_a_connection_id_or_a_question_id_in_use_is_not_accepted_again() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def open_twice() -> None:
            async with wire.frames.open(SERVER_ID):
                tasks.start_soon(answer_with_c, 1)
                with pytest.raises(Unreachable, match="contains no connection"):
                    async with wire.frames.open(SERVER_ID):
                        pass
                for _ in range(2):
                    question = {"connectionId": "c", "method": "ping"}
                    assert wire.frames.take({"id": "q", "method": "mcp/message", "params": question})
                await until(lambda: wire.sent[-1].get("id") == "q", "a refusal")
                assert wire.sent[-1]["error"]["code"] == -32600
                wire.frames.close()

        async def answer_with_c(number: int) -> None:
            await until(lambda: len(wire.sent) > number, "a request for a connection")
            assert wire.frames.take({"id": wire.sent[number]["id"], "result": {"connectionId": "c"}})

        tasks.start_soon(open_twice)
        await answer_with_c(0)


async def test_a_question_that_is_open_when_the_session_ends_gets_an_answer() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def ask_and_leave() -> None:
            async with wire.frames.open(SERVER_ID):
                question = {"connectionId": "c", "method": "elicitation/create"}
                assert wire.frames.take({"id": "q", "method": "mcp/message", "params": question})
            tasks.cancel_scope.cancel()

        tasks.start_soon(ask_and_leave)
        assert wire.frames.take({"id": (await wire.first_sent())["id"], "result": {"connectionId": "c"}})
        await until(lambda: len(wire.sent) > 2, "an answer and a goodbye")
        (goodbye,) = [one for one in wire.sent if one.get("method") == "mcp/disconnect"]
        assert wire.frames.take({"id": goodbye["id"], "result": {}})
    (answer,) = [one for one in wire.sent if one.get("id") == "q"]
    assert answer["error"]["code"] == -32800


@EVERY_KIND
async def test_a_server_that_the_client_does_not_know_fails_without_affecting_others(kind: Kind) -> None:
    async with editing(kind) as (editor, frames), source_of(frames) as source:
        async with McpSource("gone", carried(frames, "server-2"), patience=PATIENT) as gone:
            with pytest.raises(SourceUnavailable, match="no longer offered by the client") as caught:
                await gone.list_tools()
            assert not caught.value.retryable
        asked = [one for one in editor.got if one["params"].get("serverId") == "server-2"]
        assert [one["method"] for one in asked] == ["mcp/connect", "mcp/message"][: 2 if kind == "on its own" else 1]
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


@EVERY_KIND
async def test_a_client_that_disconnects_fails_the_running_call_and_every_later_call(kind: Kind) -> None:
    async with editing(kind) as (editor, frames), source_of(frames) as source:

        async def holding(progress: float, total: float | None, message: str | None) -> None:
            editor.hang_up()

        offered = {tool.name: tool for tool in (await source.list_tools()).tools}
        with anyio.fail_after(30), pytest.raises(SourceUnavailable, match="stopped before it answered") as caught:
            await source.call_tool(offered["hold"], {}, LOCAL_CONTEXT, progress=holding)
        assert not caught.value.retryable
        with anyio.fail_after(30), pytest.raises(SourceUnavailable):
            await source.call_tool(offered["add"], {"a": 1, "b": 2}, LOCAL_CONTEXT)
        with pytest.raises(Unreachable, match="no longer connected"):
            async with frames.open(SERVER_ID):
                pass


ODD: dict[str, Json] = {
    "a result that is not an object": {"result": 5},
    "neither a result nor an error": {},
    "an error that is not an object": {"error": "broken"},
    "an error without a code": {"error": {"message": "broken"}},
}


@EVERY_KIND
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_an_invalid_answer_fails_only_its_call(kind: Kind, odd: Json) -> None:
    async with editing(kind) as (editor, frames), source_of(frames) as source:
        await source.list_tools()
        for inner in [{"result": odd}, odd] if kind == "on its own" else [odd]:
            editor.instead["tools/call"] = lambda _, inner=inner: inner
            with anyio.fail_after(30), pytest.raises(ToolFailed, match="something that is not an MCP message"):
                await call(source, "add", a=1, b=2)
        del editor.instead["tools/call"]
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


@EVERY_KIND
async def test_an_error_of_the_server_is_reported_with_its_message_and_data(kind: Kind) -> None:
    error = {"error": {"code": -32123, "message": "the vice is missing", "data": {"drawer": 3}}}
    async with editing(kind) as (editor, frames), source_of(frames) as source:
        await source.list_tools()
        editor.instead["tools/call"] = lambda _: {"result": error} if kind == "on its own" else error
        with pytest.raises(ToolFailed, match="the vice is missing") as caught:
            await call(source, "add", a=1, b=2)
        assert caught.value.details["upstream"] == error["error"]


@EVERY_KIND
async def test_an_answer_over_the_size_limit_fails_only_its_call(kind: Kind) -> None:
    content = {"content": [{"type": "text", "text": "x" * 300_000}]}
    async with editing(kind) as (editor, frames), source_of(frames, max_message_bytes=200_000) as source:
        await source.list_tools()
        long = {"result": {"result": content}} if kind == "on its own" else {"result": content}
        editor.instead["tools/call"] = lambda _: long
        with anyio.fail_after(30), pytest.raises(ToolFailed, match="answered with more than"):
            await call(source, "add", a=1, b=2)
        del editor.instead["tools/call"]
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


@pytest.mark.parametrize(
    ("code", "told", "retryable"),
    [
        (-33001, "no longer offered by the client", False),
        (-33000, "has too many running requests", True),
        (-33002, "did not answer through its client", False),
        (-32602, "did not answer through its client", False),
    ],
)
async def test_a_routing_error_of_the_client_makes_the_server_unavailable(
    code: int, told: str, retryable: bool
) -> None:
    async with editing("on its own") as (editor, frames), source_of(frames) as source:
        await source.list_tools()
        editor.instead["tools/call"] = lambda _: {"error": {"code": code, "message": "so it is"}}
        with anyio.fail_after(30), pytest.raises(SourceUnavailable, match=told) as caught:
            await call(source, "add", a=1, b=2)
        assert caught.value.retryable is retryable
        assert "so it is" in caught.value.diagnosis
        del editor.instead["tools/call"]
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


async def test_a_server_without_connections_need_not_support_discovery() -> None:
    async with editing("on its own") as (editor, frames), source_of(frames) as source:
        editor.instead["server/discover"] = lambda _: {"result": {"error": {"code": -32601, "message": "unknown"}}}
        assert names(await source.list_tools()) == TOOLS
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


async def test_a_server_without_connections_gets_no_handshake_if_discovery_fails() -> None:
    async with editing("on its own") as (editor, frames), source_of(frames) as source:
        editor.instead["server/discover"] = lambda _: {"result": {"error": {"code": -32603, "message": "no vice"}}}
        with anyio.fail_after(30), pytest.raises(SourceUnavailable) as caught:
            await source.list_tools()
        assert "no vice" in caught.value.diagnosis
        assert not editor.frames_of("initialize")


async def test_a_client_that_does_not_forward_messages_is_reported_as_the_cause() -> None:
    async with editing("on its own") as (editor, frames), source_of(frames) as source:
        for method in ("server/discover", "initialize"):
            editor.instead[method] = lambda _: {"error": {"code": -32601, "message": "Method not found"}}
        with (
            anyio.fail_after(30),
            pytest.raises(SourceUnavailable, match="a client that does not forward messages to it"),
        ):
            await source.list_tools()


@EVERY_KIND
async def test_arguments_that_are_not_serializable_fail_only_their_call(kind: Kind) -> None:
    async with editing(kind) as (_, frames), source_of(frames) as source:
        write = frames._send  # pyright: ignore[reportPrivateUsage]

        async def strict(message: Json) -> None:
            if "18446744073709551616" in str(message):
                raise TypeError("Integer exceeds 64-bit range")
            await write(message)

        frames._send = strict  # pyright: ignore[reportPrivateUsage]
        with anyio.fail_after(30), pytest.raises(SourceUnavailable, match="did not get the request"):
            await call(source, "add", a=2**64, b=2)
        assert (await call(source, "add", a=2, b=3)).structured_content == {"result": 5}


async def test_two_sessions_with_one_server_use_separate_connections() -> None:
    async with editing("connected, legacy") as (editor, frames):
        async with source_of(frames) as one, source_of(frames) as other:
            await one.list_tools()
            await other.list_tools()
            assert (await call(other, "add", a=2, b=3)).structured_content == {"result": 5}
        ended = [one["params"]["connectionId"] for one in editor.got if one["method"] == "mcp/disconnect"]
        assert sorted(ended) == ["connection-1", "connection-2"]


# -- without a server -------------------------------------------------------------------------------------------------


class Wire:
    """Frames with the test at the other end."""

    def __init__(self) -> None:
        self.sent: list[Json] = []
        self.frames = McpOverAcp(self._send)

    async def _send(self, message: Json) -> None:
        self.sent.append(message)

    async def first_sent(self) -> Json:
        await until(lambda: self.sent, "a message")
        return self.sent[0]


async def test_a_connection_that_arrives_after_cancellation_is_closed() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def open_it() -> None:
            async with wire.frames.open(SERVER_ID):
                raise AssertionError

        tasks.start_soon(open_it)
        await wire.first_sent()
        tasks.cancel_scope.cancel()
    assert wire.frames.take({"id": wire.sent[0]["id"], "result": {"connectionId": "c"}})
    await until(lambda: len(wire.sent) > 1, "a goodbye")
    assert (wire.sent[1]["method"], wire.sent[1]["params"]) == ("mcp/disconnect", {"connectionId": "c"})


@pytest.mark.parametrize(
    "answer", [{"result": {}}, {"result": None}, {"result": {"connectionId": 5}}, {}, {"error": 5}]
)
async def test_an_invalid_answer_to_a_connection_request_fails_the_request(answer: Json) -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def open_it() -> None:
            with pytest.raises(Unreachable, match="contains no connection"):
                async with wire.frames.open(SERVER_ID):
                    pass

        tasks.start_soon(open_it)
        assert wire.frames.take({"id": (await wire.first_sent())["id"], **answer})


async def test_a_connection_request_fails_when_the_client_disconnects() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def open_it() -> None:
            with pytest.raises(Unreachable, match="no longer connected"):
                async with wire.frames.open(SERVER_ID):
                    pass

        tasks.start_soon(open_it)
        await wire.first_sent()
        wire.frames.close(ConnectionError())
        wire.frames.close()


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "session/new", "params": {}},
        {"method": "session/cancel", "params": {}},
        {"method": "$/cancel_request", "params": {"requestId": 1}},
        {"id": 0, "result": {}},
        {"id": "another", "result": {}},
        {"id": None, "error": {}},
        {},
    ],
)
async def test_messages_that_are_not_ours_are_left_to_the_sdk(message: Json) -> None:
    assert not Wire().frames.take(message)


@pytest.mark.parametrize("method", ["mcp/connect", "mcp/disconnect", "mcp/message", "mcp/no-such"])
async def test_a_request_that_belongs_to_no_session_is_refused(method: str) -> None:
    wire = Wire()
    assert wire.frames.take({"id": 7, "method": method, "params": {"connectionId": "c", "method": "ping"}})
    refusal = await wire.first_sent()
    assert refusal["id"] == 7
    assert refusal["error"]["code"] == (-32602 if method == "mcp/message" else -32601)


async def test_a_server_that_sends_too_many_messages_is_disconnected() -> None:
    wire = Wire()
    async with anyio.create_task_group() as tasks:

        async def flood() -> None:
            async with wire.frames.open(SERVER_ID) as channel:
                said: Json = {"connectionId": "c", "method": "notifications/message", "params": {}}
                for _ in range(10_001):
                    assert wire.frames.take({"method": "mcp/message", "params": said})
                read = 0
                while await channel.receive() is not None:
                    read += 1
                assert read == 10_000
                tasks.cancel_scope.cancel()

        tasks.start_soon(flood)
        assert wire.frames.take({"id": (await wire.first_sent())["id"], "result": {"connectionId": "c"}})


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
words = st.sampled_from(
    ["c", SERVER_ID, f"{OUR_IDS}1", "mcp/message", "mcp/connect", "$/cancel_request", "notifications/cancelled", "ping"]
)
values = st.recursive(
    scalars | words,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["method", "params", "connectionId", "serverId", "requestId", "result", "error", "_meta"]),
            inner,
        )
    ),
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), values)


def _ours(message: Json, method: str) -> Json:
    return {**message, "method": method}


def _on_connection(id_: object, said: Json) -> Json:
    return {"id": id_, "method": "mcp/message", "params": {**said, "connectionId": "c"}}


ours = st.builds(_ours, messages, words)
on_connection = st.builds(_on_connection, scalars, st.dictionaries(st.sampled_from(["method", "params"]), values))


@given(st.lists(messages | ours | on_connection, max_size=6))
def test_any_message_is_accepted_or_rejected_without_breaking_the_channel(came: list[Json]) -> None:
    async def take_all() -> None:
        wire = Wire()
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                async with wire.frames.open(SERVER_ID) as channel:
                    await channel.send({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"})
                    asked = wire.sent[-1]["id"]
                    for message in came:
                        assert wire.frames.take(message) in {True, False}
                        if message.get("id") is not None and message.get("method") == "mcp/message":
                            assert wire.frames.take(message)
                    assert wire.frames.take({"id": asked, "result": {}})
                    with anyio.fail_after(5):
                        while await channel.receive() != {"jsonrpc": "2.0", "id": 1, "result": {}}:
                            pass
                    wire.frames.close()

            tasks.start_soon(listen)
            assert wire.frames.take({"id": (await wire.first_sent())["id"], "result": {"connectionId": "c"}})

    anyio.run(take_all)


def test_a_carried_server_is_identified_by_its_id_only() -> None:
    server = CarriedServer("s", Wire().frames)
    assert identity(server) == address(server) == {"acp": "s"}
    assert str(server) == "acp:s"
    assert "McpOverAcp" not in repr(server)
