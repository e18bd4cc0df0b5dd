"""Finds which of the listed tools each rule of a policy matches, and which ones it would match only on trust."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from toolcrib.catalog.access import EFFECTS, Access, Rule, Rules, Subject
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.view import View, subject_of
from toolcrib.config import Config

_OPENING = (Access.CALL, Access.ASK)
"""Effects that the annotations of an untrusted source cannot cause."""

_VERBS = {Access.CALL: "allows", Access.ASK: "asks a person about", Access.SEE: "refuses", Access.HIDDEN: "hides"}


@dataclass(frozen=True, slots=True)
class RuleMatches:
    """What one rule matches on its own, without its principals and without the rules before it."""

    number: int
    """The position in the file, from 1."""
    rule: Rule
    tool_count: int
    claiming: dict[str, int]
    """By source, how many tools match only by their own annotations, which do not count: the source is not trusted."""
    matches_others: bool
    """Whether it matches, or may match, prompts, resources, or tools of a source that did not list its tools."""

    @property
    def matches_nothing(self) -> bool:
        return not (self.tool_count or self.claiming or self.matches_others)

    @property
    def sentence(self) -> str:
        """One sentence about this rule."""
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
        return f"{counted}; {what} only by their own annotations, and their {source} not trusted: {names}."

    def to_wire(self) -> dict[str, Any]:
        return {
            "rule": self.number,
            "then": next(word for word, access in EFFECTS.items() if access is self.rule.then),
            "tools": self.tool_count,
            "claiming": dict(sorted(self.claiming.items())),
            "matches_nothing": self.matches_nothing,
        }


def matches_of(config: Config, view: View) -> Iterator[RuleMatches]:
    """Yield the matches of each rule of `config`. `view` must hold everything that was listed, also hidden tools."""
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
        # Resources do not have to be listed. A colon marks the pattern of a resource's URI.
        matches_others = matches_others or any(":" in pattern for pattern in rule.tools or ())
        yield RuleMatches(number, rule, count, claiming, matches_others)


def _others(view: View) -> Iterator[Subject]:
    """Yield the prompts and resources in the form that rules test."""
    shelf = view.prompts_and_resources
    for item in (*shelf.prompts.values(), *shelf.resources.values(), *shelf.templates.values()):
        yield Subject(f"{item.source}.{item.own_name}", item.source, ((item.source,),), annotations=None)


def _opposite(access: Access) -> Access:
    """Return a decision that the stricter rules for untrusted sources never turn into `access`."""
    return Access.HIDDEN if access in _OPENING else Access.CALL


def _tools(count: int) -> str:
    return f"{count} tool{'s' * (count != 1)}" if count else "no tools"
