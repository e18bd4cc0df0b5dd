"""Records of installations with copies of the previous files, for undo. They are private: they may contain secrets.

Several clients may serve one configuration. Undoing the installation of one of them gives that client its own servers
back and changes nothing for the others. The configuration stays as it is until no client serves it any more. What the
undone installation added to it stays on record, and is removed together with the last client.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from toolcrib.cli.clients.file_changes import PRIVATE, FileChange, FileSnapshot, check_writable, read, write
from toolcrib.cli.clients.install_plan import EntryEdit, InstallPlan
from toolcrib.cli.clients.jsonc_document import JsoncDocument, MalformedJson
from toolcrib.cli.clients.known_clients import CLIENTS, KnownClient, Scope, Surroundings
from toolcrib.cli.clients.server_entries import served_file
from toolcrib.core.errors import InvalidConfig

_RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class _SavedFile:
    """One file that an installation changed."""

    path: Path
    backup: Path | None
    """The copy of the previous file. None if there was no file."""
    mode: int | None
    """The previous permissions."""
    after: str
    """The SHA-256 hash of what was written, in hex."""
    edit: EntryEdit


@dataclass(frozen=True, slots=True)
class _InstallRecord:
    """One installation."""

    folder: Path
    at: str
    """The time of the installation, in ISO 8601."""
    config: Path
    """The file that the gateway serves."""
    files: tuple[_SavedFile, ...]
    """The changed files in the order of writing: the configuration, then the client's file. A file that was not changed
    is missing. The client's file is also missing in a record that `is_undone`."""
    is_undone: bool = False
    """Whether the client has its servers back, while other clients still use what was added to the configuration."""

    @property
    def client_file(self) -> _SavedFile | None:
        """The client's file. Toolcrib never serves a client's own file, so the two paths differ."""
        return next((kept for kept in self.files if kept.path != self.config), None)

    @property
    def config_file(self) -> _SavedFile | None:
        """The configuration."""
        return next((kept for kept in self.files if kept.path == self.config), None)


@dataclass(frozen=True, slots=True)
class SharingClient:
    """A client that serves a configuration."""

    client: KnownClient
    scope: Scope
    file: Path

    def __str__(self) -> str:
        return self.client.title if self.scope is Scope.USER else f"{self.client.title} (scope `{self.scope}`)"


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The changes that undo an installation, in the order of writing: the client's file first."""

    record: _InstallRecord
    changes: tuple[FileChange, ...]
    remarks: tuple[str, ...] = ()
    """Full sentences about what stays as it is, and why."""
    sharers: tuple[SharingClient, ...] = ()
    """Other clients that serve the same configuration, which therefore stays as it is."""
    left: tuple[str, ...] = ()
    """Names of servers that this client gets back, and that also stay in the configuration."""
    earlier: _InstallRecord | None = None
    """The previous installation, through which the client still uses Toolcrib."""
    settled: tuple[_InstallRecord, ...] = ()
    """Records that are no longer needed. Does not contain `record` if the configuration stays."""


