"""The sources for the MCP servers that an editor passes when it opens a session.

Source: ACP v1, `session/new`, `mcpServers`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.core.client import NO_CLIENT, Client
from toolcrib.core.digests import digest
from toolcrib.core.errors import ToolFailed
from toolcrib.crib.configured_servers import shown
from toolcrib.sources.base import UnavailableSource, free_name, source_name
from toolcrib.sources.limited import LimitedSource
from toolcrib.sources.mcp.server_spec import (
    DEFAULT_PATIENCE,
    AnyServer,
    CarriedServer,
    HttpServer,
    Patience,
    StdioServer,
    identity,
)

if TYPE_CHECKING:
    from toolcrib.sources.mcp.carrier import Carrier

UNNAMED = "server"
"""The name of a source whose label contains no letter or digit."""


class _Unfit(Exception):
    """Says why an entry does not describe a server: one sentence without a full stop and without possible secrets."""


def passed_servers(
    passed: Iterable[object],
    *,
    cwd: Path,
    carrier: Carrier,
    taken: Collection[str] = (),
    patience: Patience = DEFAULT_PATIENCE,
    client: Callable[[], Client] = lambda: NO_CLIENT,
) -> tuple[SourceEntry, ...]:
    """Return one entry for each element of `passed`, in order.

    Elements that do not describe a server become failed entries. Programs run in `cwd`. Servers inside the editor are
    reached through `carrier`. Each source gets a unique name that is not in `taken`. A server that sends a request
    outside a call sends it to `client`.
    """
    entries: list[SourceEntry] = []
    used = {*taken}
    for one in passed:
        wire: Mapping[str, Any] = cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {}
        label = str(wire["name"]) if isinstance(wire.get("name"), str) else ""
        name = free_name(source_name(label) if re.search(r"\w", label) else UNNAMED, used)
        used.add(name)
        try:
            entries.append(_entry(name, label, _server(wire, cwd, carrier), patience, client))
        except _Unfit as unfit:
            entries.append(_failed(name, label, f"The client passed an invalid server: {unfit}."))
    return tuple(entries)


def _entry(name: str, label: str, server: AnyServer, patience: Patience, client: Callable[[], Client]) -> SourceEntry:
    from toolcrib.sources.mcp.mcp_source import McpSource  # noqa: PLC0415  the SDK takes half a second to import

    known_by = digest(identity(server))
    return SourceEntry(
        LimitedSource(McpSource(name, server, patience=patience, client=client)),
        title=label or None,
        identity=known_by,
        origin=known_by,
        address=f"acp:{name}" if isinstance(server, CarriedServer) else shown(server),
    )


def _failed(name: str, label: str, reason: str) -> SourceEntry:
    return SourceEntry(
        UnavailableSource(name, reason),
        status=SourceStatus.FAILED,
        title=label or None,
        reason=reason,
        is_lasting=True,
    )


def _server(wire: Mapping[str, Any], cwd: Path, carrier: Carrier) -> AnyServer:
    match wire.get("type", "stdio"):
        case "stdio":
            args = _list(wire, "args")
            if not all(isinstance(arg, str) for arg in args):
                raise _Unfit("`args` must be a list of strings")
            return StdioServer(_text(wire, "command"), tuple(map(str, args)), _pairs(wire, "env"), cwd)
        case "http" | "sse" as kind:
            url = _text(wire, "url")
            if not re.match(r"https?://[^/\s]", url):
                raise _Unfit("`url` must be an http or https URL")
            transport = "sse" if kind == "sse" else "streamable-http"
            return HttpServer(url, _pairs(wire, "headers"), transport=transport)
        case "acp":
            return CarriedServer(_text(wire, "serverId"), carrier)
        case str() as kind:
            raise _Unfit(f"`type` must be one of stdio, http, sse, acp, not `{kind[:40]}`")
        case _:
            raise _Unfit("`type` must be a string")


def _text(wire: Mapping[str, Any], key: str) -> str:
    value = wire.get(key)
    if not isinstance(value, str) or not value:
        raise _Unfit(f"`{key}` is missing or not a string")
    return value


def _pairs(wire: Mapping[str, Any], key: str) -> dict[str, str]:
    """Read a list of name and value objects, which ACP uses instead of one JSON object."""
    pairs: dict[str, str] = {}
    for pair in _list(wire, key):
        match pair:
            case {"name": str() as name, "value": str() as value}:
                pairs[name] = value
            case _:
                raise _Unfit(f"`{key}` must be a list of objects with `name` and `value`")
    return pairs


def _list(wire: Mapping[str, Any], key: str) -> list[object]:
    """Read the list under `key`. A missing key counts as an empty list."""
    listed = wire.get(key)
    if listed is not None and not isinstance(listed, list):
        raise _Unfit(f"`{key}` must be a list")
    return cast("list[object]", listed or [])


class SessionRoots:
    """Implements `toolcrib.core.client.Client`.

    It answers `roots/list` with the folders of a session, and nothing else.
    """

    capabilities: Mapping[str, Any] = {"roots": {}}
    log_level: str | None = None

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if method != "roots/list":
            raise ToolFailed("An editor's session only answers `roots/list`.")
        return {"roots": [{"uri": folder.as_uri(), "name": folder.name} for folder in self._folders]}

    def log(self, params: Mapping[str, Any]) -> None:
        """Discard the message. Editors do not show logs of MCP servers."""
