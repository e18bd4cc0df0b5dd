"""Checks the JSON arguments of an operation before it runs. An error contains the arguments as they were meant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction
from toolcrib.core.schema import MAX_VIOLATIONS, Schema, Violation, pointer, violations_to_wire
from toolcrib.operations.calling.slips import Repair, repaired
from toolcrib.operations.tools import CALLS, operation_schema

MAX_KEYS = 100
"""The most keys of an operation's arguments. Some are unknown if a model mixes in the arguments of a tool."""


def checked(view: View, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `arguments` of the operation `name` without null values, because models send null for "not given".

    Raises:
        InvalidArguments: they do not match the schema; `next_action` has them corrected if the mistake is clear.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    # The tool's own schema checks the value of `arguments` later, and gives better errors.
    judged: dict[str, Any] = {**given, "arguments": {}} if name in CALLS and "arguments" in given else given
    schema = operation_schema(name)
    # Sizes are checked first: any client can send a million names, and a validator would make an error for each.
    problems = _violations(schema, judged)
    if not problems:
        return given
    repair = None
    if len(given) <= MAX_KEYS:
        repair = _unflattened(view, name, given) if name in CALLS else None
        repair = repair or repaired(schema.document, schema, given)
    raise InvalidArguments(
        f"The arguments of `{name}` do not match its input schema: "
        f"{'; '.join(problem.message for problem in problems[:3])}.",
        hints=[repair.what] if repair is not None else [],
        next_action=NextAction(name, repair.arguments) if repair is not None else _rest(name, given),
        details={"violations": violations_to_wire(problems)},
    )


def _violations(schema: Schema, given: Mapping[str, Any]) -> Sequence[Violation]:
    return [*islice(_oversized(schema, given), MAX_VIOLATIONS)] or schema.violations(given)


def _oversized(schema: Schema, given: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield what is too large in `given`, by the limits for strings and lists in the schema of an operation."""
    known: Mapping[str, Any] = schema.document["properties"]
    if len(given) > MAX_KEYS:
        yield Violation("", f"the arguments have {len(given):,} keys; at most {MAX_KEYS} are allowed", "maxProperties")
        return
    for key in known.keys() & given.keys():
        for part in (known[key], *known[key].get("anyOf", ())):
            yield from _too_large(part, pointer([key]), given[key])


def _too_large(part: Mapping[str, Any], place: str, value: object) -> Iterator[Violation]:
    match value:
        case str() if len(value) > part.get("maxLength", math.inf):
            most = part["maxLength"]
            yield Violation(
                place, f"`{place}` has {len(value):,} characters; at most {most:,} are allowed", "maxLength"
            )
        case list() if len(items := cast("list[object]", value)) > part.get("maxItems", math.inf):
            most = part["maxItems"]
            yield Violation(place, f"`{place}` has {len(items):,} items; at most {most} are allowed", "maxItems")
        case list() if "maxItems" in part:
            for number, item in enumerate(cast("list[object]", value)):
                yield from _too_large(part["items"], f"{place}/{number}", item)
        case _:
            pass


def _rest(name: str, given: Mapping[str, Any]) -> NextAction:
    """Return the request without its wrong arguments or, if too little is left, a list of the category it names."""
    schema = operation_schema(name)
    known: Mapping[str, Any] = schema.document["properties"]
    kept = {key: given[key] for key in known if key in given and not _is_wrong(schema, key, given[key])}
    if kept and schema.is_valid(kept):
        return NextAction(name, kept)
    path = next((kept[key] for key in ("path", "category", "category_path") if kept.get(key)), None)
    return NextAction("list", {"path": [path] if isinstance(path, str) else path} if path else {})


def _is_wrong(schema: Schema, key: str, value: object) -> bool:
    at = pointer([key])
    places = (problem.place for problem in _violations(schema, {key: value}))
    return any(place == at or place.startswith(f"{at}/") for place in places)


def _unflattened(view: View, name: str, given: Mapping[str, Any]) -> Repair | None:
    """Correct `{"tool_id": ..., "path": "."}` to `{"tool_id": ..., "arguments": {"path": "."}}`."""
    outside = {key: value for key, value in given.items() if key not in {"tool_id", "arguments"}}
    reference, inside = given.get("tool_id"), given.get("arguments", {})
    if not outside or not isinstance(reference, str) or not isinstance(inside, dict):
        return None
    meant: Mapping[str, Any] = {**cast("dict[str, Any]", inside), **outside}
    tool, _ = view.resolve(reference)
    # The tool's own schema decides whether `{"tool_id": ..., "args": {"path": "."}}` is a wrong key or an argument.
    if tool is not None and (undone := repaired(tool.input_schema, tool.arguments, meant)) is not None:
        meant = undone.arguments
    arguments = {"tool_id": reference, "arguments": meant}
    if not operation_schema(name).is_valid(arguments):
        return None
    return Repair(arguments, f"{', '.join(f'`{key}`' for key in outside)} must be inside `arguments`.")
