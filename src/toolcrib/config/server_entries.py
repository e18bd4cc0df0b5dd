"""The servers of a configuration: how each is started or reached, what is wrong with it, and who gets an instance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast
from urllib.parse import quote

from toolcrib.config.inputs import Inputs
from toolcrib.config.json_document import JsonObject
from toolcrib.core.placeholders import WHO, Problem, Reference, expanded, expanded_members, references_in
from toolcrib.core.schema import nearest
from toolcrib.sources.limited import DEFAULT_CAPACITY, Capacity
from toolcrib.sources.mcp.server_spec import DEFAULT_PATIENCE, HttpServer, McpServer, Patience, StdioServer

Isolation = Literal["shared", "principal"]
"""Whether all principals share one server, or each principal gets a separate instance."""

EVERYONE_ELSE = "*"
"""The key for all principals that are not named."""

_FIT_TO_FILL_IN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
"""Ids that stay one word wherever they are filled in: they cannot start a different header, argument, option, folder
or parameter. Other ids are refused and not rewritten, because two principals must never get the same text."""

_FIT_FOR_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+|-]*")
"""Some issuers write `auth0|123`. In a URL, a percent-encoded `|` is harmless. In a shell, it would start a command."""


@dataclass(frozen=True, slots=True)
class Personal:
    """What one principal's instance gets in addition to the server's own settings. It takes precedence over those."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    problem: str | None = None
    """Why this principal cannot use the server, as in `ServerConfig`."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server of the file. Exactly one of `server` and `problem` is set, unless the server is `disabled`."""

    name: str
    """The name of the server's source."""
    server: McpServer | None = None
    problem: str | None = None
    """Why the server cannot be used: names the server and the key, without a full stop and without filled-in values."""
    disabled: bool = False
    """Disabled in the file. This is not an error, and the server is not in the catalog."""
    title: str | None = None
    summary: str = ""
    trusted: bool = False
    plain_names: bool = False
    patience: Patience = DEFAULT_PATIENCE
    capacity: Capacity = DEFAULT_CAPACITY
    isolation: Isolation = "shared"
    is_expressly_shared: bool = False
    """Whether the file sets `isolation` to `shared`, and does not only leave the key out."""
    shares_sign_in: bool = True
    """Whether all principals that share the server may use one sign-in. If people have tokens of their own for the
    gateway, the file must say so."""
    principals: Mapping[str, Personal] | None = None
    """Who has an isolated server, by id or `EVERYONE_ELSE`. None means everyone."""

    def of(self, principal_id: str) -> ServerConfig | None:
        """Return the server as this principal gets it, or None if the principal has no access.

        A shared server is the same for all principals. Two equal results are started or reached in the same way.
        """
        if self.isolation == "shared":
            return self
        principals = {EVERYONE_ELSE: Personal()} if self.principals is None else self.principals
        personal = principals.get(principal_id) or principals.get(EVERYONE_ELSE)
        if personal is None:
            return None
        if self.server is None:
            return replace(self, principals=None)
        try:
            return replace(self, principals=None, server=filled_in(self.server, personal, principal_id))
        except Problem as problem:
            return replace(self, principals=None, server=None, problem=str(problem))


