"""The adapter for Anthropic's models. Tools arrive during a conversation, by reference to deferred definitions.

Answers are always streamed, because the SDK refuses long answers without streaming. This adapter assembles the stream
itself: the SDK's own helper fails at arguments that are not JSON, and does not notice a stream that ends too early.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from toolcrib.adapters.vendor_requests import DEFAULT_TIMEOUT_S, StrictOutput, VendorFailures, may_pass, sendable
from toolcrib.agent.conversation.messages import AssistantMessage, Message, ModelRequest, ModelTurn
from toolcrib.agent.formats import anthropic_format as form
from toolcrib.agent.loop.inner import TurnAdapter
from toolcrib.agent.loop.provider import Delivery, TextListener, delivery_of
from toolcrib.core.errors import InvalidConfig, ProviderFailed

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

Json = dict[str, Any]

DEFAULT_MAX_OUTPUT_TOKENS = 32_000
"""The maximum output of every model since Claude 4, in tokens, including thinking."""

_MODEL = re.compile(r"claude-(?P<family>[a-z]+)-(?P<major>\d+)(?:[-.](?P<minor>\d{1,2}))?(?!\d)")
_FIRST_THAT_DEFER = (4, 5)
_FIRST_WITH_BOUND_THOUGHTS = {"fable": (5, 1), "mythos": (5, 1)}
_OTHERS_WITH_BOUND_THOUGHTS = (5, 5)

_NO_KEY = "Anthropic's SDK has no key: set ANTHROPIC_API_KEY, or pass `api_key`."

_CACHED: Json = {"type": "ephemeral"}

_PROMPT = "prompt"
"""The key in a message's `native` for a digest of the prompt and tools that were in effect for its thinking."""

_OF_SCHEMA = re.compile(r"output_config|grammar|^(?!.*input_schema).*schema", re.IGNORECASE | re.DOTALL)
"""Matches the vendor's message when it refuses the schema of the answer, and not that of a tool."""

_DROPPING: Json = {
    "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    "extra_headers": {"anthropic-beta": "thinking-binding-controls-2026-08-01"},
}

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP statuses of errors in the middle of a stream, where the response itself has status 200."""


def _version(model: str) -> tuple[str, tuple[int, int]] | None:
    """Return the family and version of an Anthropic model, also under a reseller's name. None for other models."""
    match = _MODEL.search(model)
    if match is None:
        return None
    return match["family"], (int(match["major"]), int(match["minor"] or 0))


def defers(model: str) -> bool:
    """Whether a model can load tools later, which models can since Claude 4.5.

    Source: Anthropic, "Tool search tool".
    """
    version = _version(model)
    return version is not None and version[1] >= _FIRST_THAT_DEFER


def binds_thoughts(model: str) -> bool:
    """Whether a model only accepts its own thinking blocks under the same prompt and the same tools.

    Source: Anthropic, "Preserved thinking".
    """
    version = _version(model)
    if version is None:
        return False
    return version[1] >= _FIRST_WITH_BOUND_THOUGHTS.get(version[0], _OTHERS_WITH_BOUND_THOUGHTS)


