"""Makes the request and the answer of each operation that `protocol.md` shows, with a real crib."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import anyio

from toolcrib import Category, Toolcrib, ToolMetadata
from toolcrib.core.errors import ToolcribError
from toolcrib.core.principal import CallContext
from toolcrib.core.tools import ToolAnnotations
from toolcrib.sources.functions import FunctionSource
from toolcrib.surfaces.http.problems import MEDIA_TYPE, problem_of

Json = Mapping[str, Any]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

WIDTH = 110
"""The maximum width of a line of JSON. A value that fits stays on one line."""

EXCHANGES: tuple[tuple[str, Json], ...] = (
    ("list", {"path": ["Storage"]}),
    ("list_categories", {}),
    ("search_tools", {"query": "rename a symbol", "limit": 5}),
    (
        "search_tool_by_category",
        {"query": "upload a file to a bucket", "category_path": ["Storage"], "limit": 5, "cursor": None},
    ),
    ("search_nodes", {"query": "rename a symbol across the codebase", "limit": 5}),
    ("expand_tool", {"tool_id": "storage.list_buckets"}),
    ("call_tool", {"tool_id": "HANDLE", "arguments": {"prefix": "inv"}}),
    ("call_read_only_tool", {"tool_id": "HANDLE", "arguments": {"prefix": "inv"}}),
)
"""`HANDLE` is replaced by the handle of the expansion."""

MISTAKE: tuple[str, Json] = ("call_tool", {"tool_id": "HANDLE", "arguments": {"prefx": "inv"}})

READS = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)


def list_buckets(prefix: str = "") -> list[str]:
    """List the buckets of this account, by name.

    Args:
        prefix: Only buckets whose name begins with it.
    """
    return [name for name in ("invoices", "photos") if name.startswith(prefix)]


def put_object(bucket: str, key: str, content: str) -> None:
    """Upload an object to a bucket."""


def rename_symbol(project_root: str, symbol: str, new_name: str) -> int:
    """Rename a symbol across a project and update references."""
    return len({project_root, symbol, new_name})


def catalog() -> Toolcrib:
    """Returns a crib with three tools of two trusted sources, in categories."""
    storage, refactor = FunctionSource("storage"), FunctionSource("refactor")
    storage.add(list_buckets, metadata=ToolMetadata(tags=("storage",)), annotations=READS)
    storage.add(put_object, metadata=ToolMetadata(tags=("storage", "upload")))
    refactor.add(rename_symbol, metadata=ToolMetadata(tags=("refactor",)))
    crib = Toolcrib()
    crib.add_source(storage, trusted=True)
    crib.add_source(refactor, trusted=True)
    crib.add_category(Category(("Storage",), summary="Files and objects", tools=("storage.*",)))
    crib.add_category(Category(("Coding",), summary="Read and change source code"))
    crib.add_category(
        Category(("Coding", "Refactoring"), summary="Change code, not what it does", tools=("refactor.*",))
    )
    return crib


def asked() -> list[tuple[str, Json, Json]]:
    """Returns each operation with arguments and answer. The last two are the mistake over MCP and HTTP."""

    async def main() -> list[tuple[str, Json, Json]]:
        done: list[tuple[str, Json, Json]] = []
        crib, handle = catalog(), ""
        context = CallContext(trace_id=TRACE)
        async with crib:
            await crib.ready()
            for operation, arguments in EXCHANGES:
                request = _with_handle(arguments, handle)
                answer = (await crib.perform(operation, request, context=context)).to_wire()
                handle = cast("str", answer.get("handle", handle))
                done.append((operation, request, answer))
            operation, arguments = MISTAKE
            request = _with_handle(arguments, handle)
            try:
                await crib.perform(operation, request, context=context)
            except ToolcribError as error:
                done += [(operation, request, error.to_wire()), (operation, request, problem_of(error)[1])]
        return done

    return anyio.run(main)


def exchanges() -> str:
    """Returns the operations as Markdown."""
    return "\n\n".join(_shown(*exchange) for exchange in asked()[:-2])


def mistake() -> str:
    """Returns an error in both forms as Markdown."""
    (operation, request, error), (_, _, problem) = asked()[-2:]
    parts = [
        f"`{operation}`, with a misspelt argument:",
        _block(request),
        "Over MCP and in Python:",
        _block(error),
        f"Over HTTP, with status {problem['status']} and `Content-Type: {MEDIA_TYPE}`:",
        _block(problem),
    ]
    return "\n\n".join(parts)


def _with_handle(arguments: Json, handle: str) -> dict[str, Any]:
    return {key: handle if value == "HANDLE" else value for key, value in arguments.items()}


def _shown(operation: str, request: Json, answer: Json) -> str:
    return f"### {operation}\n\n{_block(request)}\n\n{_block(answer)}"


def _block(value: Json) -> str:
    return f"```json\n{pretty(value)}\n```"


def pretty(value: object, indent: int = 0) -> str:
    """Formats JSON in lines of at most `WIDTH` columns. Only a long string makes a line longer."""
    flat = json.dumps(value, ensure_ascii=False)
    if indent + len(flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inside = indent + 2
    lines = ",\n".join(f"{' ' * inside}{line}" for line in _lines(cast("Json | list[object]", value), inside))
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{lines}\n{' ' * indent}{last}"


def _lines(value: Json | list[object], indent: int) -> Iterator[str]:
    if isinstance(value, list):
        yield from (pretty(item, indent) for item in value)
    else:
        yield from (f"{json.dumps(key)}: {pretty(item, indent)}" for key, item in value.items())
