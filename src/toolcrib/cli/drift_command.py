"""`toolcrib drift`: show how definitions changed since they were pinned."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from toolcrib.cli.options import config_option, json_option, wait_option
from toolcrib.cli.pinned_definitions import (
    Definition,
    Gone,
    Look,
    Standing,
    grades_of,
    not_looked_at,
    show,
    show_details,
    show_elsewhere,
    show_unlisted,
    shown_name,
    told_of,
)
from toolcrib.cli.terminal_output import counted, print_json, run, stdout
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.definitions.drift import Change, Grade, Verdict

_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.QUARANTINE: "red"}
_SEEN = {"offered": "callers see it as it is", "approved": "callers see the pinned definition", "hidden": "hidden"}


@click.command()
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@wait_option
@json_option
def drift(what: tuple[str, ...], config: Path, wait_s: float, *, as_json: bool) -> None:
    """Show how the definitions of CONFIG's servers changed since they were pinned with `toolcrib pin`.

    WHAT: servers, tool ids or patterns of tool ids. Default: everything.

    Exits with 1 if a definition changed, is gone, or is quarantined because it is not pinned. Exits with 2 if a server
    did not answer.
    """

    async def main() -> int:
        look = await Look.at(config, wait_s)
        try:
            found = _Found.of(look.only(what, config))
        except NotFound as error:  # as InvalidConfig it exits with 2: an exit code of 1 would look like drift
            raise InvalidConfig(error.message, hints=error.hints) from error
        if as_json:
            print_json({"config": str(config), **found.to_wire()})
        else:
            _show(found)
        return 2 if found.look.unlisted else int(found.is_drifted)

    sys.exit(run(main, as_json=as_json))


@dataclass(frozen=True, slots=True)
class _Found:
    look: Look
    changed: tuple[Definition, ...]
    new: tuple[Definition, ...]
    """Definitions that are not pinned, and that the policy does not let pass."""
    passed: Mapping[str, int]
    """The number of other definitions that are not pinned, by source."""

    @classmethod
    def of(cls, look: Look) -> _Found:
        changed = [each for each in look.definitions if each.standing is Standing.CHANGED]
        unknown = [each for each in look.definitions if each.standing in {Standing.NEW, Standing.UNPINNED}]
        new = [each for each in unknown if _verdict_unapproved(each) is not Verdict.PASS]
        passed = Counter(each.entry.name for each in unknown if _verdict_unapproved(each) is Verdict.PASS)
        return cls(look, tuple(changed), tuple(new), passed)

    @property
    def is_drifted(self) -> bool:
        return bool(self.changed or self.look.gone or self.new)

    @property
    def unchanged(self) -> int:
        return sum(each.standing is Standing.UNCHANGED for each in self.look.definitions)

    def to_wire(self) -> dict[str, Any]:
        return {
            "drifted": self.is_drifted,
            "changed": [each.to_wire() for each in self.changed],
            "gone": [each.to_wire() for each in self.look.gone],
            "new": [each.to_wire() for each in self.new],
            "unchanged": self.unchanged,
            "not_approved": dict(self.passed),
            "not_looked_at": not_looked_at(self.look),
        }


def _verdict_unapproved(each: Definition) -> Verdict:
    """Return what the policy says about a definition that is not pinned. Suspicions are not considered."""
    policy = each.judgement.policy
    return policy.new if each.judgement.origin.is_pinned else policy.unpinned


# -- what a person sees -----------------------------------------------------------------------------------------------


def _show(found: _Found) -> None:
    for _, each in groupby(found.changed, key=lambda each: each.entry.name):
        _show_changed([*each])
    for each in found.look.gone:
        _show_gone(each)
    for each in found.new:
        _show_new(each)
    if found.is_drifted:
        stdout.print()
    for line in _counts(found):
        stdout.print(line)
    show_unlisted(found.look.unlisted)
    show_elsewhere(found.look.elsewhere)


def _show_changed(definitions: Sequence[Definition]) -> None:
    """Print the changed definitions of one source. A change of the source itself is printed only once."""
    moves = {change for each in definitions for change in _changes(each) if change.grade is Grade.SOURCE}
    only_moved: list[Definition] = []
    for each in definitions:
        changes = [change for change in _changes(each) if change not in moves or len(moves) > 1]
        drift = each.judgement.drift
        if drift is None or (not changes and not each.suspicions):
            only_moved.append(each)
            continue
        head = Text.assemble((shown_name(each.id), "bold"), "  ").append_text(grades_of(drift))
        show(head.append_text(_since(each)))
        show(_verdict(each))
        show_details(changes, each.suspicions, drift.omitted)
    if len(moves) == 1:
        name = definitions[0].entry.name
        show(Text.assemble((shown_name(name), "bold"), "  ", ("source", "red")))
        if only_moved:
            show(_verdict(only_moved[0], f"{counted(len(only_moved), 'tool')} otherwise as pinned; "))
        show_details(moves, ())


def _changes(each: Definition) -> tuple[Change, ...]:
    return each.judgement.drift.changes if each.judgement.drift is not None else ()


def _since(each: Definition) -> Text:
    told = ""
    if each.pin is not None:
        told = f"  {each.pin.version} → {each.judgement.version}, pinned {told_of(each.pin)}"
    return Text(told, "dim")


def _verdict(each: Definition, before: str = "") -> Text:
    verdict = each.judgement.verdict
    return Text.assemble(f"  {before}", (verdict.value, _STYLES[verdict]), f": {_SEEN[each.seen_as]}")


def _show_gone(each: Gone) -> None:
    told = f"  {each.pin.version}, pinned {told_of(each.pin)}"
    show(Text.assemble((shown_name(each.id), "bold"), "  ", ("gone", "red"), (told, "dim")))
    if each.why is not None:
        show(Text(f"  the source offers it, but it cannot be used: {shown_name(each.why)}"))


def _show_new(each: Definition) -> None:
    show(Text.assemble((shown_name(each.id), "bold"), "  ", ("not pinned", "yellow")))
    show(_verdict(each))
    show_details((), each.suspicions)


def _counts(found: _Found) -> Iterator[str]:
    for count, told in (
        (len(found.changed), "[red]changed[/]"),
        (len(found.look.gone), "[red]gone[/]"),
        (len(found.new), "[yellow]not pinned[/]"),
        (found.unchanged, "as pinned"),
    ):
        if count:
            yield f"{count:>6,}  {told}"
    if found.passed:
        sources = counted(len(found.passed), "source")
        yield f"[dim]{sum(found.passed.values()):>6,}  never pinned, and allowed by the policy ({sources})[/]"
    if not (found.look.definitions or found.look.gone or found.look.unlisted):
        yield "There is nothing to compare."
