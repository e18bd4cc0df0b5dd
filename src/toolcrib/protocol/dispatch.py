"""From the name and JSON arguments of an operation to its answer: what every surface calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolcrib.calling import CallLimits, call_tool
from toolcrib.calling.slips import Repair, repaired
from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NextAction
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult
from toolcrib.disclosure.messages import Expansion, Expansions, ListPage, SearchPage
from toolcrib.disclosure.operations import Operations
from toolcrib.protocol.tools import operation_schema
from toolcrib.sources.base import ProgressListener

Answer = ListPage | SearchPage | Expansion | Expansions | ToolResult


async def perform(
    operations: Operations,
    view: View,
    name: str,
    arguments: Mapping[str, Any],
    context: CallContext,
    *,
    limits: CallLimits | None = None,
    progress: ProgressListener | None = None,
) -> Answer:
    """Answer one operation, which must be one of `OPERATIONS`; calls count against `limits`, those of the whole crib.

    Raises:
        ToolcribError: as the operation does; `InvalidArguments` where `arguments` are not what it takes.
    """
    given = _checked(view, name, arguments)
    match name:
        case "list":
            return operations.list(view, given.pop("path", ()), **given)
        case "search_tools":
            return operations.search_tools(view, given.pop("query"), **given)
        case "expand_tool":
            return _expand(operations, view, given)
        case "call_tool":
            return await call_tool(
                view, given["tool_id"], given.get("arguments"), context, limits=limits, progress=progress
            )
        case _:
            raise ValueError(f"no operation is called {name}")


def _expand(operations: Operations, view: View, given: Mapping[str, Any]) -> Expansion | Expansions:
    tool_id, tool_ids = given.get("tool_id"), given.get("tool_ids")
    if tool_id is not None and tool_ids is None:
        return operations.expand_tool(view, tool_id)
    if tool_ids is not None and tool_id is None:
        return operations.expand_tools(view, tool_ids)
    raise InvalidArguments(
        "Nothing was expanded: give one of `tool_id` and `tool_ids`.", next_action=NextAction("list")
    )


def _checked(view: View, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in arguments.items() if value is not None}  # models send null for "not given"
    # What stands under `arguments` is for the tool's own schema to judge, which has more to say than "an object".
    judged: dict[str, Any] = {**given, "arguments": {}} if name == "call_tool" and "arguments" in given else given
    schema = operation_schema(name)
    problems = schema.violations(judged)
    if not problems:
        return given
    repair = _unflattened(view, given) if name == "call_tool" else None
    repair = repair or repaired(schema.document, schema, given)
    raise InvalidArguments(
        f"The arguments of `{name}` do not match its schema: {'; '.join(problem.message for problem in problems[:3])}.",
        hints=[repair.what] if repair is not None else [],
        next_action=NextAction(name, repair.arguments) if repair is not None else NextAction("list"),
        details={"violations": [problem.to_wire() for problem in problems]},
    )


def _unflattened(view: View, given: Mapping[str, Any]) -> Repair | None:
    """`{"tool_id": ..., "path": "."}` for `{"tool_id": ..., "arguments": {"path": "."}}`."""
    beside = {key: value for key, value in given.items() if key not in {"tool_id", "arguments"}}
    reference, inside = given.get("tool_id"), given.get("arguments", {})
    if not beside or not isinstance(reference, str) or not isinstance(inside, dict):
        return None
    meant: Mapping[str, Any] = {**cast("dict[str, Any]", inside), **beside}
    tool = view.find(reference) or view.find(reference.rpartition("@")[0])
    # `{"tool_id": ..., "args": {"path": "."}}` is told from a tool that takes `args` by the tool's own schema.
    if tool is not None and (undone := repaired(tool.input_schema, tool.arguments, meant)) is not None:
        meant = undone.arguments
    arguments = {"tool_id": reference, "arguments": meant}
    if not operation_schema("call_tool").is_valid(arguments):
        return None
    return Repair(arguments, f"{', '.join(f'`{key}`' for key in beside)} stands inside `arguments`.")
