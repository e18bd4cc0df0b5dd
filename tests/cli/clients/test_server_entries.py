"""One server entry of a client: whether it is Toolcrib, whether it can be moved, and the entry for the gateway."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib.cli.clients.known_clients import CLIENTS
from toolcrib.cli.clients.server_entries import (
    Serving,
    gateway_entry,
    inputs_of,
    is_toolcrib,
    may_need_sign_in,
    reaches_shared,
    same_server,
    serving,
    variables,
    why_not_movable,
)


def started(*words: str) -> dict[str, Any]:
    return {"command": words[0], "args": list(words[1:])}


@pytest.mark.parametrize(
    "words",
    [
        ("toolcrib", "serve", "/m.json"),
        ("/opt/venv/bin/toolcrib", "serve", "/m.json"),
        (r"C:\Users\Ada\toolcrib.exe", "serve", "/m.json"),
        ("python", "-m", "toolcrib", "serve", "/m.json"),
        ("uvx", "toolcrib==0.1", "serve", "/m.json"),
        ("uvx", "toolcrib@latest", "serve", "/m.json"),
        ("uv", "tool", "run", "--from", "toolcrib @ file:///src", "toolcrib", "serve", "/m.json"),
    ],
)
def test_toolcrib_is_recognized_in_every_form_of_its_command(words: tuple[str, ...]) -> None:
    assert serving(started(*words)) == Serving("/m.json", (), ())
    assert is_toolcrib(started(*words))


def test_the_options_of_serve_are_separated_from_its_file() -> None:
    words = ("toolcrib", "-v", "serve", "--no-cache", "--cache", "c.sqlite", "/m.json", "--operations", "all")
    assert serving(started(*words)) == Serving(
        "/m.json", ("--no-cache", "--cache", "c.sqlite"), ("--operations", "all")
    )
    assert serving(started("toolcrib", "serve")) == Serving(None, (), ())


@pytest.mark.parametrize(
    "entry",
    [
        started("toolcrib", "doctor", "m.json"),
        started("node", "serve", "toolcribs"),
        started("mytoolcrib", "serve"),
        {"command": ["toolcrib", "serve"]},
        {"url": "https://toolcrib.example/serve"},
        "toolcrib serve",
        None,
    ],
)
def test_an_entry_that_only_resembles_toolcrib_is_not_recognized(entry: object) -> None:
    assert serving(entry) is None
    assert not is_toolcrib(entry)


def test_a_shell_command_that_mentions_toolcrib_serve_counts_as_toolcrib() -> None:
    assert is_toolcrib(started("sh", "-c", "exec toolcrib serve ~/mcp.json"))


def test_a_gateway_shared_on_this_machine_is_recognized_by_its_loopback_url() -> None:
    assert reaches_shared({"type": "http", "url": "http://127.0.0.1:8808/mcp"})
    assert reaches_shared({"url": "http://[::1]:8808/mcp/"})
    assert not reaches_shared({"url": "https://example.com/mcp"})
    assert not reaches_shared({"url": "http://[oops/mcp"})
    assert not reaches_shared({"command": "x"})


# -- moving -----------------------------------------------------------------------------------------------------------


def why_not(client: str, entry: object) -> str | None:
    return why_not_movable(CLIENTS[client], "git", entry, json.dumps(entry))


@pytest.mark.parametrize(
    ("client", "entry"),
    [
        ("claude-code", {"type": "stdio", "command": "x", "args": ["${A}", "${B:-b}"], "env": {"C": "${C}"}}),
        ("claude-code", {"type": "http", "url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${T}"}}),
        ("claude-code", {"type": "sse", "url": "${BASE}/sse", "headers": {"X": "y"}}),
        ("claude-desktop", {"command": "x", "env": {"TOKEN": "t"}}),
        ("cursor", {"command": "x", "env": {"C": "${env:C}"}, "name": "Mine", "description": "My own"}),
        ("cursor", {"url": "http://127.0.0.1:3845/mcp"}),
        ("cursor", {"url": "https://example.com/mcp?key=k"}),
        ("vscode", {"type": "stdio", "command": "x", "cwd": "/tmp", "gallery": "https://g", "version": "1"}),
        ("vscode", {"command": "x", "args": ["${userHome}${pathSeparator}x"], "envFile": "${userHome}/.env"}),
        ("cursor", {"command": "x", "envFile": "${env:HOME}/.env"}),
        ("claude-code", {"type": "http", "url": "https://example.com/mcp"}),
        ("zed", {"source": "custom", "enabled": False, "command": "x", "args": [], "env": {}}),
    ],
)
def test_a_server_with_the_same_meaning_in_toolcrib_can_be_moved(client: str, entry: dict[str, Any]) -> None:
    assert why_not(client, entry) is None


def test_a_server_with_inputs_can_be_moved_if_toolcrib_can_ask_for_them() -> None:
    entry = {"command": "x", "env": {"K": "${input:key}"}}
    for given, reason in (("promptString", None), ("command", "env.K: `${input:key}` runs a command of VS Code")):
        inputs = [{"type": given, "id": "key", "command": "x"}]
        found = why_not_movable(CLIENTS["vscode"], "git", entry, json.dumps(entry), inputs=inputs)
        assert found is None if reason is None else (found or "").startswith(reason)
    assert inputs_of(entry) == ["key"]


def test_the_folder_of_a_project_can_be_named_in_a_file_of_the_same_project() -> None:
    entry = {"command": "${workspaceFolder}/x", "envFile": "${workspaceFolder}/.env"}
    for client in ("vscode", "cursor"):
        assert why_not_movable(CLIENTS[client], "git", entry, json.dumps(entry), keeps_workspace=True) is None
        assert variables(entry) == []


@pytest.mark.parametrize(
    ("entry", "may"),
    [
        ({"url": "https://example.com/mcp"}, True),
        ({"type": "http", "url": "https://[oops/mcp", "headers": {}}, True),
        ({"url": "https://example.com/mcp", "headers": {"A": "b"}}, False),
        ({"url": "https://example.com/mcp?key=k"}, False),
        ({"url": "http://127.0.0.1:3845/mcp"}, False),
        ({"command": "x", "url": "https://example.com/mcp"}, False),
        (7, False),
    ],
)
def test_a_remote_server_without_credentials_may_need_a_sign_in(entry: object, may: bool) -> None:
    assert may_need_sign_in(entry) is may


@pytest.mark.parametrize(
    ("client", "entry", "reason"),
    [
        ("cursor", 7, "the entry is not an object"),
        ("cursor", {}, "the server needs either `command` or `url`"),
        ("cursor", started("toolcrib", "serve", "/m.json"), "it is Toolcrib itself"),
        ("vscode", {"command": "x", "env": {"K": "${input:key}"}}, "`${input:key}` is not defined under `inputs`"),
        ("cursor", {"command": "x", "env": {"K": "${input:key}"}}, "`${input:key}` means something different"),
        ("vscode", {"command": "x", "env": {"K": "${command:key}"}}, "`${command:key}` means something different"),
        ("vscode", {"command": "x", "args": ["${workspaceFolder}"]}, "only VS Code knows which project"),
        ("claude-code", {"command": "x", "args": ["${keyring:a}"]}, "`${keyring:a}` means something different"),
        (
            "vscode",
            {"command": "x", "env": {"K": "${K}"}},
            "`${K}` means something different in VS Code than in Toolcrib",
        ),
        ("vscode", {"command": "x", "envFile": ".env"}, "the path of its `envFile` is relative"),
        ("claude-code", {"command": "x", "envFile": "/.env"}, "Toolcrib does not support `envFile`"),
        (
            "vscode",
            {"command": "x", "sandbox": {}, "sandboxEnabled": True},
            "does not support `sandbox` and `sandboxEnabled`",
        ),
        ("vscode", {"command": "~/bin/x"}, "only VS Code expands `~` in a command"),
        ("vscode", {"command": "x", "env": {"Path": "/opt"}}, "VS Code adds to its PATH"),
        ("vscode", {"command": "x", "env": {"A": None}}, "env.A: must be a string"),
        ("vscode", {"url": "unix:///tmp/s.sock"}, "is not an http or https URL"),
        ("claude-code", {"command": "x", "timeout": 600_000}, "does not support `timeout`"),
        ("claude-code", {"command": "x", "args": ["${env:A}"]}, "`${env:A}` means something different"),
        ("claude-code", {"command": "x", "args": ["${A:-${B}}"]}, "means something different"),
        ("claude-code", {"type": "ws", "url": "https://e.com", "headers": {"A": "b"}}, "type: `ws` is not a transport"),
        ("claude-desktop", {"command": "npx", "args": ["Authorization:${AUTH}"], "env": {"AUTH": "s"}}, "`${AUTH}`"),
        ("claude-desktop", {"url": "https://e.com/mcp", "headers": {"A": "b"}}, "does not support `url` and `headers`"),
        ("zed", {"settings": {}}, "does not support `settings`"),
        ("zed", {"command": {"path": "x", "args": []}}, "command: must be a string"),
    ],
)
def test_a_server_whose_meaning_would_change_is_not_movable_with_a_reason(
    client: str, entry: object, reason: str
) -> None:
    assert reason in (why_not(client, entry) or "it could be moved")


def test_a_duplicate_key_in_the_raw_entry_prevents_moving_the_server() -> None:
    entry = {"command": "y"}
    raw = '{"command": "x", "command": "y"}'
    assert why_not_movable(CLIENTS["cursor"], "git", entry, raw) == "command: duplicate key"


def test_entries_with_the_same_meaning_are_the_same_server() -> None:
    entry = {"command": "x", "args": ["${env:A}"]}
    assert same_server(entry, {"type": "stdio", "command": "x", "args": ["${A}"], "env": {}, "name": "Mine"})
    assert same_server({"url": "u", "type": "http"}, {"url": "u", "headers": {}, "disabled": False})
    assert not same_server(entry, {"command": "x", "args": ["${B}"]})
    assert not same_server({"url": "u", "type": "sse"}, {"url": "u"})
    assert not same_server({"command": "x"}, {"command": "x", "disabled": True})
    assert not same_server({"command": "x"}, "x")


# -- the gateway's entry ----------------------------------------------------------------------------------------------


def test_the_variables_of_a_server_are_listed_once_without_standard_variables() -> None:
    entry = {"command": "${A}", "args": ["${HOME}/x", "${A}-${B:-b}"], "env": {"P": "${env:C}", "PATH": "${PATH}"}}
    assert variables(entry) == ["A", "B", "C"]
    assert variables(None) == []


@pytest.mark.parametrize(
    ("client", "extra"),
    [
        ("claude-code", {"type": "stdio", "env": {"A": "${A:-}"}}),
        ("claude-desktop", {}),
        ("cursor", {"env": {"A": "${env:A}"}}),
        ("vscode", {"type": "stdio", "env": {"A": "${env:A}"}}),
        ("zed", {}),
    ],
)
def test_the_gateway_entry_has_the_form_that_its_client_reads(client: str, extra: dict[str, Any]) -> None:
    entry = gateway_entry(CLIENTS[client], ("/bin/toolcrib", "serve", "/m.json"), ["A"], None)
    assert entry == {"command": "/bin/toolcrib", "args": ["serve", "/m.json"], **extra}


def test_the_gateway_entry_keeps_added_keys_but_not_those_that_disable_it() -> None:
    old: dict[str, Any] = {
        "url": "http://127.0.0.1:8808/mcp",
        "headers": {},
        "type": "http",
        "enabled": False,
        "disabled": True,
    }
    kept = {"alwaysAllow": ["search_tools"], "env": {"TOOLCRIB_CACHE": "/c", "A": "mine"}}
    entry = gateway_entry(CLIENTS["cursor"], ("/bin/toolcrib", "serve", "/m.json"), ["A", "B"], {**old, **kept})
    assert entry == {
        "type": "stdio",
        "command": "/bin/toolcrib",
        "args": ["serve", "/m.json"],
        "alwaysAllow": ["search_tools"],
        "env": {"TOOLCRIB_CACHE": "/c", "A": "mine", "B": "${env:B}"},
    }
