"""One call as a model makes it: the arguments that it wrote, how it may end, and what the model reads of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

import anyio
import orjson

from toolcrib.agent.conversation.messages import ToolCall
from toolcrib.agent.telemetry import call_span
from toolcrib.core.errors import InvalidArguments, SourceUnavailable, ToolcribError
from toolcrib.core.events import TOOL_ERROR
from toolcrib.core.results import ToolResult
from toolcrib.operations.calling.under_way import NOT_KNOWN

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 300.0
"""For one call, where nobody says otherwise."""

MAX_RESULT_CHARS = 200_000
"""Of one answer, where nobody says otherwise."""

PARALLEL_CALLS = 8
"""Calls of one turn that run at once, where nobody says otherwise."""

_AGAIN = "Call it again with an object."


class Outcome(Protocol):
    """What came of a call."""

    @property
    def success(self) -> bool: ...


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


async def run_call(call: ToolCall, run: Callable[[], Awaitable[OutcomeT]], *, timeout_s: float) -> OutcomeT:
    """What `run` makes of `call` within so many seconds.

    Raises:
        SourceUnavailable: its time is over, or it failed in a way that nobody foresaw.
        ToolcribError: as `run` does.
    """
    with call_span(call) as fail:
        try:
            with anyio.fail_after(timeout_s):
                outcome = await run()
        except ToolcribError:
            raise
        except TimeoutError as error:
            told = f"`{call.name}` was given up after {timeout_s:g} seconds. {NOT_KNOWN}"
            raise SourceUnavailable(told, hints=["Look whether it has run before you call it again."]) from error
        except Exception as error:
            logger.exception("a call of `%s` failed in Toolcrib itself", call.name)
            told = f"`{call.name}` failed for a reason that lies in Toolcrib. {NOT_KNOWN}"
            raise SourceUnavailable(told, hints=["Go on without it, or use another tool."]) from error
        if not outcome.success:
            fail(TOOL_ERROR)
        return outcome


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """What a model wrote; none where it wrote nothing.

    Raises:
        InvalidArguments: it is no JSON object.
    """
    if not call.arguments.strip():
        return {}
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(
            f"Nothing was run: the arguments of `{call.name}` are no JSON: {error}. {_AGAIN}"
        ) from error
    if not isinstance(given, dict):
        raise InvalidArguments(f"Nothing was run: the arguments of `{call.name}` are no JSON object. {_AGAIN}")
    return cast("dict[str, Any]", given)


def json_text(wire: Mapping[str, Any]) -> str:
    """Compact JSON; half a surrogate pair, or an integer beyond 64 bits, is written out as well."""
    try:
        return orjson.dumps(wire).decode()
    except TypeError:
        return json.dumps(wire, separators=(",", ":"), default=str)


def result_text(result: ToolResult) -> str:
    """What a model reads of an answer: its text, or its JSON where it has none; of anything else, that it is there."""
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
    """Its beginning, and how much is left out, where it is longer; half a surrogate pair, which no request can hold,
    becomes a question mark.
    """
    if len(content) > most_chars:
        content = f"{content[:most_chars]}\n[{len(content) - most_chars:,} more characters are left out]"
    return content.encode("utf-8", "replace").decode()


def _resource(block: Mapping[str, Any]) -> Mapping[str, Any]:
    resource = block.get("resource")
    return cast("Mapping[str, Any]", resource) if isinstance(resource, Mapping) else {}
