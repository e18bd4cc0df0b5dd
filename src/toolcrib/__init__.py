"""A gateway to all tools of an agent: agents search for tools, expand them and call them.

`import toolcrib` is fast, because each name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.version import VERSION as __version__

if TYPE_CHECKING:
    from toolcrib.adapters import get_adapter
    from toolcrib.agent.loop.config import InnerLoopConfig
    from toolcrib.agent.loop.main import MainLoop
    from toolcrib.agent.loop.provider import Delivery, PromptResponse, ProviderAdapter, VisibilityExpansionRequired
    from toolcrib.agent.sections import (
        CatalogSection,
        MarkdownSection,
        Prompt,
        PromptTemplate,
        SectionState,
        SectionVisibility,
        SetVisibilityOverride,
        ToolsInjected,
    )
    from toolcrib.agent.session import Session
    from toolcrib.catalog.access import CAREFUL, Access, Permissions, Policy, Rule, Rules, Subject
    from toolcrib.catalog.bundles import BLOG_AGENT, CODE_AGENT, ToolBundle
    from toolcrib.catalog.capabilities import Capability
    from toolcrib.catalog.categories import Category
    from toolcrib.catalog.checkers import (
        AddressAccepts,
        Checker,
        OwnCheck,
        PackageImportable,
        PathExists,
        ProgramOnPath,
        VariableSet,
    )
    from toolcrib.catalog.overrides import MetadataOverride
    from toolcrib.catalog.registry import ToolRegistry
    from toolcrib.core.errors import BudgetExceeded, InvalidOutput, ProviderFailed, ToolcribError, ToolFailed
    from toolcrib.core.events import (
        CatalogListener,
        CatalogPublished,
        Event,
        OperationPerformed,
        Recorder,
        ToolRegistered,
        ToolReplaced,
        ToolUnregistered,
    )
    from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
    from toolcrib.core.principal import CallContext, Principal
    from toolcrib.core.results import ToolResult
    from toolcrib.core.tools import Tool, ToolAnnotations, ToolPointer
    from toolcrib.crib.crib import Toolcrib
    from toolcrib.operations.describing import Description, describe
    from toolcrib.operations.discovery import DiscoveryPlugin
    from toolcrib.operations.messages import DetailLevel
    from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
    from toolcrib.sources.functions import plain_tool
    from toolcrib.sources.plugins import Plugin

__all__ = [
    "BLOG_AGENT",
    "CAREFUL",
    "CODE_AGENT",
    "Access",
    "AddressAccepts",
    "BudgetExceeded",
    "CallContext",
    "Capability",
    "CatalogListener",
    "CatalogPublished",
    "CatalogSection",
    "Category",
    "Checker",
    "Delivery",
    "Description",
    "DetailLevel",
    "DiscoveryPlugin",
    "Event",
    "InnerLoopConfig",
    "InvalidOutput",
    "MainLoop",
    "MarkdownSection",
    "MetadataOverride",
    "OperationPerformed",
    "Optionality",
    "OwnCheck",
    "PackageImportable",
    "PathExists",
    "Permissions",
    "Plugin",
    "Policy",
    "Principal",
    "ProgramOnPath",
    "Prompt",
    "PromptResponse",
    "PromptTemplate",
    "ProviderAdapter",
    "ProviderFailed",
    "Recorder",
    "Rule",
    "Rules",
    "SectionState",
    "SectionVisibility",
    "Session",
    "SetVisibilityOverride",
    "Subject",
    "Tool",
    "ToolAnnotations",
    "ToolBundle",
    "ToolCatalog",
    "ToolDescriptor",
    "ToolExample",
    "ToolFailed",
    "ToolMetadata",
    "ToolPointer",
    "ToolRegistered",
    "ToolRegistry",
    "ToolReplaced",
    "ToolResult",
    "ToolUnregistered",
    "Toolcrib",
    "ToolcribError",
    "ToolsInjected",
    "VariableSet",
    "VisibilityExpansionRequired",
    "__version__",
    "describe",
    "get_adapter",
    "plain_tool",
]

_HOMES = {
    "Access": "toolcrib.catalog.access",
    "AddressAccepts": "toolcrib.catalog.checkers",
    "BLOG_AGENT": "toolcrib.catalog.bundles",
    "BudgetExceeded": "toolcrib.core.errors",
    "CODE_AGENT": "toolcrib.catalog.bundles",
    "CallContext": "toolcrib.core.principal",
    "Capability": "toolcrib.catalog.capabilities",
    "CatalogListener": "toolcrib.core.events",
    "CatalogPublished": "toolcrib.core.events",
    "CatalogSection": "toolcrib.agent.sections",
    "Category": "toolcrib.catalog.categories",
    "Checker": "toolcrib.catalog.checkers",
    "Delivery": "toolcrib.agent.loop.provider",
    "Description": "toolcrib.operations.describing",
    "DetailLevel": "toolcrib.operations.messages",
    "DiscoveryPlugin": "toolcrib.operations.discovery",
    "Event": "toolcrib.core.events",
    "InnerLoopConfig": "toolcrib.agent.loop.config",
    "InvalidOutput": "toolcrib.core.errors",
    "MainLoop": "toolcrib.agent.loop.main",
    "MarkdownSection": "toolcrib.agent.sections",
    "MetadataOverride": "toolcrib.catalog.overrides",
    "OperationPerformed": "toolcrib.core.events",
    "Optionality": "toolcrib.core.metadata",
    "OwnCheck": "toolcrib.catalog.checkers",
    "PackageImportable": "toolcrib.catalog.checkers",
    "PathExists": "toolcrib.catalog.checkers",
    "Permissions": "toolcrib.catalog.access",
    "Plugin": "toolcrib.sources.plugins",
    "Policy": "toolcrib.catalog.access",
    "Principal": "toolcrib.core.principal",
    "ProgramOnPath": "toolcrib.catalog.checkers",
    "Prompt": "toolcrib.agent.sections",
    "PromptResponse": "toolcrib.agent.loop.provider",
    "PromptTemplate": "toolcrib.agent.sections",
    "ProviderAdapter": "toolcrib.agent.loop.provider",
    "ProviderFailed": "toolcrib.core.errors",
    "Recorder": "toolcrib.core.events",
    "Rule": "toolcrib.catalog.access",
    "CAREFUL": "toolcrib.catalog.access",
    "Rules": "toolcrib.catalog.access",
    "SectionState": "toolcrib.agent.sections",
    "SectionVisibility": "toolcrib.agent.sections",
    "Session": "toolcrib.agent.session",
    "SetVisibilityOverride": "toolcrib.agent.sections",
    "Subject": "toolcrib.catalog.access",
    "Tool": "toolcrib.core.tools",
    "ToolAnnotations": "toolcrib.core.tools",
    "ToolBundle": "toolcrib.catalog.bundles",
    "ToolCatalog": "toolcrib.sources.acp.descriptors",
    "ToolDescriptor": "toolcrib.sources.acp.descriptors",
    "ToolExample": "toolcrib.core.metadata",
    "ToolFailed": "toolcrib.core.errors",
    "ToolMetadata": "toolcrib.core.metadata",
    "ToolPointer": "toolcrib.core.tools",
    "ToolRegistered": "toolcrib.core.events",
    "ToolRegistry": "toolcrib.catalog.registry",
    "ToolReplaced": "toolcrib.core.events",
    "ToolResult": "toolcrib.core.results",
    "ToolUnregistered": "toolcrib.core.events",
    "Toolcrib": "toolcrib.crib.crib",
    "ToolcribError": "toolcrib.core.errors",
    "ToolsInjected": "toolcrib.agent.sections",
    "VariableSet": "toolcrib.catalog.checkers",
    "VisibilityExpansionRequired": "toolcrib.agent.loop.provider",
    "describe": "toolcrib.operations.describing",
    "get_adapter": "toolcrib.adapters",
    "plain_tool": "toolcrib.sources.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
