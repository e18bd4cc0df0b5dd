"""Declared tools for tests, and the programs that they run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from toolcrib.core.principal import LOCAL_CONTEXT
from toolcrib.core.results import ToolResult
from toolcrib.sources.declared.declared_source import DeclaredSource
from toolcrib.sources.declared.definition import DeclaredTool, DeclaredTools, read_declared

ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
"""A program that prints its arguments."""


def properties(**kinds: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return an object schema with these optional properties, each given as a type or a schema."""
    return {
        "type": "object",
        "properties": {name: {"type": kind} if isinstance(kind, str) else dict(kind) for name, kind in kinds.items()},
    }


def declared(wire: Mapping[str, Any], name: str = "tool") -> DeclaredTool:
    return read_declared("ops", name, {"description": "Does it.", **wire})


def source_of(*wires: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> DeclaredSource:
    """Return a source with tools named `tool`, `tool2`, ..."""
    tools = tuple(declared(wire, f"tool{number}" if number > 1 else "tool") for number, wire in enumerate(wires, 1))
    offered = DeclaredTools("ops", tools=tools)
    return DeclaredSource(offered) if environ is None else DeclaredSource(offered, environ)


async def call(wire: Mapping[str, Any], /, **arguments: Any) -> ToolResult:
    return await call_of(source_of(wire), **arguments)


async def call_of(source: DeclaredSource, /, **arguments: Any) -> ToolResult:
    return await source.call_tool(source.listing.tools[0], arguments, LOCAL_CONTEXT)


def python(code: str, *elements: Any, **more: Any) -> dict[str, Any]:
    """Return a command that runs `code`; the braces of `code` are escaped for the template."""
    return {"command": [sys.executable, "-c", code.replace("{", "{{").replace("}", "}}"), *elements], **more}


async def argv(elements: list[Any], schema: Mapping[str, Any], /, **arguments: Any) -> list[str]:
    """Return the arguments that a real program receives."""
    more = {key: value for key, value in {"input_schema": schema}.items() if value}
    result = await call(python(ECHO, *elements, **more), **arguments)
    assert not result.is_error, result.text
    return json.loads(result.text)
