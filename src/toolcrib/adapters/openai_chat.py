"""The adapter for chat completions, of OpenAI and of compatible servers. Tools are injected.

An answer is streamed if the caller listens to its text. Otherwise it is requested in one piece: some servers do not
stream calls or usage, and OpenAI streams some models only to verified organizations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolcrib.adapters.openai_sdk import OpenAIAdapter, plain, read
from toolcrib.adapters.vendor_requests import StrictOutput, sendable
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn
from toolcrib.agent.formats import openai_chat_format
from toolcrib.agent.loop.provider import Delivery, TextListener

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionChunk

Json = dict[str, Any]


class OpenAIChatAdapter(OpenAIAdapter):
    """The adapter for a model that is served through chat completions.

    Since gpt-5.6, OpenAI's own models only accept tools here without reasoning. Use `OpenAIResponsesAdapter` for them.
    """

    name = "openai-chat"

    @property
    def delivery(self) -> Delivery:
        return Delivery.INJECT

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        output = StrictOutput.of(request.output_schema)
        sent = sendable(self._request(request, output))
        with self._failures.failing():
            if on_text is None:
                create: Any = self._client.chat.completions.create
                completion = plain(await create(**sent), self._failures)
            else:
                completion = await self._streamed(sent, on_text)
        turn = read(openai_chat_format.read_turn, completion, self._failures)
        return turn if output is None else output.restored(turn)

    def _request(self, request: ModelRequest, output: StrictOutput | None) -> Json:
        sent: Json = {"model": self.model, "messages": openai_chat_format.messages(request.system, request.messages)}
        if request.tools:  # OpenAI refuses an empty list
            sent["tools"] = openai_chat_format.tools(request.tools)
        if output is not None:
            sent["response_format"] = {"type": "json_schema", "json_schema": output.to_wire()}
        if self._max_output_tokens is not None:
            sent["max_completion_tokens"] = self._max_output_tokens
        return sent

    async def _streamed(self, sent: Json, on_text: TextListener) -> Json:
        create: Any = self._client.chat.completions.create
        chunks: list[Json] = []
        async with await create(**sent, stream=True, stream_options={"include_usage": True}) as stream:
            event: ChatCompletionChunk
            async for event in stream:
                chunk = plain(event, self._failures)
                chunks.append(chunk)
                if piece := read(openai_chat_format.text_of, chunk, self._failures):
                    on_text(piece)
        completion = read(openai_chat_format.joined, chunks, self._failures)
        if completion["choices"][0]["finish_reason"] is None:
            raise self._failures.lost()
        return completion
