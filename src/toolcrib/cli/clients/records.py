"""What was there before each installation, kept so that it can be undone. The files are private: they may hold secrets.

Several clients may serve one configuration. Undoing the installation of one of them gives that client its own servers
back and changes nothing for the others: as long as another client serves the configuration, the configuration stays as
it is. What the undone installation put into it is kept on record, and is taken out with the last client.
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

from toolcrib.cli.clients.entries import served_file
from toolcrib.cli.clients.files import PRIVATE, Change, Snapshot, check_writable, read, write
from toolcrib.cli.clients.installing import Edit, Plan
from toolcrib.cli.clients.jsonc import Document, Malformed
from toolcrib.cli.clients.known import CLIENTS, KnownClient, Scope, Surroundings
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
    """In the order in which they were written: the configuration, then the client's file. Each is missing where the
    installation did not change it; the client's file is also missing in a record that `is_undone`."""
    is_undone: bool = False
    """Whether the client has its servers back, and what was put into the configuration is still there for others."""

    @property
    def client_file(self) -> KeptFile | None:
        """The client's file. Toolcrib never serves a client's own file, so the two paths differ."""
        return next((kept for kept in self.files if kept.path != self.config), None)

    @property
    def config_file(self) -> KeptFile | None:
        """The configuration."""
        return next((kept for kept in self.files if kept.path == self.config), None)


@dataclass(frozen=True, slots=True)
class Sharer:
    """A client that serves a configuration."""

    client: KnownClient
    scope: Scope
    file: Path

    def __str__(self) -> str:
        return self.client.title if self.scope is Scope.USER else f"{self.client.title} (scope `{self.scope}`)"


@dataclass(frozen=True, slots=True)
class Undoing:
    """What undoing a record changes, in the order in which it is written: the client's file first."""

    record: Record
    changes: tuple[Change, ...]
    remarks: tuple[str, ...] = ()
    """What stays as it is, with the reason: whole sentences."""
    sharers: tuple[Sharer, ...] = ()
    """Other clients that serve the same configuration: for them, it stays as it is."""
    left: tuple[str, ...] = ()
    """Names of servers that this client gets back and that stay in the configuration too."""
    earlier: Record | None = None
    """The installation before this one, by which the client still has Toolcrib."""
    settled: tuple[Record, ...] = ()
    """Records that are done with: nothing of them is left anywhere. Without `record` where the configuration stays."""


