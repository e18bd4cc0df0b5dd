"""`toolcrib install`: put Toolcrib into a client's configuration, with its servers behind it, and take it out again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import click
import platformdirs
from click.core import ParameterSource
from rich.table import Table

from toolcrib.cli.output import escape, fail, plain, print_json, stderr, stdout
from toolcrib.clients.command import own_command
from toolcrib.clients.files import Change, read
from toolcrib.clients.installing import Plan, Survey, survey
from toolcrib.clients.known import CLIENTS, KnownClient, Scope, Surroundings
from toolcrib.clients.records import Records, carry_out, undo, undoing
from toolcrib.core.errors import ToolcribError

_STYLES = {"+++": "bold", "---": "bold", "+": "green", "-": "red", "@": "cyan"}


def install(
    client: str,
    scope: str | None,
    config: Path | None,
    *,
    move: bool | None,
    yes: bool,
    dry_run: bool,
    take_back: bool,
    as_json: bool,
) -> None:
    """Show what would change, ask, and write it; the process ends with 1 when nobody was there to be asked."""
    known = CLIENTS[client]
    chosen = Scope(scope) if scope is not None else next(iter(known.places))
    if chosen not in known.places:
        there = ", ".join(known.places)
        raise click.UsageError(f"{known.title} has no scope `{chosen}`; it has: {there}.")
    if take_back and (_was_typed("config") or move is not None):
        raise click.UsageError("--undo puts back what was there; it takes neither --config nor --move or --keep.")
    asking = _Asking(yes=yes, dry_run=dry_run, as_json=as_json)
    try:
        if take_back:
            _undo(known, chosen, asking)
        else:
            _install(known, chosen, config, move, asking)
    except click.Abort:
        stderr.print("\nNothing was changed.")
        sys.exit(1)
    except ToolcribError as error:
        fail(error, as_json=as_json)


def _was_typed(option: str) -> bool:
    """Whether an option stands on the command line; the environment may name a file without meaning this command."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


