"""Tests for tokens, host names and the separation of principals over HTTP."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import MCPError
from starlette.responses import Response
from tests.servers.launching import faulty_entry, write_config
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, WATCHER, Api, entry, problem, served
from tests.surfaces.serving import ENVELOPE, Mode, ask, run_tool, text_of
from tests.surfaces.test_http import BOTH
from tests.until import DEADLINE_S

from toolcrib.config.access_settings import Auth
from toolcrib.surfaces.auth import Authenticator, Stays
from toolcrib.surfaces.http.admission import LOG_AGAIN_S, Admission
from toolcrib.surfaces.http.challenges import Challenges

pytestmark = pytest.mark.anyio

CLOSED = ["/mcp", "/v1/list", "/openapi.json", "/metrics", "/nowhere", "/health"]

POLICY = {
    "rules": [
        {"then": "hide", "principals": ["bob"], "tools": ["bench.count"]},
        {"then": "refuse", "principals": ["bob"], "tools": ["bench.pid"]},
    ],
    "otherwise": "allow",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Generator[Api]:
    """A gateway with three tokens that hides one tool from bob and refuses his calls to a second one."""
    settings = {"policy": POLICY, "max_text_bytes": 1_000}
    folder = tmp_path_factory.mktemp("closed")
    with served(folder, auth={"tokens": TOKENS}, settings=settings, bench=faulty_entry()) as api:
        yield api


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    ("shown", "error"),
    [
        ([], None),
        (["Bearer wrong"], "invalid_token"),
        ([f"Bearer {ALICE}x"], "invalid_token"),
        ([f"Basic {ALICE}"], "invalid_token"),
        ([ALICE], "invalid_token"),
        (["Bearer"], "invalid_token"),
        ([f"Bearer {ALICE}", f"Bearer {BOB}"], "invalid_token"),
        (["Bearer \u00e4"], "invalid_token"),
        ([f"Bearer {TOKENS[0]['sha256']}"], "invalid_token"),
    ],
)
async def test_a_request_without_exactly_one_valid_token_gets_401(
    path: str, shown: list[str], error: str | None, api: Api
) -> None:
    headers = [(b"Authorization", value.encode("latin-1")) for value in shown]
    async with api.client() as client:
        answer = await client.post(path, json={}, headers=headers)
    assert answer.status_code == 401
    assert problem(answer)["code"] == "UNAUTHORIZED"
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="toolcrib"')
    assert (f'error="{error}"' in challenge) == (error is not None)


async def test_every_refused_token_is_counted_but_similar_ones_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, counted = [0.0], list[str]()
    authenticator = Authenticator(Auth(is_required=True))
    challenges = Challenges(authenticator, "https://x")
    door = Admission(Response("in"), Stays(authenticator), challenges, counted.append, lambda: now[0])

    async def guess(number: int, scheme: str = "Bearer") -> None:
        transport = httpx2.ASGITransport(door, client=("203.0.113.7\n", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://x") as client:
            assert (await client.get("/mcp", headers={"Authorization": f"{scheme} guess-{number}"})).status_code == 401
            assert (await client.get("/mcp")).status_code == 401

    for number in range(50):
        await guess(number)
    await guess(0, "Basic")
    now[0] = LOG_AGAIN_S
    await guess(0)
    assert counted.count("unknown") == 51
    assert (counted.count("malformed"), counted.count("missing")) == (1, 52)
    sender = r"Refused a request from '203.0.113.7\n': "
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{sender}Invalid token.",
        f"{sender}Invalid credentials. Send exactly one `Authorization` header, in the form `Bearer TOKEN`.",
        f"{sender}Invalid token. (49 similar ones before)",
    ]


async def test_a_valid_token_is_accepted_with_any_case_of_the_scheme(api: Api) -> None:
    async with api.client() as client:
        for scheme in ("Bearer", "bearer", "BEARER"):
            headers = {"Authorization": f"{scheme} {ALICE}"}
            assert (await client.post("/v1/list", headers=headers)).status_code == 200
            assert (await client.get("/openapi.json", headers=headers)).status_code == 200
            assert (await client.get("/nowhere", headers=headers)).status_code == 404


async def test_open_health_paths_do_not_give_access_to_other_paths(api: Api) -> None:
    async with api.client() as client:
        for path in ("/health/%2e%2e/v1/list", "/health/..%2fv1/list", "/.well-known/%2e%2e/mcp", "/health//v1/list"):
            assert (await client.post(path, json={})).status_code == 404, path
        assert (await client.get("/health/live")).json() == {"status": "live"}
        assert (await client.get("/.well-known/oauth-protected-resource")).status_code == 404


async def test_metrics_require_the_metrics_scope(api: Api) -> None:
    async with api.client(ALICE) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 403
    assert problem(answer)["code"] == "FORBIDDEN"
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert 'scope="metrics"' in answer.headers["www-authenticate"]
    async with api.client(WATCHER) as client:
        assert (await client.get("/metrics")).status_code == 200


@BOTH
async def test_the_policy_of_a_principal_applies_on_every_surface(mode: Mode, api: Api) -> None:
    async with api.mcp(ALICE, mode) as alice, api.mcp(BOB, mode) as bob:
        assert text_of(await run_tool(alice, "bench.count"))
        assert (await ask(bob, "expand_tool", tool_id="bench.count"))["error"]["code"] == "TOOL_NOT_FOUND"
        handle = (await ask(alice, "expand_tool", tool_id="bench.count"))["handle"]
        assert (await ask(bob, "call_tool", tool_id=handle))["error"]["code"] == "TOOL_NOT_FOUND"
        assert (await ask(bob, "call_tool", tool_id=(await ask(bob, "expand_tool", tool_id="bench.pid"))["handle"]))[
            "error"
        ]["code"] == "NOT_AUTHORIZED"
    assert (await api.run_tool("bench.count", ALICE)).status_code == 200
    assert (await api.ask("expand_tool", BOB, tool_id="bench.count")).status_code == 404
    assert (await api.run_tool("bench.pid", BOB)).status_code == 403


@BOTH
async def test_with_all_operations_each_principal_gets_its_own_tool_list(mode: Mode, tmp_path: Path) -> None:
    settings = {"policy": POLICY}
    words = ("--operations", "all")
    with served(tmp_path, *words, auth={"tokens": TOKENS}, settings=settings, bench=faulty_entry()) as api:
        async with api.mcp(ALICE, mode) as alice, api.mcp(BOB, mode) as bob:
            whole = {tool.name for tool in (await alice.list_tools()).tools}
            assert whole - {tool.name for tool in (await bob.list_tools()).tools} == {"bench__count"}
            assert text_of(await alice.call_tool("bench__count", {}))
            with pytest.raises(MCPError, match="Unknown tool") as hidden:
                await bob.call_tool("bench__count", {})
            with pytest.raises(MCPError, match="Unknown tool") as missing:
                await bob.call_tool("bench__county", {})
            assert str(hidden.value).replace("count", "county") == str(missing.value)


class RawSession:
    """An MCP session of version 2025-11-25 in which every request can send a different token."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

    async def begin(self, token: str) -> httpx2.Response:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        begun = await self.send(token, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
        self._headers["Mcp-Session-Id"] = begun.headers["Mcp-Session-Id"]
        await self.send(token, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return begun

    async def send(self, token: str | None, message: Any = None, method: str = "POST") -> httpx2.Response:
        shown = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return await self._client.request(method, "/mcp", json=message, headers={**self._headers, **shown})


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


async def test_a_session_works_only_for_the_principal_that_started_it(api: Api) -> None:
    async with api.client() as client:
        session = RawSession(client)
        await session.begin(ALICE)
        for method in ("POST", "GET", "DELETE"):
            message = PING if method == "POST" else None
            assert (await session.send(BOB, message, method)).status_code == 404, method
            assert (await session.send(None, message, method)).status_code == 401, method
        answer = await session.send(ALICE, PING)
        assert answer.status_code == 200
        assert '"id":7' in answer.text.replace(" ", "")
        assert (await session.send(ALICE, None, "DELETE")).status_code == 200


@BOTH
async def test_the_pages_of_a_result_are_readable_only_by_its_principal(mode: Mode, api: Api) -> None:
    async with api.mcp(ALICE, mode) as alice, api.mcp(BOB, mode) as bob:
        result = await run_tool(alice, "bench.echo", text="words " * 1_000)
        page = next(block.uri for block in result.content if block.type == "resource_link")
        assert (await alice.read_resource(page)).contents
        with pytest.raises(MCPError, match="has expired"):
            await bob.read_resource(page)


async def test_requests_with_a_foreign_host_or_origin_are_refused(api: Api) -> None:
    async with api.client(ALICE) as client:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": "x/health/"}, 421),
            ({"Host": "localhost:evil"}, 421),
            ({"Host": "user@localhost"}, 421),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "http://localhost.evil.example"}, 403),
            ({"Origin": "http://localhost:5173"}, 200),
            ({"Host": "LOCALHOST:1"}, 200),
        ):
            answer = await client.post("/v1/list", headers=headers)
            assert answer.status_code == status, headers
        assert (await client.get("/health/live", headers={"Host": "10.0.0.7:8808"})).status_code == 200


