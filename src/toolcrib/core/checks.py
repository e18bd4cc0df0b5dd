"""Checks of tool definitions beyond a schema that compiles: nesting, metadata and examples."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import Optionality, ToolExample, ToolMetadata
from toolcrib.core.schema import check_nesting
from toolcrib.core.tools import Tool


def check_tool(tool: Tool) -> None:
    """Check that the metadata of `tool` is consistent and matches its schema, and that its schemas can be sent.

    Raises:
        InvalidTool: an example does not match the input schema, a schema is nested too deeply, or `check_metadata`
            refuses the metadata. The message names the tool and the place.
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
    """Check that `metadata` is consistent.

    Raises:
        InvalidTool: a conditional tool has no condition, a tool that is not conditional has one, or a string is blank.
    """
    is_conditional = metadata.optionality is Optionality.CONDITIONAL
    if is_conditional and not (metadata.condition or "").strip():
        raise InvalidTool("condition: a conditional tool needs a condition: say when it is required")
    if metadata.condition is not None and not is_conditional:
        raise InvalidTool("condition: only allowed if `optionality` is `conditional`")
    for key in ("category", "tags", "requires_capabilities", "aliases", "intents"):
        if any(not text.strip() for text in getattr(metadata, key)):
            raise InvalidTool(f"{key}: must not contain a blank string")


def example_problems(tool: Tool, examples: tuple[ToolExample, ...]) -> Iterator[str]:
    """Yield a problem for each of `examples` whose input does not match the input schema of `tool`."""
    for number, example in enumerate(examples, start=1):
        if violations := tool.arguments.violations(dict(example.input), "the input"):
            yield f"example {number} ({example.description}) does not match its schema: {violations[0].message}"
