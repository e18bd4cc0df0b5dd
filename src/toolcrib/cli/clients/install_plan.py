"""Plans what `toolcrib install` changes: the gateway's entry in a client's file, and the servers that it moves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolcrib.cli.clients.file_changes import PRIVATE, FileChange, FileSnapshot, check_writable, read
from toolcrib.cli.clients.jsonc_document import JsoncDocument, MalformedJson, dump, members_of
from toolcrib.cli.clients.known_clients import (
    KnownClient,
    Scope,
    ServersPlace,
    Surroundings,
    default_config,
    gateway_name,
)
from toolcrib.cli.clients.server_entries import (
    gateway_entry,
    inputs_of,
    is_toolcrib,
    may_need_sign_in,
    reaches_shared,
    same_server,
    served_file,
    serving,
    variables,
    why_not_movable,
)
from toolcrib.config import SERVER_KEYS, parse_config
from toolcrib.config.config_file import workspace_of
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.json_settings import errors_at


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """Changed members of one object of a file. Enough to undo the change after other parts of the file changed."""

    section: tuple[str, ...]
    before: Mapping[str, str | None]
    """Raw JSON by name. None for a member that did not exist."""
    after: Mapping[str, str | None]
    """Raw JSON for the same names. None for a member that is removed."""


@dataclass(frozen=True, slots=True)
class _FileEdit:
    """The changes of one file in an installation."""

    change: FileChange
    edit: EntryEdit


@dataclass(frozen=True, slots=True)
class _UnmovedServer:
    """A server that is not moved, and the reason, as part of a sentence."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """Everything that one installation changes, in the order in which it is written."""

    edits: tuple[_FileEdit, ...]
    moved: tuple[str, ...] = ()
    arriving: tuple[str, ...] = ()
    """The moved servers that were not in the gateway's configuration before."""
    serves: tuple[str, ...] = ()
    """The names of all servers in the gateway's configuration after the change."""
    unset: tuple[str, ...] = ()
    """Variables that the servers need, but that the client cannot be told to pass on."""
    inputs: tuple[str, ...] = ()
    """The ids of the inputs that the moved servers need. Toolcrib asks for them, because it cannot read the client's
    answers."""
    sign_ins: tuple[str, ...] = ()
    """The moved servers that may need a sign-in. Toolcrib cannot use the client's sign-in."""


