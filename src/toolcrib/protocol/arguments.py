"""The JSON arguments of an operation, judged before anything is done; an error holds them as they were meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolcrib.calling.slips import Repair, repaired
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction
from toolcrib.core.schema import Schema, pointer
from toolcrib.protocol.tools import CALLS, operation_schema


def checked(view: View, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`arguments` of the operation `name`, without those that are null: models send null for "not given".

    Raises:
        InvalidArguments: they are not what it takes; `next_action` has them repaired where a slip explains it.
    """
    given = {key: value for key, value in arguments.items() if value is not None}
    # What stands under `arguments` is for the tool's own schema to judge, which has more to say than "an object".
    judged: dict[str, Any] = {**given, "arguments": {}} if name in CALLS and "arguments" in given else given
    schema = operation_schema(name)
    problems = schema.violations(judged)
    if not problems:
        return given
    repair = _unflattened(view, name, given) if name in CALLS else None
    repair = repair or repaired(schema.document, schema, given)
    raise InvalidArguments(
        f"The arguments of `{name}` do not match its schema: {'; '.join(problem.message for problem in problems[:3])}.",
        hints=[repair.what] if repair is not None else [],
        next_action=NextAction(name, repair.arguments) if repair is not None else _rest(name, given),
        details={"violations": [problem.to_wire() for problem in problems]},
    )


def _rest(name: str, given: Mapping[str, Any]) -> NextAction:
    """The same request without what is wrong in it; where too little is left for it, a list of the node it names."""
    schema = operation_schema(name)
    kept = {key: value for key, value in given.items() if not _is_wrong(schema, key, value)}
    if kept and schema.is_valid(kept):
        return NextAction(name, kept)
    path = next((kept[key] for key in ("path", "category", "category_path") if kept.get(key)), None)
    return NextAction("list", {"path": [path] if isinstance(path, str) else path} if path else {})


def _is_wrong(schema: Schema, key: str, value: object) -> bool:
    at = pointer([key])
    places = (problem.place for problem in schema.violations({key: value}))
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
