"""Seals bytes, so that only the holder of the key can read them and any change to them is noticed."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import cast

KEY_BYTES = 32
"""The length of a key, in bytes: AES-256."""

_VERSION = b"\x01"
_ID_BYTES = 4
_NONCE_BYTES = 12
_TAG_BYTES = 16
_HEADER_BYTES = len(_VERSION) + _ID_BYTES


class SealBroken(ValueError):
    """A sealed value was changed or cut, is bound to something else, or was sealed with a different key.

    The message contains neither the value nor what it is bound to.
    """


class Seal:
    """Seals and opens values with AES-256-GCM.

    A sealed value consists of a version byte, 4 bytes that identify the key, a random nonce of 12 bytes, the encrypted
    value, and a tag of 16 bytes. The same value looks different each time it is sealed. Its length is not hidden.

    One key must not seal more than 2**32 values, because the nonces are random (NIST SP 800-38D, section 8.3).

    A seal has no state besides its keys. Several threads may use it at the same time.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take the keys, newest first, each of `KEY_BYTES` random bytes.

        The first key seals, and all keys open. To replace a key, put the new key before it. When everything is sealed
        again, remove the old key.

        Raises:
            ValueError: there is no key, or a key has the wrong length.
        """
        if not keys:
            raise ValueError("a seal needs a key")
        if any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"a key must have {KEY_BYTES} bytes")
        self._keys = tuple((_identify(key), bytes(key)) for key in keys)

    def __repr__(self) -> str:
        return f"<Seal with {len(self._keys)} {'key' if len(self._keys) == 1 else 'keys'}>"

    def seal(self, plain: bytes, bound_to: str) -> bytes:
        """Return `plain`, sealed. Only `unseal` with the same `bound_to` opens it.

        `bound_to` says what the value is for, such as a principal and a server. So a value that was moved to a
        different row of a table does not open there. If it has several parts, join them so that no two lists of parts
        give the same string, for example as JSON.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  slow to import

        key_id, key = self._keys[0]
        header, nonce = _VERSION + key_id, os.urandom(_NONCE_BYTES)
        return header + nonce + AESGCM(key).encrypt(nonce, plain, _bound(header, bound_to))

    def digest(self, plain: str) -> str:
        """Return a digest of `plain` as 64 hexadecimal digits. Only a holder of the newest key can compute it.

        So a person who reads the digest cannot try out what it could be the digest of. HMAC-SHA-256.
        """
        _, key = self._keys[0]
        return hmac.new(key, b"toolcrib digest\0" + plain.encode("utf-8", "surrogatepass"), "sha256").hexdigest()

    def unseal(self, sealed: bytes, bound_to: str) -> bytes:
        """Return the value that was sealed.

        Raises:
            SealBroken: none of the keys sealed this value for `bound_to`. Files and tables can contain anything, so a
                `sealed` that is not `bytes` raises this too.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  slow to import
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  slow to import

        value = cast("object", sealed)
        if not isinstance(value, bytes) or len(value) < _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES:
            raise SealBroken("this is not a sealed value, or a part of it is missing")
        header, nonce = value[:_HEADER_BYTES], value[_HEADER_BYTES : _HEADER_BYTES + _NONCE_BYTES]
        if not header.startswith(_VERSION):
            raise SealBroken("this is not a sealed value, or a newer version of Toolcrib sealed it")
        known = [key for key_id, key in self._keys if key_id == header[len(_VERSION) :]]
        for key in known:
            try:
                return AESGCM(key).decrypt(nonce, value[_HEADER_BYTES + _NONCE_BYTES :], _bound(header, bound_to))
            except InvalidTag:
                continue
        raise SealBroken("the value was changed, or is in the wrong place" if known else "a different key sealed this")


def _identify(key: bytes) -> bytes:
    """Return a short digest of `key`. It says which key sealed a value, and nothing about the key itself."""
    return hashlib.sha256(b"toolcrib key id\0" + key).digest()[:_ID_BYTES]


def _bound(header: bytes, bound_to: str) -> bytes:
    """Return the associated data. Names from outside can contain half a surrogate pair, which must not fail here."""
    return header + bound_to.encode("utf-8", "surrogatepass")
