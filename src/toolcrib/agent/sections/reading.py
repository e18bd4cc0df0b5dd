"""`read_section`, the one tool by which a model opens what it is shown as a summary."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.agent.sections.events import SectionPath
from toolcrib.agent.sections.section import ToolReference
from toolcrib.core.tools import Tool, ToolAnnotations

READ_SECTION = Tool(
    source="prompt",
    name="read_section",
    description="Read a section of the prompt that is shown as a summary, in full.",
    input_schema={
        "type": "object",
        "properties": {
            "section_key": {
                "type": "string",
                "description": "the key that stands below the summary; a part of a section has a dot in its key",
            }
        },
        "required": ["section_key"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)
"""As a model sees it. Source: dynamic tool registration, "Unified read_section Tool"."""


def suffix(key: str) -> str:
    """What a summarised section ends with. Source: dynamic tool registration, "Summary Suffix"; word for word."""
    return f'---\n[This section is summarized. To view full content, call `{READ_SECTION.name}` with key "{key}".]'


@dataclass(frozen=True, slots=True)
class SectionTool:
    """A tool, and the section that it comes with."""

    path: SectionPath
    tool: ToolReference


@dataclass(frozen=True, slots=True)
class ReadSectionResult:
    """What a section holds. Source: dynamic tool registration, "ReadSectionResult with Tools"."""

    content: str
    """Its Markdown, heading and children included, as it stands in the prompt once it is open."""
    expanded_tools: tuple[SectionTool, ...] = ()
    """Those that were not offered before: its own and those of sections below it that are now shown in full."""


@dataclass(frozen=True, slots=True)
class SectionRead:
    """The answer to `read_section`."""

    success: bool
    message: str
    """For the model: what it got, or which key it may have meant."""
    path: SectionPath
    """Of the section that was asked for, whether it exists or not."""
    value: ReadSectionResult | None = None
    """None where there is no such section."""
    opens: bool = False
    """Whether it was closed until now."""
