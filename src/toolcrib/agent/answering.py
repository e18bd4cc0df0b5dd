"""Runs one tool call of a model: reads the arguments, limits the time, and writes the result or error for the model."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, cast

import anyio
import orjson

from toolcrib.agent.conversation.events import Offer
from toolcrib.agent.conversation.messages import ToolCall
from toolcrib.agent.telemetry import call_span
from toolcrib.core.errors import InvalidArguments, NextAction, SourceUnavailable, ToolcribError
from toolcrib.core.events import TOOL_ERROR
from toolcrib.core.handles import Handle
from toolcrib.core.results import ToolResult
from toolcrib.operations.calling.source_requests import NOT_KNOWN
from toolcrib.operations.next_actions import leading_within

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 300.0
"""The default time limit of one call."""

MAX_RESULT_CHARS = 200_000
"""The default length limit of one result."""

PARALLEL_CALLS = 8
"""The default number of calls of one turn that run at once."""

_AGAIN = "Call it again with a JSON object."


class _Outcome(Protocol):
    """The result of a call."""

    @property
    def success(self) -> bool: ...


_OutcomeT = TypeVar("_OutcomeT", bound=_Outcome)


async def run_call(call: ToolCall, run: Callable[[], Awaitable[_OutcomeT]], *, timeout_s: float) -> _OutcomeT:
    """Return the result of `run`, limited to `timeout_s`.

    Raises:
        SourceUnavailable: the time limit was reached, or an unexpected error occurred.
        ToolcribError: an error of `run`.
    """
    with call_span(call) as fail:
        try:
            with anyio.fail_after(timeout_s):
                outcome = await run()
        except ToolcribError:
            raise
        except TimeoutError as error:
            told = f"`{call.name}` did not finish within {timeout_s:g} seconds. {NOT_KNOWN}"
            raise SourceUnavailable(told, hints=["Check whether it ran before you call it again."]) from error
        except Exception as error:
            logger.exception("a call of `%s` failed because of an internal error", call.name)
            told = f"`{call.name}` failed because of an internal error in Toolcrib. {NOT_KNOWN}"
            raise SourceUnavailable(told, hints=["Continue without it, or use a different tool."]) from error
        if not outcome.success:
            fail(TOOL_ERROR)
        return outcome


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Parse the arguments that a model wrote. No text means no arguments.

    Raises:
        InvalidArguments: the text is not a JSON object.
    """
    if not call.arguments.strip():
        return {}
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"The arguments of `{call.name}` are not valid JSON: {error}. Nothing ran. {_AGAIN}"
        ) from error
    if not isinstance(given, dict):
        raise InvalidArguments(f"The arguments of `{call.name}` are not a JSON object. Nothing ran. {_AGAIN}")
    return cast("dict[str, Any]", given)


def json_text(wire: Mapping[str, Any]) -> str:
    """Return compact JSON. Halves of surrogate pairs and integers beyond 64 bits are also supported."""
    try:
        return orjson.dumps(wire).decode()
    except TypeError:
        return json.dumps(wire, separators=(",", ":"), default=str)


def result_text(result: ToolResult) -> str:
    """Return what a model reads of a result: its text, or its JSON if there is no text. Other content is only named."""
    parts: list[str] = []
    for block in result.content:
        kind = block.get("type")
        if kind == "text":
            parts.append(str(block.get("text", "")))
        elif kind == "resource" and isinstance(text := _resource(block).get("text"), str):
            parts.append(text)
        elif kind == "resource_link":
            parts.append(f"[{block.get('name', 'resource')}: {block.get('uri', '')}]")
        else:
            parts.append(f"[{kind or 'content'} {block.get('mimeType', '')}]".replace(" ]", "]"))
    if not any(part.strip() for part in parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    return "\n".join((*parts, *(f"[{warning}]" for warning in result.warnings)))


def sendable(content: str, most_chars: int) -> str:
    """Return the start of `content` and the number of omitted characters, if it is too long.

    Halves of surrogate pairs, which no request can contain, become question marks.
    """
    if len(content) > most_chars:
        content = f"{content[:most_chars]}\n[{len(content) - most_chars:,} more characters omitted]"
    return content.encode("utf-8", "replace").decode()


def _resource(block: Mapping[str, Any]) -> Mapping[str, Any]:
    resource = block.get("resource")
    return cast("Mapping[str, Any]", resource) if isinstance(resource, Mapping) else {}


MAX_NAMED = 20
"""How many of a model's tools an error lists. The model has the whole list anyway."""


def error_within(error: ToolcribError, offered: Mapping[str, Offer]) -> dict[str, Any]:
    """Return the object of `error`. Its next action only names tools that the model has, by the model's names."""
    operations = {name for name, offer in offered.items() if offer.handle is None}
    match error.next_action:
        case NextAction("call_tool", {"tool_id": str() as handle, **rest}):
            name = _name_of(handle, offered)
        case _:
            name, rest = None, dict[str, Any]()
    if name is not None:
        wire = error.to_wire()
        wire["error"]["next_action"] = {"operation": name, "arguments": rest.get("arguments", {})}
        return wire
    error = leading_within(error, operations)
    wire = error.to_wire()
    if error.next_action is not None and error.next_action.operation not in operations:
        del wire["error"]["next_action"]
        wire["error"]["hints"] = [*wire["error"].get("hints", ()), f"Your tools are: {_named(offered)}."]
    return wire


def _named(offered: Collection[str]) -> str:
    names = [*offered]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{', '.join(names[:MAX_NAMED])}{more}" if names else "no tools"


def _name_of(handle: str, offered: Mapping[str, Offer]) -> str | None:
    """Return the name of the tool with this handle. The handle may have a different trace."""
    meant = Handle.parse(handle)
    for name, offer in offered.items():
        shown = Handle.parse(offer.handle) if offer.handle is not None else None
        if meant is not None and shown is not None and (shown.tool_id, shown.digest) == (meant.tool_id, meant.digest):
            return name
    return None
