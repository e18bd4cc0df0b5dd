"""What a definition must hold besides a schema that compiles: its metadata agrees with the rest of it."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
from toolcrib.core.schema import check_nesting
from toolcrib.core.tools import Tool


def check_tool(tool: Tool) -> None:
    """Pass where what is said of `tool` agrees with its schema and with itself, and can be sent.

    Raises:
        InvalidTool: an example that the input schema would refuse, a schema that is nested too deeply, or what
            `check_metadata` refuses; the message names the tool and the place.
    """
    try:
        check_nesting(tool.input_schema)
        check_nesting(tool.output_schema)
        check_metadata(tool.metadata)
        problem = next(example_problems(tool, tool.metadata.examples), None)
    except InvalidTool as error:
        raise InvalidTool(f"`{tool.id}`: {error.message}") from error
    if problem is not None:
        raise InvalidTool(f"`{tool.id}`: {problem}")


def check_metadata(metadata: ToolMetadata) -> None:
    """Pass where `metadata` agrees with itself.

    Raises:
        InvalidTool: a conditional tool without its condition, a condition of another, or a blank text.
    """
    is_conditional = metadata.optionality is Optionality.CONDITIONAL
    if is_conditional and not (metadata.condition or "").strip():
        raise InvalidTool("condition: a conditional tool says here when it is required")
    if metadata.condition is not None and not is_conditional:
        raise InvalidTool("condition: this is for a tool whose `optionality` is `conditional`")
    for key in ("category", "tags", "requires_capabilities", "aliases", "intents"):
        if any(not text.strip() for text in getattr(metadata, key)):
            raise InvalidTool(f"{key}: one of these is blank")


def example_problems(tool: Tool, examples: tuple[ToolExample, ...]) -> Iterator[str]:
    """For each of `examples` that the input schema of `tool` would refuse, which it is and where it misses."""
    for number, example in enumerate(examples, start=1):
        if violations := tool.arguments.violations(dict(example.input), "the input"):
            yield f"example {number} ({example.description}) does not match its schema: {violations[0].message}"