@dataclass(frozen=True)
class Survey:
    """What a client's file and the gateway's configuration contain now, and what could be moved."""

    client: KnownClient
    scope: Scope
    name: str
    """The name of the gateway's entry."""
    config: Path
    """The absolute path of the file that the gateway serves."""
    file: FileSnapshot
    section: tuple[str, ...]
    document: JsoncDocument
    config_file: FileSnapshot
    config_document: JsoncDocument
    reference: str | None
    """How the entry names the configuration on every machine. None if it is not shared with a project."""
    movable: tuple[str, ...]
    kept: tuple[_UnmovedServer, ...]
    command: tuple[str, ...]
    elsewhere: Mapping[Scope, int]
    """How many servers the client has in its other scopes."""
    named_config: bool
    """Whether the user named the file that the gateway serves."""

    @property
    def replaced_gateway(self) -> str | None:
        """The URL of a gateway on this machine that the entry replaces."""
        old = (self.document.at(self.section) or {}).get(self.name)
        return str(old["url"]) if old is not None and reaches_shared(old) else None

    def plan(self, *, move: bool) -> InstallPlan:
        """Plan the changes that add the gateway and, with `move`, move everything movable behind it.

        Raises:
            InvalidConfig: a file cannot be changed without losing something.
        """
        moved = self.movable if move else ()
        config = self._config_with(moved)
        servers = _servers(config)
        passed = [*dict.fromkeys(name for entry in servers.values() for name in variables(entry))]
        old = (self.document.at(self.section) or {}).get(self.name)
        entry = gateway_entry(self.client, self._command(old), passed, old)
        document = _edited(self.file, self._with_gateway(old, entry), self.section, dict.fromkeys(moved))
        edits: list[_FileEdit] = []
        if self.config_file.data is None or config.text != self.config_document.text:
            mode = None if self.reference is not None else PRIVATE
            change = FileChange(self.config_file, self.config_file.encoded(config.text), mode)
            edits.append(_FileEdit(change, _edit(self.config_document, config, (_server_key(config),), moved)))
        if document.text != self.document.text:
            change = FileChange(self.file, self.file.encoded(document.text))
            edits.append(_FileEdit(change, _edit(self.document, document, self.section, (*moved, self.name))))
        for edit in edits:
            check_writable(edit.change.before)
        unset = tuple(name for name in passed if name not in entry.get("env", {}))
        before = _servers(self.config_document)
        arriving = tuple(name for name in moved if name not in before)
        entries = self._entries(moved)
        return InstallPlan(
            tuple(edits),
            moved,
            arriving,
            tuple(servers),
            unset,
            inputs=tuple(dict.fromkeys(each for entry in entries.values() for each in inputs_of(entry))),
            sign_ins=tuple(name for name, entry in entries.items() if may_need_sign_in(entry)),
        )

    def _entries(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the client's entries of these servers."""
        entries = self.document.at(self.section) or {}
        return {name: entries[name] for name in names}

    def _config_with(self, moved: Sequence[str]) -> JsoncDocument:
        """Return the gateway's configuration with the `moved` servers."""
        there = _servers(self.config_document)
        arriving = {name: self.document.raw((*self.section, name)) for name in moved if name not in there}
        if self.config_file.data is None and not arriving:
            if self.named_config:
                raise InvalidConfig(f"{self.config}: file not found, and there are no servers to move into it")
            return JsoncDocument(f'{{\n  "{SERVER_KEYS[0]}": {{}}\n}}\n')
        config = _edited(self.config_file, self.config_document, (_server_key(self.config_document),), arriving)
        there = _inputs(self.config_document)
        needed = {each for entry in self._entries(moved).values() for each in inputs_of(entry)} - there.keys()
        if needed:
            inputs = [
                *_input_list(self.config_document),
                *(each for key, each in _inputs(self.document).items() if key in needed),
            ]
            config = _edited(self.config_file, config, (), {"inputs": dump(inputs)})
        parse_config(config.text, self.config)
        return config

    def _with_gateway(self, old: object, entry: Mapping[str, Any]) -> JsoncDocument:
        """Return the client's file with `entry` instead of `old`. Only changed keys are written, to keep comments."""
        had = members_of(old)
        if had is None:
            return _edited(self.file, self.document, self.section, {self.name: dump(entry)})
        changes: dict[str, str | None] = {key: None for key in had if key not in entry}
        changes |= {key: dump(value) for key, value in entry.items() if had.get(key) != value}
        return _edited(self.file, self.document, (*self.section, self.name), changes)

    def _command(self, old: object) -> tuple[str, ...]:
        """Return the whole command line. Options of the previous entry are kept."""
        had = serving(old)
        before, after = (had.before, had.after) if had is not None else ((), ())
        return (*self.command, "serve", *before, self.reference or str(self.config), *after)


def survey(
    client: KnownClient,
    scope: Scope,
    given: Path | None,
    *,
    surroundings: Surroundings,
    config_folder: Path,
    command: Sequence[str],
    shared_command: Sequence[str],
) -> Survey:
    """Read all files and find out what can be moved.

    The gateway serves the `given` file. If none is given, it serves the file that it serves already, or the default
    one, which is in `config_folder` or in the project. `command` starts Toolcrib on this machine, `shared_command` on
    any machine.

    Raises:
        InvalidConfig: a file cannot be read, is malformed, or has a different server with the gateway's name; the
        client
            is not installed; the gateway would serve the client's own file; or the client would lose servers that the
            gateway serves now.
    """
    place = client.places[scope](surroundings)
    file, document = _opened(client, place)
    section = place.section(document.value)
    user = client.places[Scope.USER](surroundings)
    if scope is not Scope.USER and _same_place(user, place, document):
        raise InvalidConfig(
            f"{place.file}: in this folder, this is your own file and not the file of a project",
            hints=["Go to the project's folder first, or leave out --scope."],
        )
    entries = _at(file, document, section) or {}
    default = default_config(scope, place.file, surroundings, config_folder)
    name, config = _gateway(client, scope, file, entries, given=given, default=default)
    config_file = read(config)
    if any(os.path.realpath(each(surroundings).file) == str(config_file.target) for each in client.places.values()):
        raise InvalidConfig(
            f"{config} is {client.title}'s own file, so Toolcrib would serve itself",
            hints=["Pass a different file with --config, or leave it out to create one in Toolcrib's own folder."],
        )
    config_document = _parsed(config_file)
    if config_file.data is not None:
        parse_config(config_file.text, config)
    taken = _servers(config_document)
    before = served_file(client, scope, file.path, entries.get(name))
    if before is not None and (lost := _not_in(config_document, before)):
        raise InvalidConfig(
            f"{client.title} gets servers from {before} that {config} does not have: {', '.join(lost)}",
            hints=[
                f"Run `toolcrib install {client.name} --undo` first, with the same --scope, or copy them into {config}."
            ],
        )
    reference = client.project.reference_to(file.path, config) if scope is Scope.PROJECT and client.project else None
    off = client.switched_off(document.value)
    inputs: Mapping[str, Any] = {}
    other_inputs: set[str] = set()
    if client.asks_for_inputs:
        with errors_at(f"{file.path}: "):
            inputs = _inputs(document)
        with errors_at(f"{config}: "):
            others = _inputs(config_document)
        other_inputs = {each for each in inputs if each in others and others[each] != inputs[each]}
    keeps_workspace = scope is Scope.PROJECT and workspace_of(config) == workspace_of(file.path)
    movable: list[str] = []
    kept: list[_UnmovedServer] = []
    for label, entry in entries.items():
        if label == name:
            continue
        raw = document.raw((*section, label)) or ""
        reason = why_not_movable(client, label, entry, raw, inputs=[*inputs.values()], keeps_workspace=keeps_workspace)
        if reason is None and (other := other_inputs.intersection(inputs_of(entry))):
            reason = f"a different input `{min(other)}` already exists in {config}"
        if reason is None and label in off:
            reason = f"it is disabled for a project in {client.title}, and Toolcrib cannot do that per project"
        if reason is None and label in taken and not same_server(taken[label], entry):
            reason = f"a different server with this name already exists in {config}"
        if reason is None:
            movable.append(label)
        else:
            kept.append(_UnmovedServer(label, reason))
    return Survey(
        client,
        scope,
        name=name,
        config=config,
        file=file,
        section=section,
        document=document,
        config_file=config_file,
        config_document=config_document,
        reference=reference,
        movable=tuple(movable),
        kept=tuple(kept),
        command=tuple(command if reference is None else shared_command),
        elsewhere=_elsewhere(client, scope, surroundings, file, document),
        named_config=given is not None,
    )


def _not_in(document: JsoncDocument, before: Path) -> list[str]:
    """Return the names of servers in the configuration `before` that `document` does not have."""
    there = _servers(document)
    with contextlib.suppress(InvalidConfig, MalformedJson):  # a file that cannot be read serves no servers
        served = _servers(JsoncDocument(read(before).text))
        return [name for name, entry in served.items() if name not in there or not same_server(there[name], entry)]
    return []


def _gateway(
    client: KnownClient,
    scope: Scope,
    file: FileSnapshot,
    entries: Mapping[str, Any],
    *,
    given: Path | None,
    default: Path,
) -> tuple[str, Path]:
    """Return the name of the gateway's entry, and the file that it serves."""
    named = gateway_name(scope)
    if named in entries and serving(entries[named]) is None and not reaches_shared(entries[named]):
        raise InvalidConfig(
            f"{file.path}: a different server is named `{named}` there",
            hints=["Rename that server in the file, then run the command again."],
        )
    named_files = {name: found.config for name, entry in entries.items() if (found := serving(entry)) is not None}
    paths = {name: served_file(client, scope, file.path, entries[name]) for name in named_files}
    served = {name: path for name, path in paths.items() if path is not None}
    config = given.absolute() if given is not None else None
    if named in entries:
        if config is None and named_files.get(named) is not None and named not in served:
            raise InvalidConfig(
                f"{file.path}: `{named}` serves `{named_files[named]}`, and only the client knows where that is",
                hints=["Pass that file with --config."],
            )
        return named, config or served.get(named) or default
    wanted = config or default
    for name, path in served.items():  # the gateway may have a name that the user chose
        if os.path.realpath(path) == os.path.realpath(wanted):
            return name, path
    if config is None and len(served) == 1:
        return next(iter(served.items()))
    return named, wanted


def _elsewhere(
    client: KnownClient, scope: Scope, surroundings: Surroundings, file: FileSnapshot, document: JsoncDocument
) -> Mapping[Scope, int]:
    """Count the servers in the other scopes. `file` and `document` are those of `scope`."""
    here = client.places[scope](surroundings)
    counts: dict[Scope, int] = {}
    for other in client.places:
        if other is scope:
            continue
        place = client.places[other](surroundings)
        with contextlib.suppress(InvalidConfig, MalformedJson):  # errors in files of other scopes do not matter here
            other_file = read(place.file)
            other_document = document if other_file.target == file.target else JsoncDocument(other_file.text)
            if _same_place(here, place, other_document):
                continue
            entries = other_document.at(place.section(other_document.value)) or {}
            if count := sum(not is_toolcrib(entry) for entry in entries.values()):
                counts[other] = count
    return counts


def _same_place(one: ServersPlace, other: ServersPlace, document: JsoncDocument) -> bool:
    """Return whether both places are the same object of the same file, whose content is `document`."""
    sections = (one.section(document.value), other.section(document.value))
    return sections[0] == sections[1] and os.path.realpath(one.file) == os.path.realpath(other.file)


def _opened(client: KnownClient, place: ServersPlace) -> tuple[FileSnapshot, JsoncDocument]:
    file = read(place.file)
    if file.data is None and place.must_exist is not None and not place.must_exist.is_dir():
        raise InvalidConfig(
            f"{place.must_exist}: folder not found; {client.title} creates it when it first runs",
            hints=[f"Start {client.title} once, or create the folder. Then run the command again."],
        )
    return file, _parsed(file)


def _parsed(file: FileSnapshot) -> JsoncDocument:
    try:
        return JsoncDocument(file.text)
    except MalformedJson as error:
        raise InvalidConfig(f"{file.path}: {error}") from error


def _at(file: FileSnapshot, document: JsoncDocument, section: Sequence[str]) -> dict[str, Any] | None:
    try:
        return document.at(section)
    except MalformedJson as error:
        raise InvalidConfig(f"{file.path}: {error}") from error


def _server_key(document: JsoncDocument) -> str:
    """Return the key that holds the servers of a gateway's configuration, now or after the change."""
    return next((key for key in SERVER_KEYS if key in document.value), SERVER_KEYS[0])


def _inputs(document: JsoncDocument) -> Mapping[str, Any]:
    """Return the entries of `inputs` by their ids. Entries without an id are left out."""
    found = map(members_of, _input_list(document))
    return {str(each["id"]): each for each in found if each is not None and "id" in each}


def _input_list(document: JsoncDocument) -> list[object]:
    """Return the list `inputs`.

    Raises:
        InvalidConfig: it is not a list.
    """
    given = document.value.get("inputs")
    if given is not None and not isinstance(given, list):
        raise InvalidConfig("inputs: must be a list of objects")
    return cast("list[object]", given or [])


def _servers(document: JsoncDocument) -> Mapping[str, Any]:
    return members_of(document.value.get(_server_key(document))) or {}


def _edited(
    file: FileSnapshot, document: JsoncDocument, section: Sequence[str], changes: Mapping[str, str | None]
) -> JsoncDocument:
    try:
        return document.with_members(section, changes)
    except MalformedJson as error:
        raise InvalidConfig(f"{file.path}: {error}", hints=["The file was not changed. Edit it by hand."]) from error


def _edit(before: JsoncDocument, after: JsoncDocument, section: tuple[str, ...], names: Sequence[str]) -> EntryEdit:
    was, is_now = ({name: document.raw((*section, name)) for name in names} for document in (before, after))
    return EntryEdit(section, was, is_now)
