"""One server of the file: how it is started or reached, or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from toolcrib.config.settings import JsonObject
from toolcrib.core.schema import nearest
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server import DEFAULT_PATIENCE, HttpServer, McpServer, Patience, StdioServer


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


class _Problem(Exception):
    """What is wrong with one server, and with which of its keys."""


def read_server(name: str, entry: object, where: str, environ: Mapping[str, str]) -> ServerConfig:
    """The server that `entry` describes, or what is wrong with it; `where` names it in that sentence."""
    if not isinstance(entry, JsonObject):
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


def _address(entry: JsonObject, environ: Mapping[str, str]) -> McpServer:
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
    if not isinstance(value, JsonObject):
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
