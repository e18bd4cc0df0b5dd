"""The behaviour that all stores share: who may read their files, how files are created, and how long they stay open."""

from __future__ import annotations

import ast
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from tests.audit.auditing import performed

import toolcrib
from toolcrib.agent.conversation_store import ConversationStore, StoredConversation
from toolcrib.audit.audit_reader import AuditReader, NoAudit, TraceFilter
from toolcrib.audit.store import AuditStore
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.core.errors import InvalidConfig
from toolcrib.definitions.pins import Pin, PinStore
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.search.vector_store import VectorStore
from toolcrib.secrets.sealing import Seal
from toolcrib.secrets.secret_store import SecretStore
from toolcrib.sources.definition_cache import CachedDefinitions, DefinitionStore

DIGEST = bytes(16)

as_posix_has_it = pytest.mark.skipif(os.name == "nt", reason="modes say nothing about who may read a file there")

# -- the stores, each as a writer and a reader; the reader returns the number of entries, or raises an error ----------


def put_pins(path: Path) -> None:
    PinStore(path).put([Pin("git", "o", "uvx git", "commit", b"1", "1.0.0", "ada")])


def put_approvals(path: Path) -> None:
    anyio.run(ApprovalStore(path).keep, "ada", "git.push", "d")


def put_registrations(path: Path) -> None:
    RegistrationStore(path).update(lambda rows: (*rows, Registration("tool", "a.b", "{}")))


def put_conversations(path: Path) -> None:
    anyio.run(ConversationStore(path).keep, StoredConversation("1", "/", (), "About this", "all", 1.0, b"[]"))


def conversations(path: Path) -> int:
    return len(anyio.run(ConversationStore(path).list))


def put_definitions(path: Path) -> None:
    with DefinitionStore(path) as store:
        store.save("key", CachedDefinitions(1.0, b"{}"))
        if store.problem is not None:
            raise OSError(store.problem)


def definitions(path: Path) -> int:
    with DefinitionStore(path) as store:
        found = store.load("key")
        if store.problem is not None:
            raise OSError(store.problem)
        return 0 if found is None else 1


def put_vectors(path: Path) -> None:
    with VectorStore(path) as store:
        store.put_many("m", [DIGEST], np.ones((1, 8)))
        if store.problem is not None:
            raise OSError(store.problem)


def vectors(path: Path) -> int:
    with VectorStore(path) as store:
        found = store.count()
        if store.problem is not None:
            raise OSError(store.problem)
        return found


def put_audit(path: Path) -> None:
    with AuditStore(path) as store:
        store.record(performed())
    if store.condition.lost:
        raise OSError(store.condition.problem)


def audit(path: Path) -> int:
    try:
        with AuditReader(path) as reader:
            return len(reader.entries(TraceFilter()))
    except NoAudit:
        return 0


def secrets(path: Path) -> SecretStore:
    return SecretStore(path, lambda: Seal([bytes(32)]))


def put_secrets(path: Path) -> None:
    secrets(path).set("github", "value")


Use = tuple[Callable[[Path], object], Callable[[Path], int]]

STORES: dict[str, Use] = {
    "pins": (put_pins, lambda path: len(PinStore(path).of("git", "o"))),
    "approvals": (put_approvals, lambda path: len(ApprovalStore(path).all())),
    "registrations": (put_registrations, lambda path: len(RegistrationStore(path).all())),
    "conversations": (put_conversations, conversations),
    "definitions": (put_definitions, definitions),
    "vectors": (put_vectors, vectors),
    "audit": (put_audit, audit),
    "secrets": (put_secrets, lambda path: len(secrets(path).all())),
}

every_store = pytest.mark.parametrize("use", STORES.values(), ids=STORES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store.sqlite"


# -- creation of a file -----------------------------------------------------------------------------------------------


@every_store
def test_no_process_sees_a_file_before_its_tables_exist(use: Use, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, count = use
    seen: list[int] = []
    connect = sqlite3.connect

    class Making(sqlite3.Connection):
        """Lets a different store read the file whenever a table is about to be created."""

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if sql.lstrip().startswith("CREATE TABLE"):
                with monkeypatch.context() as unpatched:
                    unpatched.setattr(sqlite3, "connect", connect)
                    seen.append(count(path))
            return super().execute(sql, parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Making))
    put(path)
    monkeypatch.setattr(sqlite3, "connect", connect)
    assert seen
    assert {*seen} == {0}
    assert count(path) == 1


RACER = """
import sys
from pathlib import Path
from tests.test_database import STORES

print("ready", flush=True)
for line in sys.stdin:
    path = Path(line.strip())
    put, count = STORES[path.name]
    before = count(path)
    put(path)
    print(before, count(path), flush=True)
"""


@pytest.mark.slow
def test_processes_that_start_at_the_same_time_share_the_file_of_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(4)
    ]
    streams = [(racer.stdin, racer.stdout) for racer in racers if racer.stdin and racer.stdout]
    try:
        assert [answers.readline() for _, answers in streams] == ["ready\n"] * 4
        for number in range(25):
            for name in ("pins", "approvals", "registrations", "conversations", "definitions"):
                path = tmp_path / f"{number}-{name}" / name
                for asks, _ in streams:
                    print(path, file=asks)
                after = [answers.readline().split()[1:] for _, answers in streams]
                assert [] not in after, f"a process failed on {name}"
                assert {"0"} not in map(set, after)
                assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []
    finally:
        for racer in racers:
            racer.communicate()
    assert [racer.returncode for racer in racers] == [0] * 4


