"""One registry for all of an agent's tools, and a counter that hands out only what the moment needs.

`import toolcrib` is quick: each name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.version import VERSION as __version__

if TYPE_CHECKING:
    from toolcrib.catalog.access import Access, Permissions, Policy, Rule, Rules, Subject
    from toolcrib.catalog.categories import Category
    from toolcrib.core.errors import ToolcribError
    from toolcrib.core.events import OperationPerformed, Recorder
    from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
    from toolcrib.core.principal import CallContext, Principal
    from toolcrib.core.results import ToolResult
    from toolcrib.core.tools import Tool, ToolAnnotations, ToolPointer
    from toolcrib.crib import Toolcrib
    from toolcrib.disclosure.messages import DetailLevel

__all__ = [
    "Access",
    "CallContext",
    "Category",
    "DetailLevel",
    "OperationPerformed",
    "Optionality",
    "Permissions",
    "Policy",
    "Principal",
    "Recorder",
    "Rule",
    "Rules",
    "Subject",
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
    "Access": "toolcrib.catalog.access",
    "CallContext": "toolcrib.core.principal",
    "Category": "toolcrib.catalog.categories",
    "DetailLevel": "toolcrib.disclosure.messages",
    "OperationPerformed": "toolcrib.core.events",
    "Optionality": "toolcrib.core.metadata",
    "Permissions": "toolcrib.catalog.access",
    "Policy": "toolcrib.catalog.access",
    "Principal": "toolcrib.core.principal",
    "Recorder": "toolcrib.core.events",
    "Rule": "toolcrib.catalog.access",
    "Rules": "toolcrib.catalog.access",
    "Subject": "toolcrib.catalog.access",
    "Tool": "toolcrib.core.tools",
    "ToolAnnotations": "toolcrib.core.tools",
    "ToolExample": "toolcrib.core.metadata",
    "ToolMetadata": "toolcrib.core.metadata",
    "ToolPointer": "toolcrib.core.tools",
    "ToolResult": "toolcrib.core.results",
    "Toolcrib": "toolcrib.crib",
    "ToolcribError": "toolcrib.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
