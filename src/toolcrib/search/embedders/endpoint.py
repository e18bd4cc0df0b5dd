"""Requests vectors from an endpoint with the API of OpenAI's `/embeddings`. The texts leave this machine."""

from __future__ import annotations

import hashlib
import re
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

import httpx2
import numpy as np
import orjson
from numpy.typing import NDArray

from toolcrib.search.embedders.interface import EmbeddingFailed, ModelEndpoint, unit_rows, well_formed
from toolcrib.version import VERSION

if TYPE_CHECKING:
    from toolcrib.search.embedders.interface import FloatRows

MAX_TEXTS = 64
MAX_CHARS = 100_000
"""The total length of the texts in one request. A request always has at least one text."""

MAX_TEXT_CHARS = 8_000
"""The length of one text. The rest is left out. OpenAI's models accept 8,192 tokens."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""The size of a response."""

CONNECT_S = 5.0
SILENCE_S = 30.0
ANSWER_S = 60.0
"""The time for a complete response, from its start."""

MAX_RETRY_AFTER_S = 3_600.0

_REFUSED = frozenset({400, 413, 422})
"""HTTP statuses that mean that the texts were refused."""

_WORDS: Mapping[int, str] = {
    401: "the API key was rejected",
    403: "the API key has no permission for this",
    404: "the address or the model does not exist",
    429: "too many requests",
}
_CODE = re.compile(r"[a-z][a-z0-9_]{1,60}")


