"""Fails if the tests detect too few of the mutants that mutmut made. `make mutants` runs it after mutmut."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LEAST_SHARE = 0.95
"""The share of mutants on which at least one test must fail or time out."""

STATS = Path("mutants/mutmut-cicd-stats.json")


def main() -> int:
    counts = json.loads(STATS.read_text())
    noticed, made = counts["killed"] + counts["timeout"], counts["total"]
    print(f"{noticed} of {made} mutants are killed: {noticed / made:.1%}, and at least {LEAST_SHARE:.0%} have to be")
    return 0 if noticed >= LEAST_SHARE * made else 1


if __name__ == "__main__":
    sys.exit(main())