class InstallRecords:
    """The installations in one file of one client, stored in `folder`."""

    def __init__(self, folder: Path, client: KnownClient, scope: Scope, file: FileSnapshot) -> None:
        digest = hashlib.sha256(os.fsencode(file.path.absolute())).hexdigest()[:12]
        self._client, self._scope, self._file = client, scope, file
        self._all = folder / "installs"
        self.folder = self._all / f"{client.name}-{scope}-{digest}"

    def keep(self, plan: InstallPlan, config: Path) -> _InstallRecord:
        """Save copies of everything that `plan` changes.

        Raises:
            InvalidConfig: the copies cannot be written. Then nothing should be changed.
        """
        number = max((int(path.name) for path in self._numbered()), default=0) + 1
        folder = self.folder / f"{number:04}"
        kept: list[_SavedFile] = []
        try:
            folder.mkdir(mode=0o700, parents=True)
            for i, each in enumerate(plan.edits):
                before = each.change.before
                backup = folder / f"{i}-{before.path.name}" if before.data is not None else None
                if backup is not None:
                    _write_private(backup, before.data or b"")
                kept.append(_SavedFile(before.path, backup, before.mode, _digest(each.change.after), each.edit))
            record = _InstallRecord(folder, datetime.now(UTC).isoformat(timespec="seconds"), config, tuple(kept))
            _write_private(folder / _RECORD, _encoded(record))
        except OSError as error:
            raise InvalidConfig(f"{folder}: cannot write a backup: {error.strerror or error}") from error
        return record

    def last(self) -> _InstallRecord | None:
        """Return the latest installation that was not undone, or None.

        Raises:
            InvalidConfig: its record cannot be read.
        """
        return next(self._standing(), None)

    def sharers(self, config: Path, section: Sequence[str], surroundings: Surroundings) -> tuple[SharingClient, ...]:
        """Return the other clients that serve `config`, by an installation or by an entry that a person wrote.

        This client has its servers at `section` of its file. In projects, only the files of this project and those of
        recorded installations are found.
        """
        own = (self._client.name, os.path.realpath(self._file.path), *section)
        found: dict[tuple[str, ...], SharingClient] = {}
        for sharer, there in (*_recorded(self._all, config), *_known(surroundings)):
            # Compare paths and not scopes: in a person's home folder, the file of a project can be the person's own.
            key = (sharer.client.name, os.path.realpath(sharer.file), *there)
            if key != own and key not in found and _serves(sharer, there, config):
                found[key] = sharer
        return tuple(found.values())

    def undoing(self, record: _InstallRecord, surroundings: Surroundings) -> UndoPlan:
        """Plan how to undo `record`, the latest installation of this client.

        A file that did not change since is restored byte by byte. In a file that changed, only the entries of this
        installation are restored. A configuration that other clients serve stays as it is. A configuration that this
        client still serves through an earlier installation is not deleted.

        Raises:
            InvalidConfig: the installation's entries in the client's file changed, or the file cannot be read.
        """
        client = record.client_file
        changes = _restored(client, record) if client is not None else []
        section = client.edit.section if client is not None else self._section(surroundings)
        sharers = self.sharers(record.config, section, surroundings)
        earlier = next((each for each in self._standing() if each.folder != record.folder), None)
        settled, emptied, remarks = [record], None, list[str]()
        if not sharers:
            if earlier is None:  # no client serves it any more
                settled += self._left_over(record.config)
            emptied, remarks = _emptied([each.config_file for each in settled if each.config_file is not None])
        # The owner deleted the configuration between the two installations, and the second one created it again.
        is_kept_for_earlier = (
            earlier is not None
            and _is_same(earlier.config, record.config)
            and emptied is not None
            and emptied.after is None
        )
        left: list[str] = []
        if sharers or is_kept_for_earlier:
            if client is not None:
                moved = [name for name, was in client.edit.before.items() if was is not None]
                left = [name for name in moved if client.edit.after[name] is None]
            settled = [] if record.config_file is not None else settled
        elif emptied is not None:
            changes.append(emptied)
        for change in changes:
            check_writable(change.before)
        return UndoPlan(
            record, tuple(changes), tuple(remarks), sharers, tuple(left), earlier=earlier, settled=tuple(settled)
        )

    def _section(self, surroundings: Surroundings) -> tuple[str, ...]:
        """Return the place of the servers in the client's file.

        Raises:
            InvalidConfig: the file cannot be read.
        """
        try:
            return self._client.places[self._scope](surroundings).section(JsoncDocument(self._file.text).value)
        except MalformedJson as error:
            raise InvalidConfig(f"{self._file.path}: {error}") from error

    def _standing(self) -> Iterator[_InstallRecord]:
        """Yield the installations of this client that were not undone, latest first."""
        for folder in sorted(self._numbered(), reverse=True):
            # Without a record, the program ended before it wrote the record and changed files.
            with contextlib.suppress(FileNotFoundError):
                record = _from_wire(folder, (folder / _RECORD).read_bytes())
                if not record.is_undone:
                    yield record

    def _left_over(self, config: Path) -> list[_InstallRecord]:
        """Return undone installations of any client whose part of `config` is still there."""
        return [each for each in _all_records(self._all) if each.is_undone and _is_same(each.config, config)]

    def _numbered(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if path.name.isdecimal()]


