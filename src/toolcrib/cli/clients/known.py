"""The programs that `toolcrib install` knows: where they keep their MCP servers, and what an entry there means to them.

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

from toolcrib.cli.clients.jsonc import members_of

NAME = "toolcrib"
"""What the gateway is called in a client's configuration."""


class Scope(StrEnum):
    """For whom an entry counts."""

    USER = "user"
    """This person, everywhere."""
    LOCAL = "local"
    """This person, in this project."""
    PROJECT = "project"
    """Everybody who works on this project: the file stands in its folder."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides where files are."""

    home: Path
    folder: Path
    """Where the command was given."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    platform: str = "linux"
    """As `sys.platform` has it."""

    @classmethod
    def here(cls) -> Surroundings:
        return cls(Path.home(), Path.cwd(), os.environ, sys.platform)

    @property
    def settings(self) -> Path:
        """Where programs keep a person's settings."""
        match self.platform:
            case "darwin":
                return self.home / "Library" / "Application Support"
            case "win32":
                return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
            case _:
                return self._absolute("XDG_CONFIG_HOME") or self.home / ".config"

    @property
    def project(self) -> Path:
        """The root of the repository around the folder, or the folder itself; for a git worktree, that of its main."""
        for folder in (self.folder, *self.folder.parents):
            mark = folder / ".git"
            if mark.is_dir():
                return folder
            if mark.is_file():
                found = re.match(r"gitdir: (.+)[/\\]\.git[/\\]worktrees[/\\]", mark.read_text("utf-8", "replace"))
                return Path(found[1]) if found else folder
        return self.folder

    def nearest(self, name: str) -> Path:
        """`name` in the nearest folder that has it, up to the root of the repository; else in this folder."""
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
class Place:
    """Where the servers of a client stand."""

    file: Path
    section: Callable[[Mapping[str, Any]], tuple[str, ...]]
    """From what the file says to the path of the object that holds the servers."""
    must_exist: Path | None = None
    """The folder that the client makes when it first runs; without it, it is not here."""


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The file in which a client keeps servers for everyone who works on a project."""

    path: str
    """Below the project's folder, with slashes."""
    reference: str
    """How an entry names another file of the project, on every machine: a format of its path in the project.

    Cursor and VS Code fill in the project's folder. Claude Code starts servers in the folder in which it was started
    itself, and tells them the project's folder in CLAUDE_PROJECT_DIR, in which `toolcrib serve` looks too.
    """

    def place(self, surroundings: Surroundings, section: str) -> Place:
        return Place(surroundings.nearest(self.path), _at(section))

    def root(self, file: Path) -> Path:
        """The project's folder; `file` is this file."""
        return file.parents[self.path.count("/")]

    def reference_to(self, file: Path, other: Path) -> str | None:
        """How an entry in `file` names `other`; None if `other` is outside the project."""
        root, other = self.root(file), Path(os.path.abspath(other))  # noqa: PTH100  `resolve` would follow the links
        return self.reference % other.relative_to(root).as_posix() if other.is_relative_to(root) else None

    def named(self, file: Path, text: str) -> Path | None:
        """The file that `text` means in an entry of `file`; None if it is not a path in the project."""
        before, _, after = self.reference.partition("%s")
        if not (text.startswith(before) and text.endswith(after)):
            return None
        path = text.removeprefix(before).removesuffix(after)
        return None if "$" in path or Path(path).is_absolute() else self.root(file) / path


@dataclass(frozen=True, slots=True)
class KnownClient:
    """One program."""

    name: str
    """As it is typed."""
    title: str
    places: Mapping[Scope, Callable[[Surroundings], Place]]
    """The first is the default."""
    keys: frozenset[str]
    """Keys of an entry that mean the same to Toolcrib; a server with another one is not moved."""
    fills: re.Pattern[str] | None
    """The placeholders that both the client and Toolcrib fill in from the environment."""
    passes: str | None
    """How the client is told to pass on a variable of its own: a format of its name."""
    takes_effect: str
    """What a person does for a change to be seen."""
    writes_type: bool = False
    """Whether entries carry `"type": "stdio"`."""
    expands_home: bool = False
    """Whether it reads `~` in a command and its arguments, and adds to PATH where others replace it."""
    switched_off: Callable[[Mapping[str, Any]], frozenset[str]] = lambda _: frozenset()
    """Names of servers that the same file says are off somewhere."""
    project: ProjectFile | None = None
    """None where the client has no servers of a project."""


