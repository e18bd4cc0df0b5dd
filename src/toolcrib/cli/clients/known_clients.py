"""The clients that `toolcrib install` knows: where they keep their MCP servers, and how they read an entry.

Sources, looked up in October 2026:

- Claude Code: code.claude.com/docs/en/mcp (scopes, `${VAR}` and `${VAR:-default}`, `type`); anthropics/claude-code
  issues 89460 (a project's key in `~/.claude.json` is the root of its repository), 44845 (`disabledMcpServers`), 90074
  (some builds hand servers only a part of their environment), 58121 (`CLAUDE_PROJECT_DIR` is set for servers, not for
  Claude Code itself, so it cannot be used in an entry), 17565 (`cwd` is ignored).
- Claude Desktop: modelcontextprotocol.io/docs/develop/connect-local-servers; anthropics/claude-code issues 26073 and
  25579 (the place of the file where Windows installed the program as a package).
- Cursor: cursor.com/docs/mcp.md (places, `${env:NAME}`, `${workspaceFolder}` and other variables, `envFile`, `auth`).
- VS Code: code.visualstudio.com/docs/copilot/reference/mcp-configuration, and microsoft/vscode
  `src/vs/workbench/api/node/extHostMcpNode.ts` (servers inherit its environment, `~` is expanded, `PATH` is added to).
- Zed: zed.dev/docs/ai/mcp, and zed-industries/zed `crates/settings_content/src/project.rs` (the keys of an entry),
  `crates/paths/src/paths.rs` (places), issue 60459 (variables are not filled in).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from toolcrib.cli.clients.jsonc_document import members_of

NAME = "toolcrib"
"""The name of the gateway in a client's configuration."""


