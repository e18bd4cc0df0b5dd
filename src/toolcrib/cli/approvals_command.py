"""`toolcrib approvals`: answer calls that wait for a person, and show and revoke permanent approvals."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
from rich.table import Table

from toolcrib.cli.opened_catalog import default_approvals, waiting_items
from toolcrib.cli.options import FILE, json_option
from toolcrib.cli.terminal_output import asynchronous, escape, plain, print_json, stderr, stdout
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.core.untrusted_text import visible
from toolcrib.operations.calling.approval_question import in_one_line
from toolcrib.operations.calling.approval_store import Approval, ApprovalStore
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.waiting import WaitingItem, WaitingStore

_SHOWN_CHARS = 10_000_000
"""`show` prints each argument whole."""

P = ParamSpec("P")
T = TypeVar("T")


@click.group(invoke_without_command=True)
@click.option(
    "--revoke",
    metavar="NUMBER",
    type=int,
    multiple=True,
    help="Withdraw the permanent approval with this number. Repeatable.",
)
@click.option("--store", metavar="FILE", type=FILE, help="The file with the permanent approvals.")
@json_option
@asynchronous
async def approvals(store: Path | None, revoke: tuple[int, ...], *, as_json: bool) -> int | None:
    """Show the calls that wait for an answer, and the tools that run without asking.

    A call waits if it needs approval and the client cannot show the question. Answer it with `grant` or `deny`. The
    client then repeats the call. Tools run without asking if a person approved them permanently.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return None
    kept = ApprovalStore(store or default_approvals())
    revoked = _usable(kept.path, _revoked, kept, revoke)
    left = _usable(kept.path, ApprovalStore.all, kept)
    waiting, problem = _all_waiting()
    if as_json:
        wire: dict[str, object] = {
            "waiting": [*map(_waiting_to_wire, waiting)],
            "approvals": [*map(_approval_to_wire, left)],
            "revoked": [*map(_approval_to_wire, revoked)],
        }
        print_json(wire if problem is None else {**wire, **problem.to_wire()})
        return 0 if problem is None else 2
    for approval in revoked:
        text = f"Revoked {approval.number}: {approval.principal} is asked again before `{approval.tool_id}` runs."
        stderr.print(plain(text), markup=False)
    if waiting:
        stdout.print(_waiting_table(waiting))
        stderr.print(
            "Run `toolcrib approvals show ID` to see a call. To answer it, run `toolcrib approvals grant ID` or "
            "`toolcrib approvals deny ID`."
        )
    if left:
        stdout.print(_table(left))
    else:
        stderr.print("No permanent approvals. People are asked every time.")
    if problem is not None:
        raise problem
    return None


@approvals.command()
@click.argument("item_id", metavar="ID")
@json_option
@asynchronous
async def show(item_id: str, *, as_json: bool) -> None:
    """Show a waiting call with all of its arguments.

    Characters that hide text are escaped.
    """
    found = next((item for item in _in_store(WaitingStore.all) if item.id == item_id and item.answer is None), None)
    if found is None:
        raise _not_waiting(item_id)
    if as_json:
        print_json(_waiting_to_wire(found))
        return
    given: Mapping[str, Any] = found.body.get("arguments") or {}
    # The client may have written the subject: the URI of a resource.
    principal, subject = visible(found.principal), visible(found.subject)
    lines = [f"{principal} asks to run {subject}. The call waits until {_at(found.expires_at)}."]
    if found.body.get("summary"):
        lines.append(f"The tool describes itself as: {in_one_line(found.body['summary'], _SHOWN_CHARS)}")
    lines += [f"  {in_one_line(key, _SHOWN_CHARS)}: {in_one_line(value, _SHOWN_CHARS)}" for key, value in given.items()]
    for line in lines:
        stdout.print(plain(line), markup=False, soft_wrap=True)


@approvals.command()
@click.argument("item_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--always", is_flag=True, help="Approve the tool permanently, until its definition changes.")
@json_option
@asynchronous
async def grant(item_ids: tuple[str, ...], *, always: bool, as_json: bool) -> None:
    """Approve waiting calls. Each runs once, when its client repeats it within an hour."""
    ids = dict.fromkeys(item_ids)
    granted = [await _granted_always(each) if always else _answered(each, "granted") for each in ids]
    if always:
        _withdraw_approved(granted)
    _report(granted, "always" if always else "granted", as_json=as_json)


