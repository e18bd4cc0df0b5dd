"""What the gateway did, counted, in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import choose_encoder

from toolcrib.core.events import OperationPerformed
from toolcrib.surfaces.auth import Reason

DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Up to the time that a call has unless the configuration says otherwise."""

SIZES = tuple(float(4**power) for power in range(4, 13))
"""256 bytes to 16 MiB."""

_LABELS = ("operation", "outcome")
"""Both of a fixed few values: no name of a tool, a source or a principal, which would tell who does what."""


class Metrics:
    """Counts operations, and requests that did not come to one; its `record` is a `Recorder`."""

    def __init__(self, audit_events_lost: Callable[[], int]) -> None:
        """`audit_events_lost` gives how many so far."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._durations = Histogram(
            "toolcrib_operation_duration_seconds",
            "How long operations took, tools included.",
            _LABELS,
            buckets=DURATIONS_S,
            registry=self._registry,
        )
        self._sizes = Histogram(
            "toolcrib_operation_answer_bytes",
            "How large their answers were, as compact JSON.",
            _LABELS,
            buckets=SIZES,
            registry=self._registry,
        )
        self._refused = Counter(
            "toolcrib_http_requests_refused",
            "Requests without a token that is good here.",
            ("reason",),
            registry=self._registry,
        )
        for reason in get_args(Reason):  # told from the first moment on, so that the first refusal is seen as a rise
            self._refused.labels(reason)
        self._registry.register(_Lost(audit_events_lost))

    def record(self, event: OperationPerformed) -> None:
        """Count one operation that is over."""
        self._durations.labels(event.operation, event.outcome).observe(event.duration_s)
        self._sizes.labels(event.operation, event.outcome).observe(event.answer_bytes)

    def count_refused(self, reason: Reason) -> None:
        """Count one request that was not let in."""
        self._refused.labels(reason).inc()

    def page(self, accept: str) -> tuple[bytes, str]:
        """All of it, in the format that fits an `Accept` header, and that format's media type."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


class _Lost:
    """Asked when somebody looks, so that whoever loses events need not know of metrics."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "toolcrib_audit_events_lost", "Operations that the audit log does not hold.", self._count()
        )
