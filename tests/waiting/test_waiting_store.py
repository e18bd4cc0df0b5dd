"""The store of waiting items: each is answered once, taken once, sealed, and gone in time."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from toolcrib.core.errors import RateLimited
from toolcrib.secrets.sealing import Seal
from toolcrib.waiting import WaitingItem, WaitingStore
from toolcrib.waiting.waiting_store import ANSWERED_S, MOST_OF_ONE, WAITS_S

KEY = bytes(range(32))
CANARY = "a-secret-argument"


def item(**changes: str) -> WaitingItem:
    bound = {"principal": "ada", "subject": "git.push", "definition": "d1", "arguments": "a1"} | changes
    return WaitingItem(
        kind="call",
        principal=bound["principal"],
        subject=bound["subject"],
        definition=bound["definition"],
        arguments=bound["arguments"],
        body={"arguments": {"to": CANARY}},
    )


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(path: Path, key: bytes = KEY, clock: Callable[[], float] | None = None) -> WaitingStore:
    return WaitingStore(path, lambda: Seal([key]), **({} if clock is None else {"now": clock}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "waiting.sqlite"


def test_an_item_is_taken_once_after_it_was_answered(path: Path) -> None:
    store = opened(path)
    waiting = store.put(item())

    assert store.take(item()) is None
    assert opened(path).answer(waiting.id, "granted") is not None, "another process answers"
    taken = store.take(item())

    assert taken is not None
    assert (taken.answer, taken.body, taken.id) == ("granted", {"arguments": {"to": CANARY}}, waiting.id)
    assert store.take(item()) is None
    assert store.all() == ()


def test_an_equal_item_does_not_wait_twice(path: Path) -> None:
    store = opened(path)
    first = store.put(item())

    assert store.put(item()).id == first.id
    assert [each.id for each in store.all()] == [first.id]


@pytest.mark.parametrize("changed", ["principal", "subject", "definition", "arguments"])
def test_an_answer_holds_only_for_what_it_is_bound_to(path: Path, changed: str) -> None:
    store = opened(path)
    store.answer(store.put(item()).id, "granted")

    assert store.take(item(**{changed: "other"})) is None
    assert store.take(item()) is not None


def test_only_the_first_of_two_answers_counts(path: Path) -> None:
    store = opened(path)
    waiting = store.put(item())

    assert store.answer(waiting.id, "refused") is not None
    assert store.answer(waiting.id, "granted") is None
    assert store.withdraw(waiting.id) is None
    taken = store.take(item())
    assert taken is not None
    assert taken.answer == "refused"


def test_a_grant_can_be_taken_back_until_it_is_taken(path: Path) -> None:
    store = opened(path)
    waiting = store.put(item())
    assert store.answer(waiting.id, "granted") is not None

    assert store.answer(waiting.id, "refused") is not None
    assert store.answer(waiting.id, "granted") is None
    taken = store.take(item())
    assert taken is not None
    assert taken.answer == "refused"
    assert store.answer(waiting.id, "refused") is None


def test_an_answer_that_comes_just_before_the_item_is_stored_again_is_taken(path: Path) -> None:
    store = opened(path)
    waiting = store.put(item())
    assert store.take(item()) is None
    store.answer(waiting.id, "granted")
    taken = store.put(item())
    assert (taken.id, taken.answer) == (waiting.id, "granted")
    assert store.all() == ()


def test_an_unknown_id_is_not_answered(path: Path) -> None:
    store = opened(path)
    assert store.answer("0000000000", "granted") is None
    assert store.withdraw("0000000000") is None
    assert store.all() == ()


def test_items_expire(path: Path) -> None:
    clock = Clock()
    store = opened(path, clock=clock)
    waiting = store.put(item())
    clock.now += WAITS_S

    assert store.all() == ()
    assert store.answer(waiting.id, "granted") is None

    granted = store.answer(store.put(item()).id, "granted")
    assert granted is not None
    clock.now += ANSWERED_S
    assert store.take(item()) is None


def test_one_principal_cannot_fill_the_store_for_others(path: Path) -> None:
    store = opened(path)
    for number in range(MOST_OF_ONE):
        store.put(item(arguments=str(number)))

    with pytest.raises(RateLimited, match="100 of your calls already wait"):
        store.put(item(arguments="one more"))
    assert store.put(item(arguments="0")), "an equal one waits already"
    assert store.put(item(principal="grace"))


def test_answered_items_do_not_count_as_waiting_ones(path: Path) -> None:
    store = opened(path)
    for number in range(MOST_OF_ONE):
        store.answer(store.put(item(arguments=str(number))).id, "refused")
    assert store.put(item(arguments="one more"))


def test_the_size_of_all_items_is_limited(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    store.put(item())
    ((size,),) = rows(path, "SELECT LENGTH(sealed) FROM waiting")
    monkeypatch.setattr("toolcrib.waiting.waiting_store.MOST_BYTES", 2 * cast("int", size) + 10)
    store.put(item(principal="grace"))
    with pytest.raises(RateLimited, match="Too many calls"):
        store.put(item(principal="eve"))


def test_other_processes_can_write_while_a_person_unlocks_the_key(path: Path) -> None:
    waiting = opened(path).put(item())
    others: list[WaitingItem] = []

    def unlocking() -> Seal:
        others.append(opened(path).put(item(arguments=str(len(others)))))
        return Seal([KEY])

    store = WaitingStore(path, unlocking)
    assert store.withdraw(waiting.id) is not None
    assert len(others) == 1


def test_deep_arguments_can_be_stored(path: Path) -> None:
    deep: object = "end"
    for _ in range(500):
        deep = {"in": deep}
    store = opened(path)
    store.put(replace(item(), body={"arguments": deep}))
    assert store.all()[0].body == {"arguments": deep}


def test_an_item_of_a_newer_version_is_ignored(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(path)
    waiting = store.put(item())
    values = {"id": waiting.id, "added_later": 1}
    rows(path, "UPDATE waiting SET sealed = ?", Seal([KEY]).seal(json.dumps(values).encode(), waiting.id))
    assert store.all() == ()
    assert store.answer(waiting.id, "granted") is None
    assert "newer version" in caplog.text


def rows(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as file, file:
        return file.execute(statement, values).fetchall()


def test_the_file_shows_no_arguments(path: Path) -> None:
    opened(path).put(item())
    assert CANARY.encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0


def test_the_file_does_not_let_a_reader_guess_arguments(path: Path) -> None:
    waiting = opened(path).put(item())
    ((bound,),) = rows(path, "SELECT bound FROM waiting")
    assert bound != waiting.bound


def test_marking_a_row_as_answered_grants_nothing(path: Path) -> None:
    store = opened(path)
    store.put(item())
    rows(path, "UPDATE waiting SET is_answered = 1")
    assert store.take(item()) is None


def test_the_answer_to_one_call_does_not_grant_another(path: Path) -> None:
    store = opened(path)
    granted, other = store.put(item()), store.put(item(arguments="other"))
    store.answer(granted.id, "granted")
    ((bound,),) = rows(path, "SELECT bound FROM waiting WHERE id = ?", other.id)
    rows(path, "DELETE FROM waiting WHERE id = ?", other.id)
    rows(path, "UPDATE waiting SET bound = ?", bound)
    assert store.take(item(arguments="other")) is None


def test_a_later_expiry_in_the_row_does_not_keep_an_item(path: Path) -> None:
    clock = Clock()
    store = opened(path, clock=clock)
    store.answer(store.put(item()).id, "granted")
    rows(path, "UPDATE waiting SET expires_at = expires_at + 1e9")
    clock.now += ANSWERED_S
    assert store.take(item()) is None
    assert store.all() == ()


def test_a_changed_body_or_a_different_key_hides_an_item(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waiting = opened(path).put(item())
    assert opened(path, key=bytes(32)).all() == ()
    rows(path, "UPDATE waiting SET sealed = substr(sealed, 1, length(sealed) - 1) || x'00'")
    assert opened(path).all() == ()
    assert opened(path).answer(waiting.id, "granted") is None
    assert waiting.id in caplog.text
    assert CANARY not in caplog.text


TAKING = """
import sys
from pathlib import Path
from toolcrib.secrets.sealing import Seal
from toolcrib.waiting import WaitingItem, WaitingStore
store = WaitingStore(Path(sys.argv[1]), lambda: Seal([bytes(range(32))]))
wanted = WaitingItem(kind="call", principal="ada", subject="git.push", definition="d1", arguments="a1", body={})
sys.stdin.read(1)
print("taken" if store.take(wanted) is not None else "nothing")
"""


def test_only_one_of_many_processes_takes_an_answered_item(path: Path) -> None:
    store = opened(path)
    store.answer(store.put(item()).id, "granted")
    command = [sys.executable, "-c", TAKING, str(path)]
    racing = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate("go")[0].strip() for process in racing]
    assert sorted(said) == ["nothing"] * 7 + ["taken"]


def test_the_store_says_what_is_wrong_with_a_damaged_file(path: Path) -> None:
    store = opened(path)
    store.put(item())
    path.write_bytes(b"not a database")
    with pytest.raises(sqlite3.DatabaseError):
        store.all()
    shutil.rmtree(path.parent)
    assert store.all() == ()
    assert store.put(replace(item(), id="0123456789")).id == "0123456789"
