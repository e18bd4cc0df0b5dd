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

    terms: int
    """The number of terms of the query."""
    weight: float
    """The weight of the query's terms: the sum of their inverse document frequencies."""
    held: float
    """The weight of the query's terms that the best tool has."""
    together: float
    """The weight of the query's terms that any of the best three tools has. Long requests often need several tools."""
    said: float
    """In [0, 1]: the share of the best tool that the query mentions."""
    cosine: float | None = None
    """How close in meaning the best tool is to the query. None if that is not known."""
    past: float = 0.0
    """In [0, 1]: how strongly past calls support the best tool."""

    @property
    def coverage(self) -> float:
        """In [0, 1]: the share of the query's weight that the best tool has."""
        return self.held / self.weight if self.weight else 0.0


def estimates(evidence: Evidence, by_words: Calibration, by_meaning: Calibration) -> tuple[Estimate, ...]:
    """Return the estimate by words and, if the closeness in meaning is known, the one by meaning. Use the last one."""
    found = Estimate.of(evidence, by_words)
    return (found,) if evidence.cosine is None else (found, Estimate.of(evidence, by_meaning))


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
        terms = max(evidence.terms, 1)
        odds = (
            calibration.bias
            + calibration.held * evidence.held
            + calibration.together * evidence.together
            + calibration.said * evidence.said**2
            - calibration.missing * (1 - evidence.coverage) / terms
            + (calibration.cosine * (evidence.cosine or 0.0) - calibration.length) * math.log1p(terms)
        )
        if evidence.past:
            # The stronger the past, the less it counts against a tool that the request used different words than the
            # tool does.
            clear = evidence.past**2
            odds = max(odds, -calibration.history * (1 - clear)) + calibration.history * clear
        by_share = calibration.share + calibration.share_by_coverage * evidence.coverage
        return cls(odds, by_share, calibration.refused)

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
