"""Reads `toolcrib.policy`: who can see and call which tools."""

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
    "rules": "A list of rules. The first rule that matches decides.",
    "otherwise": "What happens if no rule matches: `allow`, `ask`, `refuse` or `hide`. Required.",
}

RULE_SETTINGS: Mapping[str, str] = {
    "then": "`allow`; `ask` a person first; `refuse` calls but show the tool; or `hide` it.",
    "principals": "Patterns of principal ids.",
    "scopes": "Scopes. The principal must have all of them.",
    "paths": "Paths of categories. The tool must be in one of them, or below.",
    "tags": "Tags. The tool must have one of them.",
    "sources": "Patterns of source names.",
    "tools": "Patterns of tool ids, of `SOURCE.NAME` for prompts, and of `SOURCE.URI` for resources.",
    "annotations": f"Annotations, true or false, that the tool must all have: {', '.join(HINTS)}. Annotations of a "
    "source that is not `trusted` can only make the decision stricter.",
}


def read_policy(settings: Settings, categories: Categories, names: Mapping[str, str]) -> Rules:
    """Read the rules below `toolcrib.policy`.

    Their paths may use the links of `categories`. `names` maps the labels of servers to the names of their sources: a
    rule may use either.

    Raises:
        InvalidConfig: a rule is invalid, or `otherwise` is missing.
    """
    settings.only(POLICY_SETTINGS)
    if "otherwise" not in settings:
        raise InvalidConfig(
            f"{settings.path}: {settings.where}: `otherwise` is required: it decides what happens when no rule matches",
            hints=[f"Use one of: {', '.join(EFFECTS)}."],
        )
    rules = tuple(_rule(rule, categories, names) for rule in settings.each("rules"))
    return Rules(rules, EFFECTS[settings.choice("otherwise", EFFECTS, "hide")])


def policy_of(given: object) -> Policy:
    """Return the policy that a program gives. A mapping is read as `toolcrib.policy` is.

    Raises:
        InvalidConfig: `given` is neither a policy nor a mapping, or the mapping is invalid.
    """
    if isinstance(given, Mapping):
        try:
            written = orjson.dumps(dict(cast("Mapping[str, Any]", given)), option=orjson.OPT_PASSTHROUGH_DATACLASS)
        except TypeError as error:
            raise InvalidConfig(f"policy: {error}") from error
        place = FilePath("this program")
        return read_policy(Settings(parsed(written.decode(), place), place, "policy"), NO_CATEGORIES, {})
    if isinstance(given, type) or not callable(getattr(given, "permissions", None)):
        lone = "; put a single rule into a list: `Rules([rule], otherwise=...)`" if isinstance(given, Rule) else ""
        raise InvalidConfig(
            "policy: must be `Rules`, a mapping like `toolcrib.policy`, or an object with a method `permissions`, "
            f"not `{type(given).__name__}`{lone}"
        )
    return cast("Policy", given)


def _rule(settings: Settings, categories: Categories, names: Mapping[str, str]) -> Rule:
    settings.only(RULE_SETTINGS)
    if "then" not in settings:
        raise InvalidConfig(f"{settings.path}: {settings.where}: `then` is required: use one of {', '.join(EFFECTS)}")
    for condition in settings:
        if condition != "then" and settings.values[condition] in (None, [], {}):
            raise settings.wrong(condition, "must not be empty; leave the key out to match everything")
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
    """Return the primary path of a category. Upper and lower case may differ, as in `list`."""
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
