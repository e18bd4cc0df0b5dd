"""The tools that a fake editor offers: their descriptors in wire form, and their answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from acp import RequestError


@runtime_checkable
class _HasWire(Protocol):
    """A descriptor that can produce its wire form."""

    def to_wire(self) -> Mapping[str, Any]: ...


Offered: TypeAlias = Any
"""A descriptor with `to_wire()`, or its wire form, which is sent unchanged even if it is malformed."""

Answer: TypeAlias = Any | Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
"""What a tool returns, or a function of the arguments that returns it, possibly async.

A result in the form of MCP's `CallToolResult` is sent unchanged. A string becomes text, and any other JSON value
becomes structured content. An exception becomes an error result, but a `RequestError` becomes a JSON-RPC error.
"""


Preview: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a tool would change: `{"diffs": [...]}`, or a function of the arguments that returns this."""


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A call of one of the editor's own tools."""

    session_id: str
    name: str
    arguments: Mapping[str, Any]
    tool_call_id: str | None = None


def wire_of(tools: Iterable[Offered]) -> list[Any]:
    return [dict(tool.to_wire()) if isinstance(tool, _HasWire) else tool for tool in tools]


def names_of(catalog: Iterable[Any]) -> set[str]:
    """Return the names that can be called. Tools without a name are skipped."""
    named = (cast(Mapping[str, Any], tool).get("name") for tool in catalog if isinstance(tool, Mapping))
    return {name for name in named if isinstance(name, str)}


async def result_of(answer: Answer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result in wire form.

    Raises:
        RequestError: the answer itself raised it.
    """
    try:
        given = answer(arguments) if callable(answer) else answer
        return _result(await given if inspect.isawaitable(given) else given)
    except RequestError:
        raise
    except Exception as error:  # noqa: BLE001  # every error of a tool becomes a result
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def _result(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"content": [{"type": "text", "text": given}]}
    if isinstance(given, Mapping) and ("content" in given or "structuredContent" in given or "isError" in given):
        return {"content": [], **cast(Mapping[str, Any], given)}
    text = json.dumps(given)
    return {"content": [{"type": "text", "text": text}], "structuredContent": json.loads(text)}
