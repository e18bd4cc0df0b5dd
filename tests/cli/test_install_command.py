"""`toolcrib install`: installs into every client with every kind of file, and undoes it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.cli.running import TOOLCRIB, Ended, toolcrib, toolcrib_process
from tests.cli.terminal import typed
from tests.servers.launching import faulty_entry
from tests.surfaces.serving import run_tool, text_of

from toolcrib.cli.clients.jsonc_document import JsoncDocument
from toolcrib.config import read_config
from toolcrib.operations.operation_table import DEFAULT_SET, SETS

GIT = {"command": "uvx", "args": ["mcp-server-git"]}
TRACKER = {"type": "http", "url": "https://tracker.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}

FILES = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "zed": ".config/zed/settings.json",
}
SECTIONS = {"vscode": "servers", "zed": "context_servers"}


@dataclass(frozen=True)
class Home:
    """A temporary home in which every client has run."""

    path: Path

    def file(self, client: str) -> Path:
        return self.path / FILES[client]

    def servers(self, client: str) -> dict[str, Any]:
        return JsoncDocument(self.file(client).read_text()).value[SECTIONS.get(client, "mcpServers")]

    def write(self, client: str, **servers: object) -> Path:
        self.file(client).write_text(json.dumps({SECTIONS.get(client, "mcpServers"): servers}, indent=2) + "\n")
        return self.file(client)

    @property
    def config(self) -> Path:
        """The configuration that the gateway serves by default."""
        return self.path / ".config" / "toolcrib" / "mcp.json"

    @property
    def served(self) -> dict[str, Any]:
        return JsoncDocument(self.config.read_text()).value["mcpServers"]

    @property
    def records(self) -> list[Path]:
        return sorted((self.path / ".local" / "share" / "toolcrib").glob("installs/*/*"))

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.path), "PATH": os.environ["PATH"]}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    (path := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(path))
    for name in [*os.environ]:
        if name.startswith(("XDG_", "VSCODE_", "CLAUDE_", "FLATPAK_", "TOOLCRIB_")):
            monkeypatch.delenv(name)
    for file in FILES.values():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
    (work := path / "work").mkdir()
    monkeypatch.chdir(work)
    return Home(path)


def install(client: str, *words: object, code: int = 0) -> Ended:
    ended = toolcrib("install", client, *words)
    assert ended.code == code, ended
    return ended


def said(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


# -- installing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", FILES)
def test_servers_move_behind_the_gateway_and_the_client_has_only_the_gateway(client: str, home: Home) -> None:
    file = home.write(client, git=GIT)
    install(client, "--yes")
    assert home.served == {"git": GIT}
    (name, entry), *others = home.servers(client).items()
    assert (name, others) == ("toolcrib", [])
    assert entry["command"] == TOOLCRIB
    assert entry["args"] == ["serve", str(home.config)]
    assert stat.S_IMODE(home.config.stat().st_mode) == 0o600
    before = file.read_bytes(), home.config.read_bytes()
    assert "Nothing to do" in install(client, "--yes").out
    assert (file.read_bytes(), home.config.read_bytes()) == before


@pytest.mark.parametrize("client", FILES)
def test_a_client_without_servers_gets_the_gateway_and_a_hint(client: str, home: Home) -> None:
    told = said(install(client, "--yes"))
    assert [*home.servers(client)] == ["toolcrib"]
    assert home.served == {}
    assert f"Add them to {home.config}." in told
    assert read_config(home.config).servers == ()


@pytest.mark.parametrize("client", ["claude-desktop", "cursor", "vscode", "zed"])
def test_a_client_that_never_ran_on_this_machine_is_refused(client: str, home: Home) -> None:
    home.file(client).parent.rmdir()
    ended = install(client, "--yes", code=2)
    assert "creates it when it first runs" in said(ended)
    assert not home.file(client).parent.exists()
    assert not home.config.exists()


@pytest.mark.parametrize("empty", ["", "\n", "// nothing yet\n", "{}"])
def test_an_empty_client_file_gets_the_gateway(empty: str, home: Home) -> None:
    home.file("zed").write_text(empty)
    install("zed", "--yes")
    assert [*home.servers("zed")] == ["toolcrib"]
    assert home.file("zed").read_text().startswith(empty.rstrip("{}\n"))


def test_keep_leaves_the_servers_in_the_client(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes", "--keep")
    assert home.servers("cursor")["git"] == GIT
    assert "toolcrib" in home.servers("cursor")
    assert home.served == {}
    install("cursor", "--yes", "--move")
    assert [*home.servers("cursor")] == ["toolcrib"]
    assert home.served == {"git": GIT}


def test_servers_that_cannot_be_moved_stay_and_are_named_with_a_reason(home: Home) -> None:
    key = {"command": "x", "env": {"KEY": "${command:key}"}}
    home.write("vscode", git=GIT, search=key, boxed={"command": "x", "sandbox": {}})
    told = said(install("vscode", "--yes"))
    assert "search: `${command:key}` means something different in VS Code than in Toolcrib" in told
    assert "boxed: Toolcrib does not support `sandbox`" in told
    assert [*home.servers("vscode")] == ["search", "boxed", "toolcrib"]
    assert home.served == {"git": GIT}


INPUT = {"type": "promptString", "id": "key", "description": "The key", "password": True}


def write_with_inputs(home: Home, *inputs: object, **servers: object) -> None:
    home.file("vscode").write_text(json.dumps({"servers": servers, "inputs": list(inputs)}))


def test_servers_with_inputs_are_moved_with_the_inputs_and_the_command_says_how_to_set_them(home: Home) -> None:
    search = {"command": "x", "env": {"KEY": "${input:key}"}}
    other = {"type": "promptString", "id": "other"}
    write_with_inputs(home, INPUT, other, search=search)
    before = home.file("vscode").read_bytes()
    told = said(install("vscode", "--yes"))
    assert "Toolcrib cannot read the values that you entered in VS Code. It will ask you once for: key." in told
    assert f"toolcrib secret set key --config {home.config}" in told
    assert home.served == {"search": search}
    assert json.loads(home.config.read_text())["inputs"] == [INPUT]
    assert json.loads(home.file("vscode").read_text())["inputs"] == [INPUT, other]
    assert read_config(home.config).servers[0].problem is None
    install("vscode", "--undo", "--yes")
    assert home.file("vscode").read_bytes() == before
    assert not home.config.exists()


def test_inputs_that_the_configuration_has_are_kept(home: Home) -> None:
    home.config.parent.mkdir(parents=True, exist_ok=True)
    there = [{"type": "promptString", "id": "mine"}, "odd", INPUT]
    home.config.write_text(json.dumps({"mcpServers": {}, "inputs": there}))
    write_with_inputs(home, INPUT, {**INPUT, "id": "new"}, search={"command": "${input:key}", "args": ["${input:new}"]})
    install("vscode", "--yes")
    assert json.loads(home.config.read_text())["inputs"] == [*there, {**INPUT, "id": "new"}]


def test_a_server_whose_input_means_something_different_behind_toolcrib_stays(home: Home) -> None:
    home.config.parent.mkdir(parents=True, exist_ok=True)
    home.config.write_text(json.dumps({"mcpServers": {}, "inputs": [{**INPUT, "description": "Another"}]}))
    write_with_inputs(home, INPUT, search={"command": "x", "env": {"KEY": "${input:key}"}}, git=GIT)
    assert "search: a different input `key` already exists in" in said(install("vscode", "--yes"))
    assert [*home.servers("vscode")] == ["search", "toolcrib"]
    assert home.served == {"git": GIT}


def test_servers_that_may_need_a_sign_in_are_moved_and_the_command_offers_to_sign_in(home: Home) -> None:
    linear = {"type": "http", "url": "https://mcp.linear.example/mcp"}
    home.write("claude-code", git=GIT, linear=linear)
    told = said(install("claude-code", "--yes"))
    assert "they may need a new sign-in: linear. `toolcrib doctor` says which, and `toolcrib login NAME`" in told
    assert f"toolcrib login linear -c {home.config}" in told
    assert home.served == {"git": GIT, "linear": linear}


def test_inputs_and_sign_ins_are_in_the_json(home: Home) -> None:
    write_with_inputs(home, INPUT, search={"command": "${input:key}"}, linear={"url": "https://mcp.example/mcp"})
    found = install("vscode", "--dry-run", "--json").json
    assert (found["inputs"], found["sign_ins"], found["kept"]) == (["key"], ["linear"], [])


def test_variables_of_moved_servers_are_passed_to_the_gateway(home: Home) -> None:
    home.write("claude-code", tracker=TRACKER)
    install("claude-code", "--yes")
    assert home.servers("claude-code")["toolcrib"]["env"] == {"TOKEN": "${TOKEN:-}"}
    told = said(install("zed", "--yes"))
    assert "env" not in home.servers("zed")["toolcrib"]
    assert "Zed may not pass on TOKEN" in told


def test_a_server_that_is_disabled_for_a_project_is_not_moved(home: Home) -> None:
    document = {"mcpServers": {"git": GIT}, "projects": {"/shop": {"disabledMcpServers": ["git"]}}}
    home.file("claude-code").write_text(json.dumps(document))
    assert "disabled for a project" in said(install("claude-code", "--yes"))
    assert home.servers("claude-code")["git"] == GIT


def test_several_clients_share_one_configuration_and_the_command_reports_it(home: Home) -> None:
    home.write("claude-code", git=GIT, tracker=TRACKER)
    home.write("cursor", git={**GIT, "type": "stdio", "env": {}}, time={"command": "uvx", "args": ["time"]})
    install("claude-code", "--yes")
    told = said(install("cursor", "--yes"))
    assert f"Cursor will also get these servers from {home.config}: tracker." in told
    assert f"Claude Code uses {home.config} too. Claude Code will also get these servers: time." in told
    assert [*home.servers("cursor")] == ["toolcrib"]
    assert home.served == {"git": GIT, "tracker": TRACKER, "time": {"command": "uvx", "args": ["time"]}}


def test_a_server_is_not_moved_if_a_different_server_has_its_name(home: Home) -> None:
    home.write("claude-code", git=GIT)
    home.write("cursor", git={"command": "other"})
    install("claude-code", "--yes")
    assert "a different server with this name already exists in" in said(install("cursor", "--yes"))
    assert home.servers("cursor")["git"] == {"command": "other"}
    assert home.served == {"git": GIT}


def test_comments_layout_and_other_content_of_the_file_are_preserved(home: Home) -> None:
    before = (
        '\ufeff// my settings\r\n{\r\n\t"theme": "One", // dark\r\n\t"context_servers": {\r\n'
        '\t\t// the clock\r\n\t\t"time": {"command": "uvx", /* quick */ "args": ["time"],},\r\n'
        '\t\t"ext": {"settings": {}}, // from the shop\r\n\t},\r\n}\r\n'
    )
    home.file("zed").write_bytes(before.encode())
    install("zed", "--yes")
    after = home.file("zed").read_bytes().decode()
    line = '\t\t"time": {"command": "uvx", /* quick */ "args": ["time"],},\r\n'
    start, end = before.split(line)
    assert after.startswith(start)
    assert after.endswith("\r\n\t},\r\n}\r\n")
    assert '\t\t"ext": {"settings": {}}, // from the shop\r\n\t\t"toolcrib": {\r\n\t\t\t"command"' in after
    assert after.count("\n") == after.count("\r\n")
    assert "/* quick */" in home.config.read_text()
    assert end in before
    assert home.served == {"time": {"command": "uvx", "args": ["time"]}}


# -- a gateway that is already installed ------------------------------------------------------------------------------


def test_an_existing_gateway_entry_is_updated_and_serves_the_same_file(home: Home) -> None:
    (mine := home.path / "mine.json").write_text(json.dumps({"mcpServers": {"tracker": TRACKER}}))
    old = {"command": "toolcrib", "args": ["serve", "--no-cache", str(mine)], "alwaysAllow": ["search_tools"]}
    home.write("cursor", toolcrib=old, git=GIT)
    install("cursor", "--yes")
    assert home.servers("cursor") == {
        "toolcrib": {
            "command": TOOLCRIB,
            "args": ["serve", "--no-cache", str(mine)],
            "alwaysAllow": ["search_tools"],
            "env": {"TOKEN": "${env:TOKEN}"},
        }
    }
    assert json.loads(mine.read_text())["mcpServers"] == {"tracker": TRACKER, "git": GIT}
    assert not home.config.exists()
    assert "Nothing to do" in install("cursor", "--yes").out


def test_comments_in_an_updated_entry_are_preserved(home: Home) -> None:
    home.file("vscode").write_text(
        '{"servers": {\n  "toolcrib": {\n    "command": "toolcrib", // ours\n'
        '    "args": ["serve", "/nowhere/mcp.json"]\n  }\n}}'
    )
    install("vscode", "--yes", "-c", home.config, code=2)
    home.config.parent.mkdir(parents=True)
    home.config.write_text("{}")
    install("vscode", "--yes", "-c", home.config)
    assert "// ours" in home.file("vscode").read_text()
    assert home.servers("vscode")["toolcrib"]["args"] == ["serve", str(home.config)]


def test_a_shared_gateway_is_replaced_by_a_stdio_gateway(home: Home) -> None:
    home.write("cursor", toolcrib={"type": "http", "url": "http://127.0.0.1:8808/mcp"})
    install("cursor", "--yes")
    assert home.servers("cursor")["toolcrib"] == {
        "type": "stdio",
        "command": TOOLCRIB,
        "args": ["serve", str(home.config)],
    }


def test_a_gateway_with_a_custom_name_is_found_and_not_added_twice(home: Home) -> None:
    (mine := home.path / "mine.json").write_text("{}")
    home.write("cursor", crib={"command": "toolcrib", "args": ["serve", str(mine)]}, git=GIT)
    install("cursor", "--yes")
    assert [*home.servers("cursor")] == ["crib"]
    assert json.loads(mine.read_text())["mcpServers"] == {"git": GIT}


def test_toolcrib_is_never_moved_behind_itself(home: Home) -> None:
    other = {"command": "uvx", "args": ["toolcrib", "serve", "/other.json"]}
    shell = {"command": "sh", "args": ["-c", "toolcrib serve other.json"]}
    home.write(
        "cursor", toolcrib={"command": "toolcrib", "args": ["serve", str(home.config)]}, other=other, shell=shell
    )
    told = said(install("cursor", "--yes"))
    assert told.count("it is Toolcrib itself") == 2
    assert home.served == {}
    assert {"other", "shell"} <= home.servers("cursor").keys()


@pytest.mark.parametrize(
    "other",
    [
        {"command": "node", "args": ["my-tools.js"]},
        {"command": "node", "args": ["/src/toolcrib/dist", "serve.js"]},
        {"command": "sh", "args": ["-c", "toolcrib serve mcp.json"]},
        {"url": "https://toolcrib.example/mcp"},
        None,
    ],
)
def test_a_different_server_named_toolcrib_is_not_changed(other: object, home: Home) -> None:
    file = home.write("cursor", toolcrib=other, git=GIT)
    before = file.read_bytes()
    ended = install("cursor", "--yes", code=2)
    assert "a different server is named `toolcrib`" in said(ended)
    assert "Rename that server" in said(ended)
    assert file.read_bytes() == before
    assert not home.config.exists()


def test_an_entry_with_a_relative_configuration_requires_config_to_be_passed(home: Home) -> None:
    home.write("cursor", toolcrib={"command": "toolcrib", "args": ["serve", "mcp.json"]})
    assert "Pass that file with --config" in said(install("cursor", "--yes", code=2))
    (mine := home.path / "mine.json").write_text("{}")
    install("cursor", "--yes", "-c", mine)
    assert home.servers("cursor")["toolcrib"]["args"] == ["serve", str(mine)]


def test_an_existing_configuration_is_extended_and_becomes_private_until_undone(home: Home) -> None:
    home.write("cursor", git=GIT)
    (mine := Path("mine.json")).write_text('{\n  // mine\n  "mcpServers": {}, "toolcrib": {"call_timeout_s": 9}\n}\n')
    mine.chmod(0o644)
    install("cursor", "--yes", "-c", "mine.json")
    assert home.servers("cursor")["toolcrib"]["args"] == ["serve", str(mine.absolute())]
    assert "// mine" in mine.read_text()
    assert [server.name for server in read_config(mine).servers] == ["git"]
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600
    install("cursor", "--undo", "--yes")
    assert mine.read_text().startswith('{\n  // mine\n  "mcpServers": {}, ')
    assert stat.S_IMODE(mine.stat().st_mode) == 0o644


def test_a_missing_configuration_is_created_only_when_servers_move_into_it(home: Home) -> None:
    assert "file not found" in said(install("cursor", "--yes", "-c", "typo.json", code=2))
    assert not home.file("cursor").exists()
    home.write("cursor", git=GIT)
    install("cursor", "--yes", "-c", "new.json")
    assert [server.name for server in read_config(Path("new.json")).servers] == ["git"]


def test_a_client_file_is_refused_as_the_configuration_of_the_gateway(home: Home) -> None:
    file = home.write("claude-code", git=GIT)
    (link := home.path / "link.json").symlink_to(file)
    Path(".mcp.json").write_text('{"mcpServers": {}}')
    for path in (file, link, Path(".mcp.json")):
        assert "Toolcrib would serve itself" in said(install("claude-code", "--yes", "-c", path, code=2))
    assert home.servers("claude-code") == {"git": GIT}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1, column 2"),
        ('{"mcpServers": []}', "mcpServers: must be an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "duplicate key `mcpServers`"),
        ('{"mcpServers": {"git": {}, "git": {}}}', "duplicate key `mcpServers.git`"),
        ("[1]", "the file must contain an object"),
    ],
)
def test_a_malformed_file_is_refused_and_left_unchanged(text: str, complaint: str, home: Home) -> None:
    home.file("cursor").write_text(text)
    told = said(install("cursor", "--yes", code=2))
    assert complaint in told
    assert str(home.file("cursor")) in told.replace(" ", "")
    assert home.file("cursor").read_text() == text
    assert not home.config.exists()
    # The same must hold for the configuration of the gateway.
    home.write("cursor", git=GIT)
    home.config.parent.mkdir(parents=True)
    home.config.write_text(text)
    install("cursor", "--yes", code=2)
    assert home.config.read_text() == text
    assert home.servers("cursor") == {"git": GIT}


def test_a_read_only_file_is_refused_before_the_confirmation(home: Home) -> None:
    home.write("cursor", git=GIT).chmod(0o444)
    ended = install("cursor", code=2)
    assert "the file is read-only" in said(ended)
    assert "--yes" not in said(ended)
    assert not home.config.exists()


def test_a_symlinked_file_is_changed_through_the_link(home: Home) -> None:
    (dotfiles := home.path / "dotfiles").mkdir()
    file = home.write("cursor", git=GIT)
    file.rename(real := dotfiles / "cursor.json")
    file.symlink_to(real)
    install("cursor", "--yes")
    assert file.is_symlink()
    assert [*JsoncDocument(real.read_text()).value["mcpServers"]] == ["toolcrib"]
    install("cursor", "--undo", "--yes")
    assert file.is_symlink()
    assert home.servers("cursor") == {"git": GIT}


def test_a_large_file_is_changed_correctly(home: Home) -> None:
    history = [{"display": "x" * 1_000, "braces": '{"{'} for _ in range(5_000)]
    document = {"history": history, "mcpServers": {f"git-{i}": GIT for i in range(100)}, "after": 1}
    home.file("claude-code").write_text(json.dumps(document, indent=2))
    ended = install("claude-code", "--yes")
    after = json.loads(home.file("claude-code").read_text())
    assert (after["history"], after["after"]) == (history, 1)
    assert [*after["mcpServers"]] == ["toolcrib"]
    assert len(home.served) == 100
    assert "xxxx" not in ended.out


# -- scopes -----------------------------------------------------------------------------------------------------------


PROJECT_FILES = {
    "claude-code": (".mcp.json", "toolcrib.mcp.json", "toolcrib.mcp.json"),
    "cursor": (".cursor/mcp.json", ".cursor/toolcrib.mcp.json", "${workspaceFolder}/.cursor/toolcrib.mcp.json"),
    "vscode": (".vscode/mcp.json", ".vscode/toolcrib.mcp.json", "${workspaceFolder}/.vscode/toolcrib.mcp.json"),
}
"""The client's file, the configuration next to it, and the reference from the first to the second."""


