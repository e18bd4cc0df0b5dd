"""Runs one tool call of a model: reads the arguments, limits the time, and writes the result for the model."""

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
"""The default time limit of one call."""

MAX_RESULT_CHARS = 200_000
"""The default length limit of one result."""

PARALLEL_CALLS = 8
"""The default number of calls of one turn that run at once."""

_AGAIN = "Call it again with a JSON object."


class Outcome(Protocol):
    """The result of a call."""

    @property
    def success(self) -> bool: ...


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


async def run_call(call: ToolCall, run: Callable[[], Awaitable[OutcomeT]], *, timeout_s: float) -> OutcomeT:
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