async def test_cors_allows_only_the_configured_origins(tmp_path: Path) -> None:
    page = "https://app.example.com"
    auth = {"tokens": TOKENS, "allowed_origins": [page], "allowed_hosts": ["tools.example.com"]}
    with served(tmp_path, auth=auth, bench=faulty_entry()) as api:
        async with api.client() as client:
            asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
            allowed = await client.options("/v1/list", headers={"Origin": page, **asked})
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == page
            other = await client.options("/v1/list", headers={"Origin": "https://other.example.com", **asked})
            assert other.status_code == 403
            assert "access-control-allow-origin" not in other.headers
            refused = await client.post("/v1/list", headers={"Origin": page, "Host": "tools.example.com:8808"})
            assert refused.status_code == 401
            assert refused.headers["access-control-allow-origin"] == page


async def test_each_principal_has_its_own_rate_limit(tmp_path: Path) -> None:
    settings = {"calls_per_minute": 1}
    with served(tmp_path, auth={"tokens": TOKENS}, settings=settings, bench=faulty_entry()) as api:
        assert (await api.run_tool("bench.pid", ALICE)).status_code == 200
        assert (await api.run_tool("bench.pid", ALICE)).status_code == 429
        async with api.mcp(BOB) as bob:
            assert not (await run_tool(bob, "bench.pid")).is_error
        assert (await api.run_tool("bench.pid", BOB)).status_code == 429