def project_file(client: str, **servers: object) -> Path:
    file = Path(PROJECT_FILES[client][0])
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({SECTIONS.get(client, "mcpServers"): servers}, indent=2))
    return file


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_servers_of_a_project_stay_in_it_without_paths_of_this_machine(client: str, home: Home) -> None:
    file = project_file(client, git=GIT)
    before = file.read_bytes()
    _, config, reference = PROJECT_FILES[client]
    told = said(install(client, "--scope", "project", "--yes"))
    assert f"Commit {file.name} and toolcrib.mcp.json" in told
    ((name, entry),) = json.loads(file.read_text())[SECTIONS.get(client, "mcpServers")].items()
    assert name == "toolcrib-project"
    assert (entry["command"], entry["args"]) == ("toolcrib", ["serve", reference])
    assert json.loads(Path(config).read_text())["mcpServers"] == {"git": GIT}
    # On this machine, the other members of the project may have different accounts.
    assert stat.S_IMODE(Path(config).stat().st_mode) == stat.S_IMODE(file.stat().st_mode)
    assert str(home.path) not in file.read_text() + Path(config).read_text()
    assert not home.config.parent.exists()
    assert "Nothing to do" in install(client, "--scope", "project", "--yes").out
    install(client, "--scope", "project", "--undo", "--yes")
    assert file.read_bytes() == before
    assert not Path(config).exists()


