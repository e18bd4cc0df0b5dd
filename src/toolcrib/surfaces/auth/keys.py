"""The public keys of an issuer of tokens: fetched when they are needed, kept for a while, never believed by halves."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

import anyio
import httpx2
import jwt

from toolcrib.config.auth import is_safe
from toolcrib.surfaces.auth.refusals import KeysUnavailable

logger = logging.getLogger(__name__)

FRESH_S = 300.0
"""How long keys are good without a look at the issuer, in seconds."""

KEPT_S = 3_600.0
"""How long they are good while the issuer cannot be reached; a key that it took back is good for no longer, either."""

RETRY_S = 10.0
"""The issuer is asked at most this often, in seconds, whatever tokens strangers make up."""

TIMEOUT_S = 5.0
"""How long it may take to answer, in seconds."""

MAX_BYTES = 256 * 1024
"""Of one answer of it."""

_METADATA = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")


class _Unusable(Exception):
    """What the issuer answered, if it did, is no set of keys."""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, url: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`url` is where they are; without one, the issuer's metadata says. `clock` gives seconds."""
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: list[Mapping[str, Any]] = []
        self._built: dict[tuple[int, str], jwt.PyJWK | None] = {}
        self._fetched_at = -math.inf
        self._ask_from = 0.0
        self._asking = anyio.Lock()

    async def key(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """The key that a token names, for a signature by `algorithm`; None where the issuer has no such key.

        Raises:
            KeysUnavailable: nobody can tell now.
        """
        # Whoever finds somebody else asking goes by the keys that are there.
        if self._age_s() >= FRESH_S and not (self._age_s() < KEPT_S and self._asking.locked()):
            await self._ask()
        if self._age_s() < KEPT_S and (found := self._find(key_id, algorithm)) is not None:
            return found
        await self._ask()  # the issuer may have got new keys
        if self._age_s() >= KEPT_S:
            raise KeysUnavailable(max(1.0, self._ask_from - self._clock()))
        return self._find(key_id, algorithm)

    def _age_s(self) -> float:
        return self._clock() - self._fetched_at

    def _find(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """A token that names no key is signed with the only one there is."""
        fitting = [
            position
            for position, key in enumerate(self._keys)
            if (key.get("kid") == key_id if key_id is not None else len(self._keys) == 1)
        ]
        built = (self._key(position, algorithm) for position in fitting)
        return next((key for key in built if key is not None), None)

    def _key(self, position: int, algorithm: str) -> jwt.PyJWK | None:
        """The key at `position` for `algorithm`; None where it is not made for that."""
        if (position, algorithm) not in self._built:
            self._built[position, algorithm] = _made(self._keys[position], algorithm)
        return self._built[position, algorithm]

    async def _ask(self) -> None:
        """Fetch the keys, unless somebody did just now or is at it: then wait for what comes of that."""
        if self._clock() < self._ask_from and not self._asking.locked():
            return
        async with self._asking:
            if self._clock() < self._ask_from:
                return
            try:
                with anyio.fail_after(TIMEOUT_S):
                    keys = await self._fetch_keys()
            except (_Unusable, TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                logger.warning("the keys of %s cannot be had: %s", self._issuer, str(error) or type(error).__name__)
            else:
                self._keys, self._built, self._fetched_at = keys, {}, self._clock()
            self._ask_from = self._clock() + RETRY_S

    async def _fetch_keys(self) -> list[Mapping[str, Any]]:
        # Not to be redirected: that would be another's word.
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client:
            url = self._url or await self._discover(client)
            document = await _fetch(client, url)
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise _Unusable(f"{url} has no list of `keys`")
        found = [cast("Mapping[str, Any]", key) for key in cast("list[object]", keys) if isinstance(key, dict)]
        if not found:
            raise _Unusable(f"{url} has no key")
        return found

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        """Where the metadata of the issuer says that its keys are.

        Source: OpenID Connect Discovery 1.0, section 4; RFC 8414, section 3, which puts the path at the end.
        """
        said: _Unusable | None = None
        split = httpx2.URL(self._issuer)
        path = split.path.rstrip("/")
        origin = str(split.copy_with(path="/", query=None, fragment=None)).rstrip("/")
        for address in (f"{origin}{path}{_METADATA[0]}", f"{origin}{_METADATA[1]}{path}"):
            try:
                metadata = await _fetch(client, address)
            except _Unusable as error:
                said = said or error
                continue
            url = metadata.get("jwks_uri")
            if metadata.get("issuer") != self._issuer or not isinstance(url, str) or not is_safe(url):
                raise _Unusable(f"{address} is of another issuer, or names no `jwks_uri` that is safe")
            return url
        raise said or _Unusable("it has no metadata")


def _made(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return None
    try:
        return jwt.PyJWK(dict(key), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):  # of another kind, or no key at all
        return None


async def _fetch(client: httpx2.AsyncClient, url: str) -> Mapping[str, Any]:
    # Nothing compressed: a few bytes of that can be a great many.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    body = bytearray()
    async with client.stream("GET", url, headers=headers) as response:
        if response.status_code != HTTPStatus.OK:
            raise _Unusable(f"{url} answered {response.status_code}")
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_BYTES:
                raise _Unusable(f"{url} answered with more than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Unusable(f"{url} answered with what is no JSON") from error
    if not isinstance(document, dict):
        raise _Unusable(f"{url} answered with what is no object")
    return cast("Mapping[str, Any]", document)
