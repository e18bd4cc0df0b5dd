"""Checks of the contracts of the stores, for any implementation.

Each check takes a function that opens the store at the same place whenever it is called. The place must be empty at
first.
"""

# ruff: noqa: S101  # a broken promise is an AssertionError, which test runners show best
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import anyio

from toolcrib.config.registration_store import Registration, Registrations
from toolcrib.core.errors import InvalidConfig
from toolcrib.operations.calling import Approvals
from toolcrib.sources.definition_cache import CachedDefinitions, Definitions

_ROUNDS = 8
"""The number of approvals that are stored concurrently."""

_MEANWHILE_S = 0.2
"""How long a change waits so that a concurrent change can happen in between, in seconds."""


class _Refused(Exception):
    """Raised by a change that refuses."""


async def check_approvals(open_store: Callable[[], Approvals]) -> None:
    """Check everything that `Approvals` promises.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    given = ("ada", "git.push", "d1")
    others = [("grace", *given[1:]), ("ada", "git.pull", "d1"), ("ada", "git.push", "d2"), ("ada", "git", "push.d1")]
    store = open_store()
    for each in (given, *others, ("", "", ""), ("%", "%", "%")):
        assert await store.holds(*each) is False, f"{each} is approved, but was never approved by anyone"
    await store.keep(*given)
    assert await store.holds(*given) is True, "an approval does not hold"
    assert await open_store().holds(*given) is True, "an approval does not hold after the store was opened again"
    for each in (*others, ("", "", ""), ("%", "%", "%")):
        assert await store.holds(*each) is False, f"{each} is approved, but only {given} should be"
    await store.keep(*given)
    assert await store.holds(*given) is True, "an approval that was stored twice does not hold"
    async with anyio.create_task_group() as tasks:
        for number in range(_ROUNDS):
            tasks.start_soon(store.keep, "ada", f"git.{number}", "d")
    lost = [number for number in range(_ROUNDS) if not await open_store().holds("ada", f"git.{number}", "d")]
    assert not lost, f"{len(lost)} of {_ROUNDS} concurrent approvals were lost"


def check_definitions(open_store: Callable[[], Definitions]) -> None:
    """Check everything that `Definitions` promises.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    store = open_store()
    address = {"command": "git", "env": {"TOKEN": "secret-4b1f"}}
    key = store.key(address)
    assert "secret-4b1f" not in key, "a key contains a secret of the address"
    assert store.key(dict(reversed(address.items()))) == key, "the key depends on the order of an address"
    assert store.key({**address, "env": {}}) != key, "two addresses have the same key"
    assert open_store().key(address) == key, "the key changed after the store was opened again"
    assert store.load(key) is None, "the store contains an entry that was never saved"
    for kept in (CachedDefinitions(1_000.5, b'{"tools": []}'), CachedDefinitions(2_000.0, b"\x00\xff" * 100_000)):
        store.save(key, kept)
        assert store.load(key) == kept, "the loaded entry differs from the saved one"
        assert open_store().load(key) == kept, "a saved entry is not loaded after the store was opened again"
    other = store.key({"command": "other"})
    store.save(other, CachedDefinitions(1.0, b"other"))
    store.forget(key)
    store.forget(key)
    assert store.load(key) is None, "a deleted entry is loaded"
    assert open_store().load(key) is None, "a deleted entry is loaded after the store was opened again"
    assert store.load(other) == CachedDefinitions(1.0, b"other"), "deleting an entry changes a different entry"


def check_registrations(open_store: Callable[[], Registrations]) -> None:
    """Check everything that `Registrations` promises.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    store, other = open_store(), open_store()
    first, second = Registration("tool", "ops.a", '{"é": 1}'), Registration("bundle", "ops.a", "no JSON at all")
    versions: list[str | None] = [store.version()]
    assert (store.all(), versions) == ((), [None]), "the store contains an item that was never registered"

    def step(after: Iterable[Registration], expected: tuple[Registration, ...], broken: str) -> None:
        wanted = tuple(after)
        assert store.update(lambda _: wanted) == expected, broken
        assert store.all() == other.all() == open_store().all() == expected, broken
        assert store.version() == other.version(), "two readers of one store see different versions"
        assert store.version() not in versions, "a change does not change the version"
        versions.append(store.version())

    step([first], (first,), "the stored item differs from the registered one")
    step(
        [first, second], (first, second), "two items of different kinds with the same name are not both stored in order"
    )
    newer = Registration("tool", "ops.a", "{}")
    step([second, newer], (newer, second), "a replaced item does not keep its place")
    step([second], (second,), "an item that a change leaves out is still stored")
    step([], (), "an item that a change leaves out is still stored")
    step([first], (first,), "a removed item cannot be registered again")
    store.update(lambda rows: rows)
    assert store.version() == versions[-1], "a change without effect changes the version"
    _check_refusal(store, first)
    _check_who_came_between(open_store)


def _check_refusal(store: Registrations, first: Registration) -> None:
    version = store.version()

    def refuse(rows: tuple[Registration, ...]) -> Iterable[Registration]:
        assert rows == (first,), "a change receives items that differ from the stored ones"
        raise _Refused

    try:
        store.update(refuse)
    except _Refused:
        pass
    else:
        raise AssertionError("an error raised in a change is not raised to the caller")
    odd = Registration("tool", "ops.\ud800", "{}")
    try:
        store.update(lambda _: (Registration("tool", "ops.b", "{}"), odd))
    except InvalidConfig:
        assert (store.all(), store.version()) == ((first,), version), "a failed change was partly stored"
    store.update(lambda _: (first,))
    assert store.all() == (first,), "no change is possible after a refused one"


def _check_who_came_between(open_store: Callable[[], Registrations]) -> None:
    """Check two concurrent changes: one must wait, or be repeated."""
    mine, theirs = Registration("tool", "mine.a", "{}"), Registration("tool", "theirs.a", "{}")
    other = threading.Thread(target=lambda: open_store().update(lambda rows: (*rows, theirs)))

    def change(rows: tuple[Registration, ...]) -> Iterable[Registration]:
        if other.ident is None:
            other.start()
            other.join(_MEANWHILE_S)
        return (*rows, mine)

    open_store().update(change)
    other.join()
    lost = {mine, theirs}.difference(open_store().all())
    assert not lost, f"{len(lost)} of two concurrent changes was lost"
