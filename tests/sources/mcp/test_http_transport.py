"""Servers over HTTP in separate processes: both eras of streamable HTTP, SSE, and servers that refuse."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Literal

import anyio
import pytest
from tests.servers.launching import http_server
from tests.until import until

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.results import ToolResult
from toolcrib.crib.crib import Toolcrib
from toolcrib.sources.base import Source
from toolcrib.sources.mcp import HttpServer, Patience, breaker
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.testing.sources import check_source

pytestmark = pytest.mark.anyio

Transport = Literal["streamable-http", "sse"]

PATIENT = Patience(start_s=30, list_s=30, call_s=30)

KINDS = ["legacy", "modern", "sse"]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def addresses() -> Generator[dict[str, str]]:
    """Addresses by kind: one legacy server and one modern server. Both also speak SSE."""
    with http_server("--era", "legacy") as legacy, http_server("--era", "modern") as modern:
        yield {"legacy": f"{legacy}/mcp", "modern": f"{modern}/mcp", "sse": f"{legacy}/sse"}


@pytest.fixture(scope="module")
def locked() -> Generator[str]:
    """The address of a server that requires a key."""
    with http_server("--locked") as address:
        yield address


def server_of(addresses: dict[str, str], kind: str, **headers: str) -> HttpServer:
    return HttpServer(addresses[kind], headers, transport="sse" if kind == "sse" else "streamable-http")


@asynccontextmanager
async def crib_of(server: HttpServer, patience: Patience = PATIENT) -> AsyncGenerator[Toolcrib]:
    crib = Toolcrib()
    crib.add_source(McpSource("far", server, patience=patience))
    async with crib:
        assert await crib.ready(30)
        yield crib


async def call(crib: Toolcrib, name: str, /, **arguments: Any) -> ToolResult:
    return await crib.call_tool(crib.expand_tool(f"far.{name}").handle, arguments)


def reason(crib: Toolcrib) -> str:
    entry = crib.view().sources["far"]
    assert entry.status is SourceStatus.FAILED
    assert entry.reason is not None
    return f"{entry.reason} {entry.diagnosis}"


@EVERY_KIND
async def test_a_server_over_http_passes_the_source_contract(addresses: dict[str, str], kind: str) -> None:
    def make() -> Source:
        return McpSource("far", server_of(addresses, kind), patience=PATIENT)

    await check_source(make, tool="add", arguments={"a": 1, "b": 2}, other_arguments={"a": 3, "b": 4})


async def test_a_server_without_a_stream_for_its_own_messages_works_in_one_session() -> None:
    """A 404 to a GET does not end the session. A 404 to a POST would end it."""
    with http_server("--era", "legacy", "--no-stream") as address:
        async with crib_of(HttpServer(f"{address}/mcp")) as crib:

            async def asked(what: str) -> int:
                return (await call(crib, "asked", what=what)).structured_content["result"]

            with anyio.fail_after(30):
                while not await asked("GET"):
                    await anyio.wait_all_tasks_blocked()
            for number in range(3):
                assert (await call(crib, "add", a=number, b=1)).text == str(number + 1)
            assert await asked("initialize") == 1
            assert crib.view().sources["far"].status is SourceStatus.READY


async def test_a_tool_with_an_invalid_header_in_its_schema_is_set_aside(addresses: dict[str, str]) -> None:
    async with crib_of(server_of(addresses, "modern")) as crib:
        (aside,) = crib.view().sources["far"].set_aside
        assert (aside.name, aside.reason) == ("torch", "its `x-mcp-header` is not a valid header name")
        assert "far.torch" not in crib.view().tools
        assert (await call(crib, "add", a=1, b=2)).text == "3"


@EVERY_KIND
async def test_every_field_of_a_result_arrives(addresses: dict[str, str], kind: str) -> None:
    async with crib_of(server_of(addresses, kind)) as crib:
        assert crib.view().sources["far"].title == "A server over HTTP"
        wire = (await call(crib, "picture")).wire
    assert [block["type"] for block in wire["content"]] == ["text", "image"]
    assert wire["structuredContent"] == {"width": 1, "depth": None}
    assert wire["_meta"]["example.com/camera"] == "none"


@EVERY_KIND
async def test_progress_of_a_server_over_http_is_reported(addresses: dict[str, str], kind: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with crib_of(server_of(addresses, kind)) as crib:
        result = await crib.call_tool(crib.expand_tool("far.steps").handle, {"count": 2}, progress=hear)
    assert result.text == "done"
    assert heard == [(1, 2, "step 1"), (2, 2, "step 2")]


@EVERY_KIND
async def test_a_cancelled_call_is_cancelled_at_the_server(addresses: dict[str, str], kind: str) -> None:
    async with crib_of(server_of(addresses, kind)) as crib:
        before = (await call(crib, "cancelled")).structured_content["result"]
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            await crib.call_tool(crib.expand_tool("far.hold").handle, {}, progress=cancel)
        assert scope.cancelled_caught
        counts = [before]

        async def count() -> None:
            while counts[-1] == before:
                counts.append((await call(crib, "cancelled")).structured_content["result"])

        with anyio.fail_after(30):
            await count()
        assert counts[-1] == before + 1


@EVERY_KIND
async def test_an_announced_change_of_the_tools_reaches_the_catalog(addresses: dict[str, str], kind: str) -> None:
    async with crib_of(server_of(addresses, kind)) as crib:
        # A server notifies only open streams, and nothing says when ours is open: change until a change arrives.
        names = [f"later_{kind}_{number}" for number in range(200)]
        with anyio.fail_after(30):
            for name in names:
                await call(crib, "change", name=name)
                with anyio.move_on_after(0.1):
                    await until(lambda: f"far.{names[0]}" in crib.view().tools, "the new tool is in the catalog")
                    break
        assert f"far.{names[0]}" in crib.view().tools
        assert (await call(crib, names[0])).text == names[0]


@EVERY_KIND
async def test_configured_headers_are_sent_with_every_call(addresses: dict[str, str], kind: str) -> None:
    async with crib_of(server_of(addresses, kind, **{"X-Shelf": "top"})) as crib:
        assert (await call(crib, "header", name="x-shelf")).text == "top"


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_an_address_without_a_listener_is_unavailable(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # ours until the block ends, so most likely free right after
    async with crib_of(HttpServer(f"http://127.0.0.1:{port}/mcp", transport=transport)) as crib:
        assert "could not start or connect" in reason(crib)
        assert "connect" in reason(crib).lower()


async def test_a_host_that_does_not_exist_is_unavailable() -> None:
    async with crib_of(HttpServer("http://no-such-host.invalid/mcp")) as crib:
        assert "could not start or connect" in reason(crib)


async def test_an_address_that_accepts_and_never_answers_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with crib_of(HttpServer(url), Patience(start_s=0.2)) as crib:
            assert "did not complete the MCP handshake within 0.2 s" in reason(crib)


@pytest.mark.parametrize("status", [401, 403, 503])
@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_a_server_that_refuses_the_request_is_unavailable_with_the_status(
    locked: str, path: str, status: int
) -> None:
    transport: Transport = "sse" if path == "sse" else "streamable-http"
    async with crib_of(HttpServer(f"{locked}/{path}?status={status}", transport=transport)) as crib:
        assert f"{status}" in reason(crib).replace(f"status={status}", "")
    async with crib_of(HttpServer(f"{locked}/{path}", {"Authorization": "Bearer open"}, transport)) as crib:
        assert (await call(crib, "add", a=1, b=2)).text == "3"


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_a_server_that_wants_a_sign_in_needs_a_token_if_nobody_can_sign_in(locked: str, path: str) -> None:
    transport: Transport = "sse" if path == "sse" else "streamable-http"
    url = f"{locked}/{path}?status=401&metadata=1"
    async with crib_of(HttpServer(url, transport=transport)) as crib:
        entry = crib.view().sources["far"]
        assert entry.reason == "`far` needs a sign-in."
        assert entry.needs_sign_in
        assert entry.diagnosis == ""
        assert "token to its `headers`" in entry.remedy
    async with crib_of(HttpServer(url, {"Authorization": "Bearer expired"}, transport)) as crib:
        entry = crib.view().sources["far"]
        assert "answered HTTP 401 Unauthorized" in (entry.reason or "")
        assert entry.remedy == "Check the credentials in its `headers`."


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_secrets_in_an_address_or_a_header_appear_in_no_error_to_callers(
    locked: str, transport: Transport
) -> None:
    url = f"{locked}/{'sse' if transport == 'sse' else 'mcp'}"
    for server in (
        HttpServer(f"{url}?key=s3cret", transport=transport),
        HttpServer(url, {"Authorization": "s3cret\n"}, transport),
    ):
        async with crib_of(server) as crib:
            with pytest.raises(SourceUnavailable, match="could not start or connect") as caught:
                crib.expand_tool("far.add")
            assert "s3cret" not in str(caught.value.to_wire())


async def test_a_page_that_is_not_an_mcp_server_is_unavailable_with_the_status(addresses: dict[str, str]) -> None:
    async with crib_of(HttpServer(addresses["legacy"].replace("/mcp", "/nothing-here"))) as crib:
        assert "404" in reason(crib)


@EVERY_KIND
async def test_a_server_that_stopped_is_unavailable_until_it_runs_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.0)
    words = () if kind == "sse" else ("--era", kind)
    with ExitStack() as first:
        address = first.enter_context(http_server(*words))
        port = address.rpartition(":")[2]
        url = f"{address}/{'sse' if kind == 'sse' else 'mcp'}"
        async with crib_of(server_of({kind: url}, kind)) as crib:
            add = crib.expand_tool("far.add").handle
            assert (await crib.call_tool(add, {"a": 1, "b": 2})).text == "3"
            first.close()
            for _ in range(2):
                with pytest.raises(SourceUnavailable, match="`far`"):
                    await crib.call_tool(add, {"a": 1, "b": 2})
            with http_server(*words, "--port", port):
                assert (await crib.call_tool(add, {"a": 1, "b": 2})).text == "3"


async def test_a_restarted_server_that_forgot_the_session_is_reached_in_a_new_one() -> None:
    """Only legacy servers have sessions. A restarted server answers 404 to a session of its earlier process."""
    with ExitStack() as first:
        address = first.enter_context(http_server("--era", "legacy"))
        async with crib_of(HttpServer(f"{address}/mcp")) as crib:
            add = crib.expand_tool("far.add").handle
            first.close()
            with http_server("--era", "legacy", "--port", address.rpartition(":")[2]):
                with pytest.raises(SourceUnavailable, match="was restarted and did not run the request") as caught:
                    await crib.call_tool(add, {"a": 1, "b": 2})
                assert caught.value.retryable
                assert (await crib.call_tool(add, {"a": 1, "b": 2})).text == "3"
