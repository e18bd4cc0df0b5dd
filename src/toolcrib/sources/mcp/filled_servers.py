"""Fills stored values into a server at the moment when it starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolcrib.core.placeholders import Problem, Reference, references_in, with_values
from toolcrib.secrets.secret_values import SecretValues
from toolcrib.sources.mcp.server_spec import AnyServer, HttpServer, McpServer, texts_of

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that would end a header or a URL, and begin something else."""


@dataclass(frozen=True, slots=True)
class FilledServer:
    """A server that can be started. It contains secrets, so it exists only as long as the connection."""

    server: AnyServer = field(repr=False)
    values: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The values that were filled in, by their placeholders."""


Fill = Callable[[], FilledServer]
"""Returns a server with its stored values. It may block, and raises `Problem` if a value is missing."""


def fill_for(server: McpServer, values: SecretValues, workspace: Path) -> Fill | None:
    """Return a function that fills values into `server`, or None if there is nothing to fill in.

    `workspace` is the folder where a relative `envFile` starts.
    """
    has_file = not isinstance(server, HttpServer) and server.env_file is not None
    if not has_file and not any(map(references_in, texts_of(server))):
        return None
    return lambda: _filled(server, values, workspace)


def _filled(server: McpServer, values: SecretValues, workspace: Path) -> FilledServer:
    """Return `server` with all values.

    Raises:
        Problem: a value is missing, or does not fit its place.
    """
    found: dict[str, str] = {}

    def value_of(reference: Reference) -> str:
        if (known := found.get(str(reference))) is None:
            known = found[str(reference)] = values.value_of(reference)
        return known

    def fill(text: str, where: str) -> str:
        try:
            return with_values(text, value_of)
        except Problem as problem:
            raise Problem(f"{where}: {problem}", remedy=problem.remedy) from problem

    def fill_line(text: str, where: str) -> str:
        line = fill(text, where)
        if line != text and _CONTROL.search(line):
            raise Problem(f"{where}: a value that is filled in must not contain a line end or a control character")
        return line

    if isinstance(server, HttpServer):
        url = fill_line(server.url, "url")
        if not re.match(r"https?://[^/\s]", url):
            raise Problem(f"url: `{server.url}` is not an http or https URL after its values are filled in")
        headers = {name: fill_line(value, f"headers.{name}") for name, value in server.headers.items()}
        return FilledServer(replace(server, url=url, headers=headers), found)
    file = {}
    if server.env_file is not None:
        try:
            file = values.variables_in(fill(server.env_file, "envFile"), workspace)
        except Problem as problem:
            raise Problem(f"envFile: {problem}", remedy=problem.remedy) from problem
    ready = replace(
        server,
        command=fill(server.command, "command"),
        args=tuple(fill(each, f"args.{position}") for position, each in enumerate(server.args)),
        env={**file, **{name: fill(value, f"env.{name}") for name, value in server.env.items()}},
        cwd=None if server.cwd is None else Path(fill(str(server.cwd), "cwd")).expanduser(),
        env_file=None,
    )
    return FilledServer(ready, found)
