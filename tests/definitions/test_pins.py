"""The store of pins: the last pin counts, the log keeps all pins, and a broken file is always an error."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcrib.definitions.pins import LAYOUT, Pin, PinStore, Seen


def pin(name: str, definition: bytes | None = b"1", *, source: str = "git", origin: str = "o1", by: str = "ada") -> Pin:
    return Pin(source, origin, "uvx git", name, definition, "1.0.0", by)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "pins.sqlite"


@pytest.fixture
def store(path: Path) -> PinStore:
    return PinStore(path, Path("mcp.json"))


def approved(store: PinStore, source: str = "git", origin: str = "o1") -> dict[str, bytes | None]:
    return {each.name: each.definition for each in store.of(source, origin)}


def test_the_last_pin_of_a_tool_counts_and_the_log_has_all_pins(store: PinStore) -> None:
    store.put([pin("commit"), pin("log")])
    store.put([pin("commit", b"2", by="grace")])

    assert approved(store) == {"commit": b"2", "log": b"1"}
    assert [(each.number, each.name, each.definition, each.by) for each in store.log()] == [
        (1, "commit", b"1", "ada"),
        (2, "log", b"1", "ada"),
        (3, "commit", b"2", "grace"),
    ]
    assert {each.name for each in store.all()} == {"commit", "log"}
    assert all(each.at > 0 for each in store.log())


def test_a_revoked_pin_no_longer_counts_and_stays_in_the_log(store: PinStore) -> None:
    store.put([pin("commit"), pin("log")])
    store.put([pin("commit", None, by="grace")])

    assert approved(store) == {"log": b"1"}
    assert [each.name for each in store.all()] == ["log"]
    assert len(store.log()) == 3


def test_pins_follow_the_command_and_not_its_name_in_a_configuration(path: Path, store: PinStore) -> None:
    store.put([pin("commit"), pin("log")])

    assert approved(store, "vcs", "o1") == {"commit": b"1", "log": b"1"}
    assert approved(PinStore(path, Path("elsewhere.json")), "vcs", "o1") == {"commit": b"1", "log": b"1"}


def test_a_pin_of_this_configuration_overrides_a_pin_of_the_same_command_elsewhere(path: Path, store: PinStore) -> None:
    elsewhere = PinStore(path, Path("elsewhere.json"))
    store.put([pin("commit"), pin("log"), pin("diff")])
    elsewhere.put([pin("commit", b"2"), pin("log", None)])

    assert approved(elsewhere) == {"commit": b"2", "diff": b"1"}
    assert approved(store) == {"commit": b"1", "log": b"1", "diff": b"1"}
    assert [each.name for each in elsewhere.all()] == ["commit"]


def test_a_changed_command_under_the_same_name_is_compared_with_the_earlier_pins(store: PinStore) -> None:
    store.put([pin("commit"), pin("log")])
    (moved, _) = store.of("git", "o2")
    assert (moved.name, moved.origin) == ("commit", "o1")

    store.put([pin("commit", b"2", origin="o2")])
    assert {each.name: each.origin for each in store.of("git", "o2")} == {"commit": "o2", "log": "o1"}


def test_pins_of_a_different_command_in_a_different_configuration_do_not_count(path: Path, store: PinStore) -> None:
    store.put([pin("commit")])
    assert approved(PinStore(path, Path("elsewhere.json")), "git", "o2") == {}


def test_the_stamp_changes_with_each_pin_and_only_then(store: PinStore) -> None:
    stamps = [store.stamp()]
    for change in (
        lambda: store.put([pin("commit")]),
        lambda: store.put([pin("commit", b"2")]),
        lambda: store.put([pin("commit", None)]),
    ):
        change()
        stamps.append(store.stamp())
    store.see("git", "o1", [Seen("commit", b"3", "1.0.1")], ["commit"])

    assert len({*stamps}) == 4
    assert store.stamp() == stamps[-1]


def test_the_stamp_changes_when_the_file_is_replaced(
    path: Path, store: PinStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PinStore(path.with_name("other.sqlite"), Path("mcp.json"))
    for at, each in enumerate((store, other), start=1):
        monkeypatch.setattr(time, "time", lambda at=at: float(at))
        each.put([pin("commit", b"%d" % at)])
    before = store.stamp()
    other.path.replace(path)
    assert store.stamp() != before


def test_the_definition_that_was_seen_last_is_stored_per_tool(store: PinStore) -> None:
    assert store.seen("git", "o1") == ()
    store.see("git", "o1", [Seen("commit", b"1", "1.0.0"), Seen("log", b"1", "1.0.0")], ["commit", "log"])
    store.see("git", "o1", [Seen("commit", b"2", "2.0.0")], ["commit"])

    assert {*store.seen("git", "o1")} == {Seen("commit", b"2", "2.0.0"), Seen("log", b"1", "1.0.0")}
    assert store.seen("git", "o2") == ()


def test_reading_creates_no_file_and_a_new_file_is_readable_by_its_owner_only(path: Path, store: PinStore) -> None:
    assert (store.all(), store.log(), store.of("git", "o1"), store.stamp()) == ((), (), (), (0, 0))
    store.see("git", "o1", [], ())
    assert not path.parent.exists()

    store.put([pin("commit")])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    file.close()


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "nonsense": lambda path: path.write_bytes(b"no database, and long enough to be seen to be none" * 100),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "of a newer version": _newer,
    "a folder": _a_folder,
}


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES)
def test_a_file_that_cannot_be_read_is_an_error_and_never_an_empty_answer(
    path: Path, store: PinStore, damage: Callable[[Path], object]
) -> None:
    store.put([pin("commit")])
    damage(path)
    os.utime(path, (1_000.0, 1_000.0))  # a new empty file may be in the process of being created

    for look in (store.all, store.log, store.stamp, lambda: store.of("git", "o1")):
        with pytest.raises((OSError, sqlite3.Error)):
            look()


def test_several_pins_are_stored_together_or_not_at_all(store: PinStore) -> None:
    store.put([pin("commit")])
    with pytest.raises(sqlite3.Error):
        store.put([pin("log"), Pin("git", "o1", "uvx git", "diff", b"1", "1.0.0", None)])  # pyright: ignore[reportArgumentType]

    assert approved(store) == {"commit": b"1"}
