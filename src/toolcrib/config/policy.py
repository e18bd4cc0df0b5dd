"""`toolcrib.policy`: who may see and call what."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.catalog.access import HINTS, Access, Rule, Rules
from toolcrib.catalog.categories import Categories
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig

EFFECTS: Mapping[str, Access] = {
    "allow": Access.CALL,
    "ask": Access.ASK,
    "refuse": Access.SEE,
    "hide": Access.HIDDEN,
}

POLICY_SETTINGS: Mapping[str, str] = {
    "rules": "A list of rules; the first that is met decides.",
    "otherwise": "What holds where no rule is met: `allow`, `ask`, `refuse` or `hide`. Has to be said.",
}

RULE_SETTINGS: Mapping[str, str] = {
    "then": "`allow`; `ask` a person first; `refuse` to call what is shown; `hide`.",
    "principals": "Patterns of principals' ids.",
    "scopes": "The principal has all of these scopes.",
    "paths": "It hangs at or below one of these paths.",
    "tags": "It carries one of these tags.",
    "sources": "Patterns of names of sources.",
    "tools": "Patterns of ids of tools, and of `SOURCE.NAME` of prompts, `SOURCE.URI` of resources.",
    "annotations": f"It claims all of these, true or false: {', '.join(HINTS)}. A claim tightens; it loosens only "
    "where its source is `trusted`.",
}


def read_policy(settings: Settings, categories: Categories) -> Rules:
    """The rules below `toolcrib.policy`; their paths may lead through the links of `categories`.

    Raises:
        InvalidConfig: a rule is wrong, or nothing is said for where none is met.
    """
    settings.only(POLICY_SETTINGS)
    if "otherwise" not in settings:
        raise InvalidConfig(
            f"{settings.path}: {settings.where}: `otherwise` is missing: say what holds where no rule is met",
            hints=[f"One of {', '.join(EFFECTS)}."],
        )
    rules = tuple(_rule(rule, categories) for rule in settings.each("rules"))
    return Rules(rules, EFFECTS[settings.choice("otherwise", EFFECTS, "hide")])


def _rule(settings: Settings, categories: Categories) -> Rule:
    settings.only(RULE_SETTINGS)
    if "then" not in settings:
        raise InvalidConfig(f"{settings.path}: {settings.where}: `then` is missing: one of {', '.join(EFFECTS)}")
    for condition in settings:
        if condition != "then" and settings.values[condition] in (None, [], {}):
            raise settings.wrong(condition, "it is empty; without it, the rule holds for any")
    claims = settings.settings("annotations")
    claims.only(HINTS)
    return Rule(
        then=EFFECTS[settings.choice("then", EFFECTS, "hide")],
        principals=settings.texts("principals"),
        scopes=settings.texts("scopes"),
        paths=tuple(categories.primary(path) for path in settings.paths("paths")),
        tags=settings.texts("tags"),
        sources=settings.texts("sources"),
        tools=settings.texts("tools"),
        annotations={hint: claims.flag(hint) for hint in claims},
    )
