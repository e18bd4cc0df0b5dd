"""Reads `toolcrib.audit`: whether operations are recorded, where, for how long, and in how much detail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from toolcrib.audit.redaction import is_pattern
from toolcrib.config.settings import Settings

AUDIT_SETTINGS: Mapping[str, str] = {
    "path": "The audit file. A relative path starts at the folder of this configuration.",
    "max_mb": "Maximum size in megabytes. When it is full, the principals that use most lose their oldest traces (64).",
    "max_days": "Days to keep a trace (30).",
    "arguments": "`true` records the arguments of tools and prompts, without what looks like a secret (`false`).",
    "redact": "More strings that mark a secret: the value of a key that contains one of them is not recorded.",
}
"""Every key below `toolcrib.audit`."""

_KEY = "audit"
_MOST_MB = 100_000
_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Audit:
    """The settings of the audit."""

    path: Path | None = None
    """None means the file in this user's state folder."""
    max_mb: int = 64
    max_days: int = 30
    arguments: bool = False
    redact: tuple[str, ...] = ()
    """Patterns of secret keys, in addition to `SECRET_KEYS`."""

    @property
    def place(self) -> Path:
        return self.path or platformdirs.user_state_path("toolcrib") / "audit.sqlite"


DEFAULT_AUDIT = Audit()


def read_audit(ours: Settings) -> Audit | None:
    """Read the audit settings from `ours`, the object under `toolcrib`. Returns None if the audit is off.

    Raises:
        InvalidConfig: a setting is invalid.
    """
    match ours.values.get(_KEY, True):
        case True:
            return DEFAULT_AUDIT
        case False:
            return None
        case dict():
            return _read(ours.settings(_KEY))
        case _:
            raise ours.wrong(_KEY, "must be true, false or an object")


def _read(settings: Settings) -> Audit:
    settings.only(AUDIT_SETTINGS)
    redact = settings.texts("redact")
    if not all(map(is_pattern, redact)):
        raise settings.wrong("redact", "each string needs a letter or a digit")
    path = settings.text("path")
    try:
        place = settings.path.parent / Path(path).expanduser() if path else None
    except RuntimeError as error:  # `~name`, and there is no such user
        raise settings.wrong("path", str(error)) from error
    return Audit(
        place,
        max_mb=settings.count("max_mb", DEFAULT_AUDIT.max_mb, 1, _MOST_MB, "megabytes"),
        max_days=settings.count("max_days", DEFAULT_AUDIT.max_days, 1, _MOST_DAYS, "days"),
        arguments=settings.flag("arguments"),
        redact=redact,
    )
