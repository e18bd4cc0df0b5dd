"""One server of the file: how it is started or reached, or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from toolcrib.config.isolation import EVERYBODY_ELSE, Isolation, Personal, filled_in
from toolcrib.config.settings import JsonObject
from toolcrib.core.placeholders import WHO, Problem, expanded, expanded_members
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
    isolation: Isolation = "shared"
    is_expressly_shared: bool = False
    """Whether the file says so, and does not only leave it out."""
    principals: Mapping[str, Personal] | None = None
    """Who has an isolated server, by id or `EVERYBODY_ELSE`; None where everybody has."""

    def of(self, principal_id: str) -> ServerConfig | None:
        """The server as this principal has it; None where it has none. One that is shared is the same for all.

        Two that are equal are started or reached in the same way.
        """
        if self.isolation == "shared":
            return self
        principals = {EVERYBODY_ELSE: Personal()} if self.principals is None else self.principals
        personal = principals.get(principal_id) or principals.get(EVERYBODY_ELSE)
        if personal is None:
            return None
        if self.server is None:
            return replace(self, principals=None)
        try:
            return replace(self, principals=None, server=filled_in(self.server, personal, principal_id))
        except Problem as problem:
            return replace(self, principals=None, server=None, problem=str(problem))


def under_source_names(patterns: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """`patterns` of tool ids, and besides those that begin with a server's label the same with its source's name.

    `names` are those of the sources, by label.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        found[pattern] = None
        for label, name in names.items():
            if label != name and pattern.startswith(f"{label}."):
                found[f"{name}{pattern[len(label) :]}"] = None
    return tuple(found)


def read_server(name: str, entry: object, where: str, environ: Mapping[str, str]) -> ServerConfig:
    """The server that `entry` describes, or what is wrong with it; `where` names it in that sentence."""
    if not isinstance(entry, JsonObject):
        return ServerConfig(name, problem=f"{where}: must be an object")
    disabled = entry.get("disabled", False)
    if disabled is True or entry.get("enabled") is False:
        return ServerConfig(name, disabled=True)
    if disabled is not False:  # whoever wrote it did not want the server started
        return ServerConfig(name, problem=f"{where}.disabled: must be true or false")
    if (misplaced := next((key for key in ("isolation", "principals") if key in entry), None)) is not None:
        return ServerConfig(name, problem=f"{where}.{misplaced}: this is read below `toolcrib.sources.{name}` alone")
    try:
        return ServerConfig(name, server=_address(entry, environ))
    except Problem as problem:
        return ServerConfig(name, problem=f"{where}.{problem}")


def _address(entry: JsonObject, environ: Mapping[str, str]) -> McpServer:
    for key in entry.repeated:
        raise Problem(f"{key}: it stands there twice")
    kind = entry.get("type")
    if "command" in entry:
        cwd = entry.get("cwd")
        args = entry.get("args", [])
        if not isinstance(args, list):
            raise Problem("args: must be a list of strings")
        command = expanded(entry["command"], "command", environ)
        if WHO in command:
            raise Problem("command: `${principal}` cannot say which program is run")
        return StdioServer(
            command=command,
            args=tuple(expanded(arg, f"args.{i}", environ) for i, arg in enumerate(cast("list[object]", args))),
            env=expanded_members(entry.get("env"), "env", environ),
            cwd=_folder(expanded(cwd, "cwd", environ)) if cwd else None,
        )
    if "url" in entry:
        url = expanded(entry["url"], "url", environ)
        if not re.match(r"https?://[^/\s]", url):
            raise Problem(f"url: `{entry['url']}` is no http or https address")  # as it stands: no secret filled in
        if WHO in re.split(r"[/?#]", url, maxsplit=3)[2]:
            raise Problem("url: `${principal}` cannot stand in the host, only in the path or the query")
        headers = expanded_members(entry.get("headers"), "headers", environ)
        return HttpServer(url, headers, transport=_http_transport(kind))
    near = ((nearest(wanted, entry), wanted) for wanted in ("command", "url"))
    meant = next((f"; `{key}` is not read (did you mean `{wanted}`?)" for key, wanted in near if key is not None), "")
    raise Problem(f"command: neither a `command` nor a `url` is given{meant}")


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # `~name` of nobody, or of a principal
        raise Problem(f"cwd: {str(error).rstrip('.')}") from error


def _http_transport(kind: object) -> Literal["streamable-http", "sse"]:
    match kind:
        case None | "http" | "streamable-http" | "streamableHttp" | "streamable_http":
            return "streamable-http"
        case "sse":
            return "sse"
        case _:
            raise Problem(f"type: `{kind}` is not one of http, streamable-http, sse, as a `url` needs")
