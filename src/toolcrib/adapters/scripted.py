"""A model that plays a script, for tests and for examples without a network."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeAlias, cast

import anyio.lowlevel

from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    Usage,
)
from toolcrib.agent.loop.inner import TurnAdapter
from toolcrib.agent.loop.provider import Delivery, TextListener, delivery_of
from toolcrib.core.digests import BYTES_PER_TOKEN, size_of
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.core.schema import Schema

Written: TypeAlias = Sequence[Mapping[str, Any]]
"""Turns as JSON values that fit `SCRIPT_SCHEMA`: `{"text": ..., "calls": [{"name": ..., "arguments": ...}]}`."""

Answering: TypeAlias = Callable[[ModelRequest], ModelTurn | Awaitable[ModelTurn]]
"""Answers each request. It may raise `ProviderFailed`, like a provider's adapter."""

SCRIPT_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "thinking": {"type": "string", "description": "the model's thinking, for models that show it"},
                "text": {"type": "string"},
                "calls": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "minLength": 1},
                            "arguments": {
                                "type": ["object", "string"],
                                "description": "a string is sent unchanged, even if it is not JSON",
                            },
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                },
                "stop": {"enum": [stop.value for stop in Stop]},
            },
            "additionalProperties": False,
        },
    }
)
"""The schema of a script. Without `stop`, a turn with calls waits for their answers, and any other turn is the end."""


class ScriptedAdapter(TurnAdapter):
    """Answers by a script, and delivers tools as configured. `requests` stores the requests that it received.

    Usage is estimated: four UTF-8 bytes of compact JSON count as one token. Nothing counts as cached.
    """

    name = "scripted"

    def __init__(
        self,
        script: str | Path | Written | Answering,
        *,
        delivery: Delivery = Delivery.INJECT,
        reveals_unlisted: bool = False,
        calls_only_offered: bool = True,
    ) -> None:
        """Create the adapter. `script` is a JSON file, its parsed content, or a function.

        With `calls_only_offered`, a turn that calls a tool outside its request is refused, because this is a mistake in
        most scripts. Without it, the turn is played like that of a model that invents a name.

        Raises:
            InvalidConfig: the file cannot be read, or its content is not a script.
        """
        self.model = str(script) if isinstance(script, str | Path) else "script"
        self.requests: list[ModelRequest] = []
        self._answer = script if callable(script) else _one_by_one(read_script(script))
        self._delivery = delivery_of(delivery)
        self._reveals_unlisted = reveals_unlisted
        self._calls_only_offered = calls_only_offered

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    @property
    def reveals_unlisted(self) -> bool:
        return self._reveals_unlisted

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        answer = self._answer(request)
        turn = await answer if inspect.isawaitable(answer) else answer
        if self._calls_only_offered:
            _check_offered(turn, request)
        if on_text is not None and turn.message.text:
            on_text(turn.message.text)
        return turn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return


def read_script(script: str | Path | Written) -> Written:
    """Return the turns of a file, or the given turns.

    Raises:
        InvalidConfig: the file cannot be read, or its content is not a script.
    """
    where = "The script"
    value: Any = script
    if isinstance(script, str | Path):
        where = f"The script {script}"
        try:
            value = json.loads(Path(script).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidConfig(f"{where} cannot be read: {error}.") from error
    if problems := Schema(SCRIPT_SCHEMA).violations(value, "the script"):
        raise InvalidConfig(f"{where} is not valid: {problems[0].message}.")
    return cast("Written", value)


def _one_by_one(script: Written) -> Answering:
    turns: Iterator[Mapping[str, Any]] = iter(script)

    def answer(request: ModelRequest) -> ModelTurn:
        written = next(turns, None)
        if written is None:
            raise ProviderFailed("The script has ended: it has no turn for this request.")
        return _turn(written, request)

    return answer


def _turn(written: Mapping[str, Any], request: ModelRequest) -> ModelTurn:
    calls = tuple(
        # The position makes an id unique within the conversation, even if the conversation was stored and continued.
        ToolCall(f"call-{len(request.messages)}-{at}", call["name"], _text(call.get("arguments", {})))
        for at, call in enumerate(written.get("calls", ()))
    )
    message = AssistantMessage(written.get("text", ""), calls)
    stop = Stop(written.get("stop", Stop.CALLS if calls else Stop.END))
    sent = [request.system, *(part.to_wire() for part in (*request.tools, *request.messages))]
    return ModelTurn(message, stop, Usage(_tokens(sent), _tokens(message.to_wire())))


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))


def _tokens(value: object) -> int:
    return size_of(value) // BYTES_PER_TOKEN


def _check_offered(turn: ModelTurn, request: ModelRequest) -> None:
    revealed = (tool for message in request.messages if isinstance(message, ToolMessage) for tool in message.revealed)
    offered = {tool.name for tool in request.tools if not tool.is_deferred} | {tool.name for tool in revealed}
    for call in turn.message.calls:
        if call.name not in offered:
            there = ", ".join(sorted(offered)) or "none"
            raise ProviderFailed(
                f"The script calls `{call.name}`, which the request does not offer. It offers: {there}."
            )