class Records:
    """The installations into one file of one client, in `folder`."""

    def __init__(self, folder: Path, client: KnownClient, scope: Scope, file: Snapshot) -> None:
        digest = hashlib.sha256(os.fsencode(file.path.absolute())).hexdigest()[:12]
        self._client, self._scope, self._file = client, scope, file
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
            _write_private(folder / _RECORD, _encoded(record))
        except OSError as error:
            raise InvalidConfig(f"{folder}: a backup cannot be written: {error.strerror or error}") from error
        return record

    def last(self) -> Record | None:
        """The latest installation that was not undone.

        Raises:
            InvalidConfig: its record cannot be read.
        """
        return next(self._standing(), None)

    def sharers(self, config: Path, section: Sequence[str], surroundings: Surroundings) -> tuple[Sharer, ...]:
        """The other clients that serve `config`: those that were installed, and those that are set up by hand.

        This client has its servers at `section` of its file. Of files in projects, only those of the project here and
        of recorded installations are found.
        """
        own = (self._client.name, os.path.realpath(self._file.path), *section)
        found: dict[tuple[str, ...], Sharer] = {}
        for sharer, there in (*_recorded(self._all, config), *_known(surroundings)):
            # Not by scope: in a person's home folder, the file of a project can be the person's own.
            key = (sharer.client.name, os.path.realpath(sharer.file), *there)
            if key != own and key not in found and _serves(sharer, there, config):
                found[key] = sharer
        return tuple(found.values())

    def undoing(self, record: Record, surroundings: Surroundings) -> Undoing:
        """What puts back what was there before `record`, the last one of this client.

        A file that is still what was written is restored to the byte. In one that changed since, the entries of this
        installation are put back and all else is kept. A configuration that other clients serve stays as it is. One
        that this client still serves by an earlier installation is not deleted.

        Raises:
            InvalidConfig: the client's file was changed at those very entries, or cannot be read.
        """
        client = record.client_file
        changes = _restored(client, record) if client is not None else []
        section = client.edit.section if client is not None else self._section(surroundings)
        sharers = self.sharers(record.config, section, surroundings)
        earlier = next((each for each in self._standing() if each.folder != record.folder), None)
        settled, emptied, remarks = [record], None, list[str]()
        if not sharers:
            if earlier is None:  # nobody serves it any more
                settled += self._left_over(record.config)
            emptied, remarks = _emptied([each.config_file for each in settled if each.config_file is not None])
        # Its owner deleted the configuration between the two installations, and this one made it anew.
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
        return Undoing(
            record, tuple(changes), tuple(remarks), sharers, tuple(left), earlier=earlier, settled=tuple(settled)
        )

    def _section(self, surroundings: Surroundings) -> tuple[str, ...]:
        """Where the client has its servers in its file now.

        Raises:
            InvalidConfig: the file cannot be read.
        """
        try:
            return self._client.places[self._scope](surroundings).section(Document(self._file.text).value)
        except Malformed as error:
            raise InvalidConfig(f"{self._file.path}: {error}") from error

    def _standing(self) -> Iterator[Record]:
        """The installations of this client that were not undone, the latest first."""
        for folder in sorted(self._numbered(), reverse=True):
            with contextlib.suppress(FileNotFoundError):  # one that was cut off before anything was changed
                record = _from_wire(folder, (folder / _RECORD).read_bytes())
                if not record.is_undone:
                    yield record

    def _left_over(self, config: Path) -> list[Record]:
        """Undone installations, of any client, whose part of `config` is still there."""
        return [each for each in _all_records(self._all) if each.is_undone and _is_same(each.config, config)]

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


def undo(undoing: Undoing) -> None:
    """Carry it out. The record is thrown away, or what it says of a configuration that others serve is kept.

    Raises:
        InvalidConfig: a file was changed meanwhile, or cannot be written.
    """
    for change in undoing.changes:
        write(change)
    for record in undoing.settled:
        forget(record)
    if undoing.record not in undoing.settled:
        left = tuple(kept for kept in undoing.record.files if kept.path == undoing.record.config)
        rest = replace(undoing.record, files=left, is_undone=True)
        path = rest.folder / _RECORD
        write(Change(read(path), _encoded(rest)))


def _restored(kept: KeptFile, record: Record) -> list[Change]:
    """The change that puts the client's entries back, or none where they are as they were.

    Raises:
        InvalidConfig: an entry was changed since, or the file can no longer be read.
    """
    try:
        now = read(kept.path)
        before = kept.backup.read_bytes() if kept.backup is not None else None
        if now.data == before:
            return []
        if now.data is None:
            raise Malformed("the file is gone")
        if _digest(now.data) == kept.after:
            return [Change(now, before, kept.mode)]
        back, changed = _put_back(Document(now.text), kept.edit)
        if changed:
            raise Malformed(f"`{changed[0]}` was changed since then")
        return [] if back is None else [Change(now, now.encoded(back.text))]
    except (Malformed, InvalidConfig) as error:
        told = error.message if isinstance(error, InvalidConfig) else f"{kept.path}: {error}"
        copy = f"The previous content is in {kept.backup}." if kept.backup else "The file did not exist before."
        raise InvalidConfig(
            f"{told}; the file changed after {record.at}, so it was not restored",
            hints=[f"{copy} Put back by hand what you need, then delete {record.folder}."],
        ) from error


