"""Stored values are filled in when a server starts, and appear nowhere else."""

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tests.servers import faulty
from tests.until import until

from toolcrib.core.errors import SourceUnavailable
from toolcrib.core.placeholders import Problem
from toolcrib.secrets.sealing import Seal
from toolcrib.secrets.secret_store import SecretStore
from toolcrib.secrets.secret_values import SecretValues
from toolcrib.sources.mcp.filled_servers import FilledServer, fill_for
from toolcrib.sources.mcp.mcp_source import McpSource
from toolcrib.sources.mcp.server_output import Secrets
from toolcrib.sources.mcp.server_spec import HttpServer, McpServer, StdioServer

pytestmark = pytest.mark.anyio

CANARY = "canary-e0b6d4"
SHOWS_TOKEN = "import os, sys; print('invalid', os.environ.get('TOKEN'), sys.argv[1:], file=sys.stderr); sys.exit(3)"


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path / "secrets.sqlite", lambda: Seal([b"k" * 32]))


def filled(server: McpServer, store: SecretStore, folder: Path) -> FilledServer:
    fill = fill_for(server, SecretValues(folder / "mcp.json", store), folder)
    assert fill is not None
    return fill()


def refusal(server: McpServer, store: SecretStore, folder: Path) -> str:
    with pytest.raises(Problem) as problem:
        filled(server, store, folder)
    assert CANARY not in f"{problem.value!r} {problem.value.remedy}"
    return str(problem.value)


def test_a_server_without_references_needs_no_values(store: SecretStore, tmp_path: Path) -> None:
    values = SecretValues(tmp_path / "mcp.json", store)
    assert fill_for(StdioServer("git", env={"A": "${B}"}), values, tmp_path) is None
    assert fill_for(HttpServer("https://x", {"A": "b"}), values, tmp_path) is None


