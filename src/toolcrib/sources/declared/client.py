"""Sending one HTTP request: its redirects stay where they began, and its answer is bounded in time and size."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio
import httpx2

from toolcrib.core.errors import InvalidArguments, SourceUnavailable, ToolFailed
from toolcrib.sources.declared.addresses import CONNECT_S, NotPublic, ScreenedTransport, UnknownHost
from toolcrib.sources.declared.endpoint import Asking
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1_000_000
"""Of an answer; what comes after that is left out."""

MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, as far as it was read."""

    status: int
    kind: str
    """Its media type, in lower case and without parameters; empty where it names none."""
    text: str
    is_cut: bool


async def ask(asking: Asking, *, name: str, allows_private: bool, timeout_s: float) -> Answered:
    """Send `asking`, which `name` is about, and read the answer. No error quotes an address or a header.

    Raises:
        SourceUnavailable: there is no answer, or not in time; `retryable` where nothing was sent.
        ToolFailed: it would lead, or is led, where it may not go.
        InvalidArguments: the address became too long.
    """
    client = httpx2.AsyncClient(
        transport=ScreenedTransport(allows_private=allows_private),
        timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
        headers={"User-Agent": f"toolcrib/{VERSION}"},
        trust_env=False,
    )
    try:
        with anyio.fail_after(timeout_s):
            async with client:
                request = client.build_request(
                    asking.method, asking.url, headers=asking.headers, content=asking.content
                )
                return await _followed(client, request, name)
    except TimeoutError as error:
        raise SourceUnavailable(f"`{name}` did not answer within {timeout_s:g} s.") from error
    except httpx2.InvalidURL as error:
        raise InvalidArguments(f"Nothing was run: with these arguments the address of `{name}` is none.") from error
    except NotPublic as error:
        logger.warning("%s was not asked: `%s` leads to a private network, without `allow_private`", name, error)
        raise ToolFailed(
            f"`{name}` was not asked: its address leads to a private network, which its owner does not allow."
        ) from error
    except UnknownHost as error:
        told, cause = f"`{name}` was not reached: its host is not known.", f"There is no host `{error}`."
        raise SourceUnavailable(told, diagnosis=cause, retryable=True) from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        within = "" if isinstance(error, httpx2.ConnectError) else f" within {CONNECT_S:g} s"
        told, cause = f"`{name}` could not be reached: it did not accept a connection{within}.", f"The cause: {error}."
        raise SourceUnavailable(told, diagnosis=cause, retryable=True) from error
    except httpx2.TimeoutException as error:
        raise SourceUnavailable(f"`{name}` did not answer within {timeout_s:g} s.") from error
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as error:
        raise ToolFailed(f"`{name}` cannot be asked: its address or a header of it is malformed.") from error
    except httpx2.DecodingError as error:
        raise ToolFailed(f"`{name}` answered with a body that cannot be unpacked.") from error
    except httpx2.RequestError as error:
        raise SourceUnavailable(
            f"`{name}` broke off before it had answered.", diagnosis=type(error).__name__
        ) from error


async def _followed(client: httpx2.AsyncClient, request: httpx2.Request, name: str) -> Answered:
    for _ in range(MAX_REDIRECTS + 1):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if not response.has_redirect_location:
                return await _read(response)
            if response.next_request is None or not _may_follow(request.url, response.next_request.url):
                logger.warning("%s was redirected%s, where nothing was sent", name, _told(response))
                raise ToolFailed(
                    f"`{name}` was redirected to another place (HTTP {response.status_code}), where nothing was sent."
                )
            request = response.next_request
        finally:
            await response.aclose()
    raise ToolFailed(f"`{name}` was redirected more than {MAX_REDIRECTS} times.")


def _may_follow(sent: httpx2.URL, to: httpx2.URL) -> bool:
    """Whether a redirect stays with the same origin, or leads from http to https of the same host."""
    if to.userinfo not in (b"", sent.userinfo) or to.host != sent.host:
        return False
    return (to.scheme, to.port) == (sent.scheme, sent.port) or (
        (sent.scheme, sent.port, to.scheme, to.port) == ("http", None, "https", None)
    )


def _told(response: httpx2.Response) -> str:
    """Where to, as far as it can be told: the rest of an address may hold what was filled into the declared one."""
    to = response.next_request
    return "" if to is None else f" to {to.url.scheme}://{to.url.netloc.decode('ascii', 'replace')}"


async def _read(response: httpx2.Response) -> Answered:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_BODY_BYTES:
            break
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = bytes(body[:MAX_BODY_BYTES]).decode(response.charset_encoding or "utf-8", "replace")
    except LookupError:  # an encoding that nobody has heard of
        text = bytes(body[:MAX_BODY_BYTES]).decode("utf-8", "replace")
    return Answered(response.status_code, kind, text, len(body) > MAX_BODY_BYTES)