def test_claude_code_in_a_subfolder_serves_the_configuration_of_the_project(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    project_file("claude-code")
    install("claude-code", "--scope", "project", "--yes")
    entry = json.loads(Path(".mcp.json").read_text())["mcpServers"]["toolcrib-project"]
    (below := Path("src")).mkdir()
    assert "toolcrib.mcp.json" in toolcrib_process(*entry["args"], cwd=below).err
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(Path.cwd()))
    assert toolcrib_process(*entry["args"], cwd=below).code == 0


def test_servers_added_to_a_project_later_move_to_the_same_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project_file("cursor", git=GIT)
    install("cursor", "--scope", "project", "--yes")
    document = json.loads(file.read_text())
    document["mcpServers"]["tracker"] = TRACKER
    file.write_text(json.dumps(document).replace("${TOKEN}", "${env:TOKEN}"))
    (deeper := Path("src/deep")).mkdir(parents=True)
    (home.path / "work" / ".git").mkdir()
    monkeypatch.chdir(deeper)
    install("cursor", "--scope", "project", "--yes")
    served = json.loads((home.path / "work" / ".cursor" / "toolcrib.mcp.json").read_text())["mcpServers"]
    assert [*served] == ["git", "tracker"]


def test_a_project_entry_for_a_file_outside_warns_about_local_paths(home: Home) -> None:
    file = project_file("cursor", git=GIT)
    told = said(install("cursor", "--scope", "project", "--yes", "-c", "../mine.json"))
    assert "it contains paths of this machine" in told
    entry = json.loads(file.read_text())["mcpServers"]["toolcrib-project"]
    assert entry["command"] == TOOLCRIB
    assert entry["args"][1].endswith("mine.json")


