"""`toolcrib drift`: show how definitions changed since they were pinned."""

from __future__ import annotations

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
    GoneTool,
    OfferedDefinition,
    PinComparison,
    PinState,
    grades_of,
    not_looked_at,
    pinned_when,
    show_details,
    show_elsewhere,
    show_unlisted,
    shown_name,
)
from toolcrib.cli.terminal_output import asynchronous, counted, print_json, show, stdout
from toolcrib.core.errors import InvalidConfig, NotFound
from toolcrib.definitions.drift import Change, Grade, Verdict

_STYLES = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.QUARANTINE: "red"}
_SEEN = {"offered": "callers see it as it is", "approved": "callers see the pinned definition", "hidden": "hidden"}


@click.command()
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@config_option
@wait_option
@json_option
@asynchronous
async def drift(what: tuple[str, ...], config: Path, wait_s: float, *, as_json: bool) -> int:
    """Show how the definitions of CONFIG's servers changed since they were pinned with `toolcrib pin`.

    WHAT: servers, tool ids or patterns of tool ids. Default: everything.

    Exits with 1 if a definition changed, is gone, or is quarantined because it is not pinned. Exits with 2 if a server
    did not answer.
    """
    comparison = await PinComparison.at(config, wait_s)
    try:
        found = _Found.of(comparison.only(what, config))
    except NotFound as error:  # as InvalidConfig it exits with 2: an exit code of 1 would comparison like drift
        raise InvalidConfig(error.message, hints=error.hints) from error
    if as_json:
        print_json({"config": str(config), **found.to_wire()})
    else:
        _show(found)
    return 2 if found.comparison.unlisted else int(found.is_drifted)


@dataclass(frozen=True, slots=True)
class _Found:
    comparison: PinComparison
    changed: tuple[OfferedDefinition, ...]
    new: tuple[OfferedDefinition, ...]
    """Definitions that are not pinned, and that the policy does not let pass."""
    passed: Mapping[str, int]
    """The number of other definitions that are not pinned, by source."""

    @classmethod
    def of(cls, comparison: PinComparison) -> _Found:
        changed = [each for each in comparison.definitions if each.pin_state is PinState.CHANGED]
        unknown = [each for each in comparison.definitions if each.pin_state in {PinState.NEW, PinState.UNPINNED}]
        new = [each for each in unknown if _verdict_unpinned(each) is not Verdict.PASS]
        passed = Counter(each.entry.name for each in unknown if _verdict_unpinned(each) is Verdict.PASS)
        return cls(comparison, tuple(changed), tuple(new), passed)

    @property
    def is_drifted(self) -> bool:
        return bool(self.changed or self.comparison.gone or self.new)

    @property
    def unchanged(self) -> int:
        return sum(each.pin_state is PinState.UNCHANGED for each in self.comparison.definitions)

    def to_wire(self) -> dict[str, Any]:
        return {
            "drifted": self.is_drifted,
            "changed": [each.to_wire() for each in self.changed],
            "gone": [each.to_wire() for each in self.comparison.gone],
            "new": [each.to_wire() for each in self.new],
            "unchanged": self.unchanged,
            "not_approved": dict(self.passed),
            "not_looked_at": not_looked_at(self.comparison),
        }


def _verdict_unpinned(each: OfferedDefinition) -> Verdict:
    """Return what the policy says about a definition that is not pinned. Suspicions are not considered."""
    policy = each.judgement.policy
    return policy.new if each.judgement.origin.is_pinned else policy.unpinned


# -- what a person sees -----------------------------------------------------------------------------------------------


def _show(found: _Found) -> None:
    for _, each in groupby(found.changed, key=lambda each: each.entry.name):
        _show_changed([*each])
    for each in found.comparison.gone:
        _show_gone(each)
    for each in found.new:
        _show_new(each)
    if found.is_drifted:
        stdout.print()
    for line in _counts(found):
        stdout.print(line)
    show_unlisted(found.comparison.unlisted)
    show_elsewhere(found.comparison.elsewhere)


def _show_changed(definitions: Sequence[OfferedDefinition]) -> None:
    """Print the changed definitions of one source. A change of the source itself is printed only once."""
    moves = {change for each in definitions for change in _changes(each) if change.grade is Grade.SOURCE}
    only_moved: list[OfferedDefinition] = []
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


def _changes(each: OfferedDefinition) -> tuple[Change, ...]:
    return each.judgement.drift.changes if each.judgement.drift is not None else ()


def _since(each: OfferedDefinition) -> Text:
    text = ""
    if each.pin is not None:
        text = f"  {each.pin.version} → {each.judgement.version}, pinned {pinned_when(each.pin)}"
    return Text(text, "dim")


def _verdict(each: OfferedDefinition, before: str = "") -> Text:
    verdict = each.judgement.verdict
    return Text.assemble(f"  {before}", (verdict.value, _STYLES[verdict]), f": {_SEEN[each.seen_as]}")


def _show_gone(each: GoneTool) -> None:
    text = f"  {each.pin.version}, pinned {pinned_when(each.pin)}"
    show(Text.assemble((shown_name(each.id), "bold"), "  ", ("gone", "red"), (text, "dim")))
    if each.why is not None:
        show(Text(f"  the source offers it, but it cannot be used: {shown_name(each.why)}"))


def _show_new(each: OfferedDefinition) -> None:
    show(Text.assemble((shown_name(each.id), "bold"), "  ", ("not pinned", "yellow")))
    show(_verdict(each))
    show_details((), each.suspicions)


def _counts(found: _Found) -> Iterator[str]:
    for count, label in (
        (len(found.changed), "[red]changed[/]"),
        (len(found.comparison.gone), "[red]gone[/]"),
        (len(found.new), "[yellow]not pinned[/]"),
        (found.unchanged, "as pinned"),
    ):
        if count:
            yield f"{count:>6,}  {label}"
    if found.passed:
        sources = counted(len(found.passed), "source")
        yield f"[dim]{sum(found.passed.values()):>6,}  never pinned, and allowed by the policy ({sources})[/]"
    if not (found.comparison.definitions or found.comparison.gone or found.comparison.unlisted):
        yield "There is nothing to compare."
