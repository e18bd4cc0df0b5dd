"""A program that checks one value against one schema in a separate process, which can be killed.

It reads `{"schema": ..., "value": ..., "whole": ...}` from standard input and writes up to three lines: whether the
value matches (`true` or `false`), the violations at the first place that does not match, and the violations at all
places, unless that is too much work. It writes each line as soon as it is known, so a parent that kills the process has
the lines that were written before.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict

from toolcrib.core.schema import MAX_JUDGED, Schema

MAX_BYTES = 1_000_000_000
"""The memory limit in bytes. The validator ends its process if it cannot allocate memory."""

MAX_CPU_S = 3
"""The limit of processor time in seconds, including the start (about 0.1 s). The system kills a process that exceeds
it."""


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
    """Limit the memory and processor time of this process, and disable core dumps."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415  Windows has none

        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
