"""Estimates the probability that the found tools serve a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from toolcrib.search.index.weights import Calibration

_MOST_ODDS = 50.0
"""The limit of the log-odds. Beyond it, a float cannot distinguish probabilities."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that the best of all visible tools serves the query."""

    earned: float
    """The highest score that the query words give any tool."""
    weight: float
    """The weight of the query words."""
    shares: float
    """In [0, 2]: the share of the query's weight in the best tool, plus the share of that tool that the query
    mentions."""
    bare: float
    """In [0, 1]: the share of the tools that have no parameters."""
    lead: float | None = None
    """How much closer in meaning the nearest tool is than the median, as cosines. None if no vectors are known."""
    past: float = 0.0
    """In [0, 1]: how strongly past calls support the best tool."""
    compared: int = 0
    """The number of tools with a known vector."""


_FEW = 5
"""With fewer known vectors than this, a median is not meaningful."""


def estimates(evidence: Evidence, by_words: Calibration, by_meaning: Calibration) -> tuple[Estimate, ...]:
    """Return the estimates: by words, and by meaning if vectors are known. The last one is the one to use."""
    found = [Estimate.of(evidence, by_words)]
    if evidence.lead is not None:
        found.append(Estimate.of(evidence, by_meaning))
        if evidence.compared < _FEW:
            found.sort(key=lambda estimate: estimate.odds)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Maps a tool's share of the best score, in (0, 1], to the probability that the tool serves the query."""

    odds: float
    """The log-odds that the best tool serves the query."""
    by_share: float
    """The change of the log-odds for each unit of the logarithm of a share."""
    least: float
    """The probability below which even the best result is refused."""

    @classmethod
    def of(cls, evidence: Evidence, calibration: Calibration) -> Self:
        """Compute the estimate from `evidence` with one calibration."""
        slack = calibration.slack
        by_words = math.log(evidence.earned + slack) - calibration.power * math.log(evidence.weight + slack)
        odds = (
            calibration.bias
            + calibration.evidence * (by_words + evidence.shares)
            + calibration.similarity * (evidence.lead or 0.0)
        )
        if evidence.past:
            # The stronger the past, the less it counts against a tool that the request used different words than the
            # tool does.
            clear = evidence.past**2
            odds = max(odds, -calibration.history * (1 - clear)) + calibration.history * clear
        least = calibration.refused + evidence.bare * (calibration.refused_of_bare - calibration.refused)
        return cls(odds, calibration.share, least)

    def chance(self, share: float) -> float:
        """Return the probability for a share, to 4 digits."""
        odds = self.odds + self.by_share * math.log(share)
        return round(1 / (1 + math.exp(-max(min(odds, _MOST_ODDS), -_MOST_ODDS))), 4)

    def share_of(self, chance: float) -> float:
        """Return the share of the best score that has this probability. 0 for a probability of 0."""
        return math.exp((math.log(chance / (1 - chance)) - self.odds) / self.by_share) if chance else 0.0

    def refuses(self, share: float) -> bool:
        """Whether even a best result with this share is refused."""
        return self.chance(share) < self.least
