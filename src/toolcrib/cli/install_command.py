"""`toolcrib install`: add Toolcrib to a client's configuration, move its servers behind it, and undo that."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import click
import platformdirs
from rich.table import Column, Table

from toolcrib.cli.clients.file_changes import FileChange, read
from toolcrib.cli.clients.gateway_command import own_command, shared_command
from toolcrib.cli.clients.install_plan import InstallPlan, Survey, survey
from toolcrib.cli.clients.install_records import InstallRecords, SharingClient, UndoPlan, carry_out, undo
from toolcrib.cli.clients.known_clients import CLIENTS, NAME, KnownClient, Scope, Surroundings
from toolcrib.cli.options import FILE, is_typed, json_option, yes_option
from toolcrib.cli.terminal_output import Confirmation, escape, fail, plain, print_json, stderr, stdout
from toolcrib.core.errors import ToolcribError
from toolcrib.secrets.secret_values import set_command

_STYLES = {"+++": "bold", "---": "bold", "+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument(
    "client", metavar="CLIENT", type=click.Choice(["claude-code", "claude-desktop", "cursor", "vscode", "zed"])
)
@click.option(
    "--scope",
    type=click.Choice(["user", "local", "project"]),
    help="Whose configuration to change: `user` (you, in every project; the default), `local` (you, in this project), "
    "`project` (everyone in this project).",
)
@click.option(
    "-c",
    "--config",
    type=FILE,
    envvar="TOOLCRIB_CONFIG",
    show_envvar=True,
    help="The mcp.json for Toolcrib to serve. Default: one that `install` creates in Toolcrib's own folder.",
)
@click.option(
    "--move/--keep",
    default=None,
    help="Move the client's servers to Toolcrib's mcp.json, or leave them in the client's configuration.",
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Show the change, but write nothing.")
@click.option("--undo", is_flag=True, help="Restore the previous configuration.")
@json_option
def install(
    client: str,
    scope: str | None,
    config: Path | None,
    *,
    move: bool | None,
    yes: bool,
    dry_run: bool,
    undo: bool,
    as_json: bool,
) -> None:
    """Add `toolcrib serve` to the configuration of CLIENT as an MCP server, and move the other servers to Toolcrib.

    CLIENT is claude-code, claude-desktop, cursor, vscode or zed.

    Shows the exact change, asks for confirmation, and saves a backup. Servers that only the client can start are not
    moved, and the command says why. It also says which servers need a value or a sign-in from you.
    """
    known = CLIENTS[client]
    chosen = Scope(scope) if scope is not None else next(iter(known.places))
    if chosen not in known.places:
        there = ", ".join(known.places)
        raise click.UsageError(f"{known.title} has no scope `{chosen}`; it has: {there}.")
    if undo and (is_typed("config") or move is not None):
        raise click.UsageError(
            "--undo restores the previous configuration. It takes neither --config nor --move or --keep."
        )
    confirmation = _Confirmation(yes=yes, dry_run=dry_run, as_json=as_json)
    try:
        if undo:
            _undo(known, chosen, confirmation)
        else:
            _install(known, chosen, config, move, confirmation)
    except click.Abort:
        stderr.print("\nNo file was changed.")
        sys.exit(1)
    except ToolcribError as error:
        fail(error, as_json=as_json)


class _Confirmation(Confirmation):
    """Also decides whether servers are moved, and never writes in a dry run."""

    def __init__(self, *, yes: bool, dry_run: bool, as_json: bool) -> None:
        super().__init__(sys.stdin, sys.stdout, sys.stderr, yes=yes, as_json=as_json)
        self.as_json = as_json
        self._dry_run = dry_run

    def may_move(self, found: Survey) -> bool:
        """Return whether to move servers. If nothing is asked, the answer is yes, so that the change is shown."""
        if not found.movable or self.yes or self._dry_run or not self.has_terminal:
            return bool(found.movable)
        return click.confirm(f"Move {_them(found.movable)} behind Toolcrib?", default=True, err=True)

    def may_write(self) -> bool:
        if self._dry_run or self.yes or not self.has_terminal:
            return self.yes and not self._dry_run
        return click.confirm("Write this?", default=False, err=True)

    def end_unwritten(self) -> None:
        """Say that no file was changed, and why. Without a terminal to confirm on, exit with 1."""
        if self._dry_run and not self.as_json:
            stderr.print("Dry run: no file was changed.")
        elif not self._dry_run:
            if not self.as_json:
                self.explain_refusal("No file was changed")
            if not self.has_terminal:
                sys.exit(1)


def _install(
    client: KnownClient, scope: Scope, config: Path | None, move: bool | None, confirmation: _Confirmation
) -> None:
    found = survey(
        client,
        scope,
        config,
        surroundings=Surroundings.here(),
        config_folder=platformdirs.user_config_path("toolcrib"),
        command=own_command(sys.argv[0], sys.prefix, os.environ),
        shared_command=shared_command(sys.prefix),
    )
    records = InstallRecords(platformdirs.user_data_path("toolcrib"), client, scope, found.file)
    sharers = records.sharers(found.config, found.section, Surroundings.here())
    if not confirmation.as_json:
        _introduce(found)
    plan = found.plan(move=move if move is not None else confirmation.may_move(found))
    if confirmation.as_json and not plan.edits:
        print_json(_wire(found, plan, sharers, written=False))
        return
    if not plan.edits:
        _say(f"{client.title} already uses Toolcrib with {found.config}. Nothing to do.")
        return
    if not confirmation.as_json:
        _show(edit.change for edit in plan.edits)
        _remark(found, plan, sharers)
    written = confirmation.may_write()
    record = carry_out(plan, records, found.config) if written else None
    if confirmation.as_json:
        print_json(_wire(found, plan, sharers, written=written, backup=record.folder if record is not None else None))
    elif written:
        _conclude(found, plan)
    if not written:
        confirmation.end_unwritten()


def _undo(client: KnownClient, scope: Scope, confirmation: _Confirmation) -> None:
    surroundings = Surroundings.here()
    file = read(client.places[scope](surroundings).file)
    records = InstallRecords(platformdirs.user_data_path("toolcrib"), client, scope, file)
    record = records.last()
    if record is None:
        if confirmation.as_json:
            print_json(_undone_wire(client, scope, file.path, None, written=False))
        else:
            _say(f"Nothing to undo: Toolcrib has not changed {file.path} on this machine.")
        return
    found = records.undoing(record, surroundings)
    if not confirmation.as_json:
        _say(f"This undoes the installation of {record.at}.")
        _show(found.changes)
        _remark_undoing(client, found)
    written = confirmation.may_write()
    if written:
        undo(found)
    if confirmation.as_json:
        print_json(_undone_wire(client, scope, file.path, found, written=written))
    elif written:
        _say(f"Undone. To apply the change: {client.takes_effect}.")
        if found.earlier is not None:
            _say(
                f"{client.title} still uses Toolcrib, by the installation of {found.earlier.at}. "
                "Run the command again to undo that too."
            )
    if not written:
        confirmation.end_unwritten()


# -- what a person sees -----------------------------------------------------------------------------------------------


def _introduce(found: Survey) -> None:
    title = found.client.title
    there = "has its MCP servers in" if found.file.data is not None else "would read its MCP servers from"
    _say(f"{title} {there} {found.file.path}.")
    if found.movable:
        stdout.print("Toolcrib can take over these servers:")
        _bullet(", ".join(found.movable))
    if found.kept:
        stdout.print("Not moved:")
        for kept in found.kept:
            _bullet(f"{kept.name}: {kept.reason}")
    for scope, count in found.elsewhere.items():
        _say(f"{_servers(count)} more in the scope `{scope}`. Use `--scope {scope}` for those.")


def _show(changes: Iterable[FileChange]) -> None:
    for change in changes:
        stdout.print()
        for line in change.diff():
            style = _STYLES.get(line[:3]) or _STYLES.get(line[:1])
            stdout.print(plain(line), markup=False, style=style)
    stdout.print()


def _remark(found: Survey, plan: InstallPlan, sharers: Sequence[SharingClient]) -> None:
    """Print what a person should know before they confirm."""
    title = found.client.title
    if plan.moved:
        _bullet(
            f"{title} will see four Toolcrib tools instead of each server's tools. "
            "Its per-tool permissions no longer apply to moved servers."
        )
        _bullet(
            "Moved servers receive PATH, HOME and similar variables. List any other variable in the server's `env`."
        )
    if plan.inputs:
        _bullet(
            f"Toolcrib cannot read the values that you entered in {title}. It will ask you once for: "
            f"{', '.join(plan.inputs)}."
        )
    if plan.sign_ins:
        _bullet(
            f"Toolcrib cannot use a sign-in of {title}. These servers have no credentials in the file, so they may need"
            f" a new sign-in: {', '.join(plan.sign_ins)}. `toolcrib doctor` says which, and `toolcrib login NAME` signs"
            " in."
        )
    if found.replaced_gateway is not None:
        _bullet(f"{title} will no longer use the gateway at {found.replaced_gateway}.")
    if others := [name for name in plan.serves if name not in plan.moved]:
        _bullet(f"{title} will also get these servers from {found.config}: {', '.join(others)}.")
    if sharers:
        names = _listed(sharers)
        gets = f" {names} will also get these servers: {', '.join(plan.arriving)}." if plan.arriving else ""
        _bullet(f"{names} {_use(sharers)} {found.config} too.{gets}")
    if not plan.serves:
        _bullet(f"Toolcrib has no servers yet. Add them to {found.config}.")
    if plan.unset:
        unset = ", ".join(plan.unset)
        _bullet(f"{title} may not pass on {unset}. If a server needs it, set it in the `env` of `{found.name}`.")
    if found.scope is not Scope.PROJECT:
        return
    file = found.file.path
    if found.reference is None:
        _bullet(f"{file.name} is shared with everyone on this project, but it contains paths of this machine.")
        return
    _bullet(f"Commit {file.name} and {found.config.name}: everyone on this project gets these servers with them.")
    if found.command[0] == NAME:
        here = "" if shutil.which(NAME) else " It is not on yours."
        _bullet(f"Everyone needs the program `{NAME}` on the PATH, for example by `uv tool install {NAME}`.{here}")
    else:
        _bullet(f"Everyone needs the program `{found.command[0]}` on the PATH.")


def _remark_undoing(client: KnownClient, found: UndoPlan) -> None:
    config = found.record.config
    stay = f" These servers stay in it: {', '.join(found.left)}." if found.left else ""
    if found.sharers:
        _bullet(f"{_listed(found.sharers)} {_use(found.sharers)} {config} too, so that file stays as it is.{stay}")
    elif found.record not in found.settled:
        _bullet(f"{client.title} still uses {config}, so that file stays as it is.{stay}")
    for remark in found.remarks:
        _bullet(remark)


def _conclude(found: Survey, plan: InstallPlan) -> None:
    config = quote(str(found.config))
    scope = f" --scope {found.scope}" if found.scope is not Scope.USER else ""
    stdout.print("Done. The previous files were saved.")
    for what, command in (
        *(("Enter a value:", set_command(each, found.config)) for each in plan.inputs),
        *(("Sign in if needed:", f"toolcrib login {quote(each)} -c {config}") for each in plan.sign_ins),
        ("Check the servers:", f"toolcrib doctor {config}"),
        ("See what it saves:", f"toolcrib worth-it {config}"),
        ("Apply the change:", found.client.takes_effect),
        ("Undo it:", f"toolcrib install {found.client.name}{scope} --undo"),
    ):
        stdout.print(f"  {what:<19}{command}", markup=False)


def _say(text: str) -> None:
    """Print sentences. A terminal wraps them between words; otherwise they stay on one line."""
    stdout.print(plain(text), markup=False, soft_wrap=not stdout.is_terminal)


def _bullet(text: str) -> None:
    line = Table.grid(Column(), Column(overflow="fold"), padding=(0, 1, 0, 0))
    line.add_row(" -", escape(text))
    stdout.print(line, soft_wrap=False)


def _listed(sharers: Sequence[SharingClient]) -> str:
    names = [str(each) for each in sharers]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _use(sharers: Sequence[SharingClient]) -> str:
    return "uses" if len(sharers) == 1 else "use"


def _servers(count: int) -> str:
    return f"{count} server{'s' * (count != 1)}"


def _them(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"these {len(names)} servers"


# -- what a program sees ----------------------------------------------------------------------------------------------


def _wire(
    found: Survey, plan: InstallPlan, sharers: Sequence[SharingClient], *, written: bool, backup: Path | None = None
) -> dict[str, Any]:
    return {
        "client": found.client.name,
        "scope": found.scope.value,
        "file": str(found.file.path),
        "name": found.name,
        "config": str(found.config),
        "shared_with": [_sharer_wire(each) for each in sharers],
        "moved": list(plan.moved),
        "inputs": list(plan.inputs),
        "sign_ins": list(plan.sign_ins),
        "kept": [{"name": kept.name, "reason": kept.reason} for kept in found.kept],
        "changes": [_change_wire(edit.change) for edit in plan.edits],
        "written": written,
        "backup": str(backup) if backup is not None else None,
    }


def _undone_wire(
    client: KnownClient, scope: Scope, file: Path, found: UndoPlan | None, *, written: bool
) -> dict[str, Any]:
    return {
        "client": client.name,
        "scope": scope.value,
        "file": str(file),
        "shared_with": [_sharer_wire(each) for each in found.sharers] if found is not None else [],
        "left_in_config": list(found.left) if found is not None else [],
        "changes": [_change_wire(change) for change in found.changes] if found is not None else [],
        "remarks": list(found.remarks) if found is not None else [],
        "earlier": found.earlier.at if found is not None and found.earlier is not None else None,
        "written": written,
    }


def _sharer_wire(sharer: SharingClient) -> dict[str, str]:
    return {"client": sharer.client.name, "scope": sharer.scope.value, "file": str(sharer.file)}


def _change_wire(change: FileChange) -> dict[str, Any]:
    return {"path": str(change.path), "diff": change.diff()}
