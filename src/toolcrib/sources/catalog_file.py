"""Reads tool definitions from a file, without a server behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, cast

import anyio
import orjson

from toolcrib.core.errors import InvalidConfig, InvalidTool, SourceUnavailable
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import EMPTY_SCHEMA, Tool
from toolcrib.sources.base import Listing, ProgressListener, SetAside, server_summary, source_name
from toolcrib.sources.tool_definitions import label, read_definition, read_definitions

_HINTS = (
    "It can contain a list of MCP tool definitions, or an object with such a list under `tools`, as from `tools/list`.",
    "It can contain one such object for each server.",
    "It can contain one object per line with `id`, `name`, `description`, `category`, `input_schema` and `server`.",
)


class CatalogFileSource:
    """The definitions of one server. They can be searched and shown, but not called."""

    def __init__(self, name: str, listing: Listing, *, row_ids: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._listing = listing
        self.row_ids: Mapping[str, str] = MappingProxyType(dict(row_ids or {}))
        """Maps the ids of the file's rows to tool ids. Empty if the file has no rows."""

    @property
    def name(self) -> str:
        return self._name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return

    async def list_tools(self) -> Listing:
        return self._listing

    async def call_tool(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        progress: ProgressListener | None = None,
    ) -> ToolResult:
        """Refuse the call, because no server is behind the definition.

        Raises:
            SourceUnavailable: always.
        """
        raise SourceUnavailable(
            f"`{tool.id}` cannot be called: its definition was read from a file, without a server",
            hints=("To call its tools, add the server itself to the configuration.",),
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yield nothing, because the file is read only once."""
        await anyio.sleep_forever()
        yield


def load_catalog_file(path: str | Path) -> tuple[CatalogFileSource, ...]:
    """Read a file of tool definitions; its format is recognized by its content.

    - An object of servers by name, each with `tools` and optionally `server_info` and `instructions`: one source for
      each server.
    - A list of MCP tool definitions, or the `tools/list` result that contains one: one source, named after the file.
    - JSON Lines with one row `{id, name, description, category, input_schema, server}` for each tool: one source for
      each server, and one named after the file for rows without a server. If a name is taken, the tool gets its row's
      id as its name.

    If the file is called `tools`, the source is named after its folder. An invalid definition is ignored, with the
    reason and, in JSON Lines, the line number. The other definitions remain.

    Raises:
        InvalidConfig: the file cannot be read, is not valid JSON, or contains no definitions in any of these formats.
    """
    path = Path(path)
    text = _read(path)
    names = _Names(path)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        # Decided by the first line: in the middle of a broken document, single lines may look like rows.
        is_rows = path.suffix in (".jsonl", ".ndjson") or _is_row(next(iter(text.lstrip().splitlines()), b""))
        sources = _read_rows(text, names) if is_rows else ()
        if not sources:
            raise InvalidConfig(
                f"{path}, line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}", hints=_HINTS
            ) from error
        return sources
    if isinstance(document, list):
        return (_read_list(cast("list[object]", document), names),)
    entries = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if isinstance(entries.get("result"), dict):
        entries = cast("dict[str, Any]", entries["result"])  # unwrap a JSON-RPC response
    if _is_server(entries):
        return (_read_list(entries["tools"], names),)
    if isinstance(entries.get("name"), str):
        return _read_rows(text, names)
    if any(_is_server(entry) for entry in entries.values()):
        return tuple(_read_server(key, entry, names) for key, entry in entries.items())
    raise InvalidConfig(f"{path} contains no tool definitions", hints=_HINTS)


def _read(path: Path) -> bytes:
    """Return the file's content as UTF-8, without a byte order mark."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from error
    try:
        text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise InvalidConfig(f"{path}, line {line}, column {column}: not valid UTF-8") from error
    return text.removeprefix(b"\xef\xbb\xbf")


class _Names:
    """Gives each source of one file a unique name."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._given: set[str] = set()

    def of_file(self) -> str:
        stem = self._path.name.split(".")[0]
        return self.of(self._path.parent.name if stem == "tools" else stem)

    def of(self, called: str) -> str:
        name = stem = _source_name(called) or _source_name(self._path.stem) or "catalog"
        count = 1
        while name in self._given:
            count += 1
            name = f"{stem}-{count}"
        self._given.add(name)
        return name


def _source_name(called: str) -> str | None:
    try:
        return source_name(called)
    except InvalidTool:
        return None


def _is_server(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(cast("dict[str, Any]", entry).get("tools"), list)


def _read_list(wires: list[object], names: _Names) -> CatalogFileSource:
    name = names.of_file()
    tools, set_aside = read_definitions(name, wires)
    return CatalogFileSource(name, Listing(tools, set_aside=set_aside))


def _read_server(key: str, entry: Any, names: _Names) -> CatalogFileSource:
    name = names.of(key)
    if not _is_server(entry):
        return CatalogFileSource(name, Listing((), set_aside=(SetAside(key, "it has no list under `tools`"),)))
    tools, set_aside = read_definitions(name, entry["tools"])
    info: dict[str, Any] = entry["server_info"] if isinstance(entry.get("server_info"), dict) else {}
    title = _text(info.get("title")) or _text(info.get("name"))
    summary = server_summary(_text(entry.get("instructions")), _text(info.get("description")))
    return CatalogFileSource(name, Listing(tools, title=title, summary=summary, set_aside=set_aside))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


@dataclass
class _Rows:
    """Collects the rows of one server."""

    name: str
    title: str | None
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    row_ids: dict[str, str] = field(default_factory=dict[str, str])
    set_aside: list[SetAside] = field(default_factory=list[SetAside])

    def take(self, row: Mapping[str, Any]) -> None:
        row_id = row.get("id")
        name = row.get("name")
        if isinstance(row_id, str) and row_id in self.row_ids:
            raise InvalidTool("an earlier row has the same id")
        if isinstance(name, str) and name in self.tools and isinstance(row_id, str):
            name = row_id
        wire = {key: value for key, value in row.items() if key not in _ROW_KEYS}
        wire |= {"name": name, "inputSchema": EMPTY_SCHEMA if (schema := row.get("input_schema")) is None else schema}
        tool = replace(read_definition(self.name, wire), own_path=_category(row.get("category")))
        if tool.name in self.tools:
            raise InvalidTool("an earlier row has the same name")
        self.tools[tool.name] = tool
        if isinstance(row_id, str):
            self.row_ids[row_id] = tool.id

    def source(self) -> CatalogFileSource:
        listing = Listing(tuple(self.tools.values()), title=self.title, set_aside=tuple(self.set_aside))
        return CatalogFileSource(self.name, listing, row_ids=self.row_ids)


_ROW_KEYS = frozenset({"id", "category", "input_schema", "server"})


def _read_rows(text: bytes, names: _Names) -> tuple[CatalogFileSource, ...]:
    """Return one source per server of the rows in `text`, in order of appearance; empty if no line is an object."""
    servers: dict[str | None, _Rows] = {}
    set_aside: list[SetAside] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        rows: _Rows | None = None
        row: object = None
        try:
            row = _row(line)
            server = _server(row)
            rows = servers.get(server)
            if rows is None:
                rows = _Rows(names.of_file() if server is None else names.of(server), server)
                servers[server] = rows
            rows.take(row)
        except InvalidTool as error:
            aside = SetAside(label(row) or f"line {number}", f"line {number}: {error.message}")
            (set_aside if rows is None else rows.set_aside).append(aside)
    if servers and set_aside:  # lines without a server, and lines that cannot be read
        if None not in servers:
            servers[None] = _Rows(names.of_file(), None)
        servers[None].set_aside.extend(set_aside)
    return tuple(rows.source() for rows in servers.values())


def _is_row(line: bytes) -> bool:
    try:
        return bool(_row(line))
    except InvalidTool:
        return False


def _row(line: bytes) -> Mapping[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InvalidTool(f"it is not valid JSON: {error.msg} (column {error.colno})") from error
    if not isinstance(row, dict):
        raise InvalidTool("it is not an object")
    return cast("dict[str, Any]", row)


def _server(row: Mapping[str, Any]) -> str | None:
    server = row.get("server")
    if server is not None and not isinstance(server, str):
        raise InvalidTool("its `server` is not a string")
    return server or None


def _category(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    names = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidTool("its category is not a list of strings")
    return tuple(cast("list[str]", names))
