"""The public keys of a token issuer, which are fetched on demand and cached."""

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

from toolcrib.config.access_settings import is_safe
from toolcrib.surfaces.auth.auth_refusals import KeysUnavailable

logger = logging.getLogger(__name__)

FRESH_S = 300.0
"""How long fetched keys are used without asking the issuer again, in seconds."""

KEPT_S = 3_600.0
"""How long fetched keys are used while the issuer is unreachable, in seconds.

It also limits the use of a revoked key.
"""

RETRY_S = 10.0
"""The shortest time between two requests to the issuer, in seconds. Forged tokens cannot cause more requests."""

TIMEOUT_S = 5.0
"""How long the issuer may take to answer, in seconds."""

MAX_BYTES = 256 * 1024
"""The maximum length of one answer of the issuer, in bytes."""

_METADATA = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")


class _Unusable(Exception):
    """The issuer could not be asked, or did not answer with a set of keys."""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, url: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`url` is the address of the keys.

        Without it, the issuer's metadata provides the address. `clock` returns seconds.
        """
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: list[Mapping[str, Any]] = []
        self._built: dict[tuple[int, str], jwt.PyJWK | None] = {}
        self._fetched_at = -math.inf
        self._ask_from = 0.0
        self._asking = anyio.Lock()

    async def key(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """Return the key with this id for signatures by `algorithm`, or None if the issuer has no such key.

        Raises:
            KeysUnavailable: the keys are too old or missing, and the issuer could not be reached.
        """
        # While another request refreshes the keys, cached keys that are not too old are used without waiting.
        if self._age_s() >= FRESH_S and not (self._age_s() < KEPT_S and self._asking.locked()):
            await self._ask()
        if self._age_s() < KEPT_S and (found := self._find(key_id, algorithm)) is not None:
            return found
        await self._ask()  # the issuer may have added keys
        if self._age_s() >= KEPT_S:
            raise KeysUnavailable(max(1.0, self._ask_from - self._clock()))
        return self._find(key_id, algorithm)

    def _age_s(self) -> float:
        return self._clock() - self._fetched_at

    def _find(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """Return the fitting key. A token without a key id fits only if the issuer has exactly one key."""
        fitting = [
            position
            for position, key in enumerate(self._keys)
            if (key.get("kid") == key_id if key_id is not None else len(self._keys) == 1)
        ]
        built = (self._key(position, algorithm) for position in fitting)
        return next((key for key in built if key is not None), None)

    def _key(self, position: int, algorithm: str) -> jwt.PyJWK | None:
        """Return the key at `position` for `algorithm`, or None if it is for a different algorithm or use."""
        if (position, algorithm) not in self._built:
            self._built[position, algorithm] = _made(self._keys[position], algorithm)
        return self._built[position, algorithm]

    async def _ask(self) -> None:
        """Fetch the keys, unless that happened a moment ago. If a fetch is running, wait for it instead."""
        if self._clock() < self._ask_from and not self._asking.locked():
            return
        async with self._asking:
            if self._clock() < self._ask_from:  # a different request fetched them while this one waited
                return
            try:
                with anyio.fail_after(TIMEOUT_S):
                    keys = await self._fetch_keys()
            except (_Unusable, TimeoutError, httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                logger.warning(
                    "cannot fetch the keys of the token issuer %s: %s", self._issuer, str(error) or type(error).__name__
                )
            else:
                self._keys, self._built, self._fetched_at = keys, {}, self._clock()
            self._ask_from = self._clock() + RETRY_S

    async def _fetch_keys(self) -> list[Mapping[str, Any]]:
        # Redirects are not followed: only the configured issuer may provide keys.
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client:
            url = self._url or await self._discover(client)
            document = await _fetch(client, url)
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise _Unusable(f"{url} has no list of `keys`")
        found = [cast("Mapping[str, Any]", key) for key in cast("list[object]", keys) if isinstance(key, dict)]
        if not found:
            raise _Unusable(f"{url} has an empty list of `keys`")
        return found

    async def _discover(self, client: httpx2.AsyncClient) -> str:
        """Return the address of the keys from the issuer's metadata.

        Source: OpenID Connect Discovery 1.0, section 4; RFC 8414, section 3, which appends the issuer's path to the
        well-known path.
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
                raise _Unusable(f"{address} names a different issuer, or has no secure `jwks_uri`")
            return url
        raise said or _Unusable("the issuer has no metadata")


def _made(key: Mapping[str, Any], algorithm: str) -> jwt.PyJWK | None:
    if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
        return None
    try:
        return jwt.PyJWK(dict(key), algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):  # a key for a different algorithm, or not a key
        return None


async def _fetch(client: httpx2.AsyncClient, url: str) -> Mapping[str, Any]:
    # Compression is refused, because a few compressed bytes can expand to a huge body.
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
        raise _Unusable(f"{url} did not answer with JSON") from error
    if not isinstance(document, dict):
        raise _Unusable(f"{url} did not answer with a JSON object")
    return cast("Mapping[str, Any]", document)
