"""Sealing and opening, rotation of keys, and everything that must not open."""

import os
import subprocess
import sys
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.secrets.sealing import Seal, SealBroken

NEW, OLD, FOREIGN = (bytes([number]) * 32 for number in (1, 2, 3))


@given(plain=st.binary(max_size=200), bound_to=st.text(st.characters(), max_size=20))
def test_a_sealed_value_opens_with_what_it_is_bound_to(plain: bytes, bound_to: str) -> None:
    seal = Seal([NEW])
    assert seal.unseal(seal.seal(plain, bound_to), bound_to) == plain


def test_a_name_with_half_a_surrogate_pair_can_be_bound() -> None:
    seal = Seal([NEW])
    assert seal.unseal(seal.seal(b"value", "a\ud800"), "a\ud800") == b"value"
    with pytest.raises(SealBroken):
        seal.unseal(seal.seal(b"value", "a\ud800"), "a?")


def test_the_same_value_looks_different_each_time() -> None:
    seal = Seal([NEW])
    assert len({seal.seal(b"value", "here") for _ in range(100)}) == 100


def test_a_digest_depends_on_the_value_and_on_the_newest_key() -> None:
    digests = {Seal(keys).digest(value) for keys in ([bytes(32)], [bytes([1] * 32)]) for value in ("a", "b", "\ud800")}
    assert len(digests) == 6
    assert Seal([bytes(32), bytes([1] * 32)]).digest("a") == Seal([bytes(32)]).digest("a")


def test_the_first_key_seals_and_all_keys_open() -> None:
    before = Seal([OLD]).seal(b"value", "here")
    both = Seal([NEW, OLD])
    assert both.unseal(before, "here") == b"value"
    after = both.seal(b"value", "here")
    assert Seal([NEW]).unseal(after, "here") == b"value"
    with pytest.raises(SealBroken, match="a different key"):
        Seal([OLD]).unseal(after, "here")


def test_no_changed_byte_opens() -> None:
    seal = Seal([NEW, OLD])
    sealed = seal.seal(b"value", "here")
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(SealBroken):
                seal.unseal(bytes(changed), "here")


def test_no_shortened_or_extended_value_opens() -> None:
    seal = Seal([NEW])
    sealed = seal.seal(b"value", "here")
    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            seal.unseal(sealed[:length], "here")
        with pytest.raises(SealBroken):
            seal.unseal(sealed[length + 1 :], "here")
    for changed in (sealed + b"\0", b"\0" + sealed, sealed * 2):
        with pytest.raises(SealBroken):
            seal.unseal(changed, "here")


def test_a_value_that_was_moved_does_not_open() -> None:
    seal = Seal([NEW])
    sealed = seal.seal(b"value", "ada")
    for elsewhere in ("bob", "", "ada\0", "ADA"):
        with pytest.raises(SealBroken, match="wrong place"):
            seal.unseal(sealed, elsewhere)


def test_a_key_with_the_same_id_does_not_open_what_it_did_not_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.secrets.sealing._identify", lambda _key: b"same")  # pyright: ignore[reportUnknownArgumentType,reportUnknownLambdaType]
    sealed = Seal([OLD]).seal(b"value", "here")
    assert Seal([NEW, OLD]).unseal(sealed, "here") == b"value"
    with pytest.raises(SealBroken):
        Seal([NEW]).unseal(sealed, "here")


@pytest.mark.parametrize("value", ["text", None, 7, bytearray(60)])
def test_what_is_not_bytes_does_not_open(value: object) -> None:
    with pytest.raises(SealBroken):
        Seal([NEW]).unseal(cast("Any", value), "here")


@pytest.mark.parametrize("keys", [[], [b""], [NEW, OLD[1:]], [NEW + b"\0"]])
def test_a_key_of_the_wrong_length_is_refused_and_not_shown(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"key") as refusal:
        Seal(keys)
    assert "\\x01" not in repr(refusal.value)


def test_neither_keys_nor_values_are_shown() -> None:
    secret, key = b"canary-5d1e", os.urandom(32)
    seal = Seal([key])
    sealed = seal.seal(secret, "canary-place")
    with pytest.raises(SealBroken) as broken:
        seal.unseal(sealed, "elsewhere")
    shown = f"{seal!r} {seal} {broken.value!r} {broken.value.__context__!r}"
    assert repr(seal) == "<Seal with 1 key>"
    assert "canary" not in shown
    assert key.hex() not in shown
    assert secret not in sealed


def test_importing_it_does_not_import_the_cryptography() -> None:
    program = "import sys, toolcrib.secrets.keys; sys.exit(bool({'cryptography', 'keyring'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
