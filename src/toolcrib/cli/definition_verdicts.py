"""What `toolcrib doctor` reports about definitions: quarantined, unpinned and suspicious ones, with the reasons."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.cli.opened_catalog import pins_of
from toolcrib.cli.pinned_definitions import OfferedDefinition, remedy, shown_name, some_of, using
from toolcrib.cli.terminal_output import plain, stdout
from toolcrib.core.errors import InvalidConfig
from toolcrib.crib.crib import Toolcrib
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy, Verdict

SHOWN = 20
"""How many suspicious places are listed one by one."""

_TOLD = {Verdict.PASS.value: "pass", Verdict.WARN.value: "with a warning", Verdict.QUARANTINE.value: "quarantined"}
_SEEN = {"offered": "shown as they are", "approved": "shown as pinned", "hidden": "hidden"}


@dataclass(frozen=True, slots=True)
class DefinitionVerdicts:
    """The verdicts on all definitions."""

    definitions: tuple[OfferedDefinition, ...]
    problem: str | None
    """Why the pins cannot be read, and what to do about it."""
    hint: str | None

    @classmethod
    def of(cls, crib: Toolcrib, entries: Iterable[SourceEntry], config: Path, policy: PinPolicy) -> DefinitionVerdicts:
        definitions = tuple(
            OfferedDefinition(entry, each, None) for entry in entries for each in entry.judgements.values()
        )
        store = pins_of(config)
        try:
            with using(store):
                is_used = bool(store.all()) or any(each.judgement.origin.is_pinned for each in definitions)
        except InvalidConfig as error:
            return cls(definitions, " ".join((error.message, *error.hints)), None)
        if any(not each.judgement.origin.is_known for each in definitions):
            text = f"The pins cannot be read: {crib.guard.problem or store.path}. {remedy(store)}"
            return cls(definitions, text, None)
        hint = None
        if policy != DEFAULT_PINS and not is_used:
            hint = "`toolcrib.pins` is set, but nothing is pinned yet. Run `toolcrib pin`."
        return cls(definitions, None, hint)

    @property
    def is_healthy(self) -> bool:
        """Whether the owner does not need to do anything."""
        return self.problem is None and not self._of(Verdict.QUARANTINE)

    def to_wire(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "sources": [{"name": name, **counts} for name, counts in self._counts().items()],
            "quarantined": [*map(_wire, self._of(Verdict.QUARANTINE))],
            "warned_of": [*map(_wire, self._of(Verdict.WARN))],
            "suspicious": [
                {"tool_id": each.id, **found.to_wire()}
                for each in self.definitions
                for found in each.judgement.suspicions
            ],
            "hint": self.hint,
        }

    def show(self) -> None:
        """Print the verdicts. Prints nothing if there is nothing to report."""
        if self.problem is not None:
            stdout.print(plain(self.problem), markup=False, style="red", soft_wrap=False)
        for name, counts in self._counts().items():
            text = ", ".join(f"{count} {_TOLD[verdict]}" for verdict, count in counts.items() if count)
            stdout.print(f"Definitions of {shown_name(name)}: {text}.", markup=False, style="dim", soft_wrap=False)
        for line in self._grouped(Verdict.QUARANTINE, "Quarantined"):
            stdout.print(line, markup=False, style="red", soft_wrap=False)
        if self.problem is None and not self.is_healthy:
            stdout.print("Run `toolcrib drift` to see the changes and `toolcrib pin` to accept them.", style="red")
        for line in self._grouped(Verdict.WARN, "Not pinned as they are"):
            stdout.print(line, markup=False, style="yellow", soft_wrap=False)
        lines = [*self._doubts()]
        for line in lines[:SHOWN]:
            stdout.print(line, markup=False, style="yellow", soft_wrap=False)
        if len(lines) > SHOWN:
            text = f"… and {len(lines) - SHOWN:,} more. Run `toolcrib pin` to see them all."
            stdout.print(text, markup=False, style="yellow", soft_wrap=False)
        if self.hint is not None:
            stdout.print(self.hint, markup=False, style="yellow", soft_wrap=False)

    def _of(self, verdict: Verdict) -> list[OfferedDefinition]:
        return [each for each in self.definitions if each.judgement.verdict is verdict]

    def _counts(self) -> Mapping[str, Mapping[str, int]]:
        """Count the verdicts per source. Sources whose definitions all pass are left out."""
        found: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
        for each in self.definitions:
            found[each.entry.name][each.judgement.verdict] += 1
        return {
            name: {verdict.value: counts[verdict] for verdict in Verdict}
            for name, counts in sorted(found.items())
            if counts[Verdict.PASS] != counts.total()
        }

    def _grouped(self, verdict: Verdict, what: str) -> Iterator[str]:
        """Yield one line for all definitions of a source that have the same reason."""
        groups: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        for each in self._of(verdict):
            groups[each.entry.name, each.seen_as, _why(each, verdict)].append(each.id)
        for (_, seen_as, why), ids in groups.items():
            if why:
                yield f"{what}: {some_of(ids)}, {_SEEN[seen_as]}. {why}"

    def _doubts(self) -> Iterator[str]:
        """Yield the first suspicion of each rule in each definition."""
        for each in self.definitions:
            counts = Counter(found.rule for found in each.judgement.suspicions)
            firsts = {found.rule: found for found in reversed(each.judgement.suspicions)}
            for rule, count in counts.items():
                found, more = firsts[rule], f" (and {count - 1} more)" if count > 1 else ""
                where = f"{shown_name(each.id)} {shown_name(found.place)}"
                yield f"Suspicious: {where}: {rule}, {shown_name(found.why)}: “{shown_name(found.excerpt)}”{more}"


def _why(each: OfferedDefinition, verdict: Verdict) -> str:
    """Return the reasons, except suspicions, which are listed one by one. Empty if there is no other reason."""
    judgement = each.judgement
    rest = replace(judgement, policy=replace(judgement.policy, suspicious=Verdict.PASS))
    if rest.why:
        return " ".join(rest.why)
    return "The definition is suspicious." if verdict is Verdict.QUARANTINE else ""


def _wire(each: OfferedDefinition) -> dict[str, Any]:
    return {"tool_id": each.id, "callers_see": each.seen_as, "why": list(each.judgement.why)}
