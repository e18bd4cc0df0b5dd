"""Stored secrets: sealed in the file, bound to their place, and opened only with the key."""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import Seal, SealBroken
from toolcrib.secrets.secret_store import MAX_VALUE_BYTES, SecretStore, StoredSecret

CANARY = "canary-91f0c2"
SEAL = Seal([b"k" * 32])


def store(folder: Path, seal: Seal = SEAL) -> SecretStore:
    return SecretStore(folder / "secrets.sqlite", lambda: seal)


def locked() -> Seal:
    raise KeyUnavailable("the keyring is locked")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "mcp.json"


@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=50))
def test_a_stored_value_is_returned_unchanged(value: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    store(folder).set("github", value)
    assert store(folder).get("github") == value


def test_a_secret_for_all_and_an_input_with_the_same_name_are_different(tmp_path: Path, config: Path) -> None:
    kept = store(tmp_path)
    kept.set("token", "for all")
    kept.set("token", "for this one", config)
    assert (kept.get("token"), kept.get("token", config)) == ("for all", "for this one")
    assert kept.get("token", tmp_path / "other.json") is None
    assert kept.remove("token", config)
    assert (kept.get("token"), kept.get("token", config)) == ("for all", None)


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_all_paths_of_a_configuration_mean_the_same(tmp_path: Path, config: Path) -> None:
    config.write_text("{}")
    (tmp_path / "link.json").symlink_to(config)
    store(tmp_path).set("token", "value", tmp_path / "link.json")
    assert store(tmp_path).get("token", config) == "value"


def test_a_new_value_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    store(tmp_path).set("token", "old")
    store(tmp_path).set("token", "new")
    assert store(tmp_path).get("token") == "new"
    assert len(store(tmp_path).all()) == 1


def test_the_list_needs_no_key_and_has_no_values(tmp_path: Path, config: Path) -> None:
    store(tmp_path).set("b", CANARY)
    store(tmp_path).set("a", CANARY, config)
    without_key = SecretStore(tmp_path / "secrets.sqlite", locked)
    assert [(each.name, each.config) for each in without_key.all()] == [("b", None), ("a", config)]
    assert CANARY not in repr(without_key.all())
    assert all(isinstance(each, StoredSecret) and each.set_at > 0 for each in without_key.all())
    assert without_key.remove("b")
    with pytest.raises(KeyUnavailable):
        without_key.get("a", config)


def test_reading_and_removing_create_no_file(tmp_path: Path) -> None:
    kept = store(tmp_path)
    assert (kept.get("token"), kept.all(), kept.remove("token")) == (None, (), False)
    assert not kept.path.exists()


def test_the_file_is_private_and_contains_no_value(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.set("token", CANARY)
    assert CANARY.encode() not in kept.path.read_bytes()
    if os.name != "nt":
        assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_a_value_that_was_moved_to_a_different_row_does_not_open(tmp_path: Path, config: Path) -> None:
    kept = store(tmp_path)
    kept.set("token", CANARY)
    for change in ("UPDATE secrets SET name = 'other'", f"UPDATE secrets SET config = '{config}', name = 'token'"):
        with closing(sqlite3.connect(kept.path)) as file, file:
            file.execute(change)
        (row,) = store(tmp_path).all()
        with pytest.raises(SealBroken):
            store(tmp_path).get(row.name, row.config)


def test_a_different_key_does_not_open_it(tmp_path: Path) -> None:
    store(tmp_path).set("token", CANARY)
    with pytest.raises(SealBroken, match="different key"):
        store(tmp_path, Seal([b"x" * 32])).get("token")
    assert store(tmp_path, Seal([b"x" * 32, b"k" * 32])).get("token") == CANARY


@pytest.mark.parametrize("value", ["", f"{CANARY}\0", f"{CANARY}\ud800", CANARY * MAX_VALUE_BYTES])
def test_an_unusable_value_is_refused_without_showing_it(value: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the value") as refusal:
        store(tmp_path).set("token", value)
    assert CANARY not in f"{refusal.value!r} {refusal.value.__cause__!r}"
    assert store(tmp_path).all() == ()


def test_without_a_key_nothing_is_stored(tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailable):
        SecretStore(tmp_path / "secrets.sqlite", locked).set("token", CANARY)
    assert not (tmp_path / "secrets.sqlite").exists()


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    begin = threading.Barrier(8)

    def write(number: int) -> None:
        kept = store(tmp_path)
        begin.wait()
        kept.set(f"token-{number}", str(number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [store(tmp_path).get(f"token-{number}") for number in range(8)] == [str(number) for number in range(8)]
