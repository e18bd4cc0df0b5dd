"""Tests for bundles of a gateway: what a client sees and may call, over stdio and HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ToolsListChanged
from tests.servers.launching import Json, faulty_entry, write_config
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, Api, problem
from tests.surfaces.http.asking import served as served_over_http
from tests.surfaces.serving import TOOLCRIB, Mode, ask, run_tool, text_of
from tests.surfaces.test_pass_through import FIXTURE
from tests.surfaces.test_subscriptions import STATIC, WATCHED, Watcher, of, update
from tests.until import DEADLINE_S, until

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("mode", ["legacy", "auto"])

BUNDLES: Json = {
    "sums": {"description": "To add.", "required": ["bench.add"]},
    "words": {"optional": ["bench.echo", "shelf.*"]},
}


@asynccontextmanager
async def bundle_client_over_stdio(config: Path, mode: Mode, *words: str, log: Path) -> AsyncGenerator[Client]:
    """Yields a client of a stdio gateway whose standard error goes to the file `log`."""
    parameters = StdioServerParameters(
        command=TOOLCRIB, args=["serve", str(config), "--no-cache", "--no-audit", *words]
    )
    with log.open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=mode) as client:
            yield client


@asynccontextmanager
async def at(api: Api, bundle: str, mode: Mode = "auto", token: str | None = None) -> AsyncGenerator[Client]:
    """Yields a client of the HTTP endpoint of a bundle."""
    async with api.client(token) as http:
        transport = streamable_http_client(f"{api.gateway.url}/b/{bundle}", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


async def shown_at_first(client: Client) -> str:
    """Returns the tool list and the instructions, which a model sees before its first request."""
    return f"{(await client.list_tools()).model_dump_json()} {client.instructions}"


@BOTH
async def test_a_stdio_client_of_a_bundle_sees_only_its_tools(mode: Mode, tmp_path: Path) -> None:
    config = write_config(
        tmp_path / "mcp.json", toolcrib={"bundles": BUNDLES}, bench=faulty_entry(), shelf=faulty_entry()
    )
    async with bundle_client_over_stdio(config, mode, "--bundle", "sums", log=tmp_path / "log") as client:
        first = await shown_at_first(client)
        assert "bench" in first
        assert "shelf" not in first
        listed = await ask(client, "list")
        assert [(node["name"], node["tool_count"]) for node in listed["nodes"]] == [("bench", 1)]
        assert [each["tool_id"] for each in (await ask(client, "search_tools", query="echo add"))["results"]] == [
            "bench.add"
        ]
        assert (await run_tool(client, "bench.add", a=2, b=3)).structured_content == {"sum": 5}
        error = (await ask(client, "expand_tool", tool_id="bench.echo"))["error"]
        assert error["code"] == "TOOL_NOT_FOUND"
        outside = await ask(client, "call_tool", tool_id="bench.echo@00112233445566778899aabb", arguments={"text": "x"})
        assert outside["error"]["code"] == "TOOL_NOT_FOUND"
        assert (await ask(client, "expand_tool", tool_id="shelf.add"))["error"]["code"] == "TOOL_NOT_FOUND"
    assert "incomplete" not in (tmp_path / "log").read_text()


async def test_a_bundle_limits_tools_prompts_and_resources(tmp_path: Path) -> None:
    bundles = {"few": {"optional": ["desk.test_simple_*", "desk.test://static-text"]}}
    config = write_config(tmp_path / "mcp.json", toolcrib={"bundles": bundles}, desk=FIXTURE)
    whole, few = tmp_path / "whole", tmp_path / "few"
    async with bundle_client_over_stdio(config, "auto", "--operations", "all", log=whole) as client:
        prompts = {each.name for each in (await client.list_prompts()).prompts}
        assert len(prompts) > 1
        assert len((await client.list_resources()).resources) > 1
    async with bundle_client_over_stdio(config, "auto", "--operations", "all", "--bundle", "few", log=few) as client:
        assert {each.name for each in (await client.list_tools()).tools} == {"desk__test_simple_text"}
        with pytest.raises(MCPError):
            await client.call_tool("desk__test_image_content", {})
        assert {each.name for each in (await client.list_prompts()).prompts} == {"desk__test_simple_prompt"}
        other = next(iter(prompts - {"desk__test_simple_prompt"}))
        with pytest.raises(MCPError):
            await client.get_prompt(other)
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert uris == ["toolcrib://desk/test://static-text"]
        with pytest.raises(MCPError):
            await client.read_resource("toolcrib://desk/test://static-binary")


async def test_missing_tools_of_a_bundle_are_logged_once(
    tmp_path: Path,
) -> None:
    settings: Json = {
        "bundles": {"work": {"required": ["bench.add", "bench.push", "bench.echo", "down.*", "deploy"]}},
        "policy": {"rules": [{"then": "hide", "tools": ["bench.echo"]}], "otherwise": "allow"},
    }
    config = write_config(
        tmp_path / "mcp.json", toolcrib=settings, bench=faulty_entry(), down=faulty_entry("exit-at-start")
    )
    log = tmp_path / "log"
    async with bundle_client_over_stdio(config, "auto", "--bundle", "work", log=log) as client:
        assert (await run_tool(client, "bench.add", a=2, b=3)).structured_content == {"sum": 5}
        await until(lambda: "incomplete" in log.read_text(), "the message appears")
        error = await ask(client, "expand_tool", tool_id="bench.echo")
        assert "hidden" not in str(error)
    (line,) = [line for line in log.read_text().splitlines() if "incomplete" in line]
    assert "incomplete bundle work" in line
    for entry in ("bench.push`: not found", "down.*`: `down` is unavailable", "deploy`: not found"):
        assert entry in line
    assert "bench.echo`: hidden from `local`" in line
    assert "bench.add" not in line


@pytest.mark.parametrize("http", [(), ("--http", "127.0.0.1:0")])
def test_serving_an_unknown_bundle_fails_with_a_suggestion(http: tuple[str, ...], tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"bundles": BUNDLES})
    command = [TOOLCRIB, "serve", str(config), "--no-cache", "--no-audit", "--bundle", "sum", *http]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "Bundle `sum` not found" in ended.stderr
    assert "`sums`" in ended.stderr


@BOTH
async def test_each_bundle_has_its_own_http_endpoint(mode: Mode, tmp_path: Path) -> None:
    with served_over_http(tmp_path, settings={"bundles": BUNDLES}, bench=faulty_entry(), shelf=faulty_entry()) as api:
        async with at(api, "sums", mode) as sums, at(api, "words", mode) as words, Client(api.gateway.url) as whole:
            assert "shelf" not in await shown_at_first(sums)
            assert "shelf" in await shown_at_first(words)
            assert (await run_tool(sums, "bench.add", a=2, b=3)).structured_content == {"sum": 5}
            assert text_of(await run_tool(words, "bench.echo", text="here")) == "here"
            for client, tool_id in ((sums, "bench.echo"), (words, "bench.add"), (sums, "shelf.add")):
                assert (await ask(client, "expand_tool", tool_id=tool_id))["error"]["code"] == "TOOL_NOT_FOUND"
                handle = (await ask(whole, "expand_tool", tool_id=tool_id))["handle"]
                refused = await ask(client, "call_tool", tool_id=handle, arguments={"a": 1, "b": 1, "text": "x"})
                assert refused["error"]["code"] == "TOOL_NOT_FOUND"
            async with at(api, "sums", mode) as again:
                assert [node["name"] for node in (await ask(again, "list"))["nodes"]] == ["bench"]


async def test_a_bundle_endpoint_requires_a_token_and_applies_the_policy(tmp_path: Path) -> None:
    settings: Json = {
        "bundles": BUNDLES,
        "policy": {"rules": [{"then": "hide", "principals": ["bob"], "tools": ["bench.add"]}], "otherwise": "allow"},
    }
    with served_over_http(tmp_path, auth={"tokens": TOKENS}, settings=settings, bench=faulty_entry()) as api:
        async with api.client() as nobody:
            assert (await nobody.post("/mcp/b/sums", json={})).status_code == 401
            assert (await nobody.post("/mcp/b/no-such", json={})).status_code == 401
        async with at(api, "sums", token=ALICE) as alice, at(api, "sums", token=BOB) as bob:
            assert (await run_tool(alice, "bench.add", a=2, b=3)).structured_content == {"sum": 5}
            assert (await ask(bob, "expand_tool", tool_id="bench.add"))["error"]["code"] == "TOOL_NOT_FOUND"


async def test_the_endpoint_of_an_unknown_bundle_is_not_found(tmp_path: Path) -> None:
    with served_over_http(tmp_path, settings={"bundles": BUNDLES}) as api:
        async with api.client() as client:
            for path in ("/mcp/b/word", "/mcp/b/%20", "/mcp/b/", "/mcp/b", "/mcp/b/sums/more"):
                answer = await client.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
                assert answer.status_code == 404, path
                assert problem(answer)["code"] == "NOT_FOUND"
            hints = problem(await client.get("/mcp/b/word"))["hints"]
            assert hints == ["Did you mean `words`?"]


async def test_an_http_request_can_name_a_bundle(tmp_path: Path) -> None:
    with served_over_http(tmp_path, settings={"bundles": BUNDLES}, bench=faulty_entry()) as api:
        found = (await api.ask("search_tools", query="add two numbers", bundle="sums")).json()
        assert [each["tool_id"] for each in found["results"]] == ["bench.add"]
        expanded = (await api.ask("expand_tool", tool_id="bench.add", bundle="sums")).json()
        call: Json = {"tool_id": expanded["handle"], "arguments": {"a": 2, "b": 3}}
        assert (await api.ask("call_tool", **call, bundle="sums")).json()["structuredContent"] == {"sum": 5}
        assert (await api.ask("call_tool", **call, bundle=None)).json()["structuredContent"] == {"sum": 5}
        assert problem(await api.ask("call_tool", **call, bundle="words"))["code"] == "TOOL_NOT_FOUND"
        unknown = await api.ask("list", bundle="summs")
        assert (unknown.status_code, problem(unknown)["hints"]) == (404, ["Did you mean `sums`?"])
        odd = await api.ask("list", bundle=["sums"])
        assert (odd.status_code, problem(odd)["code"]) == (422, "INVALID_ARGUMENTS")


async def test_the_openapi_document_lists_bundle_for_every_operation(tmp_path: Path) -> None:
    with served_over_http(tmp_path) as api:
        async with api.client() as client:
            document = (await client.get("/openapi.json")).json()
        for path, item in document["paths"].items():
            if path.startswith("/v1/"):
                ref = item["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                schema = document["components"]["schemas"][ref.rpartition("/")[2]]
                assert schema["properties"]["bundle"]["type"] == ["string", "null"], path
                assert "bundle" not in schema.get("required", ())


async def test_a_request_can_only_narrow_the_served_bundle(tmp_path: Path) -> None:
    bundles = {**BUNDLES, "wide": {"optional": ["bench.*"]}, "both": {"optional": ["bench.add", "bench.echo"]}}
    with served_over_http(
        tmp_path, "--bundle", "both", settings={"bundles": bundles}, bench=faulty_entry(), shelf=faulty_entry()
    ) as api:

        async def ids(**more: str) -> list[str]:
            page = (await api.ask("list", path=["bench"], **more)).json()
            return [each["tool_id"] for each in page["tools"]]

        assert await ids() == ["bench.add", "bench.echo"]
        assert await ids(bundle="wide") == ["bench.add", "bench.echo"]
        assert await ids(bundle="sums") == ["bench.add"]
        async with at(api, "words") as client:
            assert "shelf" not in await shown_at_first(client)
            assert [each["tool_id"] for each in (await ask(client, "list", path=["bench"]))["tools"]] == ["bench.echo"]


@BOTH
async def test_changes_of_bundles_in_the_configuration_apply_while_serving(mode: Mode, tmp_path: Path) -> None:
    with served_over_http(tmp_path, settings={"bundles": BUNDLES}, bench=faulty_entry()) as api:
        async with at(api, "sums", mode) as sums, api.client() as http:
            assert (await ask(sums, "expand_tool", tool_id="bench.echo"))["error"]["code"] == "TOOL_NOT_FOUND"
            changed = {
                "sums": {"required": ["bench.echo"], "optional": ["shelf.*"]},
                "new": {"required": ["bench.add"]},
            }
            write_config(api.config, toolcrib={"bundles": changed}, bench=faulty_entry(), shelf=faulty_entry())

            async def is_new() -> bool:
                return (await api.ask("list", bundle="new")).status_code == 200

            with anyio.fail_after(DEADLINE_S):
                while not await is_new():
                    pass
            assert text_of(await run_tool(sums, "bench.echo", text="here")) == "here"
            assert (await ask(sums, "expand_tool", tool_id="bench.add"))["error"]["code"] == "TOOL_NOT_FOUND"
            async with at(api, "sums", mode) as again:
                assert "shelf" in await shown_at_first(again)
            async with at(api, "new", mode) as new:
                assert (await run_tool(new, "bench.add", a=2, b=3)).structured_content == {"sum": 5}
            assert (await http.post("/mcp/b/words", json={})).status_code == 404
            assert (await api.ask("list", bundle="words")).status_code == 404


@BOTH
async def test_a_client_is_notified_only_of_changes_within_its_bundle(mode: Mode, tmp_path: Path) -> None:
    bundles = {"watching": {"optional": ["desk.test_trigger_*", f"desk.{WATCHED}", "desk.test_simple_prompt"]}}
    told: list[str] = []
    with served_over_http(tmp_path, settings={"bundles": bundles}, desk=FIXTURE) as api:
        async with AsyncExitStack() as stack:
            assert (await api.ask("list")).json()["nodes"]  # the source is listed, so no change happens by itself
            found: list[Watcher] = []

            async def hear(message: object) -> None:
                told.append(getattr(message, "method", ""))
                await found[0].hear(message)

            client = await stack.enter_async_context(
                Client(f"{api.gateway.url}/b/watching", mode=mode, message_handler=hear)
            )
            found.append(watcher := Watcher(client))
            assert [each.name for each in (await client.list_prompts()).prompts] == ["desk__test_simple_prompt"]
            if mode == "legacy":
                with pytest.raises(MCPError):
                    async with watcher.watching(of("desk", STATIC)):
                        pass
            async with watcher.watching(of("desk", WATCHED)) as agreed:
                assert agreed == {of("desk", WATCHED)}
                await run_tool(client, "desk.test_trigger_prompt_change")
                await update(client, "desk", WATCHED)
                await until(lambda: watcher.heard, "the client is notified")
            assert "notifications/prompts/list_changed" not in told
            assert [each.name for each in (await client.list_prompts()).prompts] == ["desk__test_simple_prompt"]


async def test_the_sessions_and_streams_of_a_removed_bundle_end(tmp_path: Path) -> None:
    with served_over_http(tmp_path, settings={"bundles": BUNDLES}, bench=faulty_entry()) as api:
        async with at(api, "words", "legacy") as client, at(api, "words") as listening:
            assert [node["name"] for node in (await ask(client, "list"))["nodes"]] == ["bench"]
            async with listening.listen(tools_list_changed=True) as stream:
                write_config(api.config, toolcrib={"bundles": {"sums": BUNDLES["sums"]}}, bench=faulty_entry())
                with anyio.fail_after(DEADLINE_S), suppress(MCPError):
                    async for told in stream:
                        assert isinstance(told, ToolsListChanged)
            with pytest.raises(MCPError):
                await client.list_tools()
            write_config(api.config, toolcrib={"bundles": BUNDLES}, bench=faulty_entry())

            async with api.client() as http:

                async def is_served() -> bool:
                    return (await http.post("/mcp/b/words", json={})).status_code != 404

                await until(is_served, "the bundle under its address")
            async with at(api, "words", "legacy") as again:
                assert [node["name"] for node in (await ask(again, "list"))["nodes"]] == ["bench"]


def test_a_bundle_makes_the_initial_tool_list_smaller(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"bundles": BUNDLES}, bench=faulty_entry(), x=faulty_entry())

    async def size(*words: str) -> int:
        async with bundle_client_over_stdio(config, "auto", *words, log=tmp_path / "log") as client:
            tools = [each.model_dump(exclude_none=True, by_alias=True) for each in (await client.list_tools()).tools]
            return len(json.dumps([tools, client.instructions], separators=(",", ":")))

    whole, inside = anyio.run(size), anyio.run(size, "--bundle", "sums")
    assert inside < whole
    assert re.search("bundle", (tmp_path / "log").read_text()) is None
