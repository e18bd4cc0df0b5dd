"""The one key of an installation: where it is kept, that this never changes silently, and that it is never shown."""

import base64
import json
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from toolcrib.secrets import keys
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import Seal, SealBroken

A_KEY, OTHER_KEY = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))

on_posix = pytest.mark.skipif(os.name == "nt", reason="modes say nothing about who may read a file there")


class FakeKeyring:
    """A keyring with its entries in a dictionary. Each test can break one of its methods."""

    priority: float = 5

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.before: Callable[[], object] = lambda: None

    def get_password(self, service: str, username: str) -> str | None:
        self.before()
        assert service == "toolcrib"
        return self.entries.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.before()
        self.entries[username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.entries[username]


@pytest.fixture(autouse=True)
def _no_key_yet(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.delenv(keys.VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if the package were not installed


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake, module = FakeKeyring(), ModuleType("keyring")
    module.get_keyring = lambda: fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return fake


def restart() -> None:
    """Forget what this process knows, like a new process."""
    vars(keys)["_seals"].clear()
    vars(keys)["_failures"].clear()


def sealed_in(folder: Path) -> bytes:
    return keys.seal(folder).seal(b"value", "here")


def opens(folder: Path, sealed: bytes) -> bool:
    restart()
    try:
        return keys.seal(folder).unseal(sealed, "here") == b"value"
    except SealBroken:
        return False


def material_of(folder: Path) -> str:
    """Return the last line of the key file."""
    return (folder / "key").read_text().splitlines()[-1]


# -- the file -----------------------------------------------------------------------------------------------------


@on_posix
def test_without_a_keyring_a_private_file_keeps_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "toolcrib"
    sealed = sealed_in(folder)
    assert opens(folder, sealed)
    assert [each.name for each in folder.iterdir()] == ["key"]
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(base64.b64decode(material_of(folder), validate=True)) == 32


def test_the_default_folder_is_the_one_of_the_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platformdirs.user_state_path", lambda name: tmp_path / name)  # pyright: ignore[reportUnknownArgumentType,reportUnknownLambdaType]
    keys.seal()
    assert (tmp_path / "toolcrib" / "key").exists()


@on_posix
def test_a_key_file_that_others_can_read_becomes_private_again(tmp_path: Path) -> None:
    sealed = sealed_in(tmp_path)
    (tmp_path / "key").chmod(0o644)
    assert opens(tmp_path, sealed)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@on_posix
def test_a_link_to_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(f"{A_KEY}\n")
    (tmp_path / "elsewhere").chmod(0o644)
    (tmp_path / "key").symlink_to("elsewhere")
    with pytest.raises(KeyUnavailable, match="other users can read it"):
        keys.seal(tmp_path)


@on_posix
def test_a_link_to_nothing_is_not_replaced_by_a_new_key(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to("unmounted")
    with pytest.raises(KeyUnavailable, match="cannot be used"):
        keys.seal(tmp_path)
    assert not (tmp_path / "unmounted").exists()


def test_a_damaged_key_file_is_an_error_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_WRITING_TIMEOUT_S", 0.0)
    for content in ("", "# only a comment\n", "canary\n", f"{A_KEY[:-6]}", f"{A_KEY}\ncanary\n"):
        (tmp_path / "key").write_text(content)
        with pytest.raises(KeyUnavailable) as error:
            keys.seal(tmp_path)
        assert str(tmp_path / "key") in str(error.value)
        assert "canary" not in repr(error.value)
        assert A_KEY[:10] not in repr(error.value)
        assert (tmp_path / "key").read_text() == content


def test_the_file_can_hold_several_keys_newest_first(tmp_path: Path) -> None:
    before = sealed_in(tmp_path)
    old = material_of(tmp_path)
    (tmp_path / "key").write_text(f"{A_KEY}\n{old}\n")
    assert opens(tmp_path, before)
    after = sealed_in(tmp_path)
    (tmp_path / "key").write_text(f"{A_KEY}\n")
    assert opens(tmp_path, after)
    assert not opens(tmp_path, before)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KeyUnavailable, match="TOOLCRIB_KEY"):
        keys.seal(tmp_path / "file" / "state")


def test_without_hard_links_the_key_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    sealed = sealed_in(tmp_path)
    assert opens(tmp_path, sealed)
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_file_that_a_different_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(A_KEY)  # the line has no end yet
    reading = threading.Event()
    read = Path.read_bytes

    def notice(path: Path) -> bytes:
        found = read(path)
        reading.set()
        return found

    def finish() -> None:
        reading.wait()
        with (tmp_path / "key").open("a") as file:
            file.write("\n")

    writer = threading.Thread(target=finish)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", notice)
        writer.start()
        sealed = sealed_in(tmp_path)
        writer.join()
    assert opens(tmp_path, sealed)


# -- the variable -------------------------------------------------------------------------------------------------


def test_the_variable_wins_and_can_hold_several_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_file = sealed_in(tmp_path)
    monkeypatch.setenv(keys.VARIABLE, A_KEY)
    before = sealed_in(tmp_path)
    assert not opens(tmp_path, from_file)
    monkeypatch.setenv(keys.VARIABLE, f"{OTHER_KEY}, {A_KEY},{material_of(tmp_path)}")
    assert opens(tmp_path, before)
    assert opens(tmp_path, from_file)
    after = sealed_in(tmp_path)
    monkeypatch.setenv(keys.VARIABLE, OTHER_KEY)
    assert opens(tmp_path, after)
    assert not opens(tmp_path, before)


def test_a_variable_that_is_missing_later_is_an_error_and_no_reason_for_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(keys.VARIABLE, A_KEY)
    sealed = sealed_in(tmp_path)
    assert A_KEY not in (tmp_path / "key").read_text()
    monkeypatch.delenv(keys.VARIABLE)
    with pytest.raises(KeyUnavailable, match=r"TOOLCRIB_KEY, but it is not set.*remove .*key to start with a new key"):
        keys.seal(tmp_path)
    (tmp_path / "key").unlink()
    assert not opens(tmp_path, sealed)


def test_the_variable_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(keys.VARIABLE, A_KEY)
    assert opens(tmp_path / "file" / "state", sealed_in(tmp_path / "file" / "state"))


@pytest.mark.parametrize("value", ["", " ", ",", "canary", f"{A_KEY},canary", A_KEY[4:], "ü" * 44])
def test_a_variable_without_a_key_is_an_error_that_does_not_show_it(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(keys.VARIABLE, value)
    with pytest.raises(KeyUnavailable, match=r"TOOLCRIB_KEY must contain base64 of 32") as error:
        keys.seal(tmp_path)
    assert "canary" not in repr(error.value)
    assert not (tmp_path / "key").exists()


# -- the system's keyring -----------------------------------------------------------------------------------------


def test_a_keyring_keeps_the_key_and_the_file_only_says_so(tmp_path: Path, keyring: FakeKeyring) -> None:
    sealed = sealed_in(tmp_path)
    ((name, kept),) = keyring.entries.items()
    assert kept not in (tmp_path / "key").read_text()
    assert material_of(tmp_path) == f"keyring {name}"
    assert opens(tmp_path, sealed)


def test_a_keyring_that_keeps_nothing_is_not_used(tmp_path: Path, keyring: FakeKeyring) -> None:
    keyring.set_password = lambda *_: None  # type: ignore[method-assign]
    assert opens(tmp_path, sealed_in(tmp_path))
    assert not material_of(tmp_path).startswith("keyring")


@pytest.mark.parametrize("priority", [0, -1, 0.5])
def test_a_keyring_that_is_not_recommended_is_not_used(priority: float, tmp_path: Path, keyring: FakeKeyring) -> None:
    keyring.priority = priority
    assert opens(tmp_path, sealed_in(tmp_path))
    assert keyring.entries == {}


def fail() -> None:
    raise RuntimeError("the collection is locked")


def test_a_keyring_that_fails_at_first_is_not_chosen_and_the_log_says_so(
    tmp_path: Path, keyring: FakeKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    keyring.before = fail
    sealed = sealed_in(tmp_path)
    assert "does not store a key (RuntimeError)" in caplog.text
    keyring.before = lambda: None
    assert opens(tmp_path, sealed)
    assert keyring.entries == {}


def test_a_keyring_that_hangs_at_first_is_not_chosen(
    tmp_path: Path, keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keys, "KEYRING_TIMEOUT_S", 0.01)
    released = threading.Event()
    keyring.before = released.wait
    sealed = sealed_in(tmp_path)
    assert "did not answer" in caplog.text
    released.set()
    assert opens(tmp_path, sealed)


def _hang(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYRING_TIMEOUT_S", 0.01)
    keyring.before = threading.Event().wait


def _lose(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.entries.clear()


def _lock(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.before = fail


def _uninstall(keyring: FakeKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_lose, "no longer in the system's keyring"),
        (_lock, "the collection is locked. Unlock the keyring"),
        (_hang, "did not answer within 0.01 seconds"),
        (_uninstall, r"Install `toolcrib\[keyring\]`"),
    ],
)
def test_a_keyring_that_does_not_return_the_key_is_an_error_and_no_reason_for_a_new_key(
    broken: Callable[[FakeKeyring, pytest.MonkeyPatch], None],
    said: str,
    tmp_path: Path,
    keyring: FakeKeyring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys.seal(tmp_path)
    before = (tmp_path / "key").read_text()
    restart()
    broken(keyring, monkeypatch)
    with pytest.raises(KeyUnavailable, match=rf"{said}[^|]*remove .*key to start with a new key"):
        keys.seal(tmp_path)
    assert (tmp_path / "key").read_text() == before


def test_a_keyring_that_failed_is_not_asked_again_at_once(tmp_path: Path, keyring: FakeKeyring) -> None:
    keys.seal(tmp_path)
    restart()
    asked = list[int]()

    def locked() -> None:
        asked.append(1)
        fail()

    keyring.before = locked
    for _ in range(3):
        with pytest.raises(KeyUnavailable, match="Unlock the keyring"):
            keys.seal(tmp_path)
    assert len(asked) == 1

    keyring.before = lambda: None
    vars(keys)["_failures"].clear()
    assert keys.seal(tmp_path)


# -- at the same time ---------------------------------------------------------------------------------------------

RACE = """
import os, sys
from pathlib import Path
from types import ModuleType
sys.modules["keyring"] = None
if len(sys.argv) > 2:
    entries = Path(sys.argv[2])
    class Keyring:
        priority = 5
        def get_password(self, service, name):
            return (entries / name).read_text() if (entries / name).exists() else None
        def set_password(self, service, name, password): (entries / name).write_text(password)
        def delete_password(self, service, name): (entries / name).unlink()
    sys.modules["keyring"] = ModuleType("keyring")
    sys.modules["keyring"].get_keyring = Keyring
from toolcrib.secrets import keys
begin, let_begin = os.pipe()
for number in range(20):
    if not os.fork():
        os.close(let_begin)
        os.read(begin, 1)  # returns when the parent closes its end
        os.write(1, keys.seal(Path(sys.argv[1])).seal(b"value", "here").hex().encode() + b"\\n")
        os._exit(0)
os.close(let_begin)
for number in range(20):
    os.wait()
"""


@pytest.mark.skipif(os.name == "nt", reason="no fork")
@pytest.mark.parametrize("with_keyring", [False, True])
def test_twenty_processes_that_start_at_once_have_one_key(with_keyring: bool, tmp_path: Path) -> None:
    folder, entries = tmp_path / "state", tmp_path / "entries"
    entries.mkdir()
    race = [sys.executable, "-c", RACE, str(folder), *([str(entries)] if with_keyring else [])]
    run = subprocess.run(race, capture_output=True, text=True, check=True)
    sealed = [bytes.fromhex(line) for line in run.stdout.split()]
    assert len(sealed) == 20
    if with_keyring:  # the key of every process that was slower is removed
        (kept,) = entries.iterdir()
        assert material_of(folder) == f"keyring {kept.name}"
        seal = Seal([base64.b64decode(kept.read_text())])
    else:
        seal = keys.seal(folder)
    assert [seal.unseal(each, "here") for each in sealed] == [b"value"] * 20
    assert [each.name for each in folder.iterdir()] == ["key"]


def test_threads_that_start_at_once_share_one_seal(tmp_path: Path) -> None:
    begin, found = threading.Barrier(20), list[Seal]()

    def ask() -> None:
        begin.wait()
        found.append(keys.seal(tmp_path))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 20
    assert len(set(map(id, found))) == 1


# -- what is shown ------------------------------------------------------------------------------------------------


def test_nothing_shows_the_key(tmp_path: Path, keyring: FakeKeyring, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    seal = keys.seal(tmp_path)
    (key,) = keyring.entries.values()
    keyring.entries.clear()
    restart()
    with pytest.raises(KeyUnavailable) as error:
        keys.seal(tmp_path)
    shown = json.dumps([repr(seal), repr(error.value), str(error.value.__cause__), caplog.text])
    assert key not in shown
    assert base64.b64decode(key).hex() not in shown


def test_an_error_of_the_keyring_that_shows_the_key_is_not_logged(
    tmp_path: Path, keyring: FakeKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[str] = []

    def refuse(service: str, username: str, password: str) -> None:
        tried.append(password)
        raise RuntimeError(f"cannot store {password}")

    keyring.set_password = refuse  # type: ignore[method-assign]
    keys.seal(tmp_path)
    (key,) = tried
    assert "RuntimeError" in caplog.text
    assert key not in caplog.text
