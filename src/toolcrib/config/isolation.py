"""Reads the settings of isolated servers: which principals have an instance, and with which credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from toolcrib.config.settings import Settings
from toolcrib.core.placeholders import WHO, Problem, expanded_members, for_each_principal
from toolcrib.sources.mcp.server_spec import HttpServer, McpServer

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


def read_principals(
    settings: Settings, server: McpServer | None, environ: Mapping[str, str]
) -> Mapping[str, Personal] | None:
    """Read the principals of an isolated server, by id. Returns None if the key is missing.

    An error in the credentials of one principal becomes its `problem`, and does not affect the others.

    Raises:
        InvalidConfig: the table has an invalid form.
    """
    if "principals" not in settings:
        return None
    principals = settings.settings("principals")
    principals.only(principals)
    return {each: _personal(principals.settings(each), server, for_each_principal(environ)) for each in principals}


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


def _personal(settings: Settings, server: McpServer | None, environ: Mapping[str, str]) -> Personal:
    settings.only(("headers", "env"))
    if server is not None:
        needed, useless = ("headers", "env") if isinstance(server, HttpServer) else ("env", "headers")
        if useless in settings:
            return Personal(problem=f"{settings.at(useless)}: this server takes its credentials as `{needed}`")
    try:
        return Personal(
            env=expanded_members(settings.values.get("env"), settings.at("env"), environ),
            headers=expanded_members(settings.values.get("headers"), settings.at("headers"), environ),
        )
    except Problem as problem:
        return Personal(problem=str(problem))


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
