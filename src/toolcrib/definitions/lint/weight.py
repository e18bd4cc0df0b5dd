"""Lint rule for definitions that take too much of a model's context."""

from __future__ import annotations

from collections.abc import Iterator

from toolcrib.core.weight import BYTES_PER_TOKEN, size_of
from toolcrib.definitions.lint.definition import Definition
from toolcrib.definitions.lint.findings import Problem


def over_budget(definition: Definition) -> Iterator[Problem]:
    """Find definitions with more than `definition.limits.max_tokens` estimated tokens."""
    tool = definition.tool
    total = estimated_tokens({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})
    if total > definition.limits.max_tokens:
        described, schema = estimated_tokens(tool.description), estimated_tokens(tool.input_schema)
        yield Problem(
            f"the definition has about {total:,} tokens ({described:,} for the description, {schema:,} for the input "
            f"schema). The limit is {definition.limits.max_tokens:,}",
            "Shorten descriptions, remove parameters that are never used, or split the tool",
            ("/description" if described > schema else "/inputSchema",),
        )


def estimated_tokens(value: object) -> int:
    """Estimate the tokens of a JSON value, with the same estimate as everywhere in Toolcrib."""
    return size_of(value) // BYTES_PER_TOKEN