def carry_out(plan: InstallPlan, records: InstallRecords, config: Path) -> _InstallRecord:
    """Write all files of `plan`. If one cannot be written, restore those that were.

    Raises:
        InvalidConfig: a file changed since it was read, or cannot be written.
    """
    record = records.keep(plan, config)
    written: list[FileChange] = []
    try:
        for each in plan.edits:
            write(each.change)
            written.append(each.change)
    except InvalidConfig:
        for change in reversed(written):
            after = FileSnapshot(change.before.path, change.before.target, change.after)
            write(FileChange(after, change.before.data, change.before.mode))
        forget(record)
        raise
    return record


def forget(record: _InstallRecord) -> None:
    """Delete a record with its copies."""
    shutil.rmtree(record.folder, ignore_errors=True)


def undo(undoing: UndoPlan) -> None:
    """Write the changes. Delete the record, or keep its part about a configuration that other clients serve.

    Raises:
        InvalidConfig: a file changed since it was read, or cannot be written.
    """
    for change in undoing.changes:
        write(change)
    for record in undoing.settled:
        forget(record)
    if undoing.record not in undoing.settled:
        left = tuple(kept for kept in undoing.record.files if kept.path == undoing.record.config)
        rest = replace(undoing.record, files=left, is_undone=True)
        path = rest.folder / _RECORD
        write(FileChange(read(path), _encoded(rest)))


def _restored(kept: _SavedFile, record: _InstallRecord) -> list[FileChange]:
    """Return the change that restores the client's entries, or an empty list if they are as before.

    Raises:
        InvalidConfig: an entry changed since the installation, or the file cannot be read.
    """
    try:
        now = read(kept.path)
        before = kept.backup.read_bytes() if kept.backup is not None else None
        if now.data == before:
            return []
        if now.data is None:
            raise MalformedJson("the file was deleted")
        if _digest(now.data) == kept.after:
            return [FileChange(now, before, kept.mode)]
        back, changed = _put_back(JsoncDocument(now.text), kept.edit)
        if changed:
            raise MalformedJson(f"`{changed[0]}` was changed since then")
        return [] if back is None else [FileChange(now, now.encoded(back.text))]
    except (MalformedJson, InvalidConfig) as error:
        problem = error.message if isinstance(error, InvalidConfig) else f"{kept.path}: {error}"
        copy = f"The previous content is in {kept.backup}." if kept.backup else "The file did not exist before."
        raise InvalidConfig(
            f"{problem}; the file changed after {record.at}, so it was not restored",
            hints=[f"{copy} Restore by hand what you need, then delete {record.folder}."],
        ) from error


def _emptied(parts: Sequence[_SavedFile]) -> tuple[FileChange | None, list[str]]:
    """Return the change that removes what several installations added to a configuration, and what stays, with reasons.

    While the file is exactly what one of them wrote, it becomes what that installation found. Without other changes,
    the result is the file before the first installation. Otherwise, only the entries are removed.
    """
    if not parts:
        return None, []
    path, remarks, mode = parts[0].path, list[str](), None
    try:
        now = read(path)
        data, rest = now.data, [*parts]
        while written := next((kept for kept in rest if data is not None and kept.after == _digest(data)), None):
            rest.remove(written)
            data, mode = (written.backup.read_bytes() if written.backup is not None else None), written.mode
        if data is not None and rest:
            now_or_then = replace(now, data=data)
            document = JsoncDocument(now_or_then.text)
            for kept in rest:
                back, changed = _put_back(document, kept.edit)
                document = back or document
                remarks += [f"{path}: `{name}` was changed since then, so it was not removed." for name in changed]
            data = now_or_then.encoded(document.text)
        return (None if data == now.data else FileChange(now, data, mode)), remarks
    except (MalformedJson, InvalidConfig) as error:
        problem = error.message if isinstance(error, InvalidConfig) else f"{path}: {error}"
        return None, [f"{problem}; the file was not changed."]


def _put_back(document: JsoncDocument, edit: EntryEdit) -> tuple[JsoncDocument | None, list[str]]:
    """Return the document with the entries before `edit`, or None if that changes nothing, and names changed since."""
    back: dict[str, str | None] = {}
    changed: list[str] = []
    for name, after in edit.after.items():
        raw, was = document.raw((*edit.section, name)), edit.before[name]
        if _alike(raw, was) or _alike(after, was):  # already restored, or never changed
            continue
        if _alike(raw, after):
            back[name] = was
        else:
            changed.append(name)
    return (document.with_members(edit.section, back) if back else None), changed