def test_a_project_installed_by_an_earlier_version_can_be_updated_and_undone(home: Home) -> None:
    """Earlier versions stored project servers in the home folder and wrote records without `undone`."""
    file = project_file("cursor", git=GIT)
    before = file.read_bytes()
    old = home.config.parent / "projects" / "work-0123abcd-project.json"
    install("cursor", "--scope", "project", "--yes", "-c", old)
    (record,) = home.records
    wire = json.loads((record / "record.json").read_text())
    del wire["undone"]
    (record / "record.json").write_text(json.dumps(wire))
    assert "Nothing to do" in install("cursor", "--scope", "project", "--yes").out
    install("cursor", "--scope", "project", "--undo", "--yes")
    assert file.read_bytes() == before
    assert not old.exists()


def test_claude_code_has_a_scope_for_one_person_in_one_project(home: Home) -> None:
    here = str(Path.cwd())
    local: dict[str, Any] = {"db": {"type": "stdio", "command": "db", "args": [], "env": {}}}
    projects: dict[str, Any] = {here: {"mcpServers": local, "allowedTools": []}}
    document = {"projects": projects, "mcpServers": {"git": GIT}}
    home.file("claude-code").write_text(json.dumps(document, indent=2))
    told = said(install("claude-code", "--yes", "--dry-run"))
    assert "1 server more in the scope `local`. Use `--scope local` for those." in told
    install("claude-code", "--scope", "local", "--yes")
    after = json.loads(home.file("claude-code").read_text())
    assert [*after["projects"][here]["mcpServers"]] == ["toolcrib-local"]
    assert after["projects"][here]["allowedTools"] == []
    assert after["mcpServers"] == {"git": GIT}
    install("claude-code", "--scope", "project", "--yes")
    assert [*json.loads(Path(".mcp.json").read_text())["mcpServers"]] == ["toolcrib-project"]


