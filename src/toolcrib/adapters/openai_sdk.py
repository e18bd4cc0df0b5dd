"""The client and the failures of OpenAI's SDK. LiteLLM raises the same exception classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from toolcrib.adapters.vendor_requests import DEFAULT_TIMEOUT_S, VendorFailures, may_pass
from toolcrib.agent.loop.inner import TurnAdapter
from toolcrib.core.errors import InvalidConfig, ProviderFailed

if TYPE_CHECKING:
    from openai import APIError, AsyncOpenAI

Json = dict[str, Any]

GivenT = TypeVar("GivenT")
ReadT = TypeVar("ReadT")

_PASSING = frozenset({"server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"})
"""Error codes in the middle of an answer, where there is no status, after which a retry may work."""


class OpenAIAdapter(TurnAdapter):
    """The common base of the adapters for OpenAI's two APIs."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_output_tokens: int | None = None,
    ) -> None:
        """Create the adapter. A missing key or URL comes from OPENAI_API_KEY and OPENAI_BASE_URL.

        `timeout_s` limits the time without any byte from the vendor.

        Raises:
            InvalidConfig: the SDK is not installed.
            ProviderFailed: there is no key.
        """
        self.model = model
        self._max_output_tokens = max_output_tokens
        self._connect = partial(_client, api_key=api_key, base_url=base_url, timeout_s=timeout_s)
        self._client = self._connect()
        self._failures = OpenAIFailures(model, "OpenAI" if base_url is None else f"The server at {base_url}", timeout_s)

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
        raise InvalidConfig("OpenAI's SDK is not installed. Run `pip install 'toolcrib[openai]'`.") from error
    try:
        return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, timeout=timeout_s, max_retries=0)
    except openai.OpenAIError as error:
        raise ProviderFailed(
            "OpenAI's SDK has no key. Set OPENAI_API_KEY, or pass `api_key`. For a server without authentication, any "
            "string works."
        ) from error


@dataclass(frozen=True)
class OpenAIFailures(VendorFailures):
    """A server that speaks one of OpenAI's APIs."""

    key: str = "OPENAI_API_KEY or `api_key`"

    def failure_of(self, error: Exception) -> ProviderFailed | None:
        import openai  # noqa: PLC0415  # as in `_client`

        match error:
            case openai.APITimeoutError():
                return self.silent()
            case openai.APIResponseValidationError():
                return self.unreadable()
            case openai.APIConnectionError():
                return self.unreachable(error)
            case openai.APIError() if _was_cut(error):
                return self.lost()
            case openai.APIError():
                status: int | None = getattr(error, "status_code", None)
                said = _body(error).get("message") or error.message
                return self.refusal(said, _code(error), status, _headers(error))
            case _:
                return super().failure_of(error)

    def unreadable(self) -> ProviderFailed:
        return ProviderFailed(
            f"{self.vendor} did not answer like the OpenAI API. Check the base URL, which usually ends with /v1."
        )

    def refusal(
        self, said: str, code: str | None, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> ProviderFailed:
        """Return the failure for an error that the vendor reports.

        `said` is its message. In a stream there is no `status`.
        """
        told = headers or {}
        is_final, advice = self._advice(said, code, status)
        passes = (not code or code in _PASSING) if status is None else may_pass(status, told)
        details = {"status": status, "code": code}
        return self.refused(advice, said, told, retryable=passes and not is_final, details=details)

    def _advice(self, said: str, code: str | None, status: int | None) -> tuple[bool, str]:
        """Return whether a retry is useless in any case, and what happened with what to do about it."""
        if code == "insufficient_quota" or "insufficient_quota" in said:
            return True, "has no quota left for this key: add credit, or use a different key"
        if code == "context_length_exceeded":
            return True, self.advice(413)
        if code == "model_not_found":
            return True, self.advice(404)
        if status == 400 and "reasoning_effort" in said and "/v1/responses" in said:
            other = f"openai:{self.model.rpartition('/')[2]}"
            return True, f"does not accept tools for {self.model} in chat completions: use `{other}`"
        if status == 400 and "tool_search" in said and ("support" in said or "defer_loading" in said):
            return True, f"does not support tool search for {self.model}: pass `delivery=Delivery.INJECT`"
        return status in (401, 403, 404), self.advice(status)


def _was_cut(error: Exception) -> bool:
    """Whether LiteLLM reports a connection that was lost during a stream. The status of this error is artificial."""
    return type(error).__name__ == "MidStreamFallbackError" and getattr(error, "status_code", 500) >= 500


def _body(error: APIError) -> Mapping[str, Any]:
    body: object = error.body
    return cast("Mapping[str, Any]", body) if isinstance(body, Mapping) else {}


def _code(error: APIError) -> str | None:
    """Return the vendor's error code. LiteLLM uses a class of its own for an error that some vendors give no code."""
    if type(error).__name__ == "ContextWindowExceededError":
        return "context_length_exceeded"
    code: object = _body(error).get("code") or error.code
    return code if isinstance(code, str) and not code.isdigit() else None


def _headers(error: APIError) -> Mapping[str, str]:
    """Return the headers. LiteLLM creates an artificial response, and keeps the real headers in an attribute."""
    kept: Mapping[str, str] | None = getattr(error, "litellm_response_headers", None)
    response: Any = getattr(error, "response", None)
    return kept or (response.headers if response is not None else {})


def plain(answer: Any, failures: VendorFailures) -> Json:
    """Return an answer of the SDK as JSON. If the response was not JSON, the SDK returns a string, which is refused."""
    if not hasattr(answer, "to_dict"):
        raise failures.unreadable()
    return answer.to_dict(mode="json", warnings=False)


def read(reader: Callable[[GivenT], ReadT], answer: GivenT, failures: VendorFailures) -> ReadT:
    """Apply `reader` to an answer, which the SDK does not validate."""
    try:
        return reader(answer)
    except (LookupError, TypeError, AttributeError) as error:
        raise failures.unreadable() from error