def _recorded(folder: Path, config: Path) -> Iterator[tuple[SharingClient, Sequence[str]]]:
    """Yield clients that were installed to serve `config`, with the place of the servers in their files."""
    for record in _all_records(folder):
        name, _, scope = record.folder.parent.name.rpartition("-")[0].rpartition("-")  # CLIENT-SCOPE-DIGEST
        if record.is_undone or not _is_same(record.config, config) or name not in CLIENTS or scope not in {*Scope}:
            continue
        if (kept := record.client_file) is not None:
            yield SharingClient(CLIENTS[name], Scope(scope), kept.path), kept.edit.section


def _known(surroundings: Surroundings) -> Iterator[tuple[SharingClient, Sequence[str]]]:
    """Yield all clients that may be on this machine."""
    for client in CLIENTS.values():
        for scope, place in client.places.items():
            with contextlib.suppress(InvalidConfig, MalformedJson):
                at = place(surroundings)
                yield SharingClient(client, scope, at.file), at.section(JsoncDocument(read(at.file).text).value)


def served_here(surroundings: Surroundings) -> Mapping[Path, Sequence[SharingClient]]:
    """Return the configurations that clients here serve with Toolcrib, and those clients. Skips unreadable files."""
    found: dict[Path, list[SharingClient]] = {}
    seen: set[tuple[str, ...]] = set()
    for sharer, section in _known(surroundings):
        key = (os.path.realpath(sharer.file), *section)
        if key in seen:  # in a person's home folder, the file of a project can be the person's own
            continue
        seen.add(key)
        with contextlib.suppress(InvalidConfig, MalformedJson):
            for path in dict.fromkeys(_served_by(sharer, section)):
                found.setdefault(path, []).append(sharer)
    return found


def _serves(sharer: SharingClient, section: Sequence[str], config: Path) -> bool:
    """Return whether a client has an entry for Toolcrib with `config`. True if its file cannot be read."""
    try:
        return any(_is_same(path, config) for path in _served_by(sharer, section))
    except (InvalidConfig, MalformedJson):
        return True


def _served_by(sharer: SharingClient, section: Sequence[str]) -> Iterator[Path]:
    """Yield the configurations of a client's entries for Toolcrib. Raises errors from reading its file."""
    entries = JsoncDocument(read(sharer.file).text).at(section) or {}
    served = (served_file(sharer.client, sharer.scope, sharer.file, entry) for entry in entries.values())
    return (path for path in served if path is not None)


def _all_records(folder: Path) -> Iterator[_InstallRecord]:
    for path in sorted(folder.glob(f"*/*/{_RECORD}")):
        with contextlib.suppress(OSError, InvalidConfig):
            yield _from_wire(path.parent, path.read_bytes())


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _alike(one: str | None, other: str | None) -> bool:
    """Return whether two raw values are equal after parsing."""
    if one is None or other is None:
        return one is other
    return JsoncDocument(f'{{"": {one}}}').value == JsoncDocument(f'{{"": {other}}}').value


def _digest(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _encoded(record: _InstallRecord) -> bytes:
    return orjson.dumps(_to_wire(record), option=orjson.OPT_INDENT_2)


def _to_wire(record: _InstallRecord) -> dict[str, Any]:
    return {
        "version": 1,
        "at": record.at,
        "undone": record.is_undone,
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


def _from_wire(folder: Path, data: bytes) -> _InstallRecord:
    try:
        wire = orjson.loads(data)
        files = tuple(
            _SavedFile(
                Path(each["path"]),
                folder / each["backup"] if each["backup"] is not None else None,
                each["mode"],
                each["after_sha256"],
                EntryEdit(tuple(each["section"]), each["before"], each["after"]),
            )
            for each in wire["files"]
        )
        return _InstallRecord(folder, wire["at"], Path(wire["config"]), files, wire.get("undone", False))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidConfig(
            f"{folder / _RECORD}: cannot read this record", hints=["The copies next to it are the previous files."]
        ) from error
