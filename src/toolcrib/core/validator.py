"""The program that checks one value against one schema, in a process of its own, which can be ended.

It reads `{"schema": ..., "value": ..., "whole": ...}` from its standard input. It writes a line as soon as it knows
whether the value matches (`true` or `false`), one with the violations in the first place that does not, and one with
those in all places, unless that is very much work. So whoever ends it has what was known until then.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict

from toolcrib.core.schema import MAX_JUDGED, Schema

MAX_BYTES = 1_000_000_000
"""Of memory. The validator ends its process where it gets none."""

MAX_CPU_S = 3
"""Processor time, its start (some 0.1 s) included. The system ends a process that takes more."""


def main() -> None:
    limit()
    asked = json.loads(sys.stdin.buffer.read())
    schema = Schema(asked["schema"])
    value, whole = asked["value"], asked["whole"]
    answer(is_valid := schema.matches(value))
    if not is_valid:
        answer([asdict(each) for each in schema.first_violations(value, whole)])
        if schema.cost.of(value, MAX_JUDGED) <= MAX_JUDGED:
            answer([asdict(each) for each in schema.all_violations(value, whole)])


def answer(told: object) -> None:
    sys.stdout.write(f"{json.dumps(told, default=str)}\n")
    sys.stdout.flush()


def limit() -> None:
    """Take no more memory and time than there are for this."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  Windows has none

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
