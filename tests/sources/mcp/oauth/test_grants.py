"""The store of grants: what is sealed, what a changed row means, and who may renew."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.secrets.sealing import Seal
from toolcrib.sources.mcp.oauth.grants import (
    LEASE_S,
    SIGN_IN_S,
    Grant,
    GrantKey,
    GrantStore,
    RegisteredClient,
    StoredGrant,
    scopes,
)

KEY = GrantKey("ada|x", "digest-of-a-server")
GRANT = Grant(
    issuer="https://issuer.example",
    token_endpoint="https://issuer.example/token",
    resource="https://far.example/mcp",
    client=RegisteredClient("client", "canary-secret", "client_secret_basic"),
    scope="a b",
    access_token="canary-access",
    refresh_token="canary-refresh",
    expires_at=100.0,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> GrantStore:
    return GrantStore(tmp_path / "grants.sqlite", lambda: Seal([b"k" * 32]), now=clock)


def stored(store: GrantStore, key: GrantKey = KEY) -> StoredGrant:
    found = store.get(key)
    assert found is not None
    return found


def change(store: GrantStore, statement: str, *values: object) -> None:
    with sqlite3.connect(store.path) as file:
        file.execute(statement, values)
    file.close()


def test_a_grant_is_read_as_it_was_saved_and_is_not_legible_in_the_file(store: GrantStore) -> None:
    assert store.get(KEY) is None
    assert store.stamp() is None
    store.save(KEY, "far", GRANT)
    assert stored(store).grant == GRANT
    assert b"canary" not in store.path.read_bytes()
    assert store.path.stat().st_mode & 0o077 == 0
    assert "canary" not in repr(stored(store))


def test_a_changed_row_counts_as_missing_and_is_still_listed(store: GrantStore) -> None:
    store.save(KEY, "far", GRANT)
    body = bytearray(sqlite3.connect(store.path).execute("SELECT body FROM grants").fetchone()[0])
    body[-1] ^= 1
    change(store, "UPDATE grants SET body = ?", bytes(body))
    assert stored(store).grant is None
    assert [(each.name, each.grant) for each in store.all()] == [("far", None)]
    store.save(KEY, "far", GRANT)  # a new sign-in works
    assert stored(store).grant == GRANT


@pytest.mark.parametrize("column", ["principal", "server", "issuer"])
def test_a_row_that_was_moved_to_someone_else_does_not_open(store: GrantStore, column: str) -> None:
    store.save(KEY, "far", GRANT)
    change(store, f"UPDATE grants SET {column} = ?", "eve")
    (moved,) = store.all()
    assert moved.grant is None


def test_a_different_key_opens_nothing(store: GrantStore) -> None:
    store.save(KEY, "far", GRANT)
    assert stored(GrantStore(store.path, lambda: Seal([b"x" * 32]))).grant is None


def test_only_one_process_may_renew_a_grant(store: GrantStore) -> None:
    store.save(KEY, "far", GRANT)
    seen = stored(store)
    mark = store.lease(seen)
    assert mark is not None
    assert GrantStore(store.path, lambda: Seal([b"k" * 32]), now=store.now).lease(seen) is None
    renewed = replace(GRANT, access_token="canary-2")
    assert store.renew(KEY, mark, renewed)
    assert stored(store).grant == renewed
    assert store.lease(seen) is None  # whoever waited must read again
    assert store.lease(stored(store)) is not None


def test_the_right_to_renew_returns_after_a_failure_or_after_its_time(store: GrantStore, clock: Clock) -> None:
    store.save(KEY, "far", GRANT)
    seen = stored(store)
    mark = store.lease(seen)
    assert mark is not None
    store.give_back(KEY, mark)
    lost = store.lease(seen)
    assert lost is not None
    clock.now += LEASE_S  # its process died
    again = store.lease(seen)
    assert again is not None
    assert not store.renew(KEY, lost, GRANT)
    assert store.renew(KEY, again, GRANT)


def test_a_lease_from_before_the_clock_jumped_back_does_not_count(store: GrantStore, clock: Clock) -> None:
    store.save(KEY, "far", GRANT)
    assert store.lease(stored(store)) is not None
    clock.now -= 3_600
    assert store.lease(stored(store)) is not None


def test_a_sign_in_replaces_a_renewal_that_is_still_running(store: GrantStore) -> None:
    store.save(KEY, "far", GRANT)
    mark = store.lease(stored(store))
    assert mark is not None
    new = replace(GRANT, access_token="canary-new")
    store.save(KEY, "far", new)
    assert not store.renew(KEY, mark, GRANT)
    assert stored(store).grant == new


def test_wanted_scopes_last_until_the_next_sign_in(store: GrantStore) -> None:
    store.save(KEY, "far", GRANT)
    store.want(KEY, "c")
    assert stored(store).wanted == "c"
    store.save(KEY, "far", GRANT)
    assert stored(store).wanted == ""
    assert scopes("a b", None, "b c", "") == "a b c"


def test_a_running_sign_in_is_taken_once_and_is_not_legible(store: GrantStore) -> None:
    assert store.take("canary-state") is None
    store.put("canary-state", {"verifier": "canary-verifier"})
    assert b"canary" not in store.path.read_bytes()
    assert store.take("other") is None
    assert store.take("canary-state") == {"verifier": "canary-verifier"}
    assert store.take("canary-state") is None


@pytest.mark.parametrize("jump_s", [SIGN_IN_S, -1.0])
def test_a_sign_in_that_took_too_long_or_is_from_the_future_is_gone(
    store: GrantStore, clock: Clock, jump_s: float
) -> None:
    store.put("state", {})
    clock.now += jump_s
    assert store.take("state") is None


def test_a_changed_sign_in_is_gone(store: GrantStore) -> None:
    store.put("state", {})
    change(store, "UPDATE sign_ins SET body = ?", b"x" * 60)
    assert store.take("state") is None


def test_registered_clients_belong_to_one_issuer_and_expire(store: GrantStore, clock: Clock) -> None:
    client = RegisteredClient("c", "canary-secret", "client_secret_post", "http://127.0.0.1:1/callback", 2_000.0)
    store.save_client(KEY, "https://a.example", client)
    assert store.client(KEY, "https://a.example") == client
    assert store.client(KEY, "https://b.example") is None
    clock.now = 2_000.0
    assert store.client(KEY, "https://a.example") is None
    store.save(KEY, "far", GRANT)
    clock.now = 0.0
    assert store.forget(KEY)
    assert store.client(KEY, "https://a.example") is None
    assert not store.forget(KEY)
