"""Sends one HTTP request. Redirects must stay on its origin, and its answer is limited in time and size."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import anyio
import httpx2

from toolcrib.core.errors import InvalidArguments, SourceUnavailable, ToolFailed
from toolcrib.sources.addresses import CONNECT_S, NotPublic, ScreenedTransport, UnknownHost, is_public
from toolcrib.sources.declared.http_endpoint import HttpRequest
from toolcrib.version import VERSION

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 1_000_000
"""The maximum size of an answer. The rest is left out."""

MAX_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, possibly cut."""

    status: int
    kind: str
    """The media type, in lower case and without parameters; empty if the answer has none."""
    text: str
    is_cut: bool


async def ask(asking: HttpRequest, *, name: str, allows_private: bool, timeout_s: float) -> Answered:
    """Send `asking` for the tool `name`, and read the answer. No error quotes an address or a header.

    Raises:
        SourceUnavailable: there is no answer, or not in time; `retryable` if nothing was sent.
        ToolFailed: the request would go, or was redirected, to an address that is not allowed.
        InvalidArguments: the address is too long with these arguments.
    """
    client = httpx2.AsyncClient(
        transport=ScreenedTransport(None if allows_private else is_public),
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
        raise InvalidArguments(f"With these arguments the address of `{name}` is not valid. Nothing ran.") from error
    except NotPublic as error:
        logger.warning("did not call %s: `%s` is in a private network, and `allow_private` is not set", name, error)
        raise ToolFailed(
            f"`{name}` did not run: its address is in a private network, which its owner does not allow."
        ) from error
    except UnknownHost as error:
        told, cause = f"`{name}` could not be reached: its host name does not resolve.", f"The host is `{error}`."
        raise SourceUnavailable(told, diagnosis=cause, retryable=True) from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        within = "" if isinstance(error, httpx2.ConnectError) else f" within {CONNECT_S:g} s"
        told, cause = f"`{name}` could not be reached: it did not accept a connection{within}.", f"The cause: {error}."
        raise SourceUnavailable(told, diagnosis=cause, retryable=True) from error
    except httpx2.TimeoutException as error:
        raise SourceUnavailable(f"`{name}` did not answer within {timeout_s:g} s.") from error
    except (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol) as error:
        raise ToolFailed(f"`{name}` cannot be called: its address or one of its headers is malformed.") from error
    except httpx2.DecodingError as error:
        raise ToolFailed(f"`{name}` answered with a body that cannot be decompressed.") from error
    except httpx2.RequestError as error:
        raise SourceUnavailable(
            f"`{name}` closed the connection before it answered.", diagnosis=type(error).__name__
        ) from error


async def _followed(client: httpx2.AsyncClient, request: httpx2.Request, name: str) -> Answered:
    for _ in range(MAX_REDIRECTS + 1):
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if not response.has_redirect_location:
                return await _read(response)
            if response.next_request is None or not _may_follow(request.url, response.next_request.url):
                logger.warning("did not follow the redirect of %s%s", name, _told(response))
                raise ToolFailed(
                    f"`{name}` redirects to a different address (HTTP {response.status_code}), which is not followed."
                )
            request = response.next_request
        finally:
            await response.aclose()
    raise ToolFailed(f"`{name}` redirects more than {MAX_REDIRECTS} times.")


def _may_follow(sent: httpx2.URL, to: httpx2.URL) -> bool:
    """Return whether a redirect stays on the same origin, or leads from http to https on the same host."""
    if to.userinfo not in (b"", sent.userinfo) or to.host != sent.host:
        return False
    return (to.scheme, to.port) == (sent.scheme, sent.port) or (
        (sent.scheme, sent.port, to.scheme, to.port) == ("http", None, "https", None)
    )


def _told(response: httpx2.Response) -> str:
    """Return the target of a redirect for the log. Only the origin is shown, because the rest may contain arguments."""
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
    except LookupError:  # an unknown encoding
        text = bytes(body[:MAX_BODY_BYTES]).decode("utf-8", "replace")
    return Answered(response.status_code, kind, text, len(body) > MAX_BODY_BYTES)
