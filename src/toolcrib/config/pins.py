"""`toolcrib.pins`: what becomes of tools whose definitions nobody approved of as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.config.settings import Settings
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy, Verdict
from toolcrib.definitions.drift.suspicions import RULES

_OF_GRADES = {
    "text": "only words changed",
    "compatible": "what it takes or gives changed, and every call that was right still is",
    "breaking": "a call that was right may fail",
    "weakened": "what it claims of its behaviour changed",
    "source": "another command or address runs it",
}

_KEEPS = {"last": True, "hidden": False}

PIN_SETTINGS: Mapping[str, str] = {
    **{key: f"For a tool that was approved otherwise: {what} (`quarantine`)." for key, what in _OF_GRADES.items()},
    "new": "For a tool that was not approved, where others of its source were (`quarantine`).",
    "unpinned": "For the tools of a source of which nothing was approved (`pass`).",
    "unreadable": "For all tools while what was approved cannot be read (`quarantine`).",
    "suspicious": "For a definition that was not approved and holds something suspicious (`warn`).",
    "rules": "What counts as suspicious, of the rules of `toolcrib lint` that say so (all).",
    "otherwise": "What is not said of the above: `pass`, `warn`, or `quarantine` until somebody approves.",
    "quarantined": "`last` keeps a quarantined tool as it was approved while calls of that are right (as if not said), "
    "`hidden` never.",
    "older_handles": "`true` lets a call by an older handle pass while the definition of now covers the one shown.",
}
"""Every key below `toolcrib.pins`."""


def read_pins(settings: Settings) -> PinPolicy:
    """What `settings`, the object under `toolcrib.pins`, says.

    Raises:
        InvalidConfig: it says it wrongly.
    """
    settings.only(PIN_SETTINGS)
    verdicts = [each.value for each in Verdict]
    said: dict[str, Any] = {}
    if "otherwise" in settings:
        said = dict.fromkeys(PinPolicy.verdicts(), Verdict(settings.choice("otherwise", verdicts, "")))
    said |= {key: Verdict(settings.choice(key, verdicts, "")) for key in PinPolicy.verdicts() if key in settings}
    rules = settings.texts("rules")
    for rule in rules:
        if rule not in RULES:
            raise settings.wrong("rules", f"`{rule}` is no such rule; there are: {', '.join(RULES)}")
    return PinPolicy(
        **said,
        rules=frozenset(rules) if "rules" in settings else DEFAULT_PINS.rules,
        keeps_last=_KEEPS[settings.choice("quarantined", _KEEPS, "last")],
        takes_older=settings.flag("older_handles"),
    )
