"""`toolcrib login`, `logout` and `logins`: from the terminal to an issuer and back, and into a running gateway."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.running import TOOLCRIB, toolcrib, toolcrib_process
from tests.servers.issuer import MORE, Issuer, browser, issuing
from tests.servers.launching import ROOT, write_config
from tests.surfaces.serving import ask, run_tool
from tests.until import until, until_blocking


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BROWSER", f"{sys.executable} {ROOT / 'tests' / 'servers' / 'issuer.py'} %s")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "state" / "toolcrib"


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as each:
        yield each


@pytest.fixture
def config(tmp_path: Path, issuer: Issuer) -> Path:
    return write_config(tmp_path / "mcp.json", far={"url": issuer.server})


def stored_in(state: Path) -> bytes:
    """Return the content of all files of the state: grants, the audit and others."""
    return b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())


def sign_in_by_hand(config: Path, *words: str) -> None:
    """Sign in with a browser on a different machine, and paste the address that it ends at."""
    command = [TOOLCRIB, "login", "far", "-c", str(config), "--no-browser", *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        while "/authorize?" not in (line := process.stderr.readline()):
            assert line
        _, err = process.communicate(f"nonsense\n{browser(line.strip())}\n", timeout=60)
        assert process.returncode == 0, err
        assert "This is not the address" in err


def test_a_person_signs_in_with_a_browser_and_signs_out(config: Path, issuer: Issuer) -> None:
    doctor = toolcrib_process("doctor", "-c", config, "--json")
    (far,) = doctor.json["sources"]
    assert (doctor.code, far["needs_sign_in"], far["remedy"]) == (1, True, "Run `toolcrib login far`.")
    assert "sign in" in toolcrib_process("doctor", "-c", config).out
    ended = toolcrib_process("login", "far", "-c", config)
    assert ended.code == 0, ended.err
    assert "Signed in to far" in ended.err
    assert toolcrib_process("call", "far.add", '{"a": 1, "b": 2}', "-c", config).out == "3\n"
    (login,) = toolcrib("logins", "--json").json["logins"]
    assert (login["server"], login["principal"], login["renewed_automatically"]) == ("far", "local", True)
    shown = toolcrib("logins")
    assert "renewed automatically" in shown.out
    out = toolcrib_process("logout", "far")
    assert out.code == 0
    assert "revoked at the issuer" in out.err
    assert (issuer.tokens, issuer.refresh_tokens) == ({}, {})
    assert toolcrib("logins").err == "There are no sign-ins.\n"
    assert toolcrib("logout", "far").code == 1
    for each in (doctor, ended, shown, out):
        assert not [secret for secret in issuer.secrets if secret in each.out + each.err]


def test_a_person_signs_in_with_a_browser_on_a_different_machine(config: Path) -> None:
    sign_in_by_hand(config)
    assert toolcrib("logins", "--json").json["logins"][0]["server"] == "far"


def test_logout_removes_the_tokens_even_if_the_issuer_is_away(config: Path, issuer: Issuer) -> None:
    sign_in_by_hand(config)
    issuer.metadata = {"revocation_endpoint": "http://127.0.0.1:1/revoke"}
    sign_in_by_hand(config)
    ended = toolcrib("logout", "far", "--json")
    assert (ended.code, ended.json["revoked"]) == (0, False)
    assert "cannot be reached" in ended.json["problems"][0]
    assert toolcrib("logins", "--json").json == {"logins": []}


@pytest.mark.parametrize(
    ("server", "settings", "told"),
    [
        ({"command": "x"}, {}, "is a program on this machine"),
        ({"url": "https://x.example", "headers": {"Authorization": "Bearer x"}}, {}, "has a token in its `headers`"),
        ({"url": "https://x.example"}, {"auth": {"tokens": []}}, "`toolcrib.sources.far.isolation`"),
        (
            {"url": "https://x.example"},
            {"sources": {"far": {"isolation": "principal", "principals": {"ada": {}}}}},
            "`local` has no access",
        ),
        (
            {"url": "https://x.example"},
            {
                "sources": {
                    "far": {
                        "oauth": {
                            "grant": "client_credentials",
                            "client_id": "c",
                            "client_secret": "s",
                            "issuer": "https://i.example",
                        }
                    }
                }
            },
            "needs no person",
        ),
        (
            {"url": "https://x.example"},
            {"sources": {"far": {"oauth": {"client_id": "c", "client_secret": "${NOT_SET}", "issuer": "https://i"}}}},
            "`NOT_SET` is not set",
        ),
    ],
)
def test_a_server_without_a_sign_in_is_refused_with_the_reason(
    tmp_path: Path, server: dict[str, object], settings: dict[str, object], told: str
) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib=settings, far=server)
    ended = toolcrib("login", "far", "-c", config)
    assert ended.code == 2
    assert told in " ".join(ended.err.split())


def test_an_unknown_server_is_named_with_a_suggestion(config: Path) -> None:
    ended = toolcrib("login", "fare", "-c", config)
    assert ended.code == 1
    assert "did you mean `far`?" in ended.err


def test_an_issuer_that_cannot_be_used_is_explained(config: Path, issuer: Issuer) -> None:
    issuer.has_pkce = False
    ended = toolcrib("login", "far", "-c", config, "--no-browser", given="")
    assert ended.code == 1
    assert "PKCE" in ended.err


def test_a_login_for_a_principal_is_only_for_isolated_servers(config: Path, tmp_path: Path, issuer: Issuer) -> None:
    refused = toolcrib("login", "far", "-c", config, "--for", "ada")
    assert refused.code == 2
    assert "All principals share" in refused.err
    isolated = {"sources": {"far": {"isolation": "principal"}}}
    config = write_config(tmp_path / "mcp.json", toolcrib=isolated, far={"url": issuer.server})
    sign_in_by_hand(config, "--for", "ada")
    (login,) = toolcrib("logins", "--json").json["logins"]
    assert login["principal"] == "ada"


def test_the_listener_refuses_everything_but_the_answer(config: Path) -> None:
    """Any program of this machine can send requests, and so can a page on the internet, with its own name as host."""
    env = {**os.environ, "BROWSER": "true"}
    command = [TOOLCRIB, "login", "far", "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        while "/authorize?" not in (line := process.stderr.readline()):
            assert line
        answer = browser(line.strip())
        redirect = answer.partition("?")[0]
        for url, headers in [
            (f"{redirect}?state=wrong&code=x", {}),
            (redirect, {}),
            (answer.replace("/callback", "/other"), {}),
            (answer, {"Host": "evil.example"}),
        ]:
            assert httpx2.get(url, headers=headers).status_code == 400
        assert httpx2.post(answer).status_code == 400
        page = httpx2.get(answer)
        assert page.status_code == 200
        assert "You are signed in to far." in page.text
        assert page.headers["cache-control"] == "no-store"
        assert process.wait(30) == 0


def test_after_kill_in_the_middle_of_the_answer_a_new_sign_in_works(config: Path, issuer: Issuer) -> None:
    issuer.token_delay_s = 5
    env = {**os.environ, "BROWSER": "true"}
    command = [TOOLCRIB, "login", "far", "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        while "/authorize?" not in (line := process.stderr.readline()):
            assert line
        answer = browser(line.strip())
        with pytest.raises(httpx2.TimeoutException):
            httpx2.get(answer, timeout=0.5)
        until_blocking(lambda: issuer.requests["authorization_code"], "the code was sent")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    issuer.token_delay_s = 0
    sign_in_by_hand(config)
    assert toolcrib("logins", "--json").json["logins"][0]["server"] == "far"


@pytest.mark.anyio
async def test_a_running_gateway_finds_known_tools_says_who_has_to_sign_in_and_notices_it(
    tmp_path: Path, config: Path, issuer: Issuer, state: Path
) -> None:
    sign_in_by_hand(config)
    async with gateway(config, tmp_path / "logs" / "gateway") as client:
        await until(lambda: _found(client), "the server is listed")
        result = await run_tool(client, "far.add", a=1, b=2)
        assert result.structured_content == {"result": 3}
        handle = (await ask(client, "expand_tool", tool_id="far.add"))["handle"]
        assert toolcrib_process("logout", "far").code == 0
        answer = await client.call_tool("call_tool", {"tool_id": handle, "arguments": {"a": 1, "b": 2}})
        assert answer.is_error
        error = answer.structured_content["error"]
        assert error["code"] == "SIGN_IN_REQUIRED"
        assert any("`toolcrib login far`" in hint for hint in error["hints"])
        assert error["next_action"]["operation"] == "call_tool"
        assert await _found(client)  # known tools are still found
        sign_in_by_hand(config)
        again = await client.call_tool("call_tool", error["next_action"]["arguments"])
        assert again.structured_content == {"result": 3}
        wants = await run_tool(client, "far.write", text="x")
        assert wants.structured_content["error"]["code"] == "SIGN_IN_REQUIRED"
        assert MORE in toolcrib_process("logins").out
        words = " ".join(" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True))
        assert "serve" in words
        assert not [secret for secret in issuer.secrets if secret in words]
    kept = stored_in(state) + stored_in(tmp_path / "cache") + stored_in(tmp_path / "logs")
    assert b"SIGN_IN_REQUIRED" in kept  # the audit has the calls
    assert not [secret for secret in issuer.secrets if secret.encode() in kept]


@asynccontextmanager
async def gateway(config: Path, log: Path) -> AsyncGenerator[Client]:
    """Yield a client of a gateway with the state of this test, its audit and its cache."""
    log.parent.mkdir(exist_ok=True)
    parameters = StdioServerParameters(command=TOOLCRIB, args=["-v", "serve", str(config)], env={**os.environ})
    with log.open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


async def _found(client: Client) -> bool:
    answer = await ask(client, "search_tools", query="add two integers")
    return any(each["tool_id"] == "far.add" for each in answer["results"])
