"""Parses a point in time from the command line: how long ago it was, or a date."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import click

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Since(click.ParamType[float]):
    """`90s`, `30m`, `2h`, `7d` or `1w` ago, or a date in local time, with or without a time of day."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert to seconds since 1970."""
        if ago := re.fullmatch(r"(\d{1,9})([smhdw])", str(value)):
            return time.time() - int(ago[1]) * _UNITS[ago[2]]
        try:
            return datetime.fromisoformat(str(value)).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is not a time. Use 90s, 30m, 2h, 7d or 1w, or a date: 2026-08-01 or 2026-08-01T09:30."
            )
