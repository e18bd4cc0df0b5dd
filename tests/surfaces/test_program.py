"""Tests that a program serves its own crib over stdio, over HTTP, and mounted in an application."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.surfaces.serving import TOOLCRIB, ask, run_tool, text_of

from toolcrib import Access, Category, Rule, Rules, ToolBundle, Toolcrib, ToolMetadata
from toolcrib.core.errors import InvalidConfig

pytestmark = pytest.mark.anyio

PROGRAM = '''
import anyio
from toolcrib import Toolcrib

crib = Toolcrib()


@crib.add
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("adding")
    return a + b


if __name__ == "__main__":
    anyio.run(crib.serve_stdio)
'''


def bench() -> Toolcrib:
    crib = Toolcrib()
    crib.add_category(Category(("Sums",), summary="Reckon with numbers", tagged=("sum",)))
    crib.add_bundle(ToolBundle("sums", optional=("add",)))

    @crib.add(metadata=ToolMetadata(tags=("sum",)))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @crib.add
    def greet(name: str) -> str:
        """Say hello to somebody."""
        return f"hello {name}"

    return crib


@asynccontextmanager
async def served(crib: Toolcrib, **given: Any) -> AsyncGenerator[str]:
    """Serves `crib` over HTTP for the block and yields the address of its MCP endpoint."""
    async with anyio.create_task_group() as tasks:
        url, listening = list[str](), anyio.Event()

        def told(address: str) -> None:
            url.append(address)
            listening.set()

        tasks.start_soon(lambda: crib.serve_http("127.0.0.1:0", listening=told, **given))
        await listening.wait()
        yield url[0]
        tasks.cancel_scope.cancel()


# -- over stdio -------------------------------------------------------------------------------------------------------


@pytest.mark.true_start
@pytest.mark.parametrize(
    "command", [[sys.executable, "program.py"], [TOOLCRIB, "serve", "program:crib"]], ids=["program", "serve"]
)
async def test_a_program_serves_functions_over_stdio_even_if_they_print(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=tmp_path)
    with (tmp_path / "errors").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            assert client.instructions is not None
            assert "Inside:\n- functions: add" in client.instructions
            assert text_of(await run_tool(client, "functions.add", a=1, b=2)) == "3"
    assert (tmp_path / "errors").read_text() == "adding\n", "no output of Toolcrib, and no traceback"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("program:crab", "`program` has no Toolcrib object called `crab` (did you mean `crib`?)"),
        ("program:add", "`program` has no Toolcrib object called `add`"),
        ("nothing.here:crib", "module `nothing.here` not found"),
    ],
)
def test_an_unknown_crib_name_is_reported_with_a_suggestion(named: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run([TOOLCRIB, "serve", named], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("named", ["program", "program.py"])
def test_a_module_without_a_crib_name_is_refused_with_an_example(named: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run([TOOLCRIB, "serve", named], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Name the Toolcrib object in it, for example `program:crib`" in ended.stderr


# -- over HTTP --------------------------------------------------------------------------------------------------------


async def test_a_program_serves_every_http_endpoint_of_the_gateway() -> None:
    crib = bench()
    async with served(crib) as url, httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
        async with Client(url) as client:
            assert "Inside:\n- Sums: Reckon with numbers\n- functions: greet" in str(client.instructions)
            assert text_of(await run_tool(client, "functions.add", a=1, b=2)) == "3"
        async with Client(f"{url}/b/sums") as client:
            assert (await ask(client, "search_tools"))["results"][0]["tool_id"] == "functions.add"
            assert (await ask(client, "expand_tool", tool_id="functions.greet"))["error"]["code"] == "TOOL_NOT_FOUND"
        found = (await http.post("/v1/search_tools", json={"query": "hello"})).raise_for_status().json()
        assert found["results"][0]["tool_id"] == "functions.greet"
        assert (await http.get("/health/ready")).json() == {"status": "ready"}
        assert "toolcrib_operation_duration_seconds" in (await http.get("/metrics")).text
    assert not crib.is_running
    async with served(crib) as url, Client(url) as client:  # a second time
        assert text_of(await run_tool(client, "functions.greet", name="Ada")) == "hello Ada"


async def test_a_running_crib_keeps_running_after_serving() -> None:
    async with bench() as crib:
        async with served(crib) as url, Client(url) as client:
            assert text_of(await run_tool(client, "functions.add", a=1, b=2)) == "3"
        assert crib.is_running
        assert (await crib.call_tool(crib.expand_tool("functions.add").handle, {"a": 2, "b": 2})).text == "4"


async def test_serve_http_accepts_authentication_like_a_configuration() -> None:
    crib = bench()
    tokens = [{"sha256": hashlib.sha256(b"secret").hexdigest(), "principal": "ada"}]
    async with served(crib, auth={"tokens": tokens}) as url, httpx2.AsyncClient() as http:
        where = url.replace("/mcp", "/v1/list")
        assert (await http.post(where, json={})).status_code == 401
        assert (await http.post(where, json={}, headers={"Authorization": "Bearer secret"})).status_code == 200
    with pytest.raises(InvalidConfig, match="auth: unknown key `token`"):
        await crib.serve_http(auth={"token": []})
    with pytest.raises(InvalidConfig, match="without authentication"):
        await crib.serve_http("0.0.0.0:0")


# -- selected operations ----------------------------------------------------------------------------------------------


async def test_without_call_tool_tools_can_be_found_but_not_called() -> None:
    looking = ["list", "search_tools", "expand_tool"]
    async with served(bench(), operations=looking) as url, Client(url) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == looking
        assert "call" not in str(client.instructions) + str([tool.description for tool in tools]).replace("Recall", "")
        handle = (await ask(client, "expand_tool", tool_id="functions.add"))["handle"]
        with pytest.raises(MCPError, match="Unknown tool: call_tool"):
            await client.call_tool("call_tool", {"tool_id": handle, "arguments": {"a": 1, "b": 2}})
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
            assert (await http.post("/v1/list", json={})).status_code == 200
            refused = await http.post("/v1/call_tool", json={"tool_id": handle})
            assert refused.status_code == 404
            assert "call_tool" not in str(refused.json()["hints"])
            paths = (await http.get("/openapi.json")).json()["paths"]
            assert [path for path in paths if path.startswith("/v1/")] == [f"/v1/{name}" for name in looking]


async def test_next_actions_of_errors_use_only_offered_operations() -> None:
    async with served(bench(), operations="search_tools,expand_tool") as url:
        async with httpx2.AsyncClient(base_url=url.removesuffix("/mcp")) as http:
            wrong = (await http.post("/v1/expand_tool", json={"tool_id": "functions.nothing"})).json()
            assert wrong["next_action"]["operation"] == "search_tools"
            wrong = (await http.post("/v1/search_tools", json={"limit": 51})).json()
            assert wrong["next_action"]["operation"] == "search_tools"


@pytest.mark.parametrize(
    ("operations", "why"),
    [
        ("compat", "`compat` is not an operation or a set of operations (did you mean `compact`?)"),
        (["list", "serch_tools"], "`serch_tools` is not an operation (did you mean `search_tools`?)"),
        ([], "no operation is given"),
    ],
)
async def test_unknown_operations_are_refused_before_anything_is_served(operations: Any, why: str) -> None:
    crib = bench()
    for serve in (crib.serve_stdio, crib.serve_http):
        with pytest.raises(InvalidConfig) as refused:
            await serve(operations=operations)
        assert why in refused.value.message
    with pytest.raises(InvalidConfig):
        crib.app(operations=operations)


# -- the catalog in the instructions ----------------------------------------------------------------------------------


async def test_the_instructions_name_no_tool_that_the_policy_hides() -> None:
    crib = Toolcrib(policy=Rules((Rule(Access.HIDDEN, tools=("functions.secret",)),), Access.CALL))
    crib.add(lambda: "done", name="secret", description="Tell the secret.")
    async with served(crib) as url, Client(url) as client:
        assert "Inside" not in str(client.instructions)
        crib.add(lambda: "done", name="open", description="Tell what is open.")
    async with served(crib) as url, Client(url) as client:
        assert str(client.instructions).endswith("Inside:\n- functions: open")


# -- mounted ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def by_uvicorn(app: Any) -> AsyncGenerator[str]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
                await anyio.sleep(0.01)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            server.should_exit = True


@pytest.mark.parametrize("mounted", [True, False])
async def test_the_app_works_mounted_and_on_its_own(mounted: bool) -> None:
    crib = bench()
    app = crib.app()
    below = "/tools" if mounted else ""
    whole = Starlette(routes=[Mount(below, app)], lifespan=app.lifespan) if mounted else app
    async with by_uvicorn(whole) as url, httpx2.AsyncClient(base_url=f"{url}{below}") as http:
        assert crib.is_running
        async with Client(f"{url}{below}/mcp") as client:
            assert text_of(await run_tool(client, "functions.add", a=1, b=2)) == "3"
        assert (await http.post("/v1/list", json={})).status_code == 200
        assert (await http.get("/health/ready")).status_code == 200
    assert not crib.is_running


async def test_a_mounted_app_checks_tokens_and_hosts() -> None:
    tokens = [{"sha256": hashlib.sha256(b"secret").hexdigest(), "principal": "ada"}]
    app = bench().app(auth={"tokens": tokens}, url="https://example.com/tools")
    whole = Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)
    async with by_uvicorn(whole) as url, httpx2.AsyncClient(base_url=f"{url}/tools") as http:
        assert (await http.get("/health/live", headers={"Host": "watcher"})).status_code == 200
        assert (await http.post("/v1/list", json={})).status_code == 401
        token = {"Authorization": "Bearer secret"}
        assert (await http.post("/v1/list", json={}, headers=token)).status_code == 200
        assert (await http.post("/v1/list", json={}, headers={**token, "Host": "example.com"})).status_code == 200
        misdirected = await http.post("/v1/list", json={}, headers={**token, "Host": "evil.example"})
        assert misdirected.status_code == 421
        assert "`url` of `Toolcrib.app`" in misdirected.json()["hints"][0]
        assert "toolcrib.auth" not in misdirected.text


async def test_hints_name_paths_below_the_mount() -> None:
    app = bench().app(operations=["list"])
    whole = Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)
    async with by_uvicorn(whole) as url, httpx2.AsyncClient(base_url=f"{url}/tools") as http:
        (offered,) = (await http.get("/nothing")).json()["hints"]
        assert offered == "MCP is at /tools/mcp. Operations: POST /tools/v1/list."
        assert (await http.get("/")).json()["hints"] == [offered, "GET /tools/openapi.json describes the API."]


async def test_a_mounted_app_without_its_lifespan_raises_an_error() -> None:
    transport = httpx2.ASGITransport(app=Starlette(routes=[Mount("/tools", bench().app())]))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        with pytest.raises(RuntimeError, match=r"lifespan=app\.lifespan"):
            await http.post("/tools/v1/list", json={})
