"""The adapter for OpenAI's Responses API. Tools arrive during a conversation, as results of the model's tool search.

OpenAI stores nothing: each request contains the whole conversation, and the model's encrypted reasoning. An answer is
streamed if the caller listens to its text. Otherwise it is requested in one piece, because OpenAI streams some models
only to verified organizations.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.adapters.openai_sdk import OpenAIAdapter, plain, read
from toolcrib.adapters.vendor_requests import DEFAULT_TIMEOUT_S, StrictOutput, sendable
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn
from toolcrib.agent.formats import openai_responses_format
from toolcrib.agent.loop.provider import Delivery, TextListener, delivery_of

Json = dict[str, Any]

_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(.*)")
_FIRST_THAT_SEARCHES = (5, 4)

_WITHOUT_REASONING = re.compile(r"(?:^|:)(?:gpt-[34]|chatgpt|gpt-5[\d.]*-chat)")
"""Models that refuse requests for their reasoning: "Encrypted content is not supported with this model"."""

_PIECES = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")
_READABLE = ("completed", "incomplete")


def searches(model: str) -> bool:
    """Whether a model can search for tools: models since gpt-5.4, except its nano. Source: OpenAI, "Tool search"."""
    match = _VERSION.match(model)
    if match is None:
        return False
    major, minor, rest = match.groups()
    number = (int(major), int(minor or 0))
    return number > _FIRST_THAT_SEARCHES or (number == _FIRST_THAT_SEARCHES and not rest.startswith("-nano"))


class OpenAIResponsesAdapter(OpenAIAdapter):
    """The adapter for OpenAI's models, through the API that OpenAI recommends."""

    name = "openai"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_output_tokens: int | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        """Create the adapter, see `OpenAIAdapter`.

        The default `delivery` is DEFER for models that can search, else INJECT.
        """
        super().__init__(
            model, api_key=api_key, base_url=base_url, timeout_s=timeout_s, max_output_tokens=max_output_tokens
        )
        self._delivery = delivery_of(delivery or (Delivery.DEFER if searches(model) else Delivery.INJECT))

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    @property
    def reveals_unlisted(self) -> bool:
        return True

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        output = StrictOutput.of(request.output_schema)
        sent = sendable(self._request(request, output))
        with self._failures.failing():
            if on_text is None:
                create: Any = self._client.responses.create
                response = plain(await create(**sent), self._failures)
            else:
                response = await self._streamed(sent, on_text)
        if response.get("status", "completed") not in _READABLE:
            why: Json = response.get("error") or {"message": f"The status of the response is `{response['status']}`."}
            raise self._failures.refusal(why.get("message", ""), why.get("code"))
        turn = read(openai_responses_format.read_turn, response, self._failures)
        return turn if output is None else output.restored(turn)

    def _request(self, request: ModelRequest, output: StrictOutput | None) -> Json:
        is_deferring = self._delivery is Delivery.DEFER
        sent: Json = {
            "model": self.model,
            "input": openai_responses_format.items(request.messages, searches=is_deferring),
            "store": False,
        }
        if request.system:
            sent["instructions"] = request.system
        if request.tools:
            sent["tools"] = openai_responses_format.tools(request.tools, searches=is_deferring)
        if not _WITHOUT_REASONING.search(self.model):
            sent["include"] = ["reasoning.encrypted_content"]
        if output is not None:
            sent["text"] = {"format": {"type": "json_schema", **output.to_wire()}}
        if self._max_output_tokens is not None:
            sent["max_output_tokens"] = self._max_output_tokens
        return sent

    async def _streamed(self, sent: Json, on_text: TextListener) -> Json:
        create: Any = self._client.responses.create
        async with await create(**sent, stream=True) as stream:
            async for event in stream:
                if event.type in _PIECES:
                    on_text(event.delta)
                elif event.type in _LAST:
                    return plain(event.response, self._failures)
                elif event.type == "error":  # the SDK passes this on instead of raising it
                    raise self._failures.refusal(event.message, event.code)
        raise self._failures.lost()
