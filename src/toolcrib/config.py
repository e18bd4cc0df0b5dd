"""`mcp.json`: which servers there are, and what stands under our own key of the same file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from toolcrib.calling.limits import DEFAULT_RATE, Rate
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.schema import nearest
from toolcrib.sources.base import source_name
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
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

_CAPACITIES = {"max_concurrent_calls": ("concurrent_calls", 1), "max_queued_calls": ("queued_calls", 0)}
"""By key, the field of `Capacity` and the least that it may be."""

_MOST_CALLS = 1_000_000

SETTINGS: Mapping[str, str] = {
    "start_timeout_s": "Seconds a server may take from its start to the end of the handshake (60).",
    "list_timeout_s": "Seconds it may take for each page of its tools (30).",
    "call_timeout_s": "Seconds it may take to answer a call (300).",
    "idle_timeout_s": "Seconds without a call after which a server whose definitions are kept is stopped (3600).",
    "max_concurrent_calls": "Calls that run at one server at once (32).",
    "max_queued_calls": "Calls that wait for those, first come first served; one more is refused (256).",
    "calls_per_minute": "Calls that each principal may make in a minute; 0 sets no limit (1000).",
    "burst_calls": "How many of those may come at once (as many as in a minute).",
    "max_text_bytes": "Bytes of text in one result beyond which the rest is paged, as UTF-8 (400000).",
    "max_binary_bytes": "Bytes of one image, audio or file in a result beyond which it is left out (8388608).",
    "sources": "By server name: `title`, `summary`, `trusted`, and time-outs and limits of its own.",
}
"""Every key below `toolcrib`, with what it does."""

SOURCE_SETTINGS: Mapping[str, str] = {
    "title": "What to call the server instead of what it calls itself.",
    "summary": "One line on what it is for; models read it before they search.",
    "trusted": "`true` where what its tools claim of themselves (read-only, idempotent) may be relied on.",
    "plain_names": "`true` keeps the server's own names of prompts and resources, and of tools where they are listed.",
    **{key: SETTINGS[key] for key in (*_TIMEOUTS, *_CAPACITIES)},
}
"""Every key below `toolcrib.sources.NAME`."""


MIN_ROOM = 1_000
MAX_ROOM = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """How large a result may be before it is not handed over in one piece, in bytes."""

    text: int = 400_000
    """All text of a result, as UTF-8: about 100,000 tokens, more than most models take in at once."""
    binary: int = 8 * 1024 * 1024
    """One image, sound or file."""


DEFAULT_ROOM = Room()


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
    plain_names: bool = False
    patience: Patience = DEFAULT_PATIENCE
    capacity: Capacity = DEFAULT_CAPACITY


@dataclass(frozen=True, slots=True)
class Config:
    """What one file says, at one moment."""

    path: Path
    servers: tuple[ServerConfig, ...] = ()
    room: Room = DEFAULT_ROOM
    patience: Patience = DEFAULT_PATIENCE
    """Of servers that are given none of their own."""
    capacity: Capacity = DEFAULT_CAPACITY
    """Likewise."""
    rate: Rate | None = DEFAULT_RATE
    """How fast each principal may call; None where there is no limit."""

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
    if key not in document and (near := _meant_for_servers(document)) is not None:
        raise InvalidConfig(f"{path}: there is no `{key}`; `{near}` is not read. Did you mean `{key}`?")
    servers = _object(document.get(key, {}), path, key)
    for name in servers.repeated:
        raise InvalidConfig(f"{path}: {key}: two servers are named `{name}`; give one of them another name")
    ours = _object(document.get(OUR_KEY, {}), path, OUR_KEY)
    _check_keys(ours, SETTINGS, path, OUR_KEY)
    patience = _patience(DEFAULT_PATIENCE, ours, path, OUR_KEY)
    capacity = _capacity(DEFAULT_CAPACITY, ours, path, OUR_KEY)
    rate = _rate(ours, path)
    room = Room(
        text=_bytes(ours, "max_text_bytes", DEFAULT_ROOM.text, path),
        binary=_bytes(ours, "max_binary_bytes", DEFAULT_ROOM.binary, path),
    )
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
                plain_names=_flag(settings.get("plain_names", False), path, f"{where}.{label}.plain_names"),
                patience=_patience(patience, settings, path, f"{where}.{label}"),
                capacity=_capacity(capacity, settings, path, f"{where}.{label}"),
            )
        )
    return Config(path, tuple(read), room, patience, capacity, rate)


def _meant_for_servers(document: Mapping[str, Any]) -> str | None:
    """A key under which somebody may have meant servers to stand."""
    if "context_servers" in document:  # where Zed has them
        return "context_servers"
    return next((near for key in SERVER_KEYS if (near := nearest(key, document)) is not None), None)


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


def _bytes(settings: Mapping[str, Any], key: str, default: int, path: Path) -> int:
    size = settings.get(key, default)
    if isinstance(size, bool) or not isinstance(size, int) or not MIN_ROOM <= size <= MAX_ROOM:
        raise InvalidConfig(f"{path}: {OUR_KEY}.{key}: a number of bytes from {MIN_ROOM} to {MAX_ROOM} is expected")
    return size


def _capacity(base: Capacity, settings: Mapping[str, Any], path: Path, where: str) -> Capacity:
    for key, (field, least) in _CAPACITIES.items():
        if key in settings:
            base = replace(base, **{field: _count(settings[key], least, path, f"{where}.{key}")})
    return base


def _rate(settings: Mapping[str, Any], path: Path) -> Rate | None:
    default = DEFAULT_RATE.calls_per_minute
    per_minute = _count(settings.get("calls_per_minute", default), 0, path, f"{OUR_KEY}.calls_per_minute")
    at_once = _count(settings.get("burst_calls", per_minute or 1), 1, path, f"{OUR_KEY}.burst_calls")
    return Rate(per_minute, at_once) if per_minute else None


def _count(value: object, least: int, path: Path, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_CALLS:
        raise InvalidConfig(f"{path}: {where}: a number of calls is expected, from {least} to {_MOST_CALLS}")
    return value


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
