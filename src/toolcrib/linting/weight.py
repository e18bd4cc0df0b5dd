"""Definitions that take too much of a model's context."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from toolcrib.linting.definition import Definition
from toolcrib.linting.findings import Problem

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of compact JSON that are estimated to make one token."""


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
    """What a model reads of a JSON value: a quarter of its bytes, as for everything that Toolcrib weighs."""
    try:
        size = len(orjson.dumps(value, default=dict))
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        size = len(repr(value).encode("utf-8", "surrogatepass"))
    return size // BYTES_PER_TOKEN