def test_an_unsupported_scope_is_a_usage_error(home: Home) -> None:
    ended = install("zed", "--scope", "project", code=2)
    assert "Zed has no scope `project`; it has: user" in said(ended)


def test_the_user_file_is_not_treated_as_a_project_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("cursor", git=GIT)
    monkeypatch.chdir(home.path)
    assert "in this folder, this is your own file" in said(install("cursor", "--scope", "project", "--yes", code=2))
    assert "more in the scope" not in said(install("cursor", "--dry-run"))


# -- confirmation -----------------------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_changes_unless_yes_is_passed(home: Home) -> None:
    file = home.write("cursor", git=GIT)
    before = file.read_bytes()
    ended = install("cursor", code=1)
    assert "there is no terminal to confirm on. Pass --yes to confirm." in ended.err
    assert '+    "toolcrib": {' in ended.out
    assert file.read_bytes() == before
    assert not home.config.exists()
    assert home.records == []


def test_a_dry_run_shows_the_change_and_writes_nothing(home: Home) -> None:
    file = home.write("cursor", git=GIT)
    before = file.read_bytes()
    ended = install("cursor", "--yes", "--dry-run")
    assert f"+++ {home.config}" in ended.out
    assert '-    "git": {' in ended.out
    assert "Dry run: no file was changed." in ended.err
    assert file.read_bytes() == before
    assert not home.config.exists()


