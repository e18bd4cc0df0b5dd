"""Definitions that take too much of a model's context."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.core.weight import BYTES_PER_TOKEN, size_of
from toolcrib.definitions.lint.definition import Definition
from toolcrib.definitions.lint.findings import Problem


def over_budget(definition: Definition) -> Iterator[Problem]:
    """More than `definition.limits.max_tokens`."""
    tool = definition.tool
    total = estimated_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})
    if total > definition.limits.max_tokens:
        described, schema = estimated_tokens(tool.description), estimated_tokens(tool.input_schema)
        yield Problem(
            f"its definition takes about {total:,} tokens, {described:,} of them for the description and {schema:,} "
            f"for the input schema; {definition.limits.max_tokens:,} are the limit",
            "Shorten descriptions, drop parameters that nobody sets, or make several tools of it",
            ("/description" if described > schema else "/inputSchema",),
        )


def estimated_tokens(value: object) -> int:
    """What a model reads of a JSON value, as everything is weighed."""
    return size_of(value) // BYTES_PER_TOKEN