class Scope(StrEnum):
    """The people and projects that an entry applies to."""

    USER = "user"
    """This person, in every project."""
    LOCAL = "local"
    """This person, in this project."""
    PROJECT = "project"
    """Everyone who works on this project. The file is in its folder."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment that decides where files are."""

    home: Path
    folder: Path
    """The folder in which the command was run."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    platform: str = "linux"
    """The value of `sys.platform`."""

    @classmethod
    def here(cls) -> Surroundings:
        return cls(Path.home(), Path.cwd(), os.environ, sys.platform)

    @property
    def settings(self) -> Path:
        """The folder where programs keep a person's settings."""
        match self.platform:
            case "darwin":
                return self.home / "Library" / "Application Support"
            case "win32":
                return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
            case _:
                return self._absolute("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def project(self) -> Path:
        """The root of the repository around the folder, or the folder itself. For a git worktree, the main root."""
        for folder in (self.folder, *self.folder.parents):
            mark = folder / ".git"
            if mark.is_dir():
                return folder
            if mark.is_file():
                found = re.match(r"gitdir: (.+)[/\\]\.git[/\\]worktrees[/\\]", mark.read_text("utf-8", "replace"))
                return Path(found[1]) if found else folder
        return self.folder

    def nearest(self, name: str) -> Path:
        """Return `name` in the nearest folder that has it, up to the root of the repository, or else in this folder."""
        for folder in (self.folder, *self.folder.parents):
            if (folder / name).exists():
                return folder / name
            if (folder / ".git").exists() or folder == self.home:
                break
        return self.folder / name

    def _absolute(self, variable: str) -> Path | None:
        value = self.environ.get(variable, "")
        return Path(value) if Path(value).is_absolute() else None


@dataclass(frozen=True, slots=True)
class ServersPlace:
    """The place of a client's servers in its file."""

    file: Path
    section: Callable[[Mapping[str, Any]], tuple[str, ...]]
    """Returns the path of the object with the servers, for the parsed content of the file."""
    must_exist: Path | None = None
    """The folder that the client creates when it first runs. If it is missing, the client is not installed."""


@dataclass(frozen=True, slots=True)
class _ProjectFile:
    """The file in which a client keeps servers for everyone who works on a project."""

    path: str
    """The path in the project's folder, with slashes."""
    reference: str
    """How an entry names a file of the project on every machine: a format for its path in the project.

    Cursor and VS Code fill in the project's folder. Claude Code starts servers in the folder in which it was started
    itself. It passes the project's folder in CLAUDE_PROJECT_DIR, where `toolcrib serve` looks as well.
    """

    def place(self, surroundings: Surroundings, section: str) -> ServersPlace:
        return ServersPlace(surroundings.nearest(self.path), _at(section))

    def root(self, file: Path) -> Path:
        """Return the project's folder. `file` is the path of this file."""
        return file.parents[self.path.count("/")]

    def reference_to(self, file: Path, other: Path) -> str | None:
        """Return how an entry in `file` names `other`, or None if `other` is outside the project."""
        root, other = self.root(file), Path(os.path.abspath(other))  # noqa: PTH100  `resolve` would follow the links
        return self.reference % other.relative_to(root).as_posix() if other.is_relative_to(root) else None

    def named(self, file: Path, text: str) -> Path | None:
        """Return the file that `text` means in an entry of `file`, or None if it is not a path in the project."""
        before, _, after = self.reference.partition("%s")
        if not (text.startswith(before) and text.endswith(after)):
            return None
        path = text.removeprefix(before).removesuffix(after)
        return None if "$" in path or Path(path).is_absolute() else self.root(file) / path


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One client program."""

    name: str
    """The name that the user types."""
    title: str
    places: Mapping[Scope, Callable[[Surroundings], ServersPlace]]
    """The places of its servers. The first scope is the default."""
    keys: frozenset[str]
    """Keys of an entry that Toolcrib reads in the same way. A server with any other key is not moved."""
    fills: re.Pattern[str] | None
    """Placeholders that both the client and Toolcrib fill in from the environment."""
    passes: str | None
    """How the client is told to pass on one of its variables: a format for the variable's name."""
    takes_effect: str
    """What a person does to apply a change."""
    writes_type: bool = False
    """Whether entries contain `"type": "stdio"`."""
    fills_editor_variables: bool = False
    """Whether the client fills in `EDITOR_VARIABLES`, such as `${workspaceFolder}`."""
    asks_for_inputs: bool = False
    """Whether the client's file has `inputs`, as in VS Code."""
    expands_home: bool = False
    """Whether the client expands `~` in a command and its arguments, and adds to PATH instead of replacing it."""
    switched_off: Callable[[Mapping[str, Any]], frozenset[str]] = lambda _: frozenset()
    """Returns the names of servers that the same file disables, for some project."""
    project: _ProjectFile | None = None
    """None if the client has no servers per project."""


def gateway_name(scope: Scope) -> str:
    """Return the name of the gateway, which differs per scope: an inner scope hides equal names of outer ones."""
    return NAME if scope is Scope.USER else f"{NAME}-{scope}"


def default_config(scope: Scope, file: Path, surroundings: Surroundings, folder: Path) -> Path:
    """Return the file to which servers are moved by default.

    The servers of a project are moved to a file next to the client's `file`, so that everyone who works on the project
    has them. All others are moved to Toolcrib's own `folder`.
    """
    if scope is Scope.PROJECT:
        return file.parent / "toolcrib.mcp.json"
    if scope is Scope.USER:
        return folder / "mcp.json"
    project = surroundings.project
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:8]
    return folder / "projects" / f"{project.name or 'root'}-{digest}-{scope}.json"


def _at(*path: str) -> Callable[[Mapping[str, Any]], tuple[str, ...]]:
    return lambda _: path


def _claude_json(s: Surroundings) -> Path:
    return Path(s.environ.get("CLAUDE_CONFIG_DIR") or s.home) / ".claude.json"


def _claude_project(s: Surroundings) -> ServersPlace:
    """The servers are below `projects`, under the repository's root, or under this folder if only it has servers."""

    def section(document: Mapping[str, Any]) -> tuple[str, ...]:
        projects = members_of(document.get("projects")) or {}
        here, root = (folder.as_posix() for folder in (s.folder, s.project))
        has = {key: bool((members_of(projects.get(key)) or {}).get("mcpServers")) for key in (root, here)}
        return ("projects", here if has[here] and not has[root] else root, "mcpServers")

    return ServersPlace(_claude_json(s), section)


def _claude_switched_off(document: Mapping[str, Any]) -> frozenset[str]:
    projects = members_of(document.get("projects")) or {}
    lists = [(members_of(project) or {}).get("disabledMcpServers") for project in projects.values()]
    return frozenset(str(name) for names in lists if isinstance(names, list) for name in names)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _claude_desktop(s: Surroundings) -> ServersPlace:
    folder = s.settings / "Claude"
    if s.platform == "win32":
        packages = Path(s.environ.get("LOCALAPPDATA") or s.home / "AppData" / "Local") / "Packages"
        # When Claude Desktop is installed as a package, Windows shows it this folder instead of the usual one.
        folder = next(iter(sorted(packages.glob("Claude_*/LocalCache/Roaming/Claude"))), folder)
    return ServersPlace(folder / "claude_desktop_config.json", _at("mcpServers"), must_exist=folder)