Ask = Callable[..., Ended]


@pytest.fixture
def ask(home: Home) -> Ask:
    def asked(*words: str, answers: list[tuple[str, str]]) -> Ended:
        return typed("install", *words, answers=answers, environ=home.environ, folder=home.path / "work")

    return asked


def test_a_terminal_asks_both_questions_and_shows_the_change_before_the_second(home: Home, ask: Ask) -> None:
    home.write("cursor", git=GIT, time=GIT)
    ended = ask("cursor", answers=[("Move these 2 servers behind Toolcrib? [Y/n]", "\n"), ("Write this? [y/N]", "y\n")])
    assert ended.code == 0
    assert ended.out.index('-    "git": {') < ended.out.index("Write this?") < ended.out.index("Done.")
    assert [*home.servers("cursor")] == ["toolcrib"]
    remarks = [line for line in ended.out.splitlines() if line.startswith((" - ", "   "))]
    assert remarks
    assert max(map(len, remarks)) <= 80


def test_answering_no_to_moving_keeps_servers_and_no_to_writing_changes_nothing(home: Home, ask: Ask) -> None:
    file = home.write("cursor", git=GIT)
    before = file.read_bytes()
    ended = ask("cursor", answers=[("Move git behind Toolcrib?", "n\n"), ("Write this?", "\n")])
    assert (ended.code, "No file was changed." in ended.out) == (0, True)
    assert file.read_bytes() == before
    ask("cursor", answers=[("Move git behind Toolcrib?", "n\n"), ("Write this?", "y\n")])
    assert [*home.servers("cursor")] == ["git", "toolcrib"]


def test_end_of_input_at_a_question_changes_nothing(home: Home, ask: Ask) -> None:
    file = home.write("cursor", git=GIT)
    before = file.read_bytes()
    ended = ask("cursor", "--move", answers=[("Write this?", "\x04")])
    assert ended.code == 1
    assert "Traceback" not in ended.out
    assert file.read_bytes() == before
    assert home.records == []


def test_a_file_that_changes_during_the_confirmation_is_not_overwritten(home: Home) -> None:
    file = home.write("cursor", git=GIT)

    def meanwhile() -> str:
        home.write("cursor", git=GIT, another=GIT)
        return "y\n"

    answers = [("Write this?", meanwhile)]
    ended = typed("install", "cursor", "--move", answers=answers, environ=home.environ, folder=home.path)
    assert ended.code == 2
    assert "the file changed while the command was running" in said(ended)
    assert json.loads(file.read_text())["mcpServers"] == {"git": GIT, "another": GIT}
    # The configuration was written before the change was noticed, and is removed again.
    assert not home.config.exists()
    assert home.records == []


# -- undoing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", FILES)
def test_undo_restores_both_files_byte_for_byte(client: str, home: Home) -> None:
    file = home.write(client, git=GIT)
    file.chmod(0o640)
    before = file.read_bytes()
    install(client, "--yes")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home.records[0], *home.records[0].iterdir())] == [
        0o700,
        0o600,
        0o600,
    ]
    ended = install(client, "--undo", "--yes")
    assert "Undone." in ended.out
    assert file.read_bytes() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not home.config.exists()
    assert home.records == []
    assert "Nothing to undo" in install(client, "--undo", "--yes").out
    assert file.read_bytes() == before


def test_undo_deletes_files_that_did_not_exist_before(home: Home) -> None:
    install("cursor", "--yes")
    install("cursor", "--undo", "--yes")
    assert not home.file("cursor").exists()
    assert not home.config.exists()


