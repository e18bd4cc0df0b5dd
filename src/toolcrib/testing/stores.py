"""The contracts of the stores, as checks that any implementation can be put through.

Each takes a function that opens the store at one and the same place whenever it is called. The place is empty at first.
"""

# ruff: noqa: S101  # a broken promise is an AssertionError, as test runners show it best
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import anyio

from toolcrib.config.registration_store import Registration, Registrations
from toolcrib.core.errors import InvalidConfig
from toolcrib.operations.calling import Approvals
from toolcrib.sources.definition_cache import Definitions, Kept

_ROUNDS = 8
"""Approvals that are kept at the same time."""

_MEANWHILE_S = 0.2
"""How long a change leaves another one the time to come between."""


class _Refused(Exception):
    """What a change raises that refuses."""


async def check_approvals(open_store: Callable[[], Approvals]) -> None:
    """Put a store of approvals through everything that `Approvals` promises.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    given = ("ada", "git.push", "d1")
    others = [("grace", *given[1:]), ("ada", "git.pull", "d1"), ("ada", "git.push", "d2"), ("ada", "git", "push.d1")]
    store = open_store()
    for each in (given, *others, ("", "", ""), ("%", "%", "%")):
        assert await store.holds(*each) is False, f"{each} is approved, and nobody approved of it"
    await store.keep(*given)
    assert await store.holds(*given) is True, "what was approved does not hold"
    assert await open_store().holds(*given) is True, "what was approved does not hold where the store is opened again"
    for each in (*others, ("", "", ""), ("%", "%", "%")):
        assert await store.holds(*each) is False, f"{each} is approved, since {given} is"
    await store.keep(*given)
    assert await store.holds(*given) is True, "what is approved twice does not hold"
    async with anyio.create_task_group() as tasks:
        for number in range(_ROUNDS):
            tasks.start_soon(store.keep, "ada", f"git.{number}", "d")
    lost = [number for number in range(_ROUNDS) if not await open_store().holds("ada", f"git.{number}", "d")]
    assert not lost, f"of {_ROUNDS} approvals at the same time {len(lost)} are lost"


def check_definitions(open_store: Callable[[], Definitions]) -> None:
    """Put a store of definitions through everything that `Definitions` promises.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    store = open_store()
    address = {"command": "git", "env": {"TOKEN": "secret-4b1f"}}
    key = store.key(address)
    assert "secret-4b1f" not in key, "a key tells the secrets of an address"
    assert store.key(dict(reversed(address.items()))) == key, "the order of an address makes another key of it"
    assert store.key({**address, "env": {}}) != key, "two addresses have the same key"
    assert open_store().key(address) == key, "the key is another one where the store is opened again"
    assert store.load(key) is None, "something is kept that nobody kept"
    for kept in (Kept(1_000.5, b'{"tools": []}'), Kept(2_000.0, b"\x00\xff" * 100_000)):
        store.save(key, kept)
        assert store.load(key) == kept, "what was kept is not what is loaded"
        assert open_store().load(key) == kept, "what was kept is not loaded where the store is opened again"
    other = store.key({"command": "other"})
    store.save(other, Kept(1.0, b"other"))
    store.forget(key)
    store.forget(key)
    assert store.load(key) is None, "what was forgotten is loaded"
    assert open_store().load(key) is None, "what was forgotten is loaded where the store is opened again"
    assert store.load(other) == Kept(1.0, b"other"), "forgetting one forgets another"


def check_registrations(open_store: Callable[[], Registrations]) -> None:
    """Put a store of registrations through everything that `Registrations` promises.

    Raises:
        AssertionError: the promise that was broken, in words.
    """
    store, other = open_store(), open_store()
    first, second = Registration("tool", "ops.a", '{"é": 1}'), Registration("bundle", "ops.a", "no JSON at all")
    versions: list[str | None] = [store.version()]
    assert (store.all(), versions) == ((), [None]), "something is registered that nobody registered"

    def step(after: Iterable[Registration], expected: tuple[Registration, ...], broken: str) -> None:
        wanted = tuple(after)
        assert store.update(lambda _: wanted) == expected, broken
        assert store.all() == other.all() == open_store().all() == expected, broken
        assert store.version() == other.version(), "two who look at one store see different versions"
        assert store.version() not in versions, "a change leaves the version as it was"
        versions.append(store.version())

    step([first], (first,), "what was registered is not what is there")
    step([first, second], (first, second), "two of different kinds and one name are not both there, in their order")
    newer = Registration("tool", "ops.a", "{}")
    step([second, newer], (newer, second), "what is replaced does not keep its place")
    step([second], (second,), "what is left out of a change is still there")
    step([], (), "what is left out of a change is still there")
    step([first], (first,), "what was removed cannot be registered again")
    store.update(lambda rows: rows)
    assert store.version() == versions[-1], "a change that changes nothing changes the version"
    _check_refusal(store, first)
    _check_who_came_between(open_store)


def _check_refusal(store: Registrations, first: Registration) -> None:
    version = store.version()

    def refuse(rows: tuple[Registration, ...]) -> Iterable[Registration]:
        assert rows == (first,), "a change is given something else than what is there"
        raise _Refused

    try:
        store.update(refuse)
    except _Refused:
        pass
    else:
        raise AssertionError("what a change raises does not come out")
    odd = Registration("tool", "ops.\ud800", "{}")
    try:
        store.update(lambda _: (Registration("tool", "ops.b", "{}"), odd))
    except InvalidConfig:
        assert (store.all(), store.version()) == ((first,), version), "half of a change that failed is there"
    store.update(lambda _: (first,))
    assert store.all() == (first,), "after a refusal nothing can be changed"


def _check_who_came_between(open_store: Callable[[], Registrations]) -> None:
    """Somebody else changes something while a change is being made: that waits, or this is made once more."""
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
    assert not lost, f"of two changes at the same time {len(lost)} is lost"
