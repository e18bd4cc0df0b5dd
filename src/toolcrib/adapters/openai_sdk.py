"""OpenAI's SDK: a client of it, and its failures in our words. LiteLLM's failures are of the same classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from toolcrib.adapters.transport import DEFAULT_TIMEOUT_S, is_of_transport, retry_after_s
from toolcrib.conversation.messages import ModelTurn
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.loop.adapter import TurnAdapter

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI

Json = dict[str, Any]

_PASSING = frozenset({"server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"})
"""Codes of failures in the middle of an answer, where there is no status, after which the same request may work."""


class OpenAIAdapter(TurnAdapter):
    """What both of OpenAI's APIs are asked with."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_output_tokens: int | None = None,
    ) -> None:
        """Without a key or a URL, those in OPENAI_API_KEY and OPENAI_BASE_URL. `timeout_s`: without a byte.

        Raises:
            InvalidConfig: the SDK is not installed.
            ProviderFailed: there is no key.
        """
        self.model = model
        self._max_output_tokens = max_output_tokens
        self._connect = partial(_client, api_key=api_key, base_url=base_url, timeout_s=timeout_s)
        self._client = self._connect()
        self._asked = Asked(model, "OpenAI" if base_url is None else f"The server at {base_url}", timeout_s)

    async def __aenter__(self) -> Self:
        if self._client.is_closed():
            self._client = self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.close()


def _client(*, api_key: str | None, base_url: str | None, timeout_s: float) -> AsyncOpenAI:
    try:
        import openai  # noqa: PLC0415  # an extra, which may be absent, and takes most of a second to import
    except ImportError as error:
        raise InvalidConfig("OpenAI's SDK is not installed: `pip install 'toolcrib[openai]'`.") from error
    try:
        return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout_s, max_retries=0)
    except openai.OpenAIError as error:
        raise ProviderFailed(
            "OpenAI's SDK has no key: set OPENAI_API_KEY, or pass `api_key`; any text will do for a server that asks "
            "for none."
        ) from error


@dataclass(frozen=True, slots=True)
class Asked:
    """Who was asked, for the words of failures."""

    model: str
    vendor: str
    """As a sentence begins with it."""
    timeout_s: float
    key: str = "OPENAI_API_KEY or `api_key`"
    """Where the key is set."""

    @contextmanager
    def failing(self) -> Generator[None]:
        """Whatever the SDK raises inside is raised as `ProviderFailed`."""
        import openai  # noqa: PLC0415  # as in `_client`

        try:
            yield
        except openai.APIError as error:
            raise self._of(error) from error
        except json.JSONDecodeError as error:  # in a stream
            raise self.unreadable() from error
        except Exception as error:
            if not is_of_transport(error):
                raise
            raise self.silent() if "Timeout" in type(error).__name__ else self.lost() from error

    def lost(self) -> ProviderFailed:
        return ProviderFailed(f"{self.vendor} was lost in the middle of its answer; ask again.", retryable=True)

    def silent(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} said nothing for {self.timeout_s:g} s; ask again, or raise `timeout_s`.", retryable=True
        )

    def unreadable(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} answers in another form than OpenAI's API: check the address, whose path is /v1 as a rule."
        )

    def _of(self, error: APIError) -> ProviderFailed:
        import openai  # noqa: PLC0415  # as in `_client`

        if isinstance(error, openai.APITimeoutError):
            return self.silent()
        if isinstance(error, openai.APIResponseValidationError):
            return self.unreadable()
        if isinstance(error, openai.APIConnectionError):
            why = error.__cause__ or error
            return ProviderFailed(
                f"{self.vendor} cannot be reached ({why}); check the network and the address.", retryable=True
            )
        if _was_cut(error):
            return self.lost()
        status: int | None = getattr(error, "status_code", None)
        return self.refusal(_body(error).get("message") or error.message, _code(error), status, _headers(error))

    def refusal(
        self, said: str, code: str | None, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> ProviderFailed:
        """What the vendor itself reports: `said` in its words. Without a `status`, in the middle of an answer."""
        told = headers or {}
        is_final, advice = self._advice(said, code, status)
        if is_final:
            retryable = False
        elif (asked := told.get("x-should-retry")) in ("true", "false"):
            retryable = asked == "true"
        elif status is None:
            retryable = not code or code in _PASSING
        else:
            retryable = status in (408, 409, 429) or status >= 500
        return ProviderFailed(
            f"{self.vendor} {advice}. It says: {said.rstrip('.')}.",
            retryable=retryable,
            retry_after_s=retry_after_s(told) if retryable else None,
            details={key: value for key, value in (("status", status), ("code", code)) if value is not None},
        )

    def _advice(self, said: str, code: str | None, status: int | None) -> tuple[bool, str]:
        """Whether it is of no use to ask again, whatever else is said, and what happened with what to do about it."""
        if code == "insufficient_quota" or "insufficient_quota" in said:
            return True, "has no quota left for this key: add to it, or take another key"
        if code == "context_length_exceeded":
            return True, f"cannot read so much: begin anew with less, or take a model that reads more than {self.model}"
        if status == 401:
            return True, f"does not take the key: check {self.key}"
        if status == 403:
            return True, f"does not let this key use {self.model}: take another model, or have the key allowed"
        if code == "model_not_found" or status == 404:
            return True, f"knows no model {self.model} for this key: check its name, and the address"
        if status == 400 and "reasoning_effort" in said and "/v1/responses" in said:
            return True, f"takes no tools for {self.model} in chat completions: use `openai:{self.model}`"
        if status == 400 and "tool_search" in said:
            return True, f"lets {self.model} search for no tools: pass `delivery=Delivery.INJECT`"
        if status == 429:
            return False, "takes no more requests for now: ask later, and less often"
        if status is None or status >= 500:
            return False, "failed at this request"
        return False, "refuses this request"


def _was_cut(error: Exception) -> bool:
    """LiteLLM's way to say that the connection was lost in the middle of a stream; its status is made up."""
    return type(error).__name__ == "MidStreamFallbackError" and getattr(error, "status_code", 500) >= 500


def _body(error: APIError) -> Mapping[str, Any]:
    body: object = error.body
    return cast("Mapping[str, Any]", body) if isinstance(body, Mapping) else {}


def _code(error: APIError) -> str | None:
    """As the vendor wrote it. LiteLLM says by a class of its own what some of its vendors have no code for."""
    if type(error).__name__ == "ContextWindowExceededError":
        return "context_length_exceeded"
    code: object = _body(error).get("code") or error.code
    return code if isinstance(code, str) and not code.isdigit() else None


def _headers(error: APIError) -> Mapping[str, str]:
    """LiteLLM makes up the response, and keeps the headers of the real one elsewhere."""
    kept: Mapping[str, str] | None = getattr(error, "litellm_response_headers", None)
    response: Any = getattr(error, "response", None)
    return kept or (response.headers if response is not None else {})


def plain(answer: Any, asked: Asked) -> Json:
    """An answer of the SDK as what was on the wire: where that was no JSON, the SDK gives a text for an answer."""
    if not hasattr(answer, "to_dict"):
        raise asked.unreadable()
    return answer.to_dict(mode="json", warnings=False)


def read(reader: Callable[[Mapping[str, Any]], ModelTurn], answer: Mapping[str, Any], asked: Asked) -> ModelTurn:
    """What `reader` finds in an answer, which the SDK does not check."""
    try:
        return reader(answer)
    except (LookupError, TypeError, AttributeError) as error:
        raise asked.unreadable() from error