def test_undo_reverts_one_installation_at_a_time(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    document = json.loads(home.file("cursor").read_text())
    document["mcpServers"]["time"] = {"command": "time"}
    home.file("cursor").write_text(json.dumps(document))
    install("cursor", "--yes")
    assert [*home.served] == ["git", "time"]
    install("cursor", "--undo", "--yes")
    assert [*home.servers("cursor")] == ["toolcrib", "time"]
    install("cursor", "--undo", "--yes")
    # The file changed between the two installations: servers added at that time stay.
    assert home.servers("cursor") == {"time": {"command": "time"}, "git": GIT}
    assert not home.config.exists()


def test_undo_in_a_file_with_other_edits_restores_entries_and_preserves_the_edits(home: Home) -> None:
    home.write("claude-code", git=GIT, linear={"type": "http", "url": "https://mcp.linear.example"})
    install("claude-code", "--yes")
    document = json.loads(home.file("claude-code").read_text())
    document["mcpServers"]["later"] = {"command": "later"}
    home.file("claude-code").write_text(json.dumps({"numStartups": 35, **document}))
    home.config.write_text(home.config.read_text() + "\n// mine now\n")
    install("claude-code", "--undo", "--yes")
    assert json.loads(home.file("claude-code").read_text())["numStartups"] == 35
    assert home.servers("claude-code").keys() == {"linear", "later", "git"}
    assert home.served == {}
    assert "// mine now" in home.config.read_text()


def test_undo_is_refused_if_the_entries_themselves_were_changed(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    changed = home.write("cursor", toolcrib=home.servers("cursor")["toolcrib"], git={"command": "mine"}).read_bytes()
    ended = install("cursor", "--undo", "--yes", code=2)
    told = said(ended)
    assert "`git` was changed since then; the file changed after" in told
    (record,) = home.records
    assert f"{record}/1-mcp.json" in told
    assert f"delete {record}" in told
    assert home.file("cursor").read_bytes() == changed
    assert home.served == {"git": GIT}
    home.file("cursor").unlink()
    assert "the file was deleted" in said(install("cursor", "--undo", "--yes", code=2))


def test_undo_leaves_a_moved_server_that_was_changed_since_and_reports_it(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    home.config.write_text(json.dumps({"mcpServers": {"git": {**GIT, "env": {"NEW": "1"}}}}))
    told = said(install("cursor", "--undo", "--yes"))
    assert f"{home.config}: `git` was changed since then, so it was not removed." in told
    assert home.servers("cursor") == {"git": GIT}
    assert home.served["git"]["env"] == {"NEW": "1"}


def test_undoing_one_client_leaves_all_servers_to_a_client_that_shares_them(home: Home) -> None:
    before = [home.write(client, git=GIT).read_bytes() for client in ("cursor", "claude-code")]
    told = said(install("cursor", "--yes"))
    assert "too." not in told
    told = said(install("claude-code", "--yes"))
    assert f"Cursor uses {home.config} too." in told
    told = said(install("cursor", "--undo", "--yes"))
    assert f"Claude Code uses {home.config} too, so that file stays as it is. These servers stay in it: git." in told
    assert home.file("cursor").read_bytes() == before[0]
    assert home.served == {"git": GIT}
    # Undoing the last client also removes what the first client added.
    install("claude-code", "--undo", "--yes")
    assert home.file("claude-code").read_bytes() == before[1]
    assert not home.config.exists()
    assert home.records == []


def test_a_client_configured_by_hand_keeps_the_shared_servers(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    home.write("zed", crib={"command": "uvx", "args": ["toolcrib", "serve", str(home.config)]})
    told = install("cursor", "--undo", "--dry-run", "--json").json
    assert [each["client"] for each in told["shared_with"]] == ["zed"]
    assert told["left_in_config"] == ["git"]
    install("cursor", "--undo", "--yes")
    assert home.served == {"git": GIT}


def test_a_client_without_its_gateway_entry_does_not_block_an_undo(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    home.write("zed", lsp={"command": "lsp"})
    install("zed", "--yes")
    home.write("zed", lsp={"command": "lsp"})
    install("cursor", "--undo", "--yes")
    # Only undoing Zed removes the server that Zed moved.
    assert home.served == {"lsp": {"command": "lsp"}}
    install("zed", "--undo", "--yes")
    assert home.served == {}


def test_undoing_one_of_two_installations_says_that_the_client_still_uses_toolcrib(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes", "--keep")
    install("cursor", "--yes")
    assert "Cursor still uses Toolcrib" in said(install("cursor", "--undo", "--yes"))
    assert "still uses" not in said(install("cursor", "--undo", "--yes"))
    assert home.servers("cursor") == {"git": GIT}


def test_undo_leaves_a_created_configuration_to_a_client_that_shares_it(home: Home) -> None:
    install("cursor", "--yes")
    before = home.file("cursor").read_bytes()
    shutil.rmtree(home.path / ".local")
    home.config.unlink()  # from here on, the entry counts as written by hand
    install("cursor", "--yes")
    install("vscode", "--yes")
    told = said(install("cursor", "--undo", "--yes"))
    assert f"VS Code uses {home.config} too, so that file stays as it is." in told
    assert home.served == {}
    assert home.file("cursor").read_bytes() == before


def test_undo_deletes_a_created_configuration_that_no_client_shares(home: Home) -> None:
    install("cursor", "--yes")
    before = home.file("cursor").read_bytes()
    shutil.rmtree(home.path / ".local")
    home.config.unlink()
    install("cursor", "--yes")
    install("cursor", "--undo", "--yes")
    assert not home.config.exists()
    assert home.file("cursor").read_bytes() == before
    assert home.records == []


@pytest.mark.parametrize("servers", [{}, {"git": GIT}])
def test_a_recreated_configuration_stays_until_the_first_installation_is_undone(
    servers: dict[str, Any], home: Home
) -> None:
    install("cursor", "--yes")
    home.config.unlink()
    home.write("cursor", **home.servers("cursor"), **servers)
    before = home.file("cursor").read_bytes()
    install("cursor", "--yes")
    told = said(install("cursor", "--undo", "--yes"))
    assert f"Cursor still uses {home.config}, so that file stays as it is." in told
    assert ("These servers stay in it: git." in told) == bool(servers)
    assert home.served == servers
    assert home.file("cursor").read_bytes() == before
    install("cursor", "--undo", "--yes")
    assert not home.config.exists()
    assert home.records == []


def test_undoing_one_of_two_installations_preserves_servers_that_an_undone_client_left(home: Home) -> None:
    home.write("zed", lsp={"command": "lsp"})
    home.write("cursor", git=GIT)
    install("cursor", "--yes", "--keep")
    install("zed", "--yes")
    install("zed", "--undo", "--yes")
    install("cursor", "--yes")
    assert home.served == {"lsp": {"command": "lsp"}, "git": GIT}
    install("cursor", "--undo", "--yes")
    assert home.served == {"lsp": {"command": "lsp"}}
    install("cursor", "--undo", "--yes")
    assert not home.config.exists()


def test_undo_does_not_report_servers_that_it_did_not_add(home: Home) -> None:
    (mine := home.path / "mine.json").write_text(json.dumps({"mcpServers": {"git": GIT}}))
    home.write("cursor", git=GIT, time=GIT)
    install("cursor", "--yes", "-c", mine)
    mine.write_text(json.dumps({"mcpServers": {"git": {"command": "newer"}, "time": GIT}}))
    assert install("cursor", "--undo", "--yes", "--json").json["remarks"] == []
    assert home.servers("cursor") == {"git": GIT, "time": GIT}
    assert json.loads(mine.read_text())["mcpServers"] == {"git": {"command": "newer"}}


def test_a_client_is_not_switched_to_a_configuration_that_lacks_its_servers(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    (mine := home.path / "mine.json").write_text("{}")
    told = said(install("cursor", "--yes", "-c", mine, code=2))
    assert f"Cursor gets servers from {home.config} that {mine} does not have: git" in told
    assert "--undo` first" in told
    mine.write_text(home.config.read_text())
    install("cursor", "--yes", "-c", mine)
    assert home.servers("cursor")["toolcrib"]["args"] == ["serve", str(mine)]


def test_undo_asks_for_confirmation(home: Home, ask: Ask) -> None:
    file = home.write("cursor", git=GIT)
    install("cursor", "--yes")
    written = file.read_bytes()
    assert "no terminal to confirm on" in install("cursor", "--undo", code=1).err
    assert "Dry run" in install("cursor", "--undo", "--dry-run").err
    assert file.read_bytes() == written
    assert ask("cursor", "--undo", answers=[("Write this?", "y\n")]).code == 0
    assert home.servers("cursor") == {"git": GIT}


def test_undo_cannot_be_combined_with_other_options(home: Home) -> None:
    assert "--undo restores" in said(install("cursor", "--undo", "--keep", code=2))
    assert "--undo restores" in said(install("cursor", "--undo", "-c", "x.json", code=2))


def test_the_configuration_of_the_environment_is_served_and_allowed_with_undo(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine := home.path / "mine.json").write_text("{}")
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(mine))
    install("cursor", "--yes")
    assert home.servers("cursor")["toolcrib"]["args"] == ["serve", str(mine)]
    install("cursor", "--undo", "--yes")
    assert not home.file("cursor").exists()


def test_nothing_is_written_if_the_backup_cannot_be_written(home: Home) -> None:
    file = home.write("cursor", git=GIT)
    before = file.read_bytes()
    (home.path / ".local").write_text("in the way")
    assert "cannot write a backup" in said(install("cursor", "--yes", code=2))
    assert file.read_bytes() == before
    assert not home.config.exists()


def test_an_unreadable_record_is_named(home: Home) -> None:
    home.write("cursor", git=GIT)
    install("cursor", "--yes")
    (home.records[0] / "record.json").write_text("{")
    assert f"{home.records[0]}/record.json: cannot read this record" in said(
        install("cursor", "--undo", "--yes", code=2)
    )


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_output_describes_the_changes(home: Home) -> None:
    home.write("vscode", git=GIT, search={"command": "x", "args": ["${input:a}"]})
    told = install("vscode", "--json", code=1).json
    assert told["written"] is False
    told = install("vscode", "--yes", "--json").json
    assert (told["client"], told["scope"], told["name"]) == ("vscode", "user", "toolcrib")
    assert (told["file"], told["config"]) == (str(home.file("vscode")), str(home.config))
    assert told["moved"] == ["git"]
    assert [kept["name"] for kept in told["kept"]] == ["search"]
    assert [change["path"] for change in told["changes"]] == [str(home.config), str(home.file("vscode"))]
    assert told["written"] is True
    assert Path(told["backup"]) == home.records[0]
    told = install("vscode", "--yes", "--json").json
    assert (told["changes"], told["written"]) == ([], False)
    told = install("vscode", "--undo", "--yes", "--json").json
    assert (told["written"], told["remarks"], len(told["changes"])) == (True, [], 2)
    told = install("vscode", "--undo", "--yes", "--json").json
    assert (told["written"], told["changes"]) == (False, [])
    home.file("vscode").write_text("{")
    assert install("vscode", "--yes", "--json", code=2).json["error"]["code"] == "INVALID_CONFIG"


def test_terminal_escapes_in_a_client_file_are_not_printed(home: Home) -> None:
    home.write("cursor", **{"evil\x1b[2J": GIT, "[red]x": GIT})
    file = home.file("cursor")
    file.write_text(file.read_text().replace("\\u001b", "\x1b").replace("\x1b", "\\u001b"))
    ended = install("cursor", "--dry-run")
    assert "\x1b" not in ended.out
    assert "[red]x" in ended.out


# -- end to end -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_written_entry_serves_the_moved_servers_with_a_minimal_environment(
    home: Home,
) -> None:
    home.write("cursor", bench=faulty_entry(env={"FAULTY_TEST_TOKEN": "${env:BENCH_TOKEN}"}))
    install("cursor", "--yes")
    entry = home.servers("cursor")["toolcrib"]
    assert entry["env"] == {"BENCH_TOKEN": "${env:BENCH_TOKEN}"}
    # What Cursor makes of the entry.
    given = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={"HOME": str(home.path), "PATH": "", "BENCH_TOKEN": "s3cret"}
    )
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        async with Client(stdio_client(given, errlog=nowhere)) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == {*SETS[DEFAULT_SET]}
            result = await run_tool(client, "bench.env", name="FAULTY_TEST_TOKEN")
    assert "s3cret" in text_of(result)
