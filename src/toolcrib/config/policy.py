"""`toolcrib.policy`: who may see and call what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, cast

import orjson

from toolcrib.catalog.access import EFFECTS, HINTS, Policy, Rule, Rules
from toolcrib.catalog.categories import NO_CATEGORIES, Categories
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings, parsed
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.tools import Path

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


def read_policy(settings: Settings, categories: Categories, names: Mapping[str, str]) -> Rules:
    """The rules below `toolcrib.policy`.

    Their paths may lead through the links of `categories`. `names` are those of the sources, by the labels of their
    servers: a rule may call a server by either.

    Raises:
        InvalidConfig: a rule is wrong, or nothing is said for where none is met.
    """
    settings.only(POLICY_SETTINGS)
    if "otherwise" not in settings:
        raise InvalidConfig(
            f"{settings.path}: {settings.where}: `otherwise` is missing: say what holds where no rule is met",
            hints=[f"One of {', '.join(EFFECTS)}."],
        )
    rules = tuple(_rule(rule, categories, names) for rule in settings.each("rules"))
    return Rules(rules, EFFECTS[settings.choice("otherwise", EFFECTS, "hide")])


def policy_of(given: object) -> Policy:
    """The policy that a program gives: one as it is, or a mapping, which is read as `toolcrib.policy` is.

    Raises:
        InvalidConfig: it is neither, or the mapping is wrong.
    """
    if isinstance(given, Mapping):
        try:
            written = orjson.dumps(dict(cast("Mapping[str, Any]", given)), option=orjson.OPT_PASSTHROUGH_DATACLASS)
        except TypeError as error:
            raise InvalidConfig(f"policy: {error}") from error
        place = FilePath("this program")
        return read_policy(Settings(parsed(written.decode(), place), place, "policy"), NO_CATEGORIES, {})
    if isinstance(given, type) or not callable(getattr(given, "permissions", None)):
        lone = "; a rule stands in a list: `Rules([rule], otherwise=...)`" if isinstance(given, Rule) else ""
        raise InvalidConfig(
            "policy: `Rules`, a mapping as under `toolcrib.policy`, or an object with a method `permissions` is "
            f"expected here, not `{type(given).__name__}`{lone}"
        )
    return cast("Policy", given)


def _rule(settings: Settings, categories: Categories, names: Mapping[str, str]) -> Rule:
    settings.only(RULE_SETTINGS)
    if "then" not in settings:
        raise InvalidConfig(f"{settings.path}: {settings.where}: `then` is missing: one of {', '.join(EFFECTS)}")
    for condition in settings:
        if condition != "then" and settings.values[condition] in (None, [], {}):
            raise settings.wrong(condition, "it is empty; without it, the rule holds for any")
    claims = settings.settings("annotations")
    claims.only(HINTS)
    sources = settings.texts("sources")
    conditions: dict[str, Any] = {
        "principals": settings.texts("principals"),
        "scopes": settings.texts("scopes"),
        "paths": tuple(_node(path, categories, names) for path in settings.paths("paths")),
        "tags": settings.texts("tags"),
        "sources": tuple(dict.fromkeys((*sources, *(names[label] for label in sources if label in names)))),
        "tools": under_source_names(settings.texts("tools"), names),
        "annotations": {hint: claims.flag(hint) for hint in claims},
    }
    then = EFFECTS[settings.choice("then", EFFECTS, "hide")]
    try:
        return Rule(then, **{condition: value for condition, value in conditions.items() if condition in settings})
    except InvalidConfig as error:
        raise InvalidConfig(f"{settings.path}: {settings.where}.{error.message}") from error


def _node(path: Path, categories: Categories, names: Mapping[str, str]) -> Path:
    """The primary path of the node that is meant; upper and lower case may differ, as they may in `list`."""
    primary = categories.primary(path)
    if primary in categories:
        return primary
    folded = [known for known in categories.nodes if _fold(known) == _fold(path)]
    if len(folded) == 1:
        return folded[0]
    first = next(
        (name for label, name in names.items() if path[0].casefold() in {label.casefold(), name.casefold()}), ""
    )
    return (first, *primary[1:]) if first and primary[:1] == path[:1] else primary


def _fold(path: Path) -> Path:
    return tuple(name.casefold() for name in path)
