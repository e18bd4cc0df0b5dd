"""How sure one can be that what was found serves a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from toolcrib.search.index.weights import Calibration

_MOST_ODDS = 50.0
"""In log-odds; beyond, a float has no chances left to tell apart."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the best of all tools that count."""

    earned: float
    """The most that the words of the query earn any of them."""
    weight: float
    """What these words weigh."""
    shares: float
    """In [0, 2]: of the query's weight that the best tool holds, and of that tool that the query asks for, together."""
    bare: float
    """In [0, 1]: the share of the tools that have no parameters."""
    lead: float | None = None
    """How much nearer in meaning the nearest is than most, as cosines; None where nothing is known of meaning."""
    past: float = 0.0
    """In [0, 1]: how clearly the past speaks for the best tool."""
    compared: int = 0
    """Of how many tools the meaning is known."""


_FEW = 5
"""So few tools whose meaning is known have no middle to be nearer than."""


def estimates(evidence: Evidence, by_words: Calibration, by_meaning: Calibration) -> tuple[Estimate, ...]:
    """What is estimated by words, and by meaning where that is known; the one to go by is the last."""
    found = [Estimate.of(evidence, by_words)]
    if evidence.lead is not None:
        found.append(Estimate.of(evidence, by_meaning))
        if evidence.compared < _FEW:
            found.sort(key=lambda estimate: estimate.odds)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The chance that a tool serves, from its share of the best score, in (0, 1]."""

    odds: float
    """That the best serves, as a logarithm."""
    by_share: float
    """What is added for each unit of the logarithm of a share."""
    least: float
    """The chance below which a best result is taken for none."""

    @classmethod
    def of(cls, evidence: Evidence, calibration: Calibration) -> Self:
        """What comes of `evidence` by one calibration."""
        slack = calibration.slack
        by_words = math.log(evidence.earned + slack) - calibration.power * math.log(evidence.weight + slack)
        odds = (
            calibration.bias
            + calibration.evidence * (by_words + evidence.shares)
            + calibration.similarity * (evidence.lead or 0.0)
        )
        if evidence.past:
            # The clearer the past, the less it says against the tool that it was asked for in other words than its own.
            clear = evidence.past**2
            odds = max(odds, -calibration.history * (1 - clear)) + calibration.history * clear
        least = calibration.refused + evidence.bare * (calibration.refused_of_bare - calibration.refused)
        return cls(odds, calibration.share, least)

    def chance(self, share: float) -> float:
        """To 4 digits."""
        odds = self.odds + self.by_share * math.log(share)
        return round(1 / (1 + math.exp(-max(min(odds, _MOST_ODDS), -_MOST_ODDS))), 4)

    def refuses(self, share: float) -> bool:
        """Whether a best result with this share is none."""
        return self.chance(share) < self.least
