"""A whole definition as bytes that outlast the program, and back."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import Tool, ToolAnnotations


def written(tool: Tool) -> bytes:
    """All of `tool` but the name of its source, which its owner may change."""
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
    """What `written` wrote, as a tool of `source`.

    Raises:
        ValueError: it is something else.
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
        raise ValueError(f"no definition of a tool: {error!r}") from error
