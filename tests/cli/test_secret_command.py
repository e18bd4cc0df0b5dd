"""`toolcrib secret`, the questions for inputs, and a canary value that must appear nowhere."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import toolcrib, toolcrib_process
from tests.cli.terminal import typed
from tests.servers import faulty

from toolcrib.crib.crib import Toolcrib
from toolcrib.secrets.secret_store import SecretStore

CANARY = "canary-d41d8c"
NAME = "name-of-the-secret"

SERVER = f"""
import os, runpy, sys
from pathlib import Path
seen = [os.environ.get("TOKEN"), sys.argv[1:]]
if Path("/proc").exists():
    seen += [Path(f"/proc/{{pid}}/cmdline").read_text() for pid in (os.getpid(), os.getppid())]
with open(os.environ["OUT"], "a") as out:
    print(seen, file=out)
print("invalid token", os.environ.get("TOKEN"), file=sys.stderr)
if "--die" in sys.argv:
    sys.exit(3)
sys.argv = ["faulty"]
runpy.run_path({faulty.__file__!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "state"))
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)
    return tmp_path / "state"


@pytest.fixture
def vscode(tmp_path: Path) -> Path:
    """Write the `mcp.json` of a project for VS Code, and return its path."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / ".env").write_text(f"TOKEN={CANARY}-file\n")
    (tmp_path / ".vscode").mkdir()
    path = tmp_path / ".vscode" / "mcp.json"
    out = {"OUT": "${workspaceFolder}/out"}

    def server(*args: str, **entry: Any) -> dict[str, Any]:
        env = {**out, **entry.pop("env", {})}
        return {"command": sys.executable, "args": ["${workspaceFolder}/server.py", *args], "env": env, **entry}

    document = {
        "inputs": [
            {"type": "promptString", "id": "token", "description": "The token of the tracker", "password": True},
            {"type": "pickString", "id": "region", "description": "Region", "options": ["eu", "us"], "default": "us"},
        ],
        "servers": {
            "tracker": server("--region=${input:region}", type="stdio", env={"TOKEN": "${input:token}"}),
            "dying": server("--die", env={"TOKEN": f"${{keyring:{NAME}}}"}),
            "filed": server(envFile="${workspaceFolder}/.env"),
        },
    }
    path.write_text(f"// written by VS Code\n{json.dumps(document, indent=2)}")
    return path


@pytest.fixture
def filled(vscode: Path) -> Path:
    assert toolcrib("secret", "set", "token", "-c", vscode, given=f"{CANARY}\n").code == 0
    assert toolcrib("secret", "set", "region", "--config", vscode, given="eu").code == 0
    assert toolcrib("secret", "set", NAME, given=f"{CANARY}-2").code == 0
    return vscode


def seen_by_servers(config: Path) -> str:
    return (config.parent.parent / "out").read_text()


def files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.name, path.read_bytes()


# -- the command --------------------------------------------------------------------------------------------------


def test_a_secret_is_stored_listed_and_removed_without_being_shown() -> None:
    ended = toolcrib("secret", "set", "github", given=f"{CANARY}\n")
    assert (ended.code, ended.out) == (0, "")
    assert "${keyring:github}" in ended.err
    assert SecretStore().get("github") == CANARY
    listed = toolcrib("secret", "list")
    assert "github" in listed.out
    ((entry,),) = toolcrib("secret", "list", "--json").json.values()
    assert (entry["name"], entry["config"]) == ("github", None)
    assert CANARY not in ended.err + listed.out + listed.err + json.dumps(entry)
    assert toolcrib("secret", "remove", "github").code == 0
    assert toolcrib("secret", "list").err == "No secrets are stored.\n"
    assert toolcrib("secret", "remove", "github").code == 1


@pytest.mark.parametrize("given", ["", "\n", "a\0b", "x" * 70_000])
def test_an_unusable_value_is_refused(given: str) -> None:
    ended = toolcrib("secret", "set", "github", given=given)
    assert (ended.code, ended.out) == (2, "")
    assert "The value" in ended.err
    assert SecretStore().all() == ()


def test_a_value_on_the_command_line_is_refused_and_not_repeated() -> None:
    for words in (["github", CANARY], ["github", "--", f"-{CANARY}", CANARY]):
        ended = toolcrib("secret", "set", *words, given="x")
        assert ended.code == 2
        assert CANARY not in ended.out + ended.err
        assert "history of the shell" in ended.err


@pytest.mark.parametrize("name", ["", "a b", "-a", "a$b", "ä"])
def test_a_name_that_no_placeholder_can_have_is_refused(name: str) -> None:
    assert toolcrib("secret", "set", "--", name, given="x").code == 2
    assert SecretStore().all() == ()


def test_only_inputs_of_the_file_can_be_set_for_it(vscode: Path) -> None:
    ended = toolcrib("secret", "set", "tokken", "-c", vscode, given=CANARY)
    assert ended.code == 2
    assert "no input `tokken` under `inputs`: it has `token`, `region`" in ended.err
    ended = toolcrib("secret", "set", "region", "-c", vscode, given=CANARY)
    assert "must be one of: eu, us" in ended.err
    assert CANARY not in ended.err
    assert SecretStore().all() == ()


def test_removing_the_value_of_an_input_needs_its_file(vscode: Path) -> None:
    assert toolcrib("secret", "set", "token", "-c", vscode, given=CANARY).code == 0
    ended = toolcrib("secret", "remove", "token")
    assert ended.code == 1
    assert "toolcrib secret remove token --config FILE" in ended.err
    assert toolcrib("secret", "remove", "token", "--config", vscode).code == 0
    assert "--config" not in toolcrib("secret", "remove", "token").err


def test_a_lost_key_is_told_by_the_command(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_KEY", "no-key")
    ended = toolcrib("secret", "set", "github", given=CANARY)
    assert ended.code == 2
    assert "TOOLCRIB_KEY must contain base64 of 32 random bytes" in ended.err
    assert "no-key" not in ended.err


# -- questions at a terminal --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_a_command_asks_once_for_inputs_and_does_not_show_passwords(vscode: Path, tmp_path: Path) -> None:
    questions = [("The token of the tracker: ", f"{CANARY}\n"), ("Region (eu, us) [us]: ", "eu\n")]
    first = typed("list", "-c", vscode, answers=questions, environ={**os.environ}, folder=tmp_path)
    assert "tracker" in first.out
    assert CANARY not in first.out
    assert f"['{CANARY}', ['--region=eu']" in seen_by_servers(vscode)
    again = typed("list", "-c", vscode, answers=[], environ={**os.environ}, folder=tmp_path)
    assert "The token" not in again.out
    assert again.code == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_a_secret_is_asked_for_without_being_shown(tmp_path: Path) -> None:
    asked = typed(
        "secret", "set", "github", answers=[("github: ", f"{CANARY}\n")], environ={**os.environ}, folder=tmp_path
    )
    assert asked.code == 0
    assert CANARY not in asked.out
    assert SecretStore().get("github") == CANARY


def test_without_a_terminal_a_server_without_its_input_says_which_command_sets_it(vscode: Path) -> None:
    ended = toolcrib("doctor", vscode)
    assert ended.code == 1
    assert f"Run `toolcrib secret set region --config {vscode}`." in " ".join(ended.out.split())
    assert "--region" not in seen_by_servers(vscode)


# -- the canary ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_mcp_json_of_vs_code_works_unchanged_and_no_output_has_a_secret(filled: Path, state: Path) -> None:
    commands = [
        ("doctor", filled),
        ("doctor", filled, "--json"),
        ("-v", "doctor", filled),
        ("list", "-c", filled),
        ("search", "-c", filled, "echo", "--json"),
        ("pin", "-c", filled, "--yes"),
        ("drift", "-c", filled),
        ("lint", "-c", filled),
        ("worth-it", filled),
        ("secret", "list", "--json"),
        ("call", "-c", filled, "tracker.echo", '{"text": "hello"}'),
        ("call", "-c", filled, "dying.echo", "{}"),
    ]
    printed = ""
    for words in commands:
        ended = toolcrib_process(*words)
        printed += f"\n$ toolcrib {words}\n{ended.out}{ended.err}"
    assert "3 servers" not in printed
    assert "tracker.echo" in printed
    assert "invalid token [TOKEN]" in printed  # what the server wrote is shown without the value
    assert CANARY not in printed
    seen = [eval(line) for line in seen_by_servers(filled).splitlines()]
    assert {token for token, *_ in seen} == {CANARY, f"{CANARY}-2", f"{CANARY}-file"}
    assert not [lines for _, *lines in seen if CANARY in str(lines)]  # the command lines, also that of Toolcrib
    assert not [name for name, content in files_in(state) if CANARY.encode() in content]


@pytest.mark.anyio
async def test_clients_learn_neither_values_nor_names_of_secrets(
    filled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crib = Toolcrib()
    read = crib.add_config(filled)
    answers: list[object] = []
    async with crib:
        await crib.ready(30)
        session = crib.session()
        answers += [session.list(), session.search_tools("echo", include_unavailable=True)]
        try:
            await session.call_tool("dying.echo", {})
        except Exception as error:  # noqa: BLE001  whatever it is, it is shown
            answers += [error, getattr(error, "to_wire", str)()]
        answers += [entry.address for entry in crib.registry.state.sources.values()]
    shown = repr(answers)
    assert "dying" in shown
    for hidden in (CANARY, NAME, "keyring", "${input:token}", "secret set"):
        assert hidden not in shown
    assert CANARY not in caplog.text
    assert CANARY not in repr(read)


def test_doctor_warns_of_passwords_that_other_users_can_read_in_command_lines(vscode: Path) -> None:
    document = json.loads(vscode.read_text().partition("\n")[2])
    document["servers"] = {"desk": {"command": "x", "args": ["--token=${input:token}", "${input:region}"]}}
    vscode.write_text(json.dumps(document))
    told = " ".join(toolcrib("doctor", vscode).out.split())
    assert "`desk`: args.0: other users of this machine can read the value of `${input:token}`" in told
    assert "args.1: other users" not in told
