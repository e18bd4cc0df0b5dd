"""What changed in a tool's definition and how much that matters, and what in one is suspicious."""

from toolcrib.drift.grades import Change, Drift, Grade, drift_between
from toolcrib.drift.suspicions import Neighbours, Suspicion, suspicions_in
from toolcrib.drift.versions import FIRST, Version

__all__ = [
    "FIRST",
    "Change",
    "Drift",
    "Grade",
    "Neighbours",
    "Suspicion",
    "Version",
    "drift_between",
    "suspicions_in",
]
