"""A tool definition as one JSON value in MCP's format, with a JSON Pointer for each place in it, and as bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import EXPANDED, ToolMetadata
from toolcrib.core.schema import pointer
from toolcrib.core.tools import Tool, ToolAnnotations


def definition_of(tool: Tool) -> dict[str, Any]:
    """Return everything that the source sent, all annotations, and the parts of `metadata` that a model reads."""
    sent = {key: value for key, value in tool.wire.items() if key not in {"input_schema", "output_schema"}}
    claims = _object(sent.get("annotations"))
    said = {key: text for key, text in tool.metadata.to_wire().items() if key in EXPANDED}
    if tool.annotations.title is not None:
        claims["title"] = tool.annotations.title
    definition = {
        **sent,
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {**claims, **tool.annotations.to_wire()},
        "metadata": {**_object(sent.get("metadata")), **said},
    }
    return {key: value for key, value in definition.items() if value is not None}


def _object(value: object) -> dict[str, Any]:
    return {**cast("Mapping[str, Any]", value)} if isinstance(value, Mapping) else {}


def texts_in(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every string in a JSON value with its place, a JSON Pointer. A key has the place of its value."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            yield pointer(place), part
        elif isinstance(part, Mapping):
            for key, below in cast("Mapping[str, Any]", part).items():
                yield pointer((*place, key)), key
                waiting.append(((*place, key), below))
        elif isinstance(part, list | tuple):
            waiting += [((*place, str(at)), below) for at, below in enumerate(cast("list[Any]", part))]


def written(tool: Tool) -> bytes:
    """Serialize all of `tool` except the name of its source, which the owner may change."""
    return json.dumps(
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "outputSchema": tool.output_schema,
            "annotations": {**tool.annotations.to_wire(), "title": tool.annotations.title},
            "metadata": tool.metadata.to_wire(),
            "path": tool.own_path,
            "wire": tool.wire,
        },
        default=dict,
    ).encode()


def read(source: str, body: bytes) -> Tool:
    """Read what `written` wrote, as a tool of `source`.

    Raises:
        ValueError: `body` is not a serialized definition.
    """
    try:
        kept: dict[str, Any] = json.loads(body)
        return Tool(
            source,
            kept["name"],
            kept["description"],
            kept["inputSchema"],
            kept["outputSchema"],
            title=kept["title"],
            annotations=ToolAnnotations.from_wire(kept["annotations"]),
            metadata=ToolMetadata.from_wire(kept["metadata"]),
            own_path=tuple(kept["path"]),
            wire=kept["wire"],
        )
    except (KeyError, TypeError, InvalidTool, RecursionError) as error:
        raise ValueError(f"not a tool definition: {error!r}") from error
