"""A Pydantic AI model that plays a script.

Only the message history decides which turn is next. So concurrent conversations share no position, and a continued
conversation goes on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import FinishReason, ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)
from pydantic_ai.settings import ModelSettings

from toolcrib.adapters.scripted import Written, read_script
from toolcrib.agent.answering import json_text
from toolcrib.agent.conversation.messages import Stop
from toolcrib.core.errors import ProviderFailed

_PIECES = 3
"""How many pieces a streamed text has, or one more."""

_REASONS: Mapping[Stop, FinishReason] = {
    Stop.END: "stop",
    Stop.CALLS: "tool_call",
    Stop.LENGTH: "length",
    Stop.REFUSED: "content_filter",
}


def scripted_model(script: str | Path | Written) -> FunctionModel:
    """Create a model that answers by a script: a JSON file, or its parsed content. See `SCRIPT_SCHEMA`.

    A request after the end of the script fails with `ProviderFailed`.

    Raises:
        InvalidConfig: the file cannot be read, or its content is not a script.
    """
    return _ScriptedModel(read_script(script), str(script) if isinstance(script, str | Path) else "script")


class _ScriptedModel(FunctionModel):
    """Adds the finish reason to streams, which a `FunctionModel` cannot set."""

    def __init__(self, script: Written, name: str) -> None:
        self._script = script
        super().__init__(self._answered, stream_function=self._streamed, model_name=name)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        turn = self._turn(messages)
        asked = super().request_stream(messages, model_settings, model_request_parameters, run_context)
        async with asked as stream:
            stream.finish_reason = turn.reason
            yield stream

    def _turn(self, messages: Sequence[ModelMessage]) -> _ScriptedTurn:
        position = sum(isinstance(message, ModelResponse) for message in messages)
        if position >= len(self._script):
            raise ProviderFailed(f"The script `{self.model_name}` has ended: it has no turn {position + 1}.")
        return _ScriptedTurn.of(self._script[position], position)

    async def _answered(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = self._turn(messages)
        return ModelResponse(turn.parts, finish_reason=turn.reason)

    async def _streamed(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        for at, part in enumerate(self._turn(messages).parts):
            match part:
                case ThinkingPart(text):
                    for piece in _pieces(text):
                        yield {at: DeltaThinkingPart(content=piece)}
                case TextPart(text):
                    for piece in _pieces(text):
                        yield piece
                case ToolCallPart(name, arguments):
                    yield {at: DeltaToolCall(name, tool_call_id=part.tool_call_id)}
                    for piece in _pieces(str(arguments)):
                        yield {at: DeltaToolCall(json_args=piece)}
        yield {}  # the framework treats an empty stream as an error


@dataclass(frozen=True, slots=True)
class _ScriptedTurn:
    parts: list[ThinkingPart | TextPart | ToolCallPart]
    reason: FinishReason

    @classmethod
    def of(cls, written: Mapping[str, Any], position: int) -> _ScriptedTurn:
        calls = [
            ToolCallPart(call["name"], _text(call.get("arguments", {})), f"call-{position}-{at}")
            for at, call in enumerate(written.get("calls", ()))
        ]
        parts: list[ThinkingPart | TextPart | ToolCallPart] = []
        if thinking := written.get("thinking"):
            parts.append(ThinkingPart(thinking))
        if text := written.get("text"):
            parts.append(TextPart(text))
        stop = Stop(written.get("stop", Stop.CALLS if calls else Stop.END))
        return cls([*parts, *calls], _REASONS[stop])


def _text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json_text(arguments)


def _pieces(text: str) -> Iterator[str]:
    size = max(1, len(text) // _PIECES)
    return (text[at : at + size] for at in range(0, len(text), size))