def under_source_names(patterns: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return `patterns` of tool ids. For each that begins with a server's label, add one with the source's name.

    `names` maps labels to the names of sources.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        found[pattern] = None
        for label, name in names.items():
            if label != name and pattern.startswith(f"{label}."):
                found[f"{name}{pattern[len(label) :]}"] = None
    return tuple(found)


def read_server(name: str, entry: object, where: str, environ: Mapping[str, str], inputs: Inputs) -> ServerConfig:
    """Read the server from `entry`. An error becomes its `problem`, which begins with `where`."""
    if not isinstance(entry, JsonObject):
        return ServerConfig(name, problem=f"{where}: must be an object")
    disabled = entry.get("disabled", False)
    if disabled is True or entry.get("enabled") is False:
        return ServerConfig(name, disabled=True)
    if disabled is not False:  # any value except `false` was probably meant to disable the server
        return ServerConfig(name, problem=f"{where}.disabled: must be true or false")
    if (misplaced := next((key for key in ("isolation", "principals") if key in entry), None)) is not None:
        return ServerConfig(name, problem=f"{where}.{misplaced}: move this key under `toolcrib.sources.{name}`")
    try:
        return ServerConfig(name, server=_address(entry, environ, inputs))
    except Problem as problem:
        return ServerConfig(name, problem=f"{where}.{problem}")


def _address(entry: JsonObject, environ: Mapping[str, str], inputs: Inputs) -> McpServer:
    def check_visible(reference: Reference) -> str:
        if reference.kind != "input":  # VS Code fills in inputs here, so files with them must work
            return "is not allowed here, because other users of this machine can read command lines. Use `env`"
        return inputs.wrong_with(reference)

    check = inputs.wrong_with
    for key in entry.repeated:
        raise Problem(f"{key}: duplicate key")
    kind = entry.get("type")
    if "command" in entry:
        cwd = entry.get("cwd")
        args = entry.get("args", [])
        if not isinstance(args, list):
            raise Problem("args: must be a list of strings")
        command = expanded(entry["command"], "command", environ, check_visible)
        if WHO in command:
            raise Problem("command: `${principal}` is not allowed in the name of the program")
        env_file = entry.get("envFile")
        return StdioServer(
            command=command,
            args=tuple(
                expanded(arg, f"args.{i}", environ, check_visible) for i, arg in enumerate(cast("list[object]", args))
            ),
            env=expanded_members(entry.get("env"), "env", environ, check),
            cwd=_folder(expanded(cwd, "cwd", environ, check_visible)) if cwd else None,
            env_file=expanded(env_file, "envFile", environ, check_visible) if env_file else None,
        )
    if "url" in entry:
        url = expanded(entry["url"], "url", environ, check)
        if not re.match(r"https?://[^/\s]", url) and not (references_in(url) and url.startswith("${")):
            raise Problem(f"url: `{entry['url']}` is not an http or https URL")  # before filling in, so without secrets
        if any(WHO in part for part in re.split(r"[/?#]", url, maxsplit=3)[2:3]):
            raise Problem("url: `${principal}` is only allowed in the path or the query, not in the host")
        headers = expanded_members(entry.get("headers"), "headers", environ, check)
        return HttpServer(url, headers, transport=_http_transport(kind))
    near = ((nearest(wanted, entry), wanted) for wanted in ("command", "url"))
    meant = next((f"; unknown key `{key}` (did you mean `{wanted}`?)" for key, wanted in near if key is not None), "")
    raise Problem(f"command: the server needs either `command` or `url`{meant}")


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # `~name`, and there is no such user, or the name is a principal's
        raise Problem(f"cwd: {str(error).rstrip('.')}") from error


def _http_transport(kind: object) -> Literal["streamable-http", "sse"]:
    match kind:
        case None | "http" | "streamable-http" | "streamableHttp" | "streamable_http":
            return "streamable-http"
        case "sse":
            return "sse"
        case _:
            raise Problem(f"type: `{kind}` is not a transport for a `url`; use http, streamable-http or sse")


def filled_in(server: McpServer, personal: Personal, principal_id: str) -> McpServer:
    """Return `server` with the credentials and the id of one principal filled in.

    Raises:
        Problem: the credentials are invalid, or the id cannot be filled in safely.
    """
    if personal.problem is not None:
        raise Problem(personal.problem)
    if isinstance(server, HttpServer):
        own = {name.lower() for name in personal.headers}
        headers = {name: value for name, value in server.headers.items() if name.lower() not in own}
        return replace(
            server,
            url=_address_with_id(server.url, principal_id),
            headers=_each_with_id({**headers, **personal.headers}, principal_id),
        )
    cwd = server.cwd
    return replace(
        server,
        args=tuple(_with_id(arg, principal_id) for arg in server.args),
        env=_each_with_id({**server.env, **personal.env}, principal_id),
        cwd=None if cwd is None else Path(_with_id(str(cwd), principal_id)),
    )


def _each_with_id(texts: Mapping[str, str], principal_id: str) -> Mapping[str, str]:
    return {name: _with_id(text, principal_id) for name, text in texts.items()}


def _with_id(text: str, principal_id: str) -> str:
    if WHO in text and not _FIT_TO_FILL_IN.fullmatch(principal_id):
        raise _unfit("_.@+-", "; a `|` is only allowed in a `url`" if "|" in principal_id else "")
    return text.replace(WHO, principal_id)


def _address_with_id(url: str, principal_id: str) -> str:
    if WHO in url and not _FIT_FOR_ADDRESS.fullmatch(principal_id):
        raise _unfit("_.@+|-")
    return url.replace(WHO, quote(principal_id, safe=""))


def _unfit(marks: str, more: str = "") -> Problem:
    return Problem(
        f"the id of this principal cannot be filled in for `${{principal}}`: it may contain letters, digits and "
        f"`{marks}`, and must begin with a letter, a digit or `_`{more}"
    )
