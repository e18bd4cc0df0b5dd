"""What was there before each installation, kept so that it can be undone; private, for it may hold secrets."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from toolcrib.clients.files import PRIVATE, Change, Snapshot, check_writable, read, write
from toolcrib.clients.installing import Edit, Plan
from toolcrib.clients.jsonc import Document, Malformed
from toolcrib.clients.known import KnownClient, Scope
from toolcrib.core.errors import InvalidConfig

_RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of a record."""

    path: Path
    backup: Path | None
    """Its copy from before; None where there was no file."""
    mode: int | None
    """Its permissions from before."""
    after: str
    """SHA-256 of what was written, in hex."""
    edit: Edit


@dataclass(frozen=True, slots=True)
class Record:
    """One installation."""

    folder: Path
    at: str
    """When it was, in ISO 8601."""
    config: Path
    """What the gateway serves."""
    files: tuple[KeptFile, ...]
    """In the order in which they were written: the client's file is the last."""


@dataclass(frozen=True, slots=True)
class Undoing:
    """What undoing a record changes, in the order in which it is written: the client's file first."""

    record: Record
    changes: tuple[Change, ...]
    remarks: tuple[str, ...] = ()
    """What stays as it is, with the reason: whole sentences."""


class Records:
    """The installations into one file of one client, in `folder`."""

    def __init__(self, folder: Path, client: KnownClient, scope: Scope, file: Snapshot) -> None:
        digest = hashlib.sha256(os.fsencode(file.path.absolute())).hexdigest()[:12]
        self._all = folder / "installs"
        self.folder = self._all / f"{client.name}-{scope}-{digest}"

    def keep(self, plan: Plan, config: Path) -> Record:
        """Keep what `plan` is about to change.

        Raises:
            InvalidConfig: it cannot be written down, so that nothing should be changed.
        """
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        folder = self.folder / f"{number:04}"
        kept: list[KeptFile] = []
        try:
            folder.mkdir(mode=0o700, parents=True)
            for i, each in enumerate(plan.edits):
                before = each.change.before
                backup = folder / f"{i}-{before.path.name}" if before.data is not None else None
                if backup is not None:
                    _write_private(backup, before.data or b"")
                kept.append(KeptFile(before.path, backup, before.mode, _digest(each.change.after), each.edit))
            record = Record(folder, datetime.now(UTC).isoformat(timespec="seconds"), config, tuple(kept))
            _write_private(folder / _RECORD, orjson.dumps(_to_wire(record), option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise InvalidConfig(f"{folder}: a backup cannot be written: {error.strerror or error}") from error
        return record

    def last(self) -> Record | None:
        """The latest installation that was not undone.

        Raises:
            InvalidConfig: its record cannot be read.
        """
        for folder in sorted(self._numbered(), reverse=True):
            with contextlib.suppress(FileNotFoundError):  # one that was cut off before anything was changed
                return _from_wire(folder, (folder / _RECORD).read_bytes())
        return None

    def others_serve(self, record: Record) -> bool:
        """Whether another installation that was not undone serves the same file."""
        for path in self._all.glob(f"*/*/{_RECORD}"):
            with contextlib.suppress(OSError, InvalidConfig):
                if path.parent != record.folder and _from_wire(path.parent, path.read_bytes()).config == record.config:
                    return True
        return False

    def _numbered(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if path.name.isdecimal()]


def carry_out(plan: Plan, records: Records, config: Path) -> Record:
    """Write every file of `plan`, or none: what was written is put back when the next one cannot be.

    Raises:
        InvalidConfig: a file was changed meanwhile, or cannot be written.
    """
    record = records.keep(plan, config)
    written: list[Change] = []
    try:
        for each in plan.edits:
            write(each.change)
            written.append(each.change)
    except InvalidConfig:
        for change in reversed(written):
            after = Snapshot(change.before.path, change.before.target, change.after)
            write(Change(after, change.before.data, change.before.mode))
        forget(record)
        raise
    return record


def forget(record: Record) -> None:
    """Throw a record away, with its copies."""
    shutil.rmtree(record.folder, ignore_errors=True)


def undoing(record: Record, *, others_serve: bool) -> Undoing:
    """What puts back what was there before.

    A file that is still what was written is restored to the byte. One that changed elsewhere since gets back the
    entries of this installation and keeps all else; so does a configuration that `others_serve`.

    Raises:
        InvalidConfig: the client's file was changed at those very entries.
    """
    changes: list[Change] = []
    remarks: list[str] = []
    *others, client = record.files
    try:
        changes += _restored(client)
    except (Malformed, InvalidConfig) as error:
        told = error.message if isinstance(error, InvalidConfig) else f"{client.path}: {error}"
        copy = f"What stood there before is in {client.backup}." if client.backup else "There was no such file before."
        raise InvalidConfig(
            f"{told}; it was changed since {record.at} and was left alone",
            hints=[f"{copy} Put back by hand what you need, then delete {record.folder}."],
        ) from error
    for kept in others:
        try:
            changes += _restored(kept, to_the_byte=not others_serve)
        except (Malformed, InvalidConfig) as error:
            told = error.message if isinstance(error, InvalidConfig) else f"{kept.path}: {error}"
            remarks.append(f"{told}; it is left as it is.")
    for change in changes:
        check_writable(change.before)
    return Undoing(record, tuple(changes), tuple(remarks))


def undo(undoing: Undoing) -> None:
    """Carry it out, and throw the record away.

    Raises:
        InvalidConfig: a file was changed meanwhile, or cannot be written.
    """
    for change in undoing.changes:
        write(change)
    forget(undoing.record)


def _restored(kept: KeptFile, *, to_the_byte: bool = True) -> list[Change]:
    """The change that undoes one file's part, or none where it is as it was.

    Raises:
        Malformed: an entry was changed since.
    """
    now = read(kept.path)
    before = kept.backup.read_bytes() if kept.backup is not None else None
    if now.data == before:
        return []
    if now.data is not None and _digest(now.data) == kept.after and to_the_byte:
        return [Change(now, before, kept.mode)]
    if now.data is None:
        raise Malformed("the file is gone")
    document = Document(now.text)
    section = kept.edit.section
    back: dict[str, str | None] = {}
    for name, after in kept.edit.after.items():
        raw, was = document.raw((*section, name)), kept.edit.before[name]
        if _alike(raw, was):
            continue
        if not _alike(raw, after):
            raise Malformed(f"`{name}` is another there by now")
        back[name] = was
    return [Change(now, now.encoded(document.with_members(section, back).text))] if back else []


def _alike(one: str | None, other: str | None) -> bool:
    """Whether two raw values say the same."""
    if one is None or other is None:
        return one is other
    return Document(f'{{"": {one}}}').value == Document(f'{{"": {other}}}').value


def _digest(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _to_wire(record: Record) -> dict[str, Any]:
    return {
        "version": 1,
        "at": record.at,
        "config": str(record.config),
        "files": [
            {
                "path": str(kept.path),
                "backup": kept.backup.name if kept.backup is not None else None,
                "mode": kept.mode,
                "after_sha256": kept.after,
                "section": list(kept.edit.section),
                "before": dict(kept.edit.before),
                "after": dict(kept.edit.after),
            }
            for kept in record.files
        ],
    }


def _from_wire(folder: Path, data: bytes) -> Record:
    try:
        wire = orjson.loads(data)
        files = tuple(
            KeptFile(
                Path(each["path"]),
                folder / each["backup"] if each["backup"] is not None else None,
                each["mode"],
                each["after_sha256"],
                Edit(tuple(each["section"]), each["before"], each["after"]),
            )
            for each in wire["files"]
        )
        return Record(folder, wire["at"], Path(wire["config"]), files)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidConfig(
            f"{folder / _RECORD}: this record cannot be read", hints=["The copies beside it are what was there before."]
        ) from error
