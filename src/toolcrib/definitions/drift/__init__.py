"""Compares tool definitions: what changed and how much it matters, and what looks suspicious."""

from toolcrib.definitions.drift.grades import Change, Drift, Grade, drift_between
from toolcrib.definitions.drift.judging import (
    DEFAULT_PINS,
    FIRST,
    Approved,
    Judgement,
    Origin,
    PinPolicy,
    Verdict,
    Version,
)
from toolcrib.definitions.drift.suspicions import Neighbours, Suspicion, suspicions_in, suspicions_in_texts

__all__ = [
    "DEFAULT_PINS",
    "FIRST",
    "Approved",
    "Change",
    "Drift",
    "Grade",
    "Judgement",
    "Neighbours",
    "Origin",
    "PinPolicy",
    "Suspicion",
    "Verdict",
    "Version",
    "drift_between",
    "suspicions_in",
    "suspicions_in_texts",
]
