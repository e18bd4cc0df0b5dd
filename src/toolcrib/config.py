"""`mcp.json`: which servers there are, and what stands under our own key of the same file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.schema import nearest
from toolcrib.sources.base import source_name
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, HttpServer, McpServer, Patience, StdioServer

OUR_KEY = "toolcrib"

SERVER_KEYS = ("mcpServers", "servers")
"""Where the servers stand: `mcpServers` in most clients, `servers` in VS Code."""

_TIMEOUTS = {
    "start_timeout_s": "start_s",
    "list_timeout_s": "list_s",
    "call_timeout_s": "call_s",
    "idle_timeout_s": "idle_s",
}

SETTINGS: Mapping[str, str] = {
    "start_timeout_s": "Seconds a server may take from its start to the end of the handshake (60).",
    "list_timeout_s": "Seconds it may take for each page of its tools (30).",
    "call_timeout_s": "Seconds it may take to answer a call (300).",
    "idle_timeout_s": "Seconds without a call after which a server whose definitions are kept is stopped (3600).",
    "sources": "By server name: `title`, `summary`, `trusted`, and time-outs of its own.",
}
"""Every key below `toolcrib`, with what it does."""

SOURCE_SETTINGS: Mapping[str, str] = {
    "title": "What to call the server instead of what it calls itself.",
    "summary": "One line on what it is for; models read it before they search.",
    "trusted": "`true` where what its tools claim of themselves (read-only, idempotent) may be relied on.",
    **{key: SETTINGS[key] for key in _TIMEOUTS},
}
"""Every key below `toolcrib.sources.NAME`."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server of the file. Exactly one of `server` and `problem` is set, unless it is `disabled`."""

    name: str
    """The name of its source."""
    server: McpServer | None = None
    problem: str | None = None
    """Why it cannot be used, naming server and key, as a sentence without a full stop; no value that was filled in."""
    disabled: bool = False
    """Switched off by the person: not an error, and not in the catalog."""
    title: str | None = None
    summary: str = ""
    trusted: bool = False
    patience: Patience = DEFAULT_PATIENCE


@dataclass(frozen=True, slots=True)
class Config:
    """What one file says, at one moment."""

    path: Path
    servers: tuple[ServerConfig, ...] = ()

    @property
    def enabled(self) -> tuple[ServerConfig, ...]:
        return tuple(server for server in self.servers if not server.disabled)


