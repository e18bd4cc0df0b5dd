"""A gateway to all tools of an agent: agents search for tools, expand them and call them.

`import toolcrib` is fast, because each name below is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.version import VERSION as __version__

_NAMES = {
    "adapters": "get_adapter",
    "agent.loop.main": "MainLoop",
    "agent.loop.provider": "Delivery InnerLoopConfig PromptResponse ProviderAdapter VisibilityExpansionRequired",
    "agent.sections": (
        "CatalogSection MarkdownSection Prompt PromptTemplate SectionState SectionVisibility "
        "SetVisibilityOverride ToolsInjected"
    ),
    "agent.session": "Session",
    "catalog.access": "Access CAREFUL Permissions Policy Rule Rules Subject",
    "catalog.bundles": "BLOG_AGENT CODE_AGENT ToolBundle",
    "catalog.capabilities": "Capability",
    "catalog.capability_checks": (
        "AddressAccepts Checker OwnCheck PackageImportable PathExists ProgramOnPath VariableSet"
    ),
    "catalog.categories": "Category",
    "catalog.overrides": "MetadataOverride",
    "catalog.registry": "ToolRegistry",
    "core.errors": "BudgetExceeded InvalidOutput ProviderFailed ToolFailed ToolcribError",
    "core.events": (
        "CatalogListener CatalogPublished Event OperationPerformed Recorder ToolRegistered ToolReplaced "
        "ToolUnregistered"
    ),
    "core.metadata": "Optionality ToolExample ToolMetadata",
    "core.principal": "CallContext Principal",
    "core.results": "ToolResult",
    "core.tools": "Tool ToolAnnotations ToolPointer",
    "crib.crib": "Toolcrib",
    "operations.describing": "Description describe",
    "operations.discovery": "DiscoveryPlugin",
    "operations.protocol_messages": "DetailLevel",
    "sources.acp.descriptors": "ToolCatalog ToolDescriptor",
    "sources.functions": "plain_tool",
    "sources.plugins": "Plugin",
}
"""The public names, by the module that defines them."""

_MODULES = {name: f"toolcrib.{module}" for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:  # the same names for type checkers and editors, which cannot read the table
    from toolcrib.adapters import get_adapter as get_adapter
    from toolcrib.agent.loop.main import MainLoop as MainLoop
    from toolcrib.agent.loop.provider import Delivery as Delivery
    from toolcrib.agent.loop.provider import InnerLoopConfig as InnerLoopConfig
    from toolcrib.agent.loop.provider import PromptResponse as PromptResponse
    from toolcrib.agent.loop.provider import ProviderAdapter as ProviderAdapter
    from toolcrib.agent.loop.provider import VisibilityExpansionRequired as VisibilityExpansionRequired
    from toolcrib.agent.sections import CatalogSection as CatalogSection
    from toolcrib.agent.sections import MarkdownSection as MarkdownSection
    from toolcrib.agent.sections import Prompt as Prompt
    from toolcrib.agent.sections import PromptTemplate as PromptTemplate
    from toolcrib.agent.sections import SectionState as SectionState
    from toolcrib.agent.sections import SectionVisibility as SectionVisibility
    from toolcrib.agent.sections import SetVisibilityOverride as SetVisibilityOverride
    from toolcrib.agent.sections import ToolsInjected as ToolsInjected
    from toolcrib.agent.session import Session as Session
    from toolcrib.catalog.access import CAREFUL as CAREFUL
    from toolcrib.catalog.access import Access as Access
    from toolcrib.catalog.access import Permissions as Permissions
    from toolcrib.catalog.access import Policy as Policy
    from toolcrib.catalog.access import Rule as Rule
    from toolcrib.catalog.access import Rules as Rules
    from toolcrib.catalog.access import Subject as Subject
    from toolcrib.catalog.bundles import BLOG_AGENT as BLOG_AGENT
    from toolcrib.catalog.bundles import CODE_AGENT as CODE_AGENT
    from toolcrib.catalog.bundles import ToolBundle as ToolBundle
    from toolcrib.catalog.capabilities import Capability as Capability
    from toolcrib.catalog.capability_checks import AddressAccepts as AddressAccepts
    from toolcrib.catalog.capability_checks import Checker as Checker
    from toolcrib.catalog.capability_checks import OwnCheck as OwnCheck
    from toolcrib.catalog.capability_checks import PackageImportable as PackageImportable
    from toolcrib.catalog.capability_checks import PathExists as PathExists
    from toolcrib.catalog.capability_checks import ProgramOnPath as ProgramOnPath
    from toolcrib.catalog.capability_checks import VariableSet as VariableSet
    from toolcrib.catalog.categories import Category as Category
    from toolcrib.catalog.overrides import MetadataOverride as MetadataOverride
    from toolcrib.catalog.registry import ToolRegistry as ToolRegistry
    from toolcrib.core.errors import BudgetExceeded as BudgetExceeded
    from toolcrib.core.errors import InvalidOutput as InvalidOutput
    from toolcrib.core.errors import ProviderFailed as ProviderFailed
    from toolcrib.core.errors import ToolcribError as ToolcribError
    from toolcrib.core.errors import ToolFailed as ToolFailed
    from toolcrib.core.events import CatalogListener as CatalogListener
    from toolcrib.core.events import CatalogPublished as CatalogPublished
    from toolcrib.core.events import Event as Event
    from toolcrib.core.events import OperationPerformed as OperationPerformed
    from toolcrib.core.events import Recorder as Recorder
    from toolcrib.core.events import ToolRegistered as ToolRegistered
    from toolcrib.core.events import ToolReplaced as ToolReplaced
    from toolcrib.core.events import ToolUnregistered as ToolUnregistered
    from toolcrib.core.metadata import Optionality as Optionality
    from toolcrib.core.metadata import ToolExample as ToolExample
    from toolcrib.core.metadata import ToolMetadata as ToolMetadata
    from toolcrib.core.principal import CallContext as CallContext
    from toolcrib.core.principal import Principal as Principal
    from toolcrib.core.results import ToolResult as ToolResult
    from toolcrib.core.tools import Tool as Tool
    from toolcrib.core.tools import ToolAnnotations as ToolAnnotations
    from toolcrib.core.tools import ToolPointer as ToolPointer
    from toolcrib.crib.crib import Toolcrib as Toolcrib
    from toolcrib.operations.describing import Description as Description
    from toolcrib.operations.describing import describe as describe
    from toolcrib.operations.discovery import DiscoveryPlugin as DiscoveryPlugin
    from toolcrib.operations.protocol_messages import DetailLevel as DetailLevel
    from toolcrib.sources.acp.descriptors import ToolCatalog as ToolCatalog
    from toolcrib.sources.acp.descriptors import ToolDescriptor as ToolDescriptor
    from toolcrib.sources.functions import plain_tool as plain_tool
    from toolcrib.sources.plugins import Plugin as Plugin
else:
    __all__ = [*_MODULES, "__version__"]  # noqa: PLE0604  all are strings


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
    return getattr(import_module(_MODULES[name]), name)
