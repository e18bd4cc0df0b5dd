"""Helpers that create and read audits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.until import until_blocking

from toolcrib.audit.audit_file import Gap
from toolcrib.audit.audit_reader import AuditEntry, AuditReader, TraceFilter
from toolcrib.audit.store import AuditStore
from toolcrib.core.events import OK, OperationPerformed


def performed(number: int = 0, **given: Any) -> OperationPerformed:
    """Returns an operation with a query that contains `number`. By default, it has its own trace id."""
    whole: dict[str, Any] = {
        "at": time.time(),
        "trace_id": f"{number + 1:032x}",
        "principal": "local",
        "operation": "search_tools",
        "outcome": OK,
        "duration_s": 0.25,
        "answer_bytes": 100,
        "query": f"query {number}",
        **given,
    }
    return OperationPerformed(**whole)


def entries(path: Path, wanted: TraceFilter | None = None) -> list[AuditEntry]:
    with AuditReader(path) as reader:
        return reader.entries(wanted or TraceFilter())


def queries(path: Path) -> list[str | None]:
    return [entry.query for entry in entries(path)]


def gaps(path: Path) -> list[Gap]:
    with AuditReader(path) as reader:
        return [gap for _, gap in reader.gaps()]


def until_written(store: AuditStore) -> None:
    until_blocking(lambda: store.condition.waiting == 0 and store.condition.problem is None, "everything is written")
