"""The tokens of requests: attached, renewed once, replaced after a refusal, and never in the way of other requests."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.servers.issuer import MORE, SCOPE, Issuer, issuing
from tests.servers.launching import ROOT
from tests.sources.mcp.oauth.signing_in import Client
from tests.until import until

from toolcrib.core.errors import SignInRequired, SourceUnavailable, ToolcribError
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.core.results import ToolResult
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import Seal
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.oauth import credentials
from toolcrib.sources.mcp.oauth.credentials import NoCredentials
from toolcrib.sources.mcp.oauth.grants import GrantStore

pytestmark = pytest.mark.anyio

CONTEXT = CallContext(LOCAL)


async def call(source: McpSource, name: str = "add", **arguments: object) -> ToolResult:
    tools = {tool.name: tool for tool in (await source.list_tools()).tools}
    return await source.call_tool(tools[name], arguments or {"a": 1, "b": 2}, CONTEXT)


def sum_of(result: ToolResult) -> object:
    return result.wire["structuredContent"]["result"]


async def test_after_a_restart_the_person_is_not_asked_again(tmp_path: Path) -> None:
    with issuing() as issuer:
        await Client.of(tmp_path, issuer).sign_in()
        async with Client.of(tmp_path, issuer).source() as source:
            assert sum_of(await call(source)) == 3
        issuer.expire_tokens()
        client = Client.of(tmp_path, issuer)
        client.now[0] = 4_000
        async with client.source() as source:
            assert sum_of(await call(source)) == 3
        assert (issuer.requests["authorize"], issuer.requests["refresh_token"]) == (1, 1)


async def test_a_token_that_was_revoked_early_is_renewed_without_the_person(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        async with client.source() as source:
            await call(source)
            issuer.tokens.clear()
            assert sum_of(await call(source)) == 3
        assert (issuer.requests["authorize"], issuer.requests["refresh_token"]) == (1, 1)


async def test_a_grant_that_was_revoked_needs_a_new_sign_in_and_is_noticed_when_there_is_one(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        async with client.source() as source:
            await call(source)
            issuer.revoke_all()
            with pytest.raises(SignInRequired) as raised:
                await call(source)
            assert "`toolcrib login far`" in raised.value.hints[0]
            spent = issuer.requests["refresh_token"]
            with pytest.raises(SignInRequired):
                await call(source)
            assert issuer.requests["refresh_token"] == spent == 1
            await client.sign_in()
            assert sum_of(await call(source)) == 3


async def test_a_source_that_waits_for_a_sign_in_refuses_at_once_and_lists_itself_after_it(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        async with client.source() as source:
            with pytest.raises(SignInRequired):
                await source.list_tools()
            asked = issuer.requests["server"]
            with pytest.raises(SignInRequired, match="needs a sign-in") as raised:
                await source.list_tools()
            assert issuer.requests["server"] == asked  # the server is not asked again and again
            assert not raised.value.retryable
            changes = source.changes()
            await client.sign_in()
            with anyio.fail_after(30):
                await anext(changes)
            assert {tool.name for tool in (await source.list_tools()).tools} == {"add", "write", "shout"}


async def test_a_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        held = client.credentials(lambda: 1.0)
        client.now[0] = 3_600 - credentials.AHEAD_S - credentials.JITTER_S - 5
        assert await held.token() == first.access_token
        client.now[0] += 10
        renewed = await held.token()
        assert renewed != first.access_token
        assert client.grant is not None
        assert (client.grant.access_token, client.grant.scope) == (renewed, SCOPE)


async def test_requests_run_at_the_same_time_and_one_of_them_renews(tmp_path: Path) -> None:
    with issuing(token_delay_s=0.3) as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        held = client.credentials()
        tokens: list[str | None] = []

        async def ask() -> None:
            tokens.append(await held.token())

        client.now[0] = 3_590  # the token is still valid
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert issuer.requests["refresh_token"] == 1
        assert tokens.count(first.access_token) == 19  # nobody waited for the renewal
        tokens.clear()
        client.now[0] = 9_000  # it has expired
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert issuer.requests["refresh_token"] == 2
        assert len({*tokens}) == 1


async def test_a_request_that_hangs_does_not_delay_others(tmp_path: Path) -> None:
    """The SDK's own provider holds a lock during each request."""
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        held = client.credentials()
        token = await held.token()
        hanging = httpx2.Response(200, request=httpx2.Request("GET", issuer.server))
        assert await held.instead(token, hanging) is None
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(held.token)


_WORKER = """
import anyio, sys
from pathlib import Path
from toolcrib.secrets.sealing import Seal
from toolcrib.sources.mcp.oauth.credentials import Credentials
from toolcrib.sources.mcp.oauth.grants import GrantStore
from toolcrib.sources.mcp.server_spec import HttpServer

folder, server, ahead_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
import time
store = GrantStore(folder / "grants.sqlite", lambda: Seal([b"k" * 32]), now=lambda: time.time() + ahead_s)
held = Credentials(store, "far", "local", HttpServer(server))
print("ready", flush=True)
sys.stdin.readline()
print(anyio.run(held.token), flush=True)
"""