def gateway_name(scope: Scope) -> str:
    """What the gateway is called: another name in every scope, since an inner scope's entry hides an outer one's."""
    return NAME if scope is Scope.USER else f"{NAME}-{scope}"


def default_config(scope: Scope, file: Path, surroundings: Surroundings, folder: Path) -> Path:
    """Where servers are moved unless the user says where.

    The servers of a project stay in it, next to the client's `file`, so that everyone who works on it has them. All
    others go into Toolcrib's own `folder`.
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


def _claude_project(s: Surroundings) -> Place:
    """Below `projects`, at the root of the repository; where only this very folder has servers, there."""

    def section(document: Mapping[str, Any]) -> tuple[str, ...]:
        projects = members_of(document.get("projects")) or {}
        here, root = (folder.as_posix() for folder in (s.folder, s.project))
        has = {key: bool((members_of(projects.get(key)) or {}).get("mcpServers")) for key in (root, here)}
        return ("projects", here if has[here] and not has[root] else root, "mcpServers")

    return Place(_claude_json(s), section)


def _claude_switched_off(document: Mapping[str, Any]) -> frozenset[str]:
    projects = members_of(document.get("projects")) or {}
    lists = [(members_of(project) or {}).get("disabledMcpServers") for project in projects.values()]
    return frozenset(str(name) for names in lists if isinstance(names, list) for name in names)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _claude_desktop(s: Surroundings) -> Place:
    folder = s.settings / "Claude"
    if s.platform == "win32":
        packages = Path(s.environ.get("LOCALAPPDATA") or s.home / "AppData" / "Local") / "Packages"
        # Installed as a package, the program sees this folder in the place of the usual one.
        folder = next(iter(sorted(packages.glob("Claude_*/LocalCache/Roaming/Claude"))), folder)
    return Place(folder / "claude_desktop_config.json", _at("mcpServers"), must_exist=folder)


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


def _in_folder(folder: Callable[[Surroundings], Path], name: str, section: str) -> Callable[[Surroundings], Place]:
    return lambda s: Place(folder(s) / name, _at(section), must_exist=folder(s))


_CLAUDE_PROJECT = ProjectFile(".mcp.json", "%s")
_CURSOR_PROJECT = ProjectFile(".cursor/mcp.json", "${workspaceFolder}/%s")
_VSCODE_PROJECT = ProjectFile(".vscode/mcp.json", "${workspaceFolder}/%s")

_PROGRAM = frozenset({"command", "args", "env", "type", "disabled", "enabled", "name", "description"})
"""What Toolcrib reads of a program's entry, and what only labels it."""
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
                Scope.USER: lambda s: Place(_claude_json(s), _at("mcpServers")),
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
            keys=_ANY,
            fills=_ENV,
            passes="${env:%s}",
            takes_effect="reload the window of Cursor",
            project=_CURSOR_PROJECT,
        ),
        KnownClient(
            "vscode",
            "VS Code",
            {
                Scope.USER: _in_folder(_vscode_folder, "mcp.json", "servers"),
                Scope.PROJECT: lambda s: _VSCODE_PROJECT.place(s, "servers"),
            },
            # Where an entry was installed from is only shown.
            keys=_ANY | {"cwd", "gallery", "version"},
            fills=_ENV,
            passes="${env:%s}",
            takes_effect="run `MCP: List Servers` in VS Code and start toolcrib",
            writes_type=True,
            expands_home=True,
            project=_VSCODE_PROJECT,
        ),
        KnownClient(
            "zed",
            "Zed",
            {Scope.USER: _in_folder(_zed_folder, "settings.json", "context_servers")},
            # `source` was written until November 2025 and is now taken out by Zed itself.
            keys=_ANY | {"source"},
            fills=None,
            passes=None,
            takes_effect="nothing to do, Zed reads the file again by itself",
        ),
    )
}
"""By name."""
