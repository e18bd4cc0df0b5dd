"""Checks the arguments of an operation before it runs: the JSON of a client, and the values of a Python call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction
from toolcrib.core.schema import MAX_VIOLATIONS, Schema, Violation, pointer, violations_to_wire
from toolcrib.core.values import read_choice, read_flag, read_string, read_strings, unknown
from toolcrib.operations.calling.argument_repair import Repair, repaired
from toolcrib.operations.operation_table import OPERATION_TABLE, OPERATIONS, Operation
from toolcrib.operations.protocol_messages import DetailLevel

MAX_KEYS = 100
"""The most keys of an operation's arguments. Some are unknown if a model mixes in the arguments of a tool."""


def checked(view: View, operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `arguments` of `operation` without null values, because models send null for "not given".

    Raises:
        InvalidArguments: they do not match the schema; `next_action` has them corrected if the mistake is clear.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    name, schema, runs_a_tool = operation.name, operation.arguments, operation.answer is None
    # The tool's own schema checks the value of `arguments` later, and gives better errors.
    judged: dict[str, Any] = {**given, "arguments": {}} if runs_a_tool and "arguments" in given else given
    # Sizes are checked first: any client can send a million names, and a validator would make an error for each.
    problems = _violations(schema, judged)
    if not problems:
        return given
    repair = None
    if len(given) <= MAX_KEYS:
        repair = _unflattened(view, operation, given) if runs_a_tool else None
        repair = repair or repaired(schema.document, schema, given)
    raise InvalidArguments(
        f"The arguments of `{name}` do not match its input schema: "
        f"{'; '.join(problem.message for problem in problems[:3])}.",
        hints=[repair.what] if repair is not None else [],
        next_action=NextAction(name, repair.arguments) if repair is not None else _rest(operation, given),
        details={"violations": violations_to_wire(problems)},
    )


def unknown_operation(name: str) -> InvalidArguments:
    """Return the error for a `name` that is not in `OPERATIONS`. Its message names the closest operation."""
    return InvalidArguments(
        f"There is no operation `{str(name)[:200]}`{unknown(name, OPERATIONS)}.", next_action=NextAction("list")
    )


def read(name: str, given: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments that a Python method passes to the operation `name`.

    A lone string counts as a list of one, and None counts as missing. Only types are checked here, because the
    operation checks ranges itself.

    Raises:
        InvalidArguments: a value has the wrong type; the message begins with the name of the argument.
    """
    required = OPERATION_TABLE[name].input_schema.get("required", ()) if name in OPERATION_TABLE else ()
    found: dict[str, Any] = {}
    for key, value in given.items():
        if value is None and key not in required:
            continue
        try:
            found[key] = _READERS[key](value, key) if key in _READERS else value
        except InvalidArguments as error:
            violation = Violation(pointer([key]), error.message, "type")
            details = {"violations": violations_to_wire([violation])}
            raise InvalidArguments(f"{error.message}.", next_action=NextAction("list"), details=details) from error
    return found


def _read_list(value: object, place: str) -> tuple[str, ...]:
    # Accept any iterable, for example a set of tags or a generator of ids.
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    each = [*cast("Iterable[object]", value)] if is_list else cast("object", value)
    return read_strings(each, place, InvalidArguments)


def _read_node(value: object, place: str) -> tuple[str, ...]:
    """Return a path. A lone string is not split here, because the name of a node may contain `/`."""
    return () if isinstance(value, str) and not value.strip() else _read_list(value, place)


def _read_string(value: object, place: str) -> str:
    return read_string(value, place, InvalidArguments)


def _read_flag(value: object, place: str) -> bool:
    return read_flag(value, place, InvalidArguments)


def _read_number(value: object, place: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise InvalidArguments(f"{place}: must be an integer")
    return value


def _read_level(value: object, place: str) -> DetailLevel:
    return read_choice(value, place, {level.value: level for level in DetailLevel}, InvalidArguments)


_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "path": _read_node,
    "category": _read_node,
    "category_path": _read_node,
    "tags": _read_list,
    "query": _read_string,
    "cursor": _read_string,
    "tool_id": _read_string,
    "tool_ids": _read_list,
    "limit": _read_number,
    "include_unavailable": _read_flag,
    "detail_level": _read_level,
    "detail": _read_level,
    "budget_tokens": _read_number,
}
"""The reader of each argument of a Python method."""


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
            yield from _too_large(part, f"/{key}", given[key])


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


def _rest(operation: Operation, given: Mapping[str, Any]) -> NextAction:
    """Return the request without its wrong arguments or, if too little is left, a list of the category it names."""
    schema = operation.arguments
    known: Mapping[str, Any] = schema.document["properties"]
    kept = {key: given[key] for key in known if key in given and not _is_wrong(schema, key, given[key])}
    if kept and schema.is_valid(kept):
        return NextAction(operation.name, kept)
    path = next((kept[key] for key in ("path", "category", "category_path") if kept.get(key)), None)
    return NextAction("list", {"path": [path] if isinstance(path, str) else path} if path else {})


def _is_wrong(schema: Schema, key: str, value: object) -> bool:
    at = pointer([key])
    places = (problem.place for problem in _violations(schema, {key: value}))
    return any(place == at or place.startswith(f"{at}/") for place in places)


def _unflattened(view: View, operation: Operation, given: Mapping[str, Any]) -> Repair | None:
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
    if not operation.arguments.is_valid(arguments):
        return None
    return Repair(arguments, f"{', '.join(f'`{key}`' for key in outside)} must be inside `arguments`.")