def _zed_folder(s: Surroundings) -> Path:
    match s.platform:
        case "win32":
            return s.settings / "Zed"
        case "darwin":
            return s.home / ".config" / "zed"
        case _:
            return Path(s.environ.get("FLATPAK_XDG_CONFIG_HOME") or s.settings) / "zed"


def _vscode_folder(s: Surroundings) -> Path:
    if portable := s.environ.get("VSCODE_PORTABLE"):
        return Path(portable) / "user-data" / "User"
    return Path(s.environ.get("VSCODE_APPDATA") or s.settings) / "Code" / "User"


def _in_folder(
    folder: Callable[[Surroundings], Path], name: str, section: str
) -> Callable[[Surroundings], ServersPlace]:
    return lambda s: ServersPlace(folder(s) / name, _at(section), must_exist=folder(s))


_CLAUDE_PROJECT = _ProjectFile(".mcp.json", "%s")
_CURSOR_PROJECT = _ProjectFile(".cursor/mcp.json", "${workspaceFolder}/%s")
_VSCODE_PROJECT = _ProjectFile(".vscode/mcp.json", "${workspaceFolder}/%s")

_PROGRAM = frozenset({"command", "args", "env", "type", "disabled", "enabled", "name", "description"})
"""The keys of a program's entry that Toolcrib reads, and those that are only labels."""
_ANY = _PROGRAM | {"url", "headers"}
_PLAIN = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-((?!\$\{)[^}])*)?\}")
_ENV = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*\}")

CLIENTS: Mapping[str, KnownClient] = {
    client.name: client
    for client in (
        KnownClient(
            "claude-code",
            "Claude Code",
            {
                Scope.USER: lambda s: ServersPlace(_claude_json(s), _at("mcpServers")),
                Scope.LOCAL: _claude_project,
                Scope.PROJECT: lambda s: _CLAUDE_PROJECT.place(s, "mcpServers"),
            },
            keys=_ANY,
            fills=_PLAIN,
            passes="${%s:-}",
            takes_effect="restart Claude Code",
            writes_type=True,
            switched_off=_claude_switched_off,
            project=_CLAUDE_PROJECT,
        ),
        KnownClient(
            "claude-desktop",
            "Claude Desktop",
            {Scope.USER: _claude_desktop},
            keys=_PROGRAM,
            fills=None,
            passes=None,
            takes_effect="quit and restart Claude Desktop",
        ),
        KnownClient(
            "cursor",
            "Cursor",
            {
                Scope.USER: _in_folder(lambda s: s.home / ".cursor", "mcp.json", "mcpServers"),
                Scope.PROJECT: lambda s: _CURSOR_PROJECT.place(s, "mcpServers"),
            },
            keys=_ANY | {"envFile"},
            fills=_ENV,
            passes="${env:%s}",
            takes_effect="reload the window of Cursor",
            fills_editor_variables=True,
            project=_CURSOR_PROJECT,
        ),
        KnownClient(
            "vscode",
            "VS Code",
            {
                Scope.USER: _in_folder(_vscode_folder, "mcp.json", "servers"),
                Scope.PROJECT: lambda s: _VSCODE_PROJECT.place(s, "servers"),
            },
            # `gallery` and `version` only say where an entry was installed from.
            keys=_ANY | {"cwd", "envFile", "gallery", "version"},
            fills=_ENV,
            passes="${env:%s}",
            takes_effect="run `MCP: List Servers` in VS Code and start toolcrib",
            writes_type=True,
            fills_editor_variables=True,
            asks_for_inputs=True,
            expands_home=True,
            project=_VSCODE_PROJECT,
        ),
        KnownClient(
            "zed",
            "Zed",
            {Scope.USER: _in_folder(_zed_folder, "settings.json", "context_servers")},
            # Zed wrote `source` until November 2025, and now removes it by itself.
            keys=_ANY | {"source"},
            fills=None,
            passes=None,
            takes_effect="nothing to do, Zed reads the file again by itself",
        ),
    )
}
"""The clients by name."""
