"""`toolcrib pin`: pin the current tool definitions, and show or remove pins."""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from toolcrib.catalog.definition_guard import DefinitionGuard
from toolcrib.cli.opened_catalog import pins_of
from toolcrib.cli.options import config_option, json_option, wait_option, yes_option
from toolcrib.cli.pinned_definitions import (
    OfferedDefinition,
    PinComparison,
    PinState,
    ToolSelection,
    grades_of,
    id_of,
    not_looked_at,
    pin_wire,
    show_details,
    show_elsewhere,
    show_unlisted,
    shown_name,
    using,
    when,
)
from toolcrib.cli.terminal_output import Confirmation, asynchronous, counted, plain, print_json, show, stderr, stdout
from toolcrib.config import read_config
from toolcrib.core.tools import Tool, summarize
from toolcrib.core.untrusted_text import visible
from toolcrib.definitions.drift import Verdict
from toolcrib.definitions.drift.definition_json import definition_of
from toolcrib.definitions.pins import Pin

_NEW = {PinState.NEW, PinState.UNPINNED}


@click.command()
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@yes_option
@click.option("--full", is_flag=True, help="Show each new or changed definition in full.")
@click.option("--by", metavar="NAME", help="Record this name with the pins. Default: your user name on this system.")
@click.option("--remove", "mode", flag_value="remove", help="Remove pins instead. No server starts.")
@click.option("--list", "mode", flag_value="list", help="Show what is pinned. No server starts.")
@click.option("--log", "mode", flag_value="log", help="Show the history of all pins. No server starts.")
@wait_option
@json_option
@asynchronous
async def pin(
    what: tuple[str, ...],
    config: Path,
    mode: str | None,
    wait_s: float,
    *,
    by: str | None,
    full: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Pin the definitions of CONFIG's servers as they are now. By default, agents do not see later changes until
    you pin them.

    WHAT: servers, tool ids or patterns of tool ids. Default: everything.

    Shows what is new, changed or suspicious, and asks for confirmation. Exits with 1 if something was not pinned.

    \b
      toolcrib pin git 'tracker.get_*'
    """
    match mode:
        case "list":
            is_done = _list_pins(what, config, as_json=as_json)
        case "log":
            is_done = _show_log_of_pins(what, config, as_json=as_json)
        case "remove":
            is_done = _unpin(what, config, by=by, yes=yes, as_json=as_json)
        case _:
            is_done = await _pin(what, config, wait_s=wait_s, by=by, full=full, yes=yes, as_json=as_json)
    return int(not is_done)


async def _pin(
    what: Sequence[str], config: Path, *, wait_s: float, by: str | None, full: bool, yes: bool, as_json: bool
) -> bool:
    """Show what would be pinned, ask, and pin it. Returns False if anything was not pinned."""
    who = _who(by)
    comparison = (await PinComparison.at(config, wait_s)).only(what, config)
    offer = _Offer.of(comparison, {(each.source, each.origin, each.name) for each in pins_of(config).all()})
    if not as_json:
        _show(offer, full=full)
        show_unlisted(comparison.unlisted)
        show_elsewhere(comparison.elsewhere)
    confirmation = Confirmation(sys.stdin, sys.stdout, sys.stderr, yes=yes, as_json=as_json)
    writes = bool(offer.all) and confirmation.agrees(f"Pin {counted(len(offer.all), 'definition')} as {who}?")
    store = pins_of(config)
    if writes:
        with using(store, "written"):
            DefinitionGuard(store).pin([(each.entry, each.judgement) for each in offer.all], who)
    if as_json:
        wire = {**offer.to_wire(), "not_looked_at": not_looked_at(comparison)}
        print_json({"config": str(config), "written": writes, "by": who, **wire})
    elif writes:
        stdout.print(f"Pinned {counted(len(offer.all), 'definition')} as {plain(who)}.", markup=False)
    elif offer.all:
        confirmation.explain_refusal("Nothing was pinned")
    elif not comparison.unlisted:
        stdout.print("There is nothing to pin." if offer.unchanged else "No server offers tools.")
    return (writes or not offer.all) and not comparison.unlisted


def _unpin(what: Sequence[str], config: Path, *, by: str | None, yes: bool, as_json: bool) -> bool:
    """Show which pins would be removed, ask, and remove them. Returns False if they were not removed."""
    who = _who(by)
    pins = _pins(what, config)
    if not as_json and pins:
        _show_pins(pins)
    confirmation = Confirmation(sys.stdin, sys.stdout, sys.stderr, yes=yes, as_json=as_json)
    writes = bool(pins) and confirmation.agrees(f"Remove {counted(len(pins), 'pin')} as {who}?")
    store = pins_of(config)
    left: tuple[Pin, ...] = ()
    if writes:
        with using(store, "written"):
            DefinitionGuard(store).unpin(pins, who)
            left = store.all()
    if as_json:
        print_json({"config": str(config), "written": writes, "by": who, "removed": [*map(_wire, pins)]})
    elif writes:
        stdout.print(f"Removed {counted(len(pins), 'pin')} as {plain(who)}.", markup=False)
        _report_unpinned(config, {pin.source for pin in pins} - {pin.source for pin in left})
    elif pins:
        confirmation.explain_refusal("Nothing was removed")
    else:
        stdout.print("Nothing is pinned.")
    return writes or not pins


def _list_pins(what: Sequence[str], config: Path, *, as_json: bool) -> bool:
    """Show what is pinned."""
    pins = _pins(what, config)
    if as_json:
        print_json({"config": str(config), "pins": [*map(_wire, pins)]})
    elif pins:
        _show_pins(pins)
    else:
        stderr.print("Nothing is pinned. Run `toolcrib pin` to pin the current definitions.")
    return True


def _show_log_of_pins(what: Sequence[str], config: Path, *, as_json: bool) -> bool:
    """Show the history of all pins, oldest first."""
    pins = _pins(what, config, ended=True)
    if as_json:
        print_json({"config": str(config), "log": [{"removed": pin.definition is None, **_wire(pin)} for pin in pins]})
    elif pins:
        _show_log(pins)
    else:
        stderr.print("Nothing was ever pinned.")
    return True


@dataclass(frozen=True, slots=True)
class _Offer:
    """The definitions that would be pinned."""

    shown: tuple[OfferedDefinition, ...]
    """New and changed definitions."""
    unchanged: int
    gone: int
    moved: tuple[OfferedDefinition, ...]
    """Definitions that are pinned in a different configuration, or under a different name of their source."""

    @classmethod
    def of(cls, comparison: PinComparison, known: set[tuple[str, str, str]]) -> _Offer:
        """`known` holds the source, origin and name of each pin of this configuration."""
        unchanged = [each for each in comparison.definitions if each.pin_state is PinState.UNCHANGED]
        moved = [
            each for each in unchanged if (each.entry.name, each.entry.origin, each.judgement.tool.name) not in known
        ]
        shown = [each for each in comparison.definitions if each.pin_state is not PinState.UNCHANGED]
        return cls(tuple(shown), len(unchanged) - len(moved), len(comparison.gone), tuple(moved))

    @property
    def all(self) -> tuple[OfferedDefinition, ...]:
        return (*self.shown, *self.moved)

    def to_wire(self) -> dict[str, Any]:
        return {
            "definitions": [each.to_wire() for each in self.shown],
            "moved": [each.id for each in self.moved],
            "unchanged": self.unchanged,
            "gone": self.gone,
        }


def _who(by: str | None) -> str:
    """Return the name of the person who pins."""
    if by is not None:
        if not by.strip():
            raise click.UsageError("--by needs a name.")
        return by
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container, a user may have no name
        return f"uid {os.getuid()}"


def _pins(what: Sequence[str], config: Path, *, ended: bool = False) -> tuple[Pin, ...]:
    """Return the current pins that match `what`, or with `ended` the whole history.

    Raises:
        InvalidConfig: the configuration cannot be used, or the pins cannot be read.
        NotFound: a word in `what` matches nothing.
    """
    chosen = ToolSelection(what, read_config(config).source_names)
    store = pins_of(config)
    with using(store):
        pins = store.log() if ended else store.all()
    ids = [*map(id_of, pins)]
    for word in chosen.what:
        if not any(map(chosen.meets(word), ids)):
            raise chosen.unmet(word, ids)
    found = [pin for pin in pins if not what or id_of(pin) in chosen]
    return tuple(found if ended else sorted(found, key=id_of))


# -- what a person sees -----------------------------------------------------------------------------------------------


def _show(offer: _Offer, *, full: bool) -> None:
    for each in offer.shown:
        judgement = each.judgement
        name = (shown_name(each.id), "bold")
        if each.pin_state in _NEW:
            stdout.print(Text.assemble(("new      ", "green"), name, "  ", _summary(each)))
        else:
            line = Text.assemble(("changed  ", "yellow"), name, "  ")
            if judgement.drift is not None:
                line.append_text(grades_of(judgement.drift))
            stdout.print(line.append(f"  {_versions(each)}", "dim"))
        if full:
            _show_definition(judgement.tool)
        drift = judgement.drift
        show_details(drift.changes if drift else (), each.suspicions, drift.omitted if drift else 0)
    if offer.shown:
        stdout.print()
    for count, label in (
        (sum(each.pin_state in _NEW for each in offer.shown), "new"),
        (sum(each.pin_state is PinState.CHANGED for each in offer.shown), "changed"),
        (offer.unchanged, "as pinned"),
        (offer.gone, "pinned, but not offered any more. Pass `--remove` to remove their pins."),
        (len(offer.moved), "pinned for a different configuration, or under a different name of the server"),
    ):
        if count:
            stdout.print(f"{count:>6,}  {label}")


def _show_definition(tool: Tool) -> None:
    """Print everything that a model may read."""
    try:
        text = json.dumps(definition_of(tool), indent=2, ensure_ascii=False, default=dict)
    except RecursionError:
        text = "The definition is nested too deeply to be shown."
    for line in text.split("\n"):
        show(Text(f"  {visible(line)}"))


def _summary(each: OfferedDefinition) -> Text:
    return Text(shown_name(summarize(each.judgement.tool.description or "")), "dim")


def _versions(each: OfferedDefinition) -> str:
    return " → ".join(str(version) for version in (each.pin and each.pin.version, each.judgement.version) if version)


def _report_unpinned(config: Path, sources: set[str]) -> None:
    """Say what happens to sources without any pins: their tools may be shown, which is easy to overlook."""
    if not sources:
        return
    now = {
        Verdict.PASS: "its tools are shown as they are",
        Verdict.WARN: "its tools are shown as they are, with a warning",
        Verdict.QUARANTINE: "its tools are not shown",
    }[read_config(config).pins.unpinned]
    for source in sorted(sources):
        text = f"Nothing of {shown_name(source)} is pinned any more: {now} (`toolcrib.pins.unpinned`)."
        stderr.print(text, markup=False, style="yellow")


def _show_pins(pins: Sequence[Pin]) -> None:
    """Print the pins in groups by their origin, which is long and which most pins share."""
    for bound, some in groupby(pins, lambda pin: (pin.source, pin.shown)):
        _show_bound(bound[1])
        table = _table("tool", "version", "since", "by", show_header=True)
        for each in some:
            table.add_row(_id(each), each.version, _minute(each), Text(shown_name(each.by)))
        show(Padding.indent(table, 2))


def _show_log(pins: Sequence[Pin]) -> None:
    """Print the history in groups of what one person did in one minute."""
    for (is_removed, minute, by, _, bound), some in groupby(
        pins, lambda pin: (pin.definition is None, _minute(pin), pin.by, pin.source, pin.shown)
    ):
        done = ("removed", "red") if is_removed else ("pinned", "green")
        show(Text.assemble(minute, "  ", done, f" by {shown_name(by)}"))
        _show_bound(bound)
        table = _table("tool", "version", show_header=False)
        for each in some:
            table.add_row(_id(each), each.version)
        show(Padding.indent(table, 2))


def _show_bound(shown: str) -> None:
    show(Text(f"bound to {shown_name(shown)}", "dim"))


def _id(pin: Pin) -> Text:
    return Text(shown_name(id_of(pin)), "bold")


def _minute(pin: Pin) -> str:
    return f"{when(pin):%Y-%m-%d %H:%M}"


def _table(*columns: str, show_header: bool) -> Table:
    made = [Column(name, overflow="fold", no_wrap=name in {"version", "since"}) for name in columns]
    return Table(*made, box=None, header_style="dim", padding=(0, 2, 0, 0), show_header=show_header)


def _wire(pin: Pin) -> dict[str, Any]:
    return {"tool_id": id_of(pin), **pin_wire(pin)}