async def test_twenty_processes_spend_a_rotating_refresh_token_once(tmp_path: Path) -> None:
    with issuing(token_delay_s=0.5) as issuer:
        await Client.of(tmp_path, issuer).sign_in()
        command = [sys.executable, "-c", _WORKER, str(tmp_path), issuer.server, "4000"]
        workers = [
            subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
            for _ in range(20)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:  # all at once
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        tokens = {(await anyio.to_thread.run_sync(worker.communicate))[0].strip() for worker in workers}
        assert issuer.requests["refresh_token"] == 1
        assert len(tokens) == 1
        assert tokens <= {*issuer.tokens}


@pytest.mark.parametrize(
    "failure", [(503, {}), (429, {}), (400, {"error": "temporarily_unavailable"}), (401, {"error": "invalid_client"})]
)
async def test_a_renewal_that_fails_is_retried_later_and_ends_no_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: tuple[int, dict[str, str]]
) -> None:
    monkeypatch.setattr(credentials, "RETRY_S", 0.2)
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        held = client.credentials()
        issuer.token_fails_with = failure
        client.now[0] = 3_590
        assert await held.token() == first.access_token  # it is still valid
        client.now[0] = 4_000
        with pytest.raises(NoCredentials) as raised:
            await held.token()
        assert raised.value.refusal.retryable
        assert not raised.value.refusal.wants_sign_in
        assert issuer.requests["refresh_token"] == 1  # within `RETRY_S`
        issuer.token_fails_with = None
        await anyio.sleep(0.25)
        assert await held.token() in issuer.tokens