async def test_a_token_removed_from_the_configuration_is_refused(
    tmp_path: Path,
) -> None:
    with served(tmp_path, auth={"tokens": TOKENS}, bench=faulty_entry()) as api:

        async def until_status(token: str, status: int) -> None:
            with anyio.fail_after(DEADLINE_S):
                while (await api.ask("list", token)).status_code != status:  # noqa: ASYNC110  in another process
                    await anyio.sleep(0.05)

        async with api.client() as client:
            session = RawSession(client)
            await session.begin(ALICE)
            write_config(api.config, toolcrib={"auth": {"tokens": TOKENS[1:]}}, bench=faulty_entry())
            await until_status(ALICE, 401)
            assert (await session.send(ALICE, PING)).status_code == 401
        assert (await api.ask("list", BOB)).status_code == 200
        write_config(api.config, toolcrib={"auth": {"tokens": [entry("new", "carol")]}}, bench=faulty_entry())
        await until_status("new", 200)
        write_config(api.config, bench=faulty_entry())
        await until_status("new", 401)
        assert (await api.ask("list")).status_code == 401


async def test_an_empty_list_of_tokens_refuses_every_request(tmp_path: Path) -> None:
    with served(tmp_path, auth={"tokens": []}, bench=faulty_entry()) as api:
        assert (await api.ask("list")).status_code == 401


async def test_remote_requests_are_served_under_the_configured_public_name(tmp_path: Path) -> None:
    auth = {"tokens": TOKENS, "public_url": "https://tools.example.com/"}
    with served(tmp_path, auth=auth, where="0.0.0.0:0", bench=faulty_entry()) as api:
        port = api.base.rpartition(":")[2]
        base = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {ALICE}"}) as client:
            for host, status in (("tools.example.com", 200), ("0.0.0.0", 421), ("other.example.com", 421)):
                assert (await client.post("/v1/list", headers={"Host": host})).status_code == status, host
            document = (await client.get("/openapi.json")).json()
            assert document["servers"] == [{"url": "https://tools.example.com"}]
            page = await client.post("/v1/list", headers={"Origin": "http://localhost:5173"})
            assert page.status_code == 403
            modern = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
            headers = {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": "tools/list",
                "Host": "tools.example.com",
            }
            answer = await client.post("/mcp", json=modern, headers=headers)
            assert answer.status_code == 200, answer.text
            assert json.loads(answer.text)["result"]["tools"]
