"""Lint rules for parameters that a model has to guess, and for schemas that are not valid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import Schema
from toolcrib.definitions.lint.findings import Problem
from toolcrib.definitions.lint.linted_tool import Json, LintedTool, Subschema, mapping, sequence, spoken, step
from toolcrib.definitions.lint.tool_names import listed

_TYPING = ("type", "enum", "const", "$ref", "$dynamicRef", "properties", "items", "prefixItems", "not", "if")
"""Keywords that say what a value may be."""

_QUOTED = r"(?:\"[\w./+-]{1,30}\"|'[\w./+-]{1,30}'|`[\w./+-]{1,30}`)"
_CHOICE = re.compile(
    rf"(?P<lead>[^.;\n]{{0,60}}?)(?P<values>{_QUOTED}(?:\s*(?:,|\||/|(?:,\s*)?\b(?:or|and)\b)\s*{_QUOTED})+)"
)
_SAYS_ALL = re.compile(
    r"one of|either|must be|allowed|possible|valid|accepted|permitted|options?\b|choose|choices?|values?\b|can be|"
    r"supported|whether",
    re.IGNORECASE,
)
_SAYS_SOME = re.compile(
    r"e\.?g\b|example|such as|\blike\b|for instance|default|including|\bi\.e|\bif\b|\bwhen\b|\bfor\b", re.IGNORECASE
)


def undocumented(definition: LintedTool) -> Iterator[Problem]:
    """Find parameters without a description, both in the schema and in the tool's description."""
    parameters = list(definition.parameters)
    silent = [part for part in parameters if _is_silent(definition, part)]
    if silent:
        yield Problem(
            f"{_how_many(len(silent), len(parameters))} no description: {_named(silent)}",
            "Add a `description` to each parameter: its meaning, unit, format and an example",
            tuple(part.place for part in silent),
        )


def untyped(definition: LintedTool) -> Iterator[Problem]:
    """Find parameters without a type."""
    found = [part for part in definition.parameters if not _is_typed(part.schema)]
    if found:
        yield Problem(
            f"{_named(found)} {'has' if len(found) == 1 else 'have'} no type",
            "Add `type`. If any value is allowed, list all types",
            tuple(part.place for part in found),
        )


def values_in_words(definition: LintedTool) -> Iterator[Problem]:
    """Find string parameters whose description lists the allowed values."""
    names = {part.parameter for part in definition.parameters}
    found = [
        (part, values)
        for part in definition.parameters
        # Words that are names of other parameters are not values.
        if (values := _values_of(definition, part)) and names.isdisjoint(values)
    ]
    if found:
        shown = "; ".join(f"`{spoken(part.place)}`: {', '.join(values[:8])}" for part, values in found[:3])
        yield Problem(
            f"the allowed values are only in the description ({shown}{'; …' if len(found) > 3 else ''})",
            "List them as `enum`. Clients and Toolcrib check it before the call",
            tuple(part.place for part, _ in found),
        )


def required_undeclared(definition: LintedTool) -> Iterator[Problem]:
    """Find names in `required` that are not properties."""
    for part in definition.parts:
        names = [name for name in sequence(part.schema.get("required")) if isinstance(name, str)]
        if not names or "patternProperties" in part.schema:
            continue
        declared = part.above | definition.declared_by(part.schema)
        if lost := [name for name in names if name not in declared]:
            closed = part.schema.get("additionalProperties") is False
            yield Problem(
                f"{listed(lost)} {'is' if len(lost) == 1 else 'are'} required but not declared"
                + (". Other properties are not allowed, so no arguments are valid" if closed else ""),
                "Declare each required name under `properties`, with a type and a description, or remove it from "
                "`required`",
                (step(part.place, "required"),),
            )


def array_without_items(definition: LintedTool) -> Iterator[Problem]:
    """Find arrays without a schema for their items."""
    found = [part for part in definition.parts if _is_bare_array(part.schema)]
    if found:
        yield Problem(
            f"{'the array' if len(found) == 1 else 'arrays'} {_named(found)} {'has' if len(found) == 1 else 'have'} "
            "no `items`. OpenAI and Gemini refuse such a schema",
            "Add `items` to every array",
            tuple(part.place for part in found),
        )


def schema_refused(definition: LintedTool) -> Iterator[Problem]:
    """Find schemas that are not valid JSON Schema."""
    tool = definition.tool
    for key, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
        try:
            if schema is not None:
                Schema(schema)
        except InvalidTool as error:
            yield Problem(
                f"{error.message} (`{key}`)", "Write a schema of draft 2020-12, or set its `$schema`", (f"/{key}",)
            )


def _how_many(few: int, all_: int) -> str:
    if few == all_:
        return "its parameter has" if all_ == 1 else f"all {all_} parameters have"
    return f"{few} of {all_} parameters {'has' if few == 1 else 'have'}"


def _is_silent(definition: LintedTool, part: Subschema) -> bool:
    name = part.parameter or ""
    return (
        not any(key in part.schema for key in ("enum", "const"))
        and next(definition.texts_of(part), None) is None
        and not definition.is_mentioned(name)
    )


def _is_typed(schema: Json) -> bool:
    if any(key in schema for key in _TYPING):
        return True
    choices = [*sequence(schema.get("anyOf")), *sequence(schema.get("oneOf"))]
    if choices and all((branch := mapping(each)) is not None and _is_typed(branch) for each in choices):
        return True
    return any((branch := mapping(each)) is not None and _is_typed(branch) for each in sequence(schema.get("allOf")))


def _values_of(definition: LintedTool, part: Subschema) -> list[str]:
    """Return the values that a string parameter's description lists.

    Empty if the parameter is not a string, or if its schema already limits the values.
    """
    schema = part.schema
    if schema.get("type") != "string" or any(key in schema for key in ("enum", "const", "pattern", "format")):
        return []
    text = next(definition.texts_of(part), "")
    for match in _CHOICE.finditer(text):
        if _SAYS_ALL.search(match["lead"]) and not _SAYS_SOME.search(match["lead"]):
            return [value[1:-1] for value in re.findall(_QUOTED, match["values"])]
    return []


def _is_bare_array(schema: Json) -> bool:
    kind = schema.get("type")
    is_array = kind == "array" or "array" in sequence(kind)
    return is_array and not any(key in schema for key in ("items", "prefixItems", "contains", "$ref", "enum", "const"))


def _named(parts: Sequence[Subschema]) -> str:
    return listed([spoken(part.place) or "the arguments" for part in parts])