def _emptied(parts: Sequence[KeptFile]) -> tuple[Change | None, list[str]]:
    """The change that takes out of a configuration what several installations put into it, and what stays, and why.

    Where the file is what one of them wrote, it becomes what that one found, and so on: without other changes it is in
    the end what it was before the first. Otherwise only the entries go.
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
            document = Document(now_or_then.text)
            for kept in rest:
                back, changed = _put_back(document, kept.edit)
                document = back or document
                remarks += [f"{path}: `{name}` was changed since then, so it stays there." for name in changed]
            data = now_or_then.encoded(document.text)
        return (None if data == now.data else Change(now, data, mode)), remarks
    except (Malformed, InvalidConfig) as error:
        told = error.message if isinstance(error, InvalidConfig) else f"{path}: {error}"
        return None, [f"{told}; the file stays as it is."]


def _put_back(document: Document, edit: Edit) -> tuple[Document | None, list[str]]:
    """The document with the entries as they were before `edit`, if that changes it; and names that differ from both."""
    back: dict[str, str | None] = {}
    changed: list[str] = []
    for name, after in edit.after.items():
        raw, was = document.raw((*edit.section, name)), edit.before[name]
        if _alike(raw, was) or _alike(after, was):  # it is as it was, or was not touched at all
            continue
        if _alike(raw, after):
            back[name] = was
        else:
            changed.append(name)
    return (document.with_members(edit.section, back) if back else None), changed


def _recorded(folder: Path, config: Path) -> Iterator[tuple[Sharer, Sequence[str]]]:
    """Clients that were installed to serve `config`, with the path of their servers in their file."""
    for record in _all_records(folder):
        name, _, scope = record.folder.parent.name.rpartition("-")[0].rpartition("-")  # CLIENT-SCOPE-DIGEST
        if record.is_undone or not _is_same(record.config, config) or name not in CLIENTS or scope not in {*Scope}:
            continue
        if (kept := record.client_file) is not None:
            yield Sharer(CLIENTS[name], Scope(scope), kept.path), kept.edit.section


def _known(surroundings: Surroundings) -> Iterator[tuple[Sharer, Sequence[str]]]:
    """All clients that may be here."""
    for client in CLIENTS.values():
        for scope, place in client.places.items():
            with contextlib.suppress(InvalidConfig, Malformed):
                at = place(surroundings)
                yield Sharer(client, scope, at.file), at.section(Document(read(at.file).text).value)


def served_here(surroundings: Surroundings) -> Mapping[Path, Sequence[Sharer]]:
    """The configurations that clients here have Toolcrib serve, each with those clients; files that can be read."""
    found: dict[Path, list[Sharer]] = {}
    seen: set[tuple[str, ...]] = set()
    for sharer, section in _known(surroundings):
        key = (os.path.realpath(sharer.file), *section)
        if key in seen:  # in a person's home folder, the file of a project can be the person's own
            continue
        seen.add(key)
        with contextlib.suppress(InvalidConfig, Malformed):
            for path in dict.fromkeys(_served_by(sharer, section)):
                found.setdefault(path, []).append(sharer)
    return found


def _serves(sharer: Sharer, section: Sequence[str], config: Path) -> bool:
    """Whether a client has an entry for Toolcrib with `config`. One whose file cannot be read is taken to have it."""
    try:
        return any(_is_same(path, config) for path in _served_by(sharer, section))
    except (InvalidConfig, Malformed):
        return True


def _served_by(sharer: Sharer, section: Sequence[str]) -> Iterator[Path]:
    """The configurations of a client's entries for Toolcrib; raises as reading its file does."""
    entries = Document(read(sharer.file).text).at(section) or {}
    served = (served_file(sharer.client, sharer.scope, sharer.file, entry) for entry in entries.values())
    return (path for path in served if path is not None)


def _all_records(folder: Path) -> Iterator[Record]:
    for path in sorted(folder.glob(f"*/*/{_RECORD}")):
        with contextlib.suppress(OSError, InvalidConfig):
            yield _from_wire(path.parent, path.read_bytes())


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


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


def _encoded(record: Record) -> bytes:
    return orjson.dumps(_to_wire(record), option=orjson.OPT_INDENT_2)


def _to_wire(record: Record) -> dict[str, Any]:
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
        return Record(folder, wire["at"], Path(wire["config"]), files, wire.get("undone", False))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InvalidConfig(
            f"{folder / _RECORD}: this record cannot be read", hints=["The copies next to it are the previous files."]
        ) from error
