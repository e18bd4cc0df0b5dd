"""`toolcrib.audit`: whether operations are written down, where, for how long, and what of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from toolcrib.audit.redaction import is_pattern
from toolcrib.config.settings import Settings

AUDIT_SETTINGS: Mapping[str, str] = {
    "path": "The file; one that is not absolute is looked for beside this configuration.",
    "max_mb": "Megabytes it may take; when it is full, the principals that take most lose their oldest traces (64).",
    "max_days": "Days that a trace is kept (30).",
    "arguments": "`true` keeps what tools and prompts are given, without what is or looks secret (`false`).",
    "redact": "Texts whose presence in a key makes its value a secret, beside those that always do.",
}
"""Every key below `toolcrib.audit`."""

_KEY = "audit"
_MOST_MB = 100_000
_MOST_DAYS = 36_500


@dataclass(frozen=True, slots=True)
class Audit:
    """What is written down, and where."""

    path: Path | None = None
    """None for the one in this user's state folder."""
    max_mb: int = 64
    max_days: int = 30
    arguments: bool = False
    redact: tuple[str, ...] = ()
    """Patterns of keys, beside `SECRET_KEYS`."""

    @property
    def place(self) -> Path:
        return self.path or platformdirs.user_state_path("toolcrib") / "audit.sqlite"


DEFAULT_AUDIT = Audit()


def read_audit(ours: Settings) -> Audit | None:
    """What `ours`, the object under our key, says of it; None where it is switched off.

    Raises:
        InvalidConfig: it says it wrongly.
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
        raise settings.wrong("redact", "each text needs a letter or a digit")
    path = settings.text("path")
    try:
        place = settings.path.parent / Path(path).expanduser() if path else None
    except RuntimeError as error:  # `~name` of nobody
        raise settings.wrong("path", str(error)) from error
    return Audit(
        place,
        max_mb=settings.count("max_mb", DEFAULT_AUDIT.max_mb, 1, _MOST_MB, "megabytes"),
        max_days=settings.count("max_days", DEFAULT_AUDIT.max_days, 1, _MOST_DAYS, "days"),
        arguments=settings.flag("arguments"),
        redact=redact,
    )
