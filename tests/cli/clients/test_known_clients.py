"""The files in which each client stores its servers, on each operating system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.cli.clients.known_clients import CLIENTS, Scope, Surroundings, default_config, gateway_name

HOME = Path("/home/ada")
FOLDER = Path("/code/shop")
MAC = HOME / "Library" / "Application Support"
ROAMING = HOME / "AppData" / "Roaming"


def file_of(client: str, scope: Scope = Scope.USER, platform: str = "linux", **environ: str) -> Path:
    return CLIENTS[client].places[scope](Surroundings(HOME, FOLDER, environ, platform)).file


@pytest.mark.parametrize(
    ("client", "linux", "darwin", "win32"),
    [
        ("claude-code", HOME / ".claude.json", HOME / ".claude.json", HOME / ".claude.json"),
        ("cursor", HOME / ".cursor/mcp.json", HOME / ".cursor/mcp.json", HOME / ".cursor/mcp.json"),
        (
            "claude-desktop",
            HOME / ".config/Claude/claude_desktop_config.json",
            MAC / "Claude/claude_desktop_config.json",
            ROAMING / "Claude/claude_desktop_config.json",
        ),
        ("vscode", HOME / ".config/Code/User/mcp.json", MAC / "Code/User/mcp.json", ROAMING / "Code/User/mcp.json"),
        ("zed", HOME / ".config/zed/settings.json", HOME / ".config/zed/settings.json", ROAMING / "Zed/settings.json"),
    ],
)
def test_the_user_file_of_each_client_has_its_usual_path_on_each_system(
    client: str, linux: Path, darwin: Path, win32: Path
) -> None:
    assert file_of(client) == linux
    assert file_of(client, platform="darwin") == darwin
    assert file_of(client, platform="win32") == win32


def test_environment_variables_change_the_path_of_the_user_file() -> None:
    assert file_of("claude-code", CLAUDE_CONFIG_DIR="/c") == Path("/c/.claude.json")
    assert file_of("claude-desktop", XDG_CONFIG_HOME="/x") == Path("/x/Claude/claude_desktop_config.json")
    assert file_of("vscode", XDG_CONFIG_HOME="/x") == Path("/x/Code/User/mcp.json")
    assert file_of("vscode", VSCODE_APPDATA="/v") == Path("/v/Code/User/mcp.json")
    assert file_of("vscode", VSCODE_PORTABLE="/p") == Path("/p/user-data/User/mcp.json")
    assert file_of("vscode", platform="win32", APPDATA="/a") == Path("/a/Code/User/mcp.json")
    assert file_of("zed", XDG_CONFIG_HOME="/x") == Path("/x/zed/settings.json")
    assert file_of("zed", FLATPAK_XDG_CONFIG_HOME="/f") == Path("/f/zed/settings.json")
    # XDG says that a relative path is ignored.
    assert file_of("zed", XDG_CONFIG_HOME="x") == HOME / ".config/zed/settings.json"


def test_claude_desktop_as_a_windows_package_has_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "Packages" / "Claude_pzs8sxrjxfjjc" / "LocalCache" / "Roaming" / "Claude"
    folder.mkdir(parents=True)
    place = file_of("claude-desktop", platform="win32", APPDATA="/a", LOCALAPPDATA=str(tmp_path))
    assert place == folder / "claude_desktop_config.json"


@pytest.mark.parametrize(
    ("client", "name"), [("claude-code", ".mcp.json"), ("cursor", ".cursor/mcp.json"), ("vscode", ".vscode/mcp.json")]
)
def test_the_project_file_is_the_nearest_one_up_to_the_repository_root(client: str, name: str, tmp_path: Path) -> None:
    (repository := tmp_path / "shop").joinpath(".git").mkdir(parents=True)
    (inner := repository / "src" / "deep").mkdir(parents=True)
    place = CLIENTS[client].places[Scope.PROJECT]

    def found() -> Path:
        return place(Surroundings(HOME, inner)).file

    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert found() == inner / name
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).touch()
    assert found() == repository / name


def test_claude_code_stores_local_servers_under_the_repository_root(tmp_path: Path) -> None:
    (repository := tmp_path / "shop").joinpath(".git").mkdir(parents=True)
    (inner := repository / "src").mkdir()
    (worktree := tmp_path / "shop-fix").mkdir()
    (worktree / ".git").write_text(f"gitdir: {repository}/.git/worktrees/shop-fix\n")
    (submodule := repository / "lib").mkdir()
    (submodule / ".git").write_text("gitdir: ../.git/modules/lib\n")

    def section(folder: Path, **document: Any) -> tuple[str, ...]:
        return CLIENTS["claude-code"].places[Scope.LOCAL](Surroundings(HOME, folder)).section(document)

    assert section(inner) == ("projects", str(repository), "mcpServers")
    assert section(worktree) == ("projects", str(repository), "mcpServers")
    assert section(submodule) == ("projects", str(submodule), "mcpServers")
    assert section(tmp_path) == ("projects", str(tmp_path), "mcpServers")
    # When the folder itself has servers, its entry is used.
    there: dict[str, Any] = {str(inner): {"mcpServers": {"git": {}}}, str(repository): {"mcpServers": {}}}
    assert section(inner, projects=there) == ("projects", str(inner), "mcpServers")
    assert section(inner, projects=7) == ("projects", str(repository), "mcpServers")


def test_each_scope_has_its_own_gateway_name_and_configuration_file(tmp_path: Path) -> None:
    surroundings = Surroundings(HOME, FOLDER)
    assert gateway_name(Scope.USER) == "toolcrib"
    assert len({gateway_name(scope) for scope in Scope}) == len(Scope)
    file = FOLDER / ".cursor" / "mcp.json"
    files = {scope: default_config(scope, file, surroundings, tmp_path) for scope in Scope}
    assert files[Scope.USER] == tmp_path / "mcp.json"
    assert files[Scope.PROJECT] == FOLDER / ".cursor" / "toolcrib.mcp.json"
    assert len(set(files.values())) == len(Scope)
    elsewhere = default_config(Scope.LOCAL, file, Surroundings(HOME, Path("/other/shop")), tmp_path)
    assert elsewhere.name.startswith("shop-")
    assert elsewhere != files[Scope.LOCAL]


def test_a_project_entry_names_its_file_relative_to_the_workspace() -> None:
    project = CLIENTS["vscode"].project
    assert project is not None
    file = FOLDER / ".vscode" / "mcp.json"
    inside = FOLDER / "etc" / "tools.json"
    assert project.reference_to(file, inside) == "${workspaceFolder}/etc/tools.json"
    assert project.named(file, "${workspaceFolder}/etc/tools.json") == inside
    assert project.reference_to(file, FOLDER / ".." / "mine.json") is None
    assert project.named(file, "etc/tools.json") is None
    assert project.named(file, "${workspaceFolder}/${env:HOME}/tools.json") is None
