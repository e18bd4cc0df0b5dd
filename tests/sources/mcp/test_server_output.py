"""Secrets of a server and addresses with keys: neither is shown in errors or logs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.cli.running import toolcrib_process
from tests.servers.launching import http_server, write_config

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.uris import shown
from toolcrib.sources.mcp import HttpServer, McpServer, Patience, StdioServer
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.server_output import Secrets

pytestmark = pytest.mark.anyio

KEY = "k3y-of-the-vault"


def program(code: str, env: Mapping[str, str]) -> StdioServer:
    return StdioServer(sys.executable, ("-c", code), env)


async def why_not(server: McpServer) -> SourceUnavailable:
    async with McpSource("bench", server, patience=Patience(start_s=30, list_s=30)) as source:
        with pytest.raises(SourceUnavailable) as failed:
            await source.list_tools()
        return failed.value


async def test_the_last_output_of_a_server_shows_variable_names_and_not_their_values() -> None:
    complains = "import os, sys; sys.exit('no access with ' + os.environ['API_KEY'] + ' on ' + os.environ['PORT'])"
    error = await why_not(program(complains, {"API_KEY": KEY, "PORT": "8080"}))
    assert "no access with [API_KEY] on 8080" in error.diagnosis  # a short value occurs in many words by chance


async def test_the_end_of_a_long_secret_is_hidden_even_if_its_beginning_was_dropped() -> None:
    floods = "import os, sys; sys.exit('x' * 1_000 + os.environ['API_KEY'] + '\\\\n' * 8_180)"
    error = await why_not(program(floods, {"API_KEY": KEY}))
    assert not any(KEY[at:] in error.diagnosis for at in range(len(KEY) - 4))


ECHOES = """
import json, os, sys
for line in sys.stdin:
    sent = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": sent.get("id")}
    if sent["method"] == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "bench", "version": "1"}}
        print(json.dumps({**answer, "result": about}), flush=True)
    elif "id" in sent:
        key = os.environ["API_KEY"]
        print(json.dumps({**answer, "error": {"code": 1, "message": f"bad {key}", "data": [key]}}), flush=True)
"""


async def test_an_error_of_a_server_does_not_show_its_secrets() -> None:
    error = await why_not(program(ECHOES, {"API_KEY": KEY}))
    assert error.message == "`bench` could not start or connect."
    assert error.diagnosis.startswith("The cause: bad [API_KEY].")


def test_the_part_of_a_header_after_the_scheme_is_hidden_as_a_secret() -> None:
    secrets = Secrets(HttpServer("http://bench.example", {"Authorization": f"Bearer {KEY}", "X-Short": "on"}))
    assert secrets.hidden(f"Bearer {KEY}, or {KEY}, is on") == "[Authorization], or [Authorization], is on"
    assert secrets.hidden_in({KEY: [1, {"a": KEY}]}) == {"[Authorization]": [1, {"a": "[Authorization]"}]}


def test_a_secret_that_contains_a_shorter_secret_is_replaced_whole() -> None:
    secrets = Secrets(StdioServer("x", env={"USER_ID": "ada-lovelace", "LOGIN": "ada-lovelace:p4ssword"}))
    assert secrets.hidden("as ada-lovelace:p4ssword") == "as [LOGIN]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at https://bench.example/mcp?key=k3y#part.", "at https://bench.example/mcp"),
        ("at (https://ada:p4ss@bench.example:8443/mcp)", "at (https://bench.example:8443/mcp)"),
        ("HTTP Request: POST wss://t0ken@bench.example?key=k3y 'HTTP/1.1 200'", None),
        ("postgres://ada:p4ss@db.example/shop and http://a.example/?k=1 'x'", None),
        ("what is this? a@b.example // c#d", "what is this? a@b.example // c#d"),
    ],
)
def test_an_address_is_shown_without_user_query_and_fragment(text: str, expected: str | None) -> None:
    found = shown(text)
    assert expected in {None, found}
    assert not any(secret in found for secret in ("k3y", "p4ss", "t0ken", "k=1"))


@pytest.mark.parametrize("word", ["a", "a.", "a+://", "://", "a://@"])
def test_finding_addresses_takes_linear_time(word: str) -> None:
    assert "://" in shown(word * 200_000 + "://")


def test_verbose_logs_contain_no_keys_of_addresses(tmp_path: Path) -> None:
    with http_server() as url:
        config = write_config(tmp_path / "mcp.json", bench={"url": f"{url}/mcp?key=k3y"})
        ended = toolcrib_process("-v", "list", "-c", config)
    assert ended.code == 0, ended.err
    assert f"HTTP Request: POST {url}/mcp " in ended.err
    assert "k3y" not in ended.err