def _without_links(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    del path
    monkeypatch.setattr(os, "link", refuse)


def _with_a_log_of_an_earlier_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    path.parent.mkdir()
    with sqlite3.connect(path) as earlier:
        earlier.execute("PRAGMA journal_mode = WAL")
        earlier.execute("CREATE TABLE letters (text)")
        log = path.with_name(f"{path.name}-wal").read_bytes()
    earlier.close()
    path.unlink()
    path.with_name(f"{path.name}-wal").write_bytes(log)


@every_store
@pytest.mark.parametrize("spoil", [_without_links, _with_a_log_of_an_earlier_file])
def test_a_file_that_can_only_be_created_empty_gets_its_tables_from_the_first_writer(
    use: Use, spoil: Callable[[Path, pytest.MonkeyPatch], None], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(path, monkeypatch)
    put, count = use
    put(path)
    assert count(path) == 1
    assert [each.name for each in path.parent.iterdir() if each.name.startswith(".")] == []


@every_store
def test_a_reader_of_a_new_empty_file_waits_for_its_tables(
    use: Use, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, count = use
    path.parent.mkdir()
    path.touch(mode=0o600)

    def another_process(_: float) -> None:
        put(path)

    monkeypatch.setattr(time, "sleep", another_process)
    assert count(path) in {0, 1}


@pytest.mark.parametrize("use", [STORES[name] for name in ("pins", "registrations", "conversations", "approvals")])
def test_an_emptied_file_is_reported_as_damaged_and_not_as_an_empty_store(use: Use, path: Path) -> None:
    put, count = use
    put(path)
    path.write_bytes(b"")
    os.utime(path, (1_000.0, 1_000.0))
    with pytest.raises((sqlite3.DatabaseError, InvalidConfig), match="no tables"):
        count(path)


@every_store
def test_a_database_of_a_different_program_is_left_unchanged(
    use: Use, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE letters (text)")
    other.close()
    before = path.read_bytes()
    put, _ = use
    try:
        put(path)
    except (OSError, sqlite3.Error, InvalidConfig) as error:
        told = str(error)
    else:
        told = caplog.text
    assert "written by a different program" in told or "not a Toolcrib audit" in told
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("letters",)]
    other.close()
    assert len(path.read_bytes()) == len(before)


# -- who may read it --------------------------------------------------------------------------------------------------


@as_posix_has_it
@every_store
def test_opening_a_file_that_others_could_read_makes_it_private(use: Use, path: Path) -> None:
    put, count = use
    put(path)
    path.chmod(0o664)
    put(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert count(path) >= 1


@as_posix_has_it
@every_store
def test_a_read_only_file_stays_read_only(use: Use, path: Path) -> None:
    put, count = use
    put(path)
    path.chmod(0o444)
    if use is not STORES["audit"]:  # reading the audit changes nothing
        count(path)
        assert path.stat().st_mode & 0o777 == 0o400


@as_posix_has_it
@every_store
def test_a_link_is_followed_only_to_a_private_file_whose_mode_never_changes(
    use: Use, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put, count = use
    real, link = tmp_path / "real.sqlite", tmp_path / "link.sqlite"
    put(real)
    link.symlink_to(real)
    put(link)
    kept = count(real)

    real.chmod(0o644)
    before = real.read_bytes()
    try:
        put(link)
    except (OSError, sqlite3.Error, InvalidConfig) as error:
        told = str(error)
    else:
        told = caplog.text
    assert f"`chmod 600 {real}`" in told
    assert real.stat().st_mode & 0o777 == 0o644
    assert real.read_bytes() == before
    real.chmod(0o600)
    assert count(real) == kept


@as_posix_has_it
@every_store
def test_a_broken_link_creates_no_file_at_its_target(use: Use, tmp_path: Path) -> None:
    put, _ = use
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "elsewhere")
    with suppress(OSError, sqlite3.Error, InvalidConfig):
        put(link)
    assert not (tmp_path / "elsewhere").exists()


@as_posix_has_it
@every_store
def test_every_new_folder_is_accessible_by_its_owner_only(use: Use, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        use[0](tmp_path / "one" / "two" / "three" / "store.sqlite")
    finally:
        os.umask(before)
    for folder in ("one", "one/two", "one/two/three"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "one/two/three/store.sqlite").stat().st_mode & 0o777 == 0o600


# -- how long it stays open -------------------------------------------------------------------------------------------


def test_an_open_store_notices_that_its_file_was_removed_or_replaced(path: Path) -> None:
    store = PinStore(path)
    store.put([Pin("git", "o", "uvx git", "commit", b"1", "1.0.0", "ada")])
    other = PinStore(path.with_name("other"))
    other.put([Pin("git", "o", "uvx git", "push", b"1", "1.0.0", "ada")])
    assert [pin.name for pin in store.of("git", "o")] == ["commit"]
    other.path.replace(path)
    assert [pin.name for pin in store.of("git", "o")] == ["push"]
    path.unlink()
    assert store.of("git", "o") == ()


@pytest.mark.parametrize("damage", [b"", b"nonsense" * 1_000], ids=["emptied", "nonsense"])
def test_a_damaged_file_that_is_restored_is_read_again(damage: bytes, path: Path) -> None:
    store = PinStore(path)
    store.put([Pin("git", "o", "uvx git", "commit", b"1", "1.0.0", "ada")])
    whole = path.read_bytes()
    path.write_bytes(damage)
    os.utime(path, (1_000.0, 1_000.0))
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            store.of("git", "o")
    path.write_bytes(whole)
    assert [pin.name for pin in store.of("git", "o")] == ["commit"]


EXHAUSTED = """
import logging, os, resource, sys
from pathlib import Path
import anyio
import numpy as np
from tests.audit.auditing import performed
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.audit.store import AuditStore
from toolcrib.agent.conversation_store import ConversationStore, StoredConversation
from toolcrib.sources.definition_cache import DefinitionStore, CachedDefinitions
from toolcrib.definitions.pins import Pin, PinStore, Seen
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.search.vector_store import VectorStore
from tests.until import until

logging.basicConfig(format="%(message)s")
folder = Path(sys.argv[1])
pins, approvals = PinStore(folder / "pins"), ApprovalStore(folder / "approvals")
registrations, conversations = RegistrationStore(folder / "registrations"), ConversationStore(folder / "conversations")
definitions, vectors = DefinitionStore(folder / "definitions"), VectorStore(folder / "vectors")
audit = AuditStore(folder / "audit", retry_s=0.01)


async def until_written():
    await until(lambda: audit.condition.waiting == 0 and audit.condition.problem is None, "it is written")


async def main():
    pins.put([Pin("git", "o", "uvx git", "commit", b"1", "1.0.0", "ada")])
    await approvals.keep("ada", "git.push", "d")
    registrations.update(lambda rows: (Registration("tool", "a.b", "{}"),))
    await conversations.keep(StoredConversation("1", "/", (), "About this", "all", 1.0, b"[]"))
    definitions.save("key", CachedDefinitions(1.0, b"{}"))
    vectors.put_many("m", [bytes(16)], np.ones((1, 8)))
    audit.record(performed(1))
    await until_written()

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    while True:
        try:
            held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            break
    stamp = pins.stamp()
    for number in range(3):
        assert [pin.name for pin in pins.of("git", "o")] == ["commit"]
        assert pins.stamp() == stamp
        assert await approvals.holds("ada", "git.push", "d")
        assert [each.name for each in registrations.all()] == ["a.b"]
        assert await conversations.get("1") is not None
        definitions.save("key", CachedDefinitions(2.0, b"{}"))
        assert definitions.load("key") == CachedDefinitions(2.0, b"{}")
        vectors.put_many("m", [number.to_bytes(16, "big")], np.ones((1, 8)))
        assert vectors.count() == number + 1
        audit.record(performed(number))
        await until_written()
        # A write that needs a further descriptor is refused, and does not affect the stored data.
        await approvals.keep("ada", "git.pull", "d")
        assert not await approvals.holds("ada", "git.pull", "d")
        try:
            pins.put([Pin("git", "o", "uvx git", "push", b"1", "1.0.0", "ada")])
        except Exception as error:
            assert "unable to open" in str(error)
        else:
            raise AssertionError
    # A store that was not open yet reports an unreadable file as an error, and not as empty.
    try:
        PinStore(folder / "pins").of("git", "o")
    except Exception as error:
        assert "unable to open" in str(error)
    else:
        raise AssertionError
    for each in held:
        os.close(each)
    await approvals.keep("ada", "git.pull", "d")
    assert await approvals.holds("ada", "git.pull", "d")
    assert definitions.problem is vectors.problem is None
    audit.close()
    assert (audit.condition.written, audit.condition.lost) == (4, 0)


anyio.run(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on descriptors is set as POSIX has it")
def test_open_stores_stay_usable_when_no_further_file_can_be_opened(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("people are asked every time") == 3


# -- their statements -------------------------------------------------------------------------------------------------


def test_no_sql_statement_uses_numbered_placeholders() -> None:
    """From Python 3.12 on, numbered placeholders together with a sequence of values are deprecated."""
    numbered = re.compile(r"[=,(]\s*\?\d")
    found = [
        (file.name, node.lineno)
        for file in Path(toolcrib.__file__).parent.rglob("*.py")
        if numbered.search(text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and numbered.search(node.value)
    ]
    assert found == []