def test_values_are_filled_into_every_place_and_not_shown(store: SecretStore, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    store.set("token", CANARY)
    store.set("region", "eu-central", config)
    server = StdioServer(
        "git", ("--in=${input:region}",), {"TOKEN": "x${keyring:token}x"}, Path("/srv/${input:region}")
    )
    found = filled(server, store, tmp_path)
    assert found.server == StdioServer("git", ("--in=eu-central",), {"TOKEN": f"x{CANARY}x"}, Path("/srv/eu-central"))
    assert CANARY not in repr(found)
    url = HttpServer("https://${input:region}.example/mcp?key=${keyring:token}", {"X": "Bearer ${keyring:token}"})
    assert filled(url, store, tmp_path).server == HttpServer(
        f"https://eu-central.example/mcp?key={CANARY}", {"X": f"Bearer {CANARY}"}
    )


def test_a_value_is_not_searched_for_references(store: SecretStore, tmp_path: Path) -> None:
    store.set("one", "${keyring:two}")
    store.set("two", CANARY)
    assert filled(StdioServer("git", env={"A": "${keyring:one}"}), store, tmp_path).server == StdioServer(
        "git", env={"A": "${keyring:two}"}
    )


def test_an_env_file_adds_variables_and_env_takes_precedence(store: SecretStore, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\n")
    server = StdioServer("git", env={"B": "entry"}, env_file=".env")
    assert filled(server, store, tmp_path).server == StdioServer("git", env={"A": "file", "B": "entry"})
    (tmp_path / ".env").write_text("A=newer\n")
    assert filled(server, store, tmp_path).server == StdioServer("git", env={"A": "newer", "B": "entry"})
    (tmp_path / ".env").unlink()
    assert refusal(server, store, tmp_path) == f"envFile: {tmp_path / '.env'}: file not found"


def test_a_value_cannot_begin_a_new_header_or_change_the_kind_of_address(store: SecretStore, tmp_path: Path) -> None:
    store.set("token", f"{CANARY}\r\nX-Admin: 1")
    store.set("path", f"file:///{CANARY}", tmp_path / "mcp.json")
    told = "a value that is filled in must not contain a line end or a control character"
    assert refusal(HttpServer("https://x", {"A": "${keyring:token}"}), store, tmp_path) == f"headers.A: {told}"
    assert refusal(HttpServer("https://x/?${keyring:token}"), store, tmp_path) == f"url: {told}"
    assert "is not an http or https URL" in refusal(HttpServer("${input:path}"), store, tmp_path)


@pytest.mark.parametrize(
    ("server", "place"),
    [
        (StdioServer("git", env={"TOKEN": "${keyring:gone}"}), "env.TOKEN"),
        (StdioServer("git", ("a", "${input:gone}")), "args.1"),
        (StdioServer("${input:gone}"), "command"),
        (StdioServer("git", cwd=Path("${input:gone}")), "cwd"),
        (HttpServer("https://x", {"A": "${file:gone}"}), "headers.A"),
        (HttpServer("https://${input:gone}"), "url"),
    ],
)
def test_a_missing_value_names_its_place(server: McpServer, place: str, store: SecretStore, tmp_path: Path) -> None:
    assert refusal(server, store, tmp_path).startswith(f"{place}: ")


# -- a source -----------------------------------------------------------------------------------------------------


def source(server: StdioServer, store: SecretStore, folder: Path) -> McpSource:
    return McpSource("desk", server, fill=fill_for(server, SecretValues(folder / "mcp.json", store), folder))


async def failure(desk: McpSource) -> SourceUnavailable:
    async with desk:
        with pytest.raises(SourceUnavailable) as error:
            await desk.list_tools()
    return error.value


async def test_a_missing_value_keeps_the_server_from_starting_and_only_the_owner_learns_why(
    store: SecretStore, tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    program = f"open({str(marker)!r}, 'w')"
    error = await failure(
        source(StdioServer(sys.executable, ("-c", program), {"TOKEN": "${keyring:github}"}), store, tmp_path)
    )
    assert not marker.exists()
    assert "github" not in str(error.to_wire())
    assert error.diagnosis == "The cause: env.TOKEN: `${keyring:github}` has no value yet."
    assert error.remedy == "Run `toolcrib secret set github`."
    assert not error.retryable


async def test_a_value_that_is_stored_later_is_used_by_the_next_start(store: SecretStore, tmp_path: Path) -> None:
    server = StdioServer(sys.executable, (faulty.__file__,), {"TOKEN": "${keyring:github}"})
    now = [0.0]
    fill = fill_for(server, SecretValues(tmp_path / "mcp.json", store), tmp_path)
    async with McpSource("desk", server, fill=fill, now=lambda: now[0]) as desk:
        with pytest.raises(SourceUnavailable):
            await desk.list_tools()
        store.set("github", CANARY)
        now[0] += 60.0
        assert (await desk.list_tools()).tools


async def test_an_address_that_is_filled_in_appears_in_the_remedy_without_secrets(
    store: SecretStore, tmp_path: Path
) -> None:
    store.set("host", "127.0.0.1:9", tmp_path / "mcp.json")  # the port of the service "discard", where nothing listens
    store.set("key", CANARY)
    server = HttpServer("http://${input:host}/mcp?key=${keyring:key}", {"Authorization": "Bearer ${keyring:key}"})
    fill = fill_for(server, SecretValues(tmp_path / "mcp.json", store), tmp_path)
    error = await failure(McpSource("desk", server, fill=fill))
    assert "host and port" in error.remedy
    assert CANARY not in f"{error!r} {error.diagnosis} {error.remedy}"


async def test_a_server_that_writes_its_secrets_does_not_show_them(store: SecretStore, tmp_path: Path) -> None:
    store.set("github", CANARY)
    store.set("key", f"{CANARY}-2", tmp_path / "mcp.json")
    server = StdioServer(sys.executable, ("-c", SHOWS_TOKEN, "--key=${input:key}"), {"TOKEN": "${keyring:github}"})
    error = await failure(source(server, store, tmp_path))
    assert "invalid [" in error.diagnosis
    assert CANARY not in f"{error!r} {error.to_wire()} {error.diagnosis} {error.remedy}"


async def test_a_keyring_that_waits_for_a_person_does_not_block_the_program() -> None:
    asked, answered = threading.Event(), threading.Event()

    def fill() -> FilledServer:
        asked.set()
        answered.wait()
        raise Problem("the person did not unlock it")

    async def answer() -> None:
        await until(asked.is_set, "the keyring is asked")
        answered.set()  # runs only if the loop is free

    errors: list[SourceUnavailable] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        errors.append(await failure(McpSource("desk", StdioServer("git"), fill=fill)))
    assert "did not unlock" in errors[0].diagnosis


def test_what_is_not_filled_in_is_not_hidden() -> None:
    secrets = Secrets(StdioServer("git", env={"TOKEN": "${keyring:github}", "OTHER": CANARY}))
    assert secrets.hidden(f"${{keyring:github}} {CANARY}") == "${keyring:github} [OTHER]"


def test_values_in_command_lines_and_addresses_are_hidden() -> None:
    values: Mapping[str, str] = {"${input:key}": CANARY}
    assert Secrets(StdioServer("git", (CANARY,)), values).hidden(f"<{CANARY}>") == "<[${input:key}]>"