class AnthropicAdapter(TurnAdapter):
    """The adapter for one of Anthropic's models."""

    name = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_output_tokens: int = DEFAULT_MAX_OUTPUT_TOKENS,
        delivery: Delivery | None = None,
    ) -> None:
        """Create the adapter.

        A missing key or URL comes from ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL or the profiles of the SDK. `timeout_s`
        limits the time without any byte from the vendor. The default `delivery` is DEFER for models that can defer
        tools, else INJECT.

        Raises:
            InvalidConfig: the SDK is not installed.
            ProviderFailed: there is no key.
        """
        self.model = model
        self._max_output_tokens = max_output_tokens
        self._delivery = delivery_of(delivery or (Delivery.DEFER if defers(model) else Delivery.INJECT))
        self._holds_answers = defers(model)
        """Whether the vendor enforces the schema of the answer, which it does since the same model version."""
        self._connect = partial(_client, api_key=api_key, base_url=base_url, timeout_s=timeout_s)
        self._client = self._connect()
        self._failures = _AnthropicFailures(
            model, "Anthropic" if base_url is None else f"The server at {base_url}", timeout_s
        )

    @property
    def delivery(self) -> Delivery:
        return self._delivery

    async def __aenter__(self) -> Self:
        if self._client.is_closed():
            self._client = self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()

    async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
        if request.tools and all(tool.is_deferred for tool in request.tools):
            raise ProviderFailed(
                "Anthropic requires at least one tool that is not deferred. List a tool that reveals others."
            )
        output = StrictOutput.of(request.output_schema) if self._holds_answers else None
        sent = sendable(self._request(request, output))
        prompt = _digest(sent)
        if binds_thoughts(self.model) and _thought_elsewhere(request.messages, prompt):
            # This happens after a restart or with injected tools. The vendor would refuse the unchanged thinking
            # blocks.
            sent |= _DROPPING
        with self._without_schema_next(sent), self._failures.failing():
            events = await self._streamed(sent, on_text)
        turn = _marked(self._read(events), prompt)
        return turn if output is None else output.restored(turn)

    def _request(self, request: ModelRequest, output: StrictOutput | None) -> Json:
        sent: Json = {
            "model": self.model,
            "max_tokens": self._max_output_tokens,
            "messages": form.messages(request.messages, request.tools),
            # Marks the last block as cached without changing it, so that later requests only append.
            "cache_control": _CACHED,
        }
        if request.system.strip():
            # Cached separately, for other conversations with the same prompt and for turns with many calls.
            sent["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
        if request.tools:
            sent["tools"] = form.tools(request.tools)
        if output is not None and output.strict is not None:
            sent["output_config"] = {"format": {"type": "json_schema", "schema": dict(output.schema)}}
        return sent

    @contextmanager
    def _without_schema_next(self, sent: Mapping[str, Any]) -> Generator[None]:
        """After the vendor refuses the schema of the answer as too large, stop sending the schema.

        The vendor does not document its limit. The answer is validated in any case.
        """
        try:
            yield
        except ProviderFailed as failed:
            is_for_schema = failed.details.get("status") == 400 and _OF_SCHEMA.search(failed.message)
            if "output_config" not in sent or not is_for_schema:
                raise
            self._holds_answers = False
            raise ProviderFailed(failed.message, retryable=True, retry_after_s=0, details=failed.details) from failed

    async def _streamed(self, sent: Json, on_text: TextListener | None) -> list[Json]:
        create: Any = self._client.messages.create
        events: list[Json] = []
        async with await create(**sent, stream=True) as stream:
            if not stream.response.headers.get("content-type", "").startswith("text/event-stream"):
                raise self._failures.unreadable()
            async for event in stream:
                if not hasattr(event, "to_dict"):
                    raise self._failures.unreadable()
                told = event.to_dict(mode="json", warnings=False)
                events.append(told)
                if on_text is not None and (piece := form.text_of(told)):
                    on_text(piece)
        return events

    def _read(self, events: Iterable[Json]) -> ModelTurn:
        """Read the turn from an answer, which the SDK does not validate."""
        try:
            answer = form.joined(events)
            if answer["stop_reason"] is None:
                raise self._failures.lost()
            return form.read_turn(answer)
        except (LookupError, TypeError, AttributeError) as error:
            raise self._failures.unreadable() from error


def _digest(sent: Mapping[str, Any]) -> str:
    """Return a digest of the prompt and the tools."""
    return hashlib.sha256(json.dumps([sent.get("system"), sent.get("tools")]).encode()).hexdigest()[:16]


def _thought_elsewhere(messages: Iterable[Message], prompt: str) -> bool:
    """Whether a message has thinking blocks that were made under a different prompt or with different tools."""
    said = (message for message in messages if isinstance(message, AssistantMessage) and form.thoughts(message))
    return any(cast("Json", message.native).get(_PROMPT) != prompt for message in said)


def _marked(turn: ModelTurn, prompt: str) -> ModelTurn:
    if not form.thoughts(turn.message):
        return turn
    return replace(turn, message=replace(turn.message, native={**turn.message.native, _PROMPT: prompt}))


def _client(*, api_key: str | None, base_url: str | None, timeout_s: float) -> AsyncAnthropic:
    try:
        import anthropic  # noqa: PLC0415  # an extra, which may be absent, and takes a second to import
    except ImportError as error:
        raise InvalidConfig("Anthropic's SDK is not installed. Run `pip install 'toolcrib[anthropic]'`.") from error
    try:
        # Tracing is off, because the inner loop creates the same spans for all vendors.
        client = anthropic.AsyncAnthropic(
            api_key=api_key, base_url=base_url, timeout=timeout_s, max_retries=0, open_telemetry=False
        )
    except anthropic.AnthropicError as error:
        raise ProviderFailed(f"{_NO_KEY} It says: {str(error).rstrip('.')}.") from error
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        raise ProviderFailed(_NO_KEY)
    return client


@dataclass(frozen=True)
class _AnthropicFailures(VendorFailures):
    """A server that speaks Anthropic's API."""

    key: str = "ANTHROPIC_API_KEY or `api_key`"

    def failure_of(self, error: Exception) -> ProviderFailed | None:
        import anthropic  # noqa: PLC0415  # as in `_client`

        match error:
            case anthropic.APITimeoutError():
                return self.silent()
            case anthropic.APIConnectionError():
                return self.unreachable(error)
            case anthropic.APIStatusError():
                return self._refusal(error)
            case anthropic.APIError():
                return self.unreadable()
            case anthropic.AnthropicError():
                return ProviderFailed(f"{_NO_KEY} It says: {str(error).rstrip('.')}.")
            case _:
                return super().failure_of(error)

    def unreadable(self) -> ProviderFailed:
        return ProviderFailed(f"{self.vendor} did not answer like the Anthropic API. Check the base URL.")

    def _refusal(self, error: APIStatusError) -> ProviderFailed:
        """Convert an error that the vendor reports."""
        status = error.status_code if error.status_code >= 400 else _STATUSES.get(str(error.type), 500)
        said = error.api_message or error.message
        headers = error.response.headers
        details = {"status": status, "type": error.type, "code": error.error_code, "request_id": error.request_id}
        return self.refused(
            self._advice(said, status), said, headers, retryable=may_pass(status, headers), details=details
        )

    def _advice(self, said: str, status: int) -> str:
        """Say what happened and what to do about it."""
        if status == 402 or "credit balance" in said:
            return "has no credit left for this key: add credit, or use a different key"
        if "prompt is too long" in said or "exceed context limit" in said:
            return self.advice(413)
        if status == 400 and said.startswith("max_tokens: "):
            return f"limits {self.model} to shorter answers: pass a smaller `max_output_tokens`"
        if status == 400 and ("tool_reference" in said or "defer_loading" in said):
            return f"does not support deferred tools for {self.model}: pass `delivery=Delivery.INJECT`"
        if status == 529:
            return "is overloaded; retry later"
        return self.advice(status)