@approvals.command()
@click.argument("item_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@asynchronous
async def deny(item_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Refuse waiting calls, or granted calls that did not run yet. A client that repeats such a call gets an error."""
    _report([_answered(item_id, "refused") for item_id in dict.fromkeys(item_ids)], "refused", as_json=as_json)


def _answered(item_id: str, answer: Any) -> WaitingItem:
    item = _in_store(WaitingStore.answer, item_id, answer)
    if item is None:
        raise _not_waiting(item_id)
    return item


async def _granted_always(item_id: str) -> WaitingItem:
    """Approve the tool of a waiting call permanently. If that fails, the client has to send the call again."""
    found = next((item for item in _in_store(WaitingStore.all) if item.id == item_id), None)
    if found is not None and not found.definition:
        raise InvalidConfig(
            f"`{visible(found.subject)}` is not a tool, so it cannot be approved permanently. Nothing was approved.",
            hints=[f"Run `toolcrib approvals grant {item_id}` without `--always`."],
        )
    item = _in_store(WaitingStore.withdraw, item_id)
    if item is None:
        raise _not_waiting(item_id)
    await ApprovalStore(default_approvals()).keep(item.principal, item.subject, item.definition)
    return item


def _withdraw_approved(approved: Iterable[WaitingItem]) -> None:
    """Withdraw the other waiting calls that a permanent approval of these calls covers. They need no answer."""
    covered = {(item.principal, item.subject, item.definition) for item in approved}
    for item in _in_store(WaitingStore.all):
        if item.answer is None and (item.principal, item.subject, item.definition) in covered:
            _in_store(WaitingStore.withdraw, item.id)


def _all_waiting() -> tuple[list[WaitingItem], InvalidConfig | None]:
    """Return the calls that wait for an answer. If they cannot be read, return an empty list and the error.

    Permanent approvals can be shown and revoked without the key of the waiting calls.
    """
    try:
        return [item for item in _in_store(WaitingStore.all) if item.answer is None], None
    except InvalidConfig as error:
        return [], error


def _in_store(action: Callable[Concatenate[WaitingStore, P], T], *args: P.args, **named: P.kwargs) -> T:
    store = waiting_items()
    return _usable(store.path, action, store, *args, **named)


def _usable(path: Path, action: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Raises `InvalidConfig` if the file at `path` cannot be used."""
    try:
        return action(*args, **named)
    except (OSError, sqlite3.Error, KeyUnavailable) as error:
        raise InvalidConfig(f"{path}: {error}") from error


def _not_waiting(item_id: str) -> NotFound:
    return NotFound(
        f"No call `{item_id}` waits for an answer. It was answered, or it expired.",
        hints=["Run `toolcrib approvals` to list the calls that wait."],
    )


def _report(items: list[WaitingItem], answer: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"answer": answer, "answered": [*map(_waiting_to_wire, items)]})
        return
    for item in items:
        principal, subject = visible(item.principal), visible(item.subject)
        match answer:
            case "always":
                text = f"`{subject}` runs for {principal} without asking until its definition changes."
            case "granted":
                text = (
                    f"{principal} can run `{subject}` once until {_at(item.expires_at)}. "
                    f"To take this back, run `toolcrib approvals deny {item.id}`."
                )
            case _:
                text = f"Refused: {principal} cannot run `{subject}` with these arguments."
        stderr.print(plain(text), markup=False)


def _revoked(kept: ApprovalStore, numbers: tuple[int, ...]) -> list[Approval]:
    """Revoke the approvals with these numbers, all or none. Returns what was revoked.

    Raises:
        NotFound: there is no approval with one of the numbers.
        OSError, sqlite3.Error: the file cannot be read or written.
    """
    there = {approval.number: approval for approval in kept.all()}
    wanted = dict.fromkeys(numbers)
    for number in wanted:
        if number not in there:
            raise NotFound(f"Approval {number} not found.", hints=["Run `toolcrib approvals` to list them."])
    return [there[number] for number in wanted if kept.revoke(number)]


def _approval_to_wire(approval: Approval) -> dict[str, object]:
    return {
        "number": approval.number,
        "principal": approval.principal,
        "tool_id": approval.tool_id,
        "definition": approval.definition,
        "approved_at": _iso(approval.approved_at),
    }


def _waiting_to_wire(item: WaitingItem) -> dict[str, object]:
    return {
        "id": item.id,
        "kind": item.kind,
        "principal": item.principal,
        "subject": item.subject,
        "definition": item.definition,
        "summary": item.body.get("summary", ""),
        "arguments": item.body.get("arguments"),
        "asked_at": _iso(item.asked_at),
        "expires_at": _iso(item.expires_at),
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


def _at(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment).astimezone():%Y-%m-%d %H:%M}"


def _waiting_table(items: list[WaitingItem]) -> Table:
    table = Table("id", "tool", "for", "since", "arguments", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for item in items:
        shown = in_one_line(item.body.get("arguments"), 60)
        table.add_row(
            item.id,
            f"[bold]{escape(visible(item.subject))}[/]",
            escape(item.principal),
            _at(item.asked_at),
            escape(shown),
        )
    return table


def _table(approvals: tuple[Approval, ...]) -> Table:
    table = Table("", "tool", "for", "since", box=None, header_style="dim", padding=(0, 3, 0, 0))
    for approval in approvals:
        table.add_row(
            str(approval.number),
            f"[bold]{escape(approval.tool_id)}[/]",
            escape(approval.principal),
            _at(approval.approved_at),
        )
    return table
