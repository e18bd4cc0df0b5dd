"""Metrics of the gateway in the Prometheus format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import choose_encoder

from toolcrib.core.events import OperationPerformed
from toolcrib.surfaces.auth import Reason

DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Bucket limits in seconds, up to the default time limit of a call."""

SIZES = tuple(float(4**power) for power in range(4, 13))
"""Bucket limits in bytes, from 256 bytes to 16 MiB."""

_LABELS = ("operation", "outcome")
"""Labels with few fixed values. The names of tools, sources and principals would reveal who does what."""


class Metrics:
    """Counts operations and refused requests. Its `record` is a `Recorder`."""

    def __init__(self, audit_events_lost: Callable[[], int]) -> None:
        """`audit_events_lost` returns the number of audit events that were lost so far."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._durations = Histogram(
            "toolcrib_operation_duration_seconds",
            "Duration of operations in seconds, including the tools that they called.",
            _LABELS,
            buckets=DURATIONS_S,
            registry=self._registry,
        )
        self._sizes = Histogram(
            "toolcrib_operation_answer_bytes",
            "Size of the answers of operations, as compact JSON.",
            _LABELS,
            buckets=SIZES,
            registry=self._registry,
        )
        self._refused = Counter(
            "toolcrib_http_requests_refused",
            "Requests that were refused, by reason.",
            ("reason",),
            registry=self._registry,
        )
        for reason in get_args(Reason):  # created at zero, so that the first refusal appears as an increase
            self._refused.labels(reason)
        self._registry.register(_Lost(audit_events_lost))

    def record(self, event: OperationPerformed) -> None:
        """Count one finished operation."""
        self._durations.labels(event.operation, event.outcome).observe(event.duration_s)
        self._sizes.labels(event.operation, event.outcome).observe(event.answer_bytes)

    def count_refused(self, reason: Reason) -> None:
        """Count one refused request."""
        self._refused.labels(reason).inc()

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that fits the `Accept` header, and the media type of that format."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


class _Lost:
    """Reads the number of lost audit events when the metrics are read.

    The audit therefore need not know the metrics.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "toolcrib_audit_events_lost", "Operations that are missing from the audit.", self._count()
        )
