"""The adapter for LiteLLM, which offers many vendors through OpenAI's API. Tools are injected.

An answer is streamed if the caller listens to its text. Otherwise it is requested in one piece.
"""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import Mapping
from contextlib import aclosing
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self

import anyio

from toolcrib.adapters.openai_sdk import OpenAIFailures, read
from toolcrib.adapters.vendor_requests import DEFAULT_TIMEOUT_S, StrictOutput, sendable
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn
from toolcrib.agent.formats import openai_chat_format
from toolcrib.agent.loop.inner import TurnAdapter
from toolcrib.agent.loop.provider import Delivery, TextListener
from toolcrib.core.errors import InvalidConfig

Json = dict[str, Any]

NATIVE = "litellm"
"""The key in a message's `native`. LiteLLM's vendors add fields to messages that OpenAI itself would refuse."""

_STRUCTURED = frozenset({"openai", "azure"})
"""Providers that enforce a schema of the answer even with tools.

For some others LiteLLM adds an artificial tool that the model must call, so it calls no other tool (1.106).
"""


class LiteLLMAdapter(TurnAdapter):
    """The adapter for a `provider/model` as LiteLLM names it.

    `openai/NAME` with a `base_url` is any compatible server.
    """

    name = "litellm"

    _entered: ClassVar[dict[int, list[Self]]] = {}
    """The adapters in use, by the id of their event loop, because they share LiteLLM's connections."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_output_tokens: int | None = None,
    ) -> None:
        """Create the adapter. Without a key, LiteLLM reads the provider's environment variable.

        `timeout_s` limits the time without any byte from the vendor.

        Raises:
            InvalidConfig: LiteLLM is not installed, or does not know the provider.
        """
        self.model = model
        self._litellm: Any = _imported()
        self._asks_for_schema = _provider(self._litellm, model) in _STRUCTURED
        self._given: Json = {"timeout": timeout_s, "max_retries": 0, "num_retries": 0}
        optional = {"api_base": base_url, "api_key": api_key, "max_tokens": max_output_tokens}
        self._given |= {key: value for key, value in optional.items() if value is not None}
        self._failures = OpenAIFailures(
            model, f"`{model}`", timeout_s, key="`api_key`, or the variable that LiteLLM reads"
        )

    @property
    def delivery(self) -> Delivery:
        return Delivery.INJECT

    async def __aenter__(self) -> Self:
        self._entered.setdefault(id(asyncio.get_running_loop()), []).append(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop = id(asyncio.get_running_loop())
        entered = self._entered.get(loop, [])
        if self not in entered:  # already exited
            return
        entered.remove(self)
        if not entered:
            del self._entered[loop]
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        """Close LiteLLM's clients of this event loop. LiteLLM's own function would also close those of other loops."""
        cache = self._litellm.in_memory_llm_clients_cache
        ours: str = cache.update_cache_key_with_event_loop("")  # the suffix of this loop's keys
        kept: dict[str, Any] = cache.cache_dict
        for key in [key for key in kept if key.endswith(ours)]:
            client = kept.pop(key, None)
            if hasattr(client, "close"):
                await client.close()

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        output = StrictOutput.of(request.output_schema) if self._asks_for_schema else None
        sent = sendable(self._request(request, output)) | self._given
        with self._failures.failing():
            if on_text is None:
                completion = _plain(await self._litellm.acompletion(**sent))
            else:
                completion = await self._streamed(sent, on_text)
        turn = read(_read_turn, completion, self._failures)
        return turn if output is None else output.restored(turn)

    def _request(self, request: ModelRequest, output: StrictOutput | None) -> Json:
        messages = openai_chat_format.messages(request.system, request.messages, dialect=NATIVE)
        sent: Json = {"model": self.model, "messages": [_well_formed(message) for message in messages]}
        if request.tools:
            sent["tools"] = openai_chat_format.tools(request.tools)
        if output is not None:
            sent["response_format"] = {"type": "json_schema", "json_schema": output.to_wire()}
        return sent

    async def _streamed(self, sent: Json, on_text: TextListener) -> Json:
        chunks: list[Any] = []
        refuses = False
        stream = await self._litellm.acompletion(**sent, stream=True, stream_options={"include_usage": True})
        async with aclosing(stream):
            async for chunk in stream:
                chunks.append(chunk)
                told = _plain(chunk)
                refuses = refuses or any("refusal" in choice["delta"] for choice in told["choices"])
                if piece := openai_chat_format.text_of(told):
                    on_text(piece)
        answer = self._litellm.stream_chunk_builder(chunks)
        if answer is None:
            raise self._failures.lost()
        completion = _plain(answer)
        message = completion["choices"][0]["message"]
        if refuses and not message.get("content") and not message.get("tool_calls"):
            # LiteLLM only passes on the beginning of a refusal in a stream, which is empty (1.106).
            message["refusal"] = "The model refused to answer."
        return completion


def _imported() -> ModuleType:
    # By default LiteLLM fetches a price list from GitHub, and reads a file `.env` into the environment.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        import litellm  # noqa: PLC0415  # an extra, which may be absent, and takes seconds to import
    except ImportError as error:
        raise InvalidConfig("LiteLLM is not installed. Run `pip install 'toolcrib[litellm]'`.") from error
    litellm.suppress_debug_info = True  # otherwise LiteLLM prints help to standard output
    # Pydantic warns about LiteLLM's own types when they are first used (1.106).
    warnings.filterwarnings("ignore", "Item '.*' on TypedDict class", UserWarning)
    return litellm


def _plain(answer: Any) -> Json:
    return answer.model_dump(mode="json", exclude_none=True, warnings=False)


def _provider(litellm: Any, model: str) -> str:
    try:
        return litellm.get_llm_provider(model)[1]
    except litellm.BadRequestError as error:
        raise InvalidConfig(
            f"LiteLLM does not know the provider of `{model}`. Write `provider/model`, for example `openai/gpt-4.1`."
        ) from error


def _read_turn(completion: Mapping[str, Any]) -> ModelTurn:
    return openai_chat_format.read_turn(_with_refusal(completion), dialect=NATIVE)


def _with_refusal(completion: Mapping[str, Any]) -> Json:
    """Restore refusals. LiteLLM moves fields that it does not know, such as refusals, to `provider_specific_fields`."""
    choices: list[Json] = []
    for choice in completion["choices"]:
        message: Json = choice["message"]
        moved = dict(message.get("provider_specific_fields") or {})
        refusal = moved.pop("refusal", None) or message.get("refusal")
        choices.append({**choice, "message": {**message, "refusal": refusal, "provider_specific_fields": moved}})
    return {**completion, "choices": choices}


def _well_formed(message: Json) -> Json:
    """Replace arguments that are not a JSON object. LiteLLM parses them for some vendors, and would fail."""
    if "tool_calls" not in message:
        return message
    return message | {
        "tool_calls": [
            call | {"function": call["function"] | {"arguments": _object(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]
    }


def _object(arguments: str) -> str:
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({"malformed": arguments}, ensure_ascii=False)
