"""The JSON arguments of an operation, judged before anything is done; an error holds them as they were meant."""

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
"""Keys of an operation's arguments that are looked into; those who wrap the arguments of a tool send some too many."""


def checked(view: View, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` of the operation `name`, without those that are null: models send null for "not given".

    Raises:
        InvalidArguments: they are not what it takes; `next_action` has them repaired where a slip explains it.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    # What stands under `arguments` is for the tool's own schema to judge, which has more to say than "an object".
    judged: dict[str, Any] = {**given, "arguments": {}} if name in CALLS and "arguments" in given else given
    schema = operation_schema(name)
    # Whoever may ask for anything may ask this, so no validator makes an error of each of a million names.
    problems = _violations(schema, judged)
    if not problems:
        return given
    repair = None
    if len(given) <= MAX_KEYS:
        repair = _unflattened(view, name, given) if name in CALLS else None
        repair = repair or repaired(schema.document, schema, given)
    raise InvalidArguments(
        f"The arguments of `{name}` do not match its schema: {'; '.join(problem.message for problem in problems[:3])}.",
        hints=[repair.what] if repair is not None else [],
        next_action=NextAction(name, repair.arguments) if repair is not None else _rest(name, given),
        details={"violations": violations_to_wire(problems)},
    )


def _violations(schema: Schema, given: Mapping[str, Any]) -> Sequence[Violation]:
    return [*islice(_oversized(schema, given), MAX_VIOLATIONS)] or schema.violations(given)


def _oversized(schema: Schema, given: Mapping[str, Any]) -> Iterator[Violation]:
    """What is too large in `given`, by the bounds that the schema of an operation has for texts and lists."""
    known: Mapping[str, Any] = schema.document["properties"]
    if len(given) > MAX_KEYS:
        yield Violation(
            "", f"the arguments have {len(given):,} keys; no more than {MAX_KEYS} are read", "maxProperties"
        )
        return
    for key in known.keys() & given.keys():
        for part in (known[key], *known[key].get("anyOf", ())):
            yield from _too_large(part, pointer([key]), given[key])


def _too_large(part: Mapping[str, Any], place: str, value: object) -> Iterator[Violation]:
    match value:
        case str() if len(value) > part.get("maxLength", math.inf):
            most = part["maxLength"]
            yield Violation(place, f"`{place}` has {len(value):,} characters; {most:,} are the most", "maxLength")
        case list() if len(items := cast("list[object]", value)) > part.get("maxItems", math.inf):
            yield Violation(place, f"`{place}` has {len(items):,} items; {part['maxItems']} are the most", "maxItems")
        case list() if "maxItems" in part:
            for number, item in enumerate(cast("list[object]", value)):
                yield from _too_large(part["items"], f"{place}/{number}", item)
        case _:
            pass


def _rest(name: str, given: Mapping[str, Any]) -> NextAction:
    """The same request without what is wrong in it; where too little is left for it, a list of the node it names."""
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
    """`{"tool_id": ..., "path": "."}` for `{"tool_id": ..., "arguments": {"path": "."}}`."""
    beside = {key: value for key, value in given.items() if key not in {"tool_id", "arguments"}}
    reference, inside = given.get("tool_id"), given.get("arguments", {})
    if not beside or not isinstance(reference, str) or not isinstance(inside, dict):
        return None
    meant: Mapping[str, Any] = {**cast("dict[str, Any]", inside), **beside}
    tool, _ = view.resolve(reference)
    # `{"tool_id": ..., "args": {"path": "."}}` is told from a tool that takes `args` by the tool's own schema.
    if tool is not None and (undone := repaired(tool.input_schema, tool.arguments, meant)) is not None:
        meant = undone.arguments
    arguments = {"tool_id": reference, "arguments": meant}
    if not operation_schema(name).is_valid(arguments):
        return None
    return Repair(arguments, f"{', '.join(f'`{key}`' for key in beside)} stands inside `arguments`.")
