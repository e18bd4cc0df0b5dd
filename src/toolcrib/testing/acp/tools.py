"""The tools that a fake editor offers: their descriptors on the wire, and what they answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from acp import RequestError


@runtime_checkable
class HasWire(Protocol):
    """A descriptor that knows its form on the wire."""

    def to_wire(self) -> Mapping[str, Any]: ...


Offered: TypeAlias = Any
"""A descriptor: something with `to_wire()`, or what stands on the wire for it, sent as it is, malformed or not."""

Answer: TypeAlias = Any | Callable[[Mapping[str, Any]], Any | Awaitable[Any]]
"""What a tool gives: a result in the form of MCP's `CallToolResult`, a text, any other JSON value as structured
content; or a function of the arguments that gives one of these, also later. What it raises is a result that is an
error; a `RequestError` is the answer of JSON-RPC instead."""


Preview: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a tool would change: `{"diffs": [...]}`, or a function of the arguments that gives this."""


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A call of an editor's own tool, as it came."""

    session_id: str
    name: str
    arguments: Mapping[str, Any]
    tool_call_id: str | None = None


def wire_of(tools: Iterable[Offered]) -> list[Any]:
    return [dict(tool.to_wire()) if isinstance(tool, HasWire) else tool for tool in tools]


def names_of(catalog: Iterable[Any]) -> set[str]:
    """The names that can be called; what has none is passed over."""
    named = (cast(Mapping[str, Any], tool).get("name") for tool in catalog if isinstance(tool, Mapping))
    return {name for name in named if isinstance(name, str)}


async def result_of(answer: Answer, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A result as it goes over the wire.

    Raises:
        RequestError: the answer's own.
    """
    try:
        given = answer(arguments) if callable(answer) else answer
        return _result(await given if inspect.isawaitable(given) else given)
    except RequestError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a tool raises, its caller is told
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}


def _result(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"content": [{"type": "text", "text": given}]}
    if isinstance(given, Mapping) and ("content" in given or "structuredContent" in given or "isError" in given):
        return {"content": [], **cast(Mapping[str, Any], given)}
    text = json.dumps(given)
    return {"content": [{"type": "text", "text": text}], "structuredContent": json.loads(text)}
