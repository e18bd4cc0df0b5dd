"""Prompt sections: parts of a prompt that are shown as a summary or in full, together with their tools."""

from toolcrib.agent.sections.outline import READ_SECTION, ReadSectionResult, SectionRead, SectionTool
from toolcrib.agent.sections.prompt import Prompt, PromptTemplate, RenderedPrompt
from toolcrib.agent.sections.section import CatalogReader, CatalogSection, MarkdownSection, Section, ToolReference
from toolcrib.agent.sections.section_state import (
    SectionEvent,
    SectionPath,
    SectionState,
    SectionVisibility,
    SetVisibilityOverride,
    ToolsInjected,
    dotted,
    undotted,
)

__all__ = [
    "READ_SECTION",
    "CatalogReader",
    "CatalogSection",
    "MarkdownSection",
    "Prompt",
    "PromptTemplate",
    "ReadSectionResult",
    "RenderedPrompt",
    "Section",
    "SectionEvent",
    "SectionPath",
    "SectionRead",
    "SectionState",
    "SectionTool",
    "SectionVisibility",
    "SetVisibilityOverride",
    "ToolReference",
    "ToolsInjected",
    "dotted",
    "undotted",
]