class _Asking:
    """What may be written: what was agreed to, on the command line or at the terminal."""

    def __init__(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        self.as_json = as_json
        self.dry_run = dry_run
        self._yes = yes
        streams = (sys.stdin, sys.stdout, sys.stderr)  # the change is shown on one, the question asked on another
        self._somebody = all(stream.isatty() for stream in streams) and not as_json

    def may_move(self, found: Survey) -> bool:
        """Whether servers are to be moved; without a question, that is what is shown."""
        if not found.movable or self._yes or self.dry_run or not self._somebody:
            return bool(found.movable)
        return click.confirm(f"Move {_them(found.movable)} behind Toolcrib?", default=True, err=True)

    def may_write(self) -> bool:
        if self.dry_run:
            return False
        if self._yes:
            return True
        return self._somebody and click.confirm("Write this?", default=False, err=True)

    def end_unwritten(self) -> None:
        """Say that nothing was changed, and why."""
        if self.dry_run:
            self._say("Nothing was changed: this was a dry run.")
        elif self._somebody:
            self._say("Nothing was changed.")
        else:
            self._say("Nothing was changed: there is no terminal to ask at. With --yes it is written.")
            sys.exit(1)

    def _say(self, text: str) -> None:
        if not self.as_json:
            stderr.print(text)


def _install(client: KnownClient, scope: Scope, config: Path | None, move: bool | None, asking: _Asking) -> None:
    found = survey(
        client,
        scope,
        config,
        surroundings=Surroundings.here(),
        config_folder=platformdirs.user_config_path("toolcrib"),
        command=own_command(sys.argv[0], sys.prefix, os.environ),
    )
    if not asking.as_json:
        _introduce(found)
    plan = found.plan(move=move if move is not None else asking.may_move(found))
    if asking.as_json and not plan.edits:
        print_json(_wire(found, plan, written=False))
        return
    if not plan.edits:
        stdout.print(f"Nothing to do: {client.title} has Toolcrib already, serving {found.config}.", markup=False)
        return
    if not asking.as_json:
        _show(edit.change for edit in plan.edits)
        _remark(found, plan)
    written = asking.may_write()
    record = carry_out(plan, _records(found), found.config) if written else None
    if asking.as_json:
        print_json(_wire(found, plan, written=written, backup=record.folder if record is not None else None))
    elif written:
        _conclude(found)
    if not written:
        asking.end_unwritten()


def _undo(client: KnownClient, scope: Scope, asking: _Asking) -> None:
    file = read(client.places[scope](Surroundings.here()).file)
    records = Records(platformdirs.user_data_path("toolcrib"), client, scope, file)
    record = records.last()
    if record is None:
        if asking.as_json:
            print_json(_undone_wire(client, scope, file.path, (), (), written=False))
        else:
            stdout.print(f"Nothing to undo: no change of {file.path} by this command is on record.", markup=False)
        return
    found = undoing(record, others_serve=records.others_serve(record))
    if not asking.as_json:
        stdout.print(f"This takes back what was written on {record.at}.", markup=False)
        _show(found.changes)
        for remark in found.remarks:
            _bullet(remark)
    written = asking.may_write()
    if written:
        undo(found)
    if asking.as_json:
        print_json(_undone_wire(client, scope, file.path, found.changes, found.remarks, written=written))
    elif written:
        stdout.print(f"Taken back. To have it seen: {client.takes_effect}.", markup=False)
    if not written:
        asking.end_unwritten()


def _records(found: Survey) -> Records:
    return Records(platformdirs.user_data_path("toolcrib"), found.client, found.scope, found.file)


# -- what a person sees -----------------------------------------------------------------------------------------------


def _introduce(found: Survey) -> None:
    title = found.client.title
    there = "has its MCP servers in" if found.file.data is not None else "would read its MCP servers from"
    stdout.print(f"{title} {there} {found.file.path}.", markup=False)
    if found.movable:
        stdout.print("Toolcrib can take over:")
        _bullet(", ".join(found.movable))
    if found.kept:
        stdout.print("These stay where they are:")
        for kept in found.kept:
            _bullet(f"{kept.name}: {kept.reason}")
    for scope, count in found.elsewhere.items():
        stdout.print(f"{_servers(count)} more in the scope `{scope}`; `--scope {scope}` is about those.", markup=False)


def _show(changes: Iterable[Change]) -> None:
    for change in changes:
        stdout.print()
        for line in change.diff():
            style = _STYLES.get(line[:3]) or _STYLES.get(line[:1])
            stdout.print(plain(line), markup=False, style=style)
    stdout.print()


def _remark(found: Survey, plan: Plan) -> None:
    """What a person should know before they agree."""
    title = found.client.title
    if plan.moved:
        _bullet(
            f"{title} will see four tools of Toolcrib, and not each tool of a moved server: "
            "what it allows or forbids tool by tool no longer reaches them."
        )
        _bullet("Behind Toolcrib a server is given PATH, HOME and their like, and otherwise only what its `env` names.")
    if len(plan.serves) > len(plan.moved):
        others = [name for name in plan.serves if name not in plan.moved]
        _bullet(f"{found.config} has other servers too, which {title} gets with it: {', '.join(others)}.")
    if not plan.serves:
        _bullet(f"Toolcrib has no servers yet; put them into {found.config}.")
    if plan.unset:
        unset = ", ".join(plan.unset)
        _bullet(
            f"{title} may not pass on {unset}; where a server misses it, say what it is in the `env` of `{found.name}`."
        )
    if found.scope is Scope.PROJECT:
        _bullet(f"{found.file.path.name} is for everybody who works on this project; the paths are of this machine.")


def _conclude(found: Survey) -> None:
    scope = f" --scope {found.scope}" if found.scope is not Scope.USER else ""
    stdout.print("Written. What was there before is kept.")
    for what, command in (
        ("Do the servers start?", f"toolcrib doctor {quote(str(found.config))}"),
        ("To have it seen:", found.client.takes_effect),
        ("To take it back:", f"toolcrib install {found.client.name}{scope} --undo"),
    ):
        stdout.print(f"  {what:<22}{command}", markup=False)


def _bullet(text: str) -> None:
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column()
    line.add_column(overflow="fold")
    line.add_row(" -", escape(text))
    stdout.print(line, soft_wrap=False)


def _servers(count: int) -> str:
    return f"{count} server{'s' * (count != 1)}"


def _them(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"these {len(names)} servers"


# -- what a program sees ----------------------------------------------------------------------------------------------


def _wire(found: Survey, plan: Plan, *, written: bool, backup: Path | None = None) -> dict[str, Any]:
    return {
        "client": found.client.name,
        "scope": found.scope.value,
        "file": str(found.file.path),
        "name": found.name,
        "config": str(found.config),
        "moved": list(plan.moved),
        "kept": [{"name": kept.name, "reason": kept.reason} for kept in found.kept],
        "changes": [_change_wire(edit.change) for edit in plan.edits],
        "written": written,
        "backup": str(backup) if backup is not None else None,
    }


def _undone_wire(
    client: KnownClient, scope: Scope, file: Path, changes: Sequence[Change], remarks: Sequence[str], *, written: bool
) -> dict[str, Any]:
    return {
        "client": client.name,
        "scope": scope.value,
        "file": str(file),
        "changes": [_change_wire(change) for change in changes],
        "remarks": list(remarks),
        "written": written,
    }


def _change_wire(change: Change) -> dict[str, Any]:
    return {"path": str(change.path), "diff": change.diff()}
