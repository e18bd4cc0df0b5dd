"""Which of the listed tools each rule of a policy matches, and which of them it is not trusted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.catalog.access import EFFECTS, Access, Rule, Rules, Subject
from toolcrib.catalog.state import SourceStatus
from toolcrib.catalog.view import View, subject_of
from toolcrib.config import Config

_OPENING = (Access.CALL, Access.ASK)
"""Effects that a claim of a source that is not trusted cannot bring about."""

_VERBS = {Access.CALL: "opens", Access.ASK: "asks a person about", Access.SEE: "refuses", Access.HIDDEN: "hides"}


@dataclass(frozen=True, slots=True)
class Matches:
    """What one rule matches by itself, for the principals that it is for and whatever stands before it."""

    number: int
    """From 1, in the order of the file."""
    rule: Rule
    tool_count: int
    claiming: dict[str, int]
    """By source, tools that match by their own word alone, which does not count: the source is not trusted."""
    matches_others: bool
    """Whether it matches, or may match, something else: prompts, resources, or what a source has that did not list."""

    @property
    def matches_nothing(self) -> bool:
        return not (self.tool_count or self.claiming or self.matches_others)

    @property
    def told(self) -> str:
        """A sentence."""
        verb = _VERBS[self.rule.then]
        if self.matches_nothing:
            return f"Rule {self.number} matches nothing."
        counted = f"Rule {self.number} {verb} {_tools(self.tool_count)}"
        if not self.claiming:
            return f"{counted}."
        more = sum(self.claiming.values())
        source = "source is" if len(self.claiming) == 1 else "sources are"
        what = f"{more} more match" if self.tool_count else f"{more} match"
        what += "es" if more == 1 else ""
        names = ", ".join(sorted(self.claiming))
        return f"{counted}; {what} only by what they claim, and their {source} not trusted: {names}."

    def to_wire(self) -> dict[str, Any]:
        return {
            "rule": self.number,
            "then": next(word for word, access in EFFECTS.items() if access is self.rule.then),
            "tools": self.tool_count,
            "claiming": dict(sorted(self.claiming.items())),
            "matches_nothing": self.matches_nothing,
        }


def matches_of(config: Config, view: View) -> Iterator[Matches]:
    """Those of each rule of `config`; `view` is all that was listed, whatever the policy hides."""
    if config.policy is None:
        return
    sources = view.sources
    subjects = [
        subject_of(tool, config.categories, config.overrides, trusted=sources[tool.source].trusted)
        for tool in view.tools.values()
    ]
    named = {each.name for each in (*config.servers, *config.declared, *config.plugins)}
    listed = {name for name, entry in sources.items() if entry.status is SourceStatus.READY}
    shared = {server.name for server in config.enabled if server.isolation == "shared"}
    shared |= {each.name for each in (*config.declared, *config.plugins)}
    is_all_known = named <= listed & shared
    others = [*_others(view)]
    for number, rule in enumerate(config.policy.rules, start=1):
        alone = Rules((replace(rule, principals=None, scopes=None),), _opposite(rule.then))
        count, claiming = 0, dict[str, int]()
        for subject in subjects:
            if alone.decide(subject) is rule.then:
                count += 1
            elif rule.then in _OPENING and rule.meets(subject, subject.annotations):
                claiming[subject.source] = claiming.get(subject.source, 0) + 1
        matches_others = not is_all_known or any(rule.meets(subject, None) for subject in others)
        # Resources need not be listed; a colon is that of a URI.
        matches_others = matches_others or any(":" in pattern for pattern in rule.tools or ())
        yield Matches(number, rule, count, claiming, matches_others)


def _others(view: View) -> Iterator[Subject]:
    """Prompts and resources, as rules look at them."""
    shelf = view.shelf
    for item in (*shelf.prompts.values(), *shelf.resources.values(), *shelf.templates.values()):
        yield Subject(f"{item.source}.{item.own_name}", item.source, ((item.source,),), annotations=None)


def _opposite(access: Access) -> Access:
    """A decision that the strictness towards strangers does not turn into `access`."""
    return Access.HIDDEN if access in _OPENING else Access.CALL


def _tools(count: int) -> str:
    return f"{count} tool{'s' * (count != 1)}" if count else "no tool"