async def test_a_caller_sees_a_failed_renewal_as_an_error_that_can_be_retried(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        async with client.source() as source:
            await call(source)
            issuer.expire_tokens()
            client.now[0] = 4_000
            issuer.token_fails_with = (503, {})
            with pytest.raises(SourceUnavailable, match="cannot be renewed now") as raised:
                await call(source)
            assert raised.value.retryable
            assert not isinstance(raised.value, SignInRequired)


async def test_a_caller_that_leaves_during_a_renewal_does_not_lose_the_new_token(tmp_path: Path) -> None:
    with issuing(token_delay_s=0.5) as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        client.now[0] = 4_000
        with anyio.move_on_after(0.2) as leaving:
            await client.credentials().token()
        assert leaving.cancel_called
        assert client.grant is not None
        assert client.grant.access_token != first.access_token
        assert client.grant.refresh_token in issuer.refresh_tokens


async def test_an_expired_refresh_token_needs_a_new_sign_in(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        issuer.refresh_tokens.clear()
        issuer.expire_tokens()
        client.now[0] = 4_000
        async with client.source() as source:
            with pytest.raises(SignInRequired):
                await call(source)
        assert client.grant is not None
        assert client.grant.refresh_token is None


@pytest.mark.parametrize("jump_s", [10_000_000.0, -10_000_000.0])
async def test_a_clock_that_jumps_costs_at_most_a_renewal(tmp_path: Path, jump_s: float) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        client.now[0] = jump_s
        async with client.source() as source:
            assert sum_of(await call(source)) == 3
            issuer.tokens.clear()
            assert sum_of(await call(source)) == 3
        assert issuer.requests["authorize"] == 1
        assert issuer.requests["refresh_token"] <= 2


async def test_a_token_without_an_expiry_is_used_until_the_server_refuses_it(tmp_path: Path) -> None:
    with issuing(expires_in=None) as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        client.now[0] = 1_000_000
        assert await client.credentials().token() == first.access_token
        async with client.source() as source:
            issuer.tokens.clear()
            assert sum_of(await call(source)) == 3


async def test_a_refresh_token_that_does_not_rotate_is_kept(tmp_path: Path) -> None:
    with issuing(rotates=False) as issuer:
        client = Client.of(tmp_path, issuer)
        first = await client.sign_in()
        client.now[0] = 4_000
        await client.credentials().token()
        assert client.grant is not None
        assert client.grant.refresh_token is not None
        assert first.refresh_token in issuer.refresh_tokens


async def test_a_server_that_refuses_every_token_is_not_answered_with_endless_renewals(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        refusal = httpx2.Response(401, request=httpx2.Request("POST", issuer.server))
        held = client.credentials()
        token = await held.token()
        for _ in range(5):
            other = await held.instead(token, refusal)
            token = other or token
        assert issuer.requests["refresh_token"] == 1
        assert credentials.wants_sign_in(refusal)


async def test_a_sign_out_by_a_different_process_is_noticed_at_the_next_request(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        held = client.credentials()
        assert await held.token() is not None
        assert Client.of(tmp_path, issuer).store.forget(client.who.key)
        assert await held.token() is None


async def test_a_tampered_grant_is_not_used_and_the_person_is_asked(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        with client.store._database.writing() as file:  # pyright: ignore[reportPrivateUsage]
            file.execute("UPDATE grants SET body = zeroblob(200)")
        async with client.source() as source:
            with pytest.raises(SignInRequired):
                await call(source)
            await client.sign_in()
            await until(lambda: not source.breaker.failures, "the source notices the sign-in")
            assert sum_of(await call(source)) == 3


async def test_a_key_that_cannot_be_read_now_is_no_reason_to_sign_in_again(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()

        def locked() -> Seal:
            raise KeyUnavailable("The keyring is locked.")

        client.store = GrantStore(client.store.path, locked)
        async with client.source() as source:
            with pytest.raises(SourceUnavailable, match="cannot be read now") as raised:
                await call(source)
            assert not isinstance(raised.value, SignInRequired)
            assert "The keyring is locked." in raised.value.diagnosis
            assert "keyring" not in raised.value.message


async def test_a_call_that_needs_more_permissions_asks_for_them(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        async with client.source() as source:
            with pytest.raises(SignInRequired, match="more permissions"):
                await call(source, "write", text="x")
            assert sum_of(await call(source)) == 3
            assert (await client.sign_in()).scope == f"{SCOPE} {MORE}"
            assert sum_of(await call(source, "write", text="x")) == "wrote x"


# -- programs that sign in by themselves -------------------------------------------------------------------------------


def machine(folder: Path, issuer: Issuer, **settings: str) -> Client:
    issuer.clients["robot"] = {"client_secret": "canary-secret"}
    return Client.of(folder, issuer, grant="client_credentials", client_id="robot", issuer=issuer.url, **settings)


async def test_a_program_signs_in_by_itself_and_asks_for_more_if_needed(tmp_path: Path) -> None:
    with issuing() as issuer:
        client = machine(tmp_path, issuer, client_secret="canary-secret")
        async with client.source() as source:
            assert sum_of(await call(source)) == 3
            assert sum_of(await call(source, "write", text="x")) == "wrote x"
            issuer.tokens.clear()
            assert sum_of(await call(source)) == 3
        assert issuer.requests["authorize"] == issuer.requests["refresh_token"] == 0
        async with client.source() as source:
            issued = issuer.requests["client_credentials"]
            assert sum_of(await call(source)) == 3
            assert issuer.requests["client_credentials"] == issued


async def test_a_program_signs_in_with_a_private_key(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with issuing(public_key=public.decode()) as issuer:
        async with machine(tmp_path, issuer, private_key=pem).source() as source:
            assert sum_of(await call(source)) == 3
        assert "client_secret" not in issuer.sent[-1]
        async with machine(tmp_path / "other", issuer, private_key="canary").source() as source:
            with pytest.raises(SourceUnavailable, match="sign-in, which failed") as raised:
                await call(source)
            assert "`oauth.private_key`" in raised.value.diagnosis
            assert "canary" not in raised.value.diagnosis


# -- nothing of it is shown --------------------------------------------------------------------------------------------


async def test_no_token_is_in_an_error_or_a_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        shown: list[str] = []

        async def note(source: McpSource, name: str) -> None:
            try:
                shown.append(repr(await call(source, name, **({"text": "x"} if name == "write" else {}))))
            except ToolcribError as error:
                shown.append(f"{error!r} {error.to_wire()} {getattr(error, 'diagnosis', '')}")

        async with client.source() as source:
            await note(source, "shout")  # the server quotes the token
            assert "[token]" in shown[-1]
            issuer.tokens.clear()
            await note(source, "add")
            description = {"error": "server_error", "error_description": next(iter(issuer.refresh_tokens))}
            issuer.token_fails_with = (400, description)
            issuer.tokens.clear()
            client.now[0] = 60.0
            await note(source, "add")
            issuer.token_fails_with = None
            issuer.revoke_all()
            await note(source, "add")
        ours = [f"{record.getMessage()} {record.exc_text}" for record in caplog.records if "toolcrib" in record.name]
        ours += [record.getMessage() for record in caplog.records if record.name.startswith("httpx2")]
        codes = {form["code"] for form in issuer.sent if "code" in form}
        assert len(issuer.secrets) > 2
        for secret in issuer.secrets | codes:
            assert not [line for line in (*ours, *shown) if secret in line]


async def test_a_request_costs_no_read_of_the_file_while_nothing_changes(tmp_path: Path) -> None:
    """Otherwise each call would open a transaction of SQLite."""
    with issuing() as issuer:
        client = Client.of(tmp_path, issuer)
        await client.sign_in()
        held = client.credentials()
        await until(lambda: time.time_ns() - client.store.path.stat().st_mtime_ns > 2.1e9, "the file is settled")
        assert await held.token() is not None
        reads: list[object] = []
        client.store.get = reads.append  # pyright: ignore[reportAttributeAccessIssue]
        for _ in range(10):
            assert await held.token() is not None
        assert reads == []
