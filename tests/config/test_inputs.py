"""References to stored values in a configuration, the `inputs` of VS Code, and the variables of editors."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from toolcrib.config import Config, parse_config
from toolcrib.config.inputs import Input
from toolcrib.crib.configured_servers import shown
from toolcrib.sources.mcp.server_spec import HttpServer, StdioServer, address, identity

NONE: Mapping[str, str] = MappingProxyType({})

INPUTS: list[dict[str, Any]] = [
    {"type": "promptString", "id": "token", "description": "The token", "password": True},
    {"type": "promptString", "id": "host", "default": "example.com"},
    {"type": "pickString", "id": "region", "options": ["eu", {"label": "United States", "value": "us"}, 7]},
    {"type": "command", "id": "ran", "command": "extension.token"},
    {"type": "pickString", "id": "none", "options": []},
    {"type": "promptPassword", "id": "odd"},
]


def parsed(entry: dict[str, Any], inputs: object = INPUTS, environ: Mapping[str, str] = NONE) -> Config:
    return parse_config(json.dumps({"servers": {"git": entry}, "inputs": inputs}), Path("mcp.json"), environ)


def server_of(entry: dict[str, Any], **environ: str) -> StdioServer | HttpServer:
    (server,) = parsed(entry, environ=environ).servers
    assert server.server is not None, server.problem
    return server.server


def problem_of(entry: dict[str, Any], inputs: object = INPUTS, **environ: str) -> str:
    (server,) = parsed(entry, inputs, environ).servers
    assert server.server is None
    return (server.problem or "").removeprefix("servers.git.")


def test_references_stay_in_the_server_and_variables_do_not() -> None:
    env = {"A": "${keyring:github}", "B": "x-${input:token}-${C}", "D": "${file:~/token}", "E": "${env:C}"}
    assert server_of({"command": "git", "env": env}, C="c") == StdioServer(
        "git", env={"A": "${keyring:github}", "B": "x-${input:token}-c", "D": "${file:~/token}", "E": "c"}
    )
    headers = {"Authorization": "Bearer ${keyring:github}"}
    for url in ("https://${input:host}/mcp?key=${keyring:github}", "${input:host}/mcp"):
        assert server_of({"url": url, "headers": headers}) == HttpServer(url, headers)


def test_inputs_are_read_as_by_vs_code() -> None:
    by_id = parsed({"command": "git"}).inputs.by_id
    assert by_id["token"] == Input("token", "The token", is_password=True)
    assert by_id["host"] == Input("host", default="example.com")
    assert by_id["region"] == Input("region", options=(("eu", "eu"), ("United States", "us")))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gone", "is not defined under `inputs`"),
        ("ran", "runs a command of VS Code, which only VS Code can do. Make it a `promptString` input"),
        ("none", "has no `options` under `inputs`"),
        ("odd", "has an unknown `type` under `inputs`: use promptString or pickString"),
    ],
)
def test_an_input_that_nobody_can_enter_disables_only_its_server(name: str, told: str) -> None:
    assert problem_of({"command": "git", "env": {"A": f"${{input:{name}}}"}}) == f"env.A: `${{input:{name}}}` {told}"


@pytest.mark.parametrize("inputs", [None, {}, "x", [None, 7, {"type": "promptString"}, {"id": 7}]])
def test_inputs_of_other_programs_do_not_matter(inputs: object) -> None:
    assert parsed({"command": "git"}, inputs).servers[0].problem is None


def test_an_input_that_is_defined_twice_is_a_problem() -> None:
    twice = [INPUTS[0], INPUTS[0]]
    assert "is defined twice" in problem_of({"command": "git", "env": {"A": "${input:token}"}}, twice)


@pytest.mark.parametrize("key", ["command", "args", "cwd"])
@pytest.mark.parametrize("reference", ["${keyring:github}", "${file:token}"])
def test_a_secret_in_a_command_line_is_refused(key: str, reference: str) -> None:
    entry = {"command": "git", key: [reference] if key == "args" else reference}
    assert "other users of this machine can read command lines. Use `env`" in problem_of(entry)


def test_an_input_in_a_command_line_works_as_in_vs_code() -> None:
    server = server_of({"command": "git", "args": ["--token=${input:token}"], "cwd": "/srv/${input:region}"})
    assert server == StdioServer("git", ("--token=${input:token}",), cwd=Path("/srv/${input:region}"))


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä", "a" * 101, "a$b"])
def test_a_name_that_no_secret_can_have_is_refused(name: str) -> None:
    wrong = "environment variable" if name == "-x" else "is not a valid name of a secret"
    entry = {"command": "git", "env": {"A": f"${{keyring:{name}}}"}}
    if name == "-x":  # as before: the variable `keyring` with a default
        assert server_of(entry) == StdioServer("git", env={"A": "x"})
    else:
        assert wrong in problem_of(entry)


@pytest.mark.parametrize(
    ("text", "value"),
    [("${BRANCH}", "${keyring:github}"), ("${BRANCH}", "a${input:token}b"), ("${BRANCH}keyring:github}", "${")],
)
def test_a_variable_cannot_name_a_secret(text: str, value: str) -> None:
    told = problem_of({"command": "git", "env": {"A": text}}, BRANCH=value)
    assert told == "env.A: the value of an environment variable must not contain a placeholder"
    assert "must not contain" in problem_of({"command": "git", "args": [text]}, BRANCH=value)


def test_other_settings_refuse_references() -> None:
    document = {
        "toolcrib": {"search": {"embedder": {"endpoint": "https://x", "model": "m", "api_key": "${keyring:a}"}}}
    }
    embedder = parse_config(json.dumps(document), Path("mcp.json"), {}).search.embedder
    assert embedder is not None
    assert "`${keyring:a}` is only available in the servers of a configuration" in (embedder.problem or "")


def test_the_credentials_of_principals_can_be_references() -> None:
    principals = {"ada": {"env": {"TOKEN": "${keyring:ada}"}}, "bob": {"env": {"TOKEN": "${input:gone}"}}}
    document = {
        "mcpServers": {"desk": {"command": "desk"}},
        "toolcrib": {"sources": {"desk": {"isolation": "principal", "principals": principals}}},
    }
    (server,) = parse_config(json.dumps(document), Path("mcp.json"), {}).servers
    ada, bob = server.of("ada"), server.of("bob")
    assert ada is not None
    assert ada.server == StdioServer("desk", env={"TOKEN": "${keyring:ada}"})
    assert bob is not None
    assert "is not defined" in (bob.problem or "")


# -- what identifies a server -------------------------------------------------------------------------------------


def test_digests_and_displays_of_a_server_have_references_and_no_values() -> None:
    server = server_of({"command": "git", "args": ["${input:token}"], "env": {"A": "${keyring:github}"}})
    assert identity(server)["args"] == ["${input:token}"]
    assert address(server)["env"] == {"A": "${keyring:github}"}
    assert shown(server) == "git ${input:token}"


def test_the_key_of_cached_definitions_is_that_of_earlier_versions() -> None:
    assert "env_file" not in address(StdioServer("git"))
    assert address(StdioServer("git", env_file=".env"))["env_file"] == ".env"


# -- variables of editors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", ".vscode", ".cursor"])
def test_the_variables_of_editors_are_filled_in(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    entry = {
        "command": "${workspaceFolder}/server",
        "args": ["${workspaceFolderBasename}", "${userHome}${pathSeparator}x"],
        "envFile": "${workspaceFolder}/.env",
    }
    (server,) = parse_config(json.dumps({"servers": {"git": entry}}), tmp_path / folder / "mcp.json", {}).servers
    assert isinstance(server.server, StdioServer)
    assert server.server.command == f"{tmp_path}/server"
    assert server.server.args[0] == tmp_path.name
    assert server.server.args[1] in {"/home/ada/x", "/home/ada\\x"}
    assert server.server.env_file == f"{tmp_path}/.env"


def test_a_variable_of_the_environment_takes_precedence_over_one_of_an_editor() -> None:
    assert server_of({"command": "${workspaceFolder}"}, workspaceFolder="/mine") == StdioServer("/mine")


@pytest.mark.parametrize("value", ["${keyring:a}", "${file:a}", ["x"]])
def test_a_wrong_env_file_disables_its_server(value: object) -> None:
    assert problem_of({"command": "git", "envFile": value}).startswith("envFile: ")
