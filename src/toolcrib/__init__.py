"""One registry for all of an agent's tools, and a counter that hands out only what the moment needs.

`import toolcrib` is quick: each name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.version import VERSION as __version__

if TYPE_CHECKING:
    from toolcrib.core.errors import ToolcribError
    from toolcrib.core.principal import CallContext, Principal
    from toolcrib.core.results import ToolResult
    from toolcrib.core.tools import Optionality, Tool, ToolAnnotations, ToolExample, ToolMetadata, ToolPointer
    from toolcrib.crib import Toolcrib

__all__ = [
    "CallContext",
    "Optionality",
    "Principal",
    "Tool",
    "ToolAnnotations",
    "ToolExample",
    "ToolMetadata",
    "ToolPointer",
    "ToolResult",
    "Toolcrib",
    "ToolcribError",
    "__version__",
]

_HOMES = {
    "CallContext": "toolcrib.core.principal",
    "Optionality": "toolcrib.core.tools",
    "Principal": "toolcrib.core.principal",
    "Tool": "toolcrib.core.tools",
    "ToolAnnotations": "toolcrib.core.tools",
    "ToolExample": "toolcrib.core.tools",
    "ToolMetadata": "toolcrib.core.tools",
    "ToolPointer": "toolcrib.core.tools",
    "ToolResult": "toolcrib.core.results",
    "Toolcrib": "toolcrib.crib",
    "ToolcribError": "toolcrib.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
