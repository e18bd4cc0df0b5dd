"""Reads `toolcrib.pins`: what happens to tools whose definitions are not pinned, or changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.config.settings import Settings
from toolcrib.definitions.drift import DEFAULT_PINS, PinPolicy, Verdict
from toolcrib.definitions.drift.suspicions import RULES

_OF_GRADES = {
    "text": "only words changed",
    "compatible": "the schemas changed, and every call that was valid still is",
    "breaking": "a call that was valid may fail",
    "weakened": "the annotations about its behaviour changed",
    "source": "a different command or URL runs it",
}

_KEEPS = {"last": True, "hidden": False}

PIN_SETTINGS: Mapping[str, str] = {
    **{key: f"For a tool that differs from its pin: {what} (`quarantine`)." for key, what in _OF_GRADES.items()},
    "new": "For a tool that is not pinned, if others of its source are (`quarantine`).",
    "unpinned": "For the tools of a source without any pins (`pass`).",
    "unreadable": "For all tools while the pins cannot be read (`quarantine`).",
    "suspicious": "For a definition that is not pinned and contains something suspicious (`warn`).",
    "rules": "The rules that find suspicious definitions: those that `toolcrib lint` lists as suspicious (all).",
    "otherwise": "The value for all keys above that are not set: `pass`, `warn`, or `quarantine` until you pin.",
    "quarantined": "`last` shows the pinned definition of a quarantined tool while calls with it are valid "
    "(the default); `hidden` never does.",
    "older_handles": "`true` accepts an older handle while the current definition accepts every call that it allowed.",
}
"""Every key below `toolcrib.pins`."""


def read_pins(settings: Settings) -> PinPolicy:
    """Read `settings`, the object under `toolcrib.pins`.

    Raises:
        InvalidConfig: a setting is invalid.
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
            raise settings.wrong("rules", f"`{rule}` is not a rule. Use one of: {', '.join(RULES)}")
    return PinPolicy(
        **said,
        rules=frozenset(rules) if "rules" in settings else DEFAULT_PINS.rules,
        keeps_last=_KEEPS[settings.choice("quarantined", _KEEPS, "last")],
        takes_older=settings.flag("older_handles"),
    )