def read_config(path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in the file at `path`.

    A server that is wrong in itself is kept with its `problem`; the others are not touched by it.

    Raises:
        InvalidConfig: the file cannot be read, is malformed, names a server twice, or has an unknown key of ours.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidConfig(
            f"{path}: there is no such file",
            hints=["Name the mcp.json of your client, or set TOOLCRIB_CONFIG to it."],
        ) from error
    except OSError as error:
        raise InvalidConfig(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path}: not UTF-8 text") from error
    return parse_config(text, path, environ)


def parse_config(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> Config:
    """The configuration in `text`, which stood at `path`; raises as `read_config` does."""
    document = _parsed(text, path)
    for name in document.repeated:
        if name in (*SERVER_KEYS, OUR_KEY):
            raise InvalidConfig(f"{path}: {name}: it stands there twice")
    key = next((key for key in SERVER_KEYS if key in document), SERVER_KEYS[0])
    servers = _object(document.get(key, {}), path, key)
    for name in servers.repeated:
        raise InvalidConfig(f"{path}: {key}: two servers are named `{name}`; give one of them another name")
    ours = _object(document.get(OUR_KEY, {}), path, OUR_KEY)
    _check_keys(ours, SETTINGS, path, OUR_KEY)
    patience = _patience(DEFAULT_PATIENCE, ours, path, OUR_KEY)
    where = f"{OUR_KEY}.sources"
    sources = _object(ours.get("sources", {}), path, where)
    _check_keys(sources, servers, path, where)
    read: list[ServerConfig] = []
    taken: set[str] = set()
    for label, entry in servers.items():
        settings = _object(sources.get(label, {}), path, f"{where}.{label}")
        _check_keys(settings, SOURCE_SETTINGS, path, f"{where}.{label}")
        name = _free_name(label, taken)
        taken.add(name)
        config = _server(name, entry, f"{key}.{label}", environ)
        read.append(
            replace(
                config,
                title=_text(settings.get("title"), path, f"{where}.{label}.title") or None,
                summary=_text(settings.get("summary"), path, f"{where}.{label}.summary"),
                trusted=_flag(settings.get("trusted", False), path, f"{where}.{label}.trusted"),
                patience=_patience(patience, settings, path, f"{where}.{label}"),
            )
        )
    return Config(path, tuple(read))


class _Problem(Exception):
    """What is wrong with one server, and with which of its keys."""


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys stood there twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self:
                self.repeated.append(key)
            self[key] = value


def _parsed(text: str, path: Path) -> _Object:
    try:
        document = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        # Some clients allow comments and trailing commas; only a file that is no plain JSON is read this way.
        try:
            document = json.loads(_without_comments(text), object_pairs_hook=_Object)
        except json.JSONDecodeError as error:
            raise InvalidConfig(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
        except RecursionError as error:
            raise InvalidConfig(f"{path}: nested too deeply") from error
        except ValueError as error:  # a number of thousands of digits
            raise InvalidConfig(f"{path}: {error}") from error
    return _object(document, path, "the file")


_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def _without_comments(text: str) -> str:
    """`text` with comments and trailing commas blanked, every line where it was, so that errors name the right one."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _TEXT_OR_LAST_COMMA.sub(blank, _TEXT_OR_COMMENT.sub(blank, text))


def _object(value: object, path: Path, where: str) -> _Object:
    if not isinstance(value, _Object):
        if value == {}:
            return _Object()
        raise InvalidConfig(f"{path}: {where}: an object is expected here")
    return value


def _check_keys(given: _Object, known: Mapping[str, Any], path: Path, where: str) -> None:
    for key in given.repeated:
        raise InvalidConfig(f"{path}: {where}.{key}: it stands there twice")
    for key in given:
        if key not in known:
            near = nearest(key, known)
            meant = f"did you mean `{near}`?" if near else f"known are: {', '.join(known) or 'none'}"
            raise InvalidConfig(f"{path}: {where}: unknown key `{key}`; {meant}")


def _patience(base: Patience, settings: Mapping[str, Any], path: Path, where: str) -> Patience:
    for key, field in _TIMEOUTS.items():
        if key in settings:
            seconds = settings[key]
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
                raise InvalidConfig(f"{path}: {where}.{key}: seconds are expected, more than 0 and at most 86400")
            base = replace(base, **{field: float(seconds)})
    return base


def _text(value: object, path: Path, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidConfig(f"{path}: {where}: a text is expected here")
    return value


def _flag(value: object, path: Path, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfig(f"{path}: {where}: true or false is expected here")
    return value


def _free_name(label: str, taken: set[str]) -> str:
    """The source name of a server; two labels that come to the same name are told apart by a number."""
    base = source_name(label) if re.search(r"\w", label) else "server"
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}-{count}"
    return name


def _server(name: str, entry: object, where: str, environ: Mapping[str, str]) -> ServerConfig:
    """`where` names the server, for the sentence about what is wrong."""
    if not isinstance(entry, _Object):
        return ServerConfig(name, problem=f"{where}: an object is expected here")
    disabled = entry.get("disabled", False)
    if disabled is True or entry.get("enabled") is False:
        return ServerConfig(name, disabled=True)
    if disabled is not False:  # whoever wrote it did not want the server started
        return ServerConfig(name, problem=f"{where}.disabled: true or false is expected here")
    try:
        return ServerConfig(name, server=_address(entry, environ))
    except _Problem as problem:
        return ServerConfig(name, problem=f"{where}.{problem}")


def _address(entry: _Object, environ: Mapping[str, str]) -> McpServer:
    for key in entry.repeated:
        raise _Problem(f"{key}: it stands there twice")
    kind = entry.get("type")
    if "command" in entry:
        cwd = entry.get("cwd")
        args = entry.get("args", [])
        if not isinstance(args, list):
            raise _Problem("args: a list of texts is expected here")
        return StdioServer(
            command=_expanded(entry["command"], "command", environ),
            args=tuple(_expanded(arg, f"args.{i}", environ) for i, arg in enumerate(cast("list[object]", args))),
            env=_expanded_members(entry.get("env"), "env", environ),
            cwd=_folder(_expanded(cwd, "cwd", environ)) if cwd else None,
        )
    if "url" in entry:
        url = _expanded(entry["url"], "url", environ)
        if not re.match(r"https?://[^/\s]", url):
            raise _Problem(f"url: `{entry['url']}` is no http or https address")  # as it stands: no secret filled in
        headers = _expanded_members(entry.get("headers"), "headers", environ)
        return HttpServer(url, headers, transport=_http_transport(kind))
    near = next((key for wanted in ("command", "url") if (key := nearest(wanted, entry)) is not None), None)
    meant = f"; `{near}` is none of them" if near is not None else ""
    raise _Problem(f"command: neither a `command` nor a `url` is given{meant}")


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # `~name` of nobody
        raise _Problem(f"cwd: {error}") from error


def _http_transport(kind: object) -> Literal["streamable-http", "sse"]:
    match kind:
        case None | "http" | "streamable-http" | "streamableHttp" | "streamable_http":
            return "streamable-http"
        case "sse":
            return "sse"
        case _:
            raise _Problem(f"type: `{kind}` is not one of http, streamable-http, sse, as a `url` needs")


def _expanded_members(value: object, where: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, _Object):
        raise _Problem(f"{where}: an object of texts is expected here")
    return {key: _expanded(part, f"{where}.{key}", environ) for key, part in value.items()}


_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([^}:]*)(:-(?P<default>[^}]*))?(?P<rest>[^}]*)\}")


def _expanded(value: object, where: str, environ: Mapping[str, str]) -> str:
    """`value` with `${VAR}`, `${VAR:-default}` and `${env:VAR}` filled in from `environ`.

    Raises:
        _Problem: not a text, a variable that is not set, or a placeholder of another program (`${input:token}`).
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # ports in `env` and `args` are often written as numbers
    if not isinstance(value, str):
        raise _Problem(f"{where}: a text is expected here")

    def fill(match: re.Match[str]) -> str:
        variable = match[1]
        if match["rest"] or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise _Problem(f"{where}: `{match[0]}` is not a variable that Toolcrib can fill in")
        if variable in environ and (environ[variable] or match["default"] is None):
            return environ[variable]
        if match["default"] is not None:
            if "${" in match["default"]:
                raise _Problem(f"{where}: a default cannot hold another placeholder")
            return match["default"]
        raise _Problem(f"{where}: the environment variable `{variable}` is not set")

    return _PLACEHOLDER.sub(fill, value)
