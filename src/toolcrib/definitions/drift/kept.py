"""Serializes a whole tool definition to bytes, and reads it back."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.tools import Tool, ToolAnnotations


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
