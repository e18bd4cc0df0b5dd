"""The tool `read_section`, by which a model opens a section that is shown as a summary."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.agent.sections.events import SectionPath
from toolcrib.agent.sections.section import ToolReference
from toolcrib.core.tools import Tool, ToolAnnotations

READ_SECTION = Tool(
    source="prompt",
    name="read_section",
    description="Read the full content of a summarized section.",
    input_schema={
        "type": "object",
        "properties": {
            "section_key": {
                "type": "string",
                "description": "the key below the summary; the key of a nested section contains a dot",
            }
        },
        "required": ["section_key"],
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False),
)
"""The definition that a model sees. Source: dynamic tool registration, "Unified read_section Tool"."""


def suffix(key: str) -> str:
    """Return the end of a summarised section. Source: dynamic tool registration, "Summary Suffix", word for word."""
    return f'---\n[This section is summarized. To view full content, call `{READ_SECTION.name}` with key "{key}".]'


@dataclass(frozen=True, slots=True)
class SectionTool:
    """A tool and its section."""

    path: SectionPath
    tool: ToolReference


@dataclass(frozen=True, slots=True)
class ReadSectionResult:
    """The content of a section. Source: dynamic tool registration, "ReadSectionResult with Tools"."""

    content: str
    """The Markdown with heading and children, as in the prompt once the section is open."""
    expanded_tools: tuple[SectionTool, ...] = ()
    """The tools that were not offered before: those of the section and of sections below it that are now shown in
    full."""


@dataclass(frozen=True, slots=True)
class SectionRead:
    """The answer to `read_section`."""

    success: bool
    message: str
    """The message for the model: what it got, or which key it may have meant."""
    path: SectionPath
    """The path of the requested section, whether it exists or not."""
    value: ReadSectionResult | None = None
    """The content. None if there is no such section."""
    opens: bool = False
    """Whether the section was closed before."""