class EndpointEmbedder:
    """Sends one HTTP request for each batch. Redirects are not followed, because they would receive the key.

    A response is only used if it has one vector for each text, all finite and with the same dimension.
    """

    is_local = False

    def __init__(self, endpoint: ModelEndpoint) -> None:
        """Connect to `endpoint`. If it has no dimensions, the vector of one word is requested to find them.

        Raises:
            EmbeddingFailed: that request failed.
        """
        self._endpoint = endpoint
        self._address = _address(endpoint.url)
        headers = {"User-Agent": f"toolcrib/{VERSION}", "Accept": "application/json"}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        self._client = httpx2.Client(
            headers=headers,
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            follow_redirects=False,
        )
        weakref.finalize(self, self._client.close)  # embedders have no close method
        self.dim = endpoint.dimensions or 0
        if not self.dim:
            self.dim = int(self._asked(["tool"]).shape[1])
        address = hashlib.blake2b(self._address.partition("?")[0].encode(), digest_size=8).hexdigest()
        self.model_id = f"endpoint:{endpoint.model}:{address}:{self.dim}"

    def embed_documents(self, texts: Sequence[str]) -> FloatRows:
        rows = np.zeros((len(texts), self.dim), np.float32)
        at = 0
        for batch in _batches(texts):
            rows[at : at + len(batch)] = self._asked(batch)
            at += len(batch)
        return rows

    def embed_queries(self, texts: Sequence[str]) -> FloatRows:
        return self.embed_documents(texts)

    def embed_query(self, text: str) -> FloatRows:
        return self.embed_documents([text])[0]

    def _asked(self, texts: list[str]) -> FloatRows:
        # Some services refuse an empty text.
        body: dict[str, Any] = {"model": self._endpoint.model, "input": [text.strip() or "-" for text in texts]}
        if self._endpoint.dimensions is not None:
            body["dimensions"] = self._endpoint.dimensions
        return self._read(self._sent(orjson.dumps(body)), len(texts))

    def _sent(self, content: bytes) -> bytes:
        """Send a request. Returns the body of the response."""
        try:
            with self._client.stream(
                "POST", self._address, content=content, headers={"Content-Type": "application/json"}
            ) as response:
                answer = bytearray()
                until = time.monotonic() + ANSWER_S
                for part in response.iter_bytes():
                    answer += part
                    if len(answer) > MAX_BODY_BYTES:
                        raise self._failed(f"the response has more than {MAX_BODY_BYTES} bytes")
                    if time.monotonic() > until:
                        raise self._failed(f"the response took more than {ANSWER_S:g} s")
                if response.status_code != 200:
                    raise self._status(response, bytes(answer))
                return bytes(answer)
        except httpx2.TimeoutException as error:
            raise self._failed("no response in time") from error
        except httpx2.ConnectError as error:
            raise self._failed(f"could not connect ({error})") from error
        except (httpx2.InvalidURL, httpx2.LocalProtocolError, httpx2.UnsupportedProtocol, UnicodeError):
            raise self._failed("its address or key is malformed", is_final=True) from None  # theirs quotes both
        except httpx2.RequestError as error:
            raise self._failed(f"the connection ended before the response ({type(error).__name__})") from error

    def _status(self, response: httpx2.Response, answer: bytes) -> EmbeddingFailed:
        """Return the error for a failed response. Only codes are quoted, because some services repeat the key."""
        status = response.status_code
        if response.has_redirect_location:
            return self._failed(f"it redirects to a different address (HTTP {status}), which Toolcrib does not follow")
        told = f" ({', '.join(codes)})" if (codes := _codes(answer)) else ""
        return self._failed(
            f"{_WORDS.get(status, 'the request was refused')} (HTTP {status}){told}",
            is_refused=status in _REFUSED,
            retry_after_s=_retry_after(response.headers.get("retry-after")),
        )

    def _read(self, answer: bytes, count: int) -> FloatRows:
        """(count, dim), in the order of the texts."""
        try:
            data = orjson.loads(answer)["data"]
            found: dict[int, list[float]] = {
                int(each.get("index", position)): each["embedding"] for position, each in enumerate(data)
            }
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._failed("the response is not a list of embeddings") from error
        if len(data) != count or found.keys() != set(range(count)):
            raise self._failed(f"the response has {len(data)} embeddings for {count} texts")
        try:
            rows: NDArray[np.float64] = np.array([found[position] for position in range(count)], np.float64)
        except (TypeError, ValueError) as error:
            raise self._failed("the embeddings are not lists of numbers with the same length") from error
        if rows.ndim != 2 or not rows.shape[1]:
            raise self._failed("the embeddings are not lists of numbers with the same length")
        if self.dim and rows.shape[1] != self.dim:
            raise self._failed(f"the embeddings have {rows.shape[1]} dimensions instead of {self.dim}")
        try:
            vectors = unit_rows(rows)
        except EmbeddingFailed as error:
            raise self._failed("the embeddings contain values that are not finite numbers") from error
        if not vectors.any(axis=1).all():
            raise self._failed("one of the embeddings has only zeros")
        return vectors

    def _failed(
        self, what: str, *, is_final: bool = False, is_refused: bool = False, retry_after_s: float | None = None
    ) -> EmbeddingFailed:
        return EmbeddingFailed(
            f"{self._endpoint.where}: {what}", is_final=is_final, is_refused=is_refused, retry_after_s=retry_after_s
        )


def _address(url: str) -> str:
    """Return `url` with `/embeddings` at the end of its path. A query, which some services need for a version, is
    kept."""
    path, mark, query = url.partition("?")
    path = path.rstrip("/")
    return f"{path if path.endswith('/embeddings') else f'{path}/embeddings'}{mark}{query}"


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for text in (well_formed(each[:MAX_TEXT_CHARS]) for each in texts):
        if batch and (len(batch) == MAX_TEXTS or chars + len(text) > MAX_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch


def _codes(answer: bytes) -> list[str]:
    """Return the error codes in a response, if they look like codes of an API."""
    try:
        error = orjson.loads(answer)["error"]
        found = [error.get(key) for key in ("code", "type", "param")]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return []
    return [each for each in cast("list[object]", found) if isinstance(each, str) and _CODE.fullmatch(each)]


def _retry_after(header: str | None) -> float | None:
    """Return the seconds from now that a header gives as a number or a date."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):  # not a date, or a date without a time zone
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S) if seconds == seconds else None  # noqa: PLR0124  NaN
