"""Chooses the few terms that describe groups of tools best, and assigns each unit (one or more tools) to a term."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LEAST_GAIN = 0.5
"""The least a further term must add to the groups that already exist. The unit is tools that a term fully describes."""

_WIDEST_SHARE = 0.5
"""A term that is in more than this share of a category's tools cannot distinguish a part of them."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def labels_of(rows: Sequence[Mapping[str, float]], sizes: Sequence[int], most: int) -> Sequence[str]:
    """Return for each unit the term it is assigned to, or "" if it has nothing in common with any chosen term.

    At most `most` different terms are chosen. `rows` holds the weight of each term of a unit, `sizes` the number of
    tools of each unit.
    """
    vectors = _Vectors.of(rows, sizes)
    labels = _labels(vectors, most)
    nearest = _nearest(vectors, labels) if labels.size else np.full(len(rows), -1)
    return [vectors.terms[int(labels[label])] if label >= 0 else "" for label in nearest.tolist()]


@dataclass(frozen=True)
class _Vectors:
    """A sparse TF-IDF matrix with rows of length 1, as entries that are sorted by unit, then by term."""

    terms: Sequence[str]
    """All terms, sorted."""
    size: _Floats
    """(n_units,): the number of tools in each unit."""
    unit: _Ints
    """(n_entries,): the unit of each entry."""
    term: _Ints
    """(n_entries,): the term of each entry, as a position in `terms`."""
    weight: _Floats
    """(n_entries,): the TF-IDF weight of each entry."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]], sizes: Sequence[int]) -> _Vectors:
        vocabulary = sorted({term for row in rows for term in row})
        number = {term: at for at, term in enumerate(vocabulary)}
        unit = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        term = np.fromiter((number[t] for row in rows for t in sorted(row)), np.int64, len(unit))
        raw = np.fromiter((row[t] for row in rows for t in sorted(row)), np.float64, len(unit))
        spread = np.bincount(term, minlength=len(vocabulary))
        weight = (1 + np.log(np.maximum(raw, 1.0))) * np.log(1 + len(rows) / spread[term])
        length = np.sqrt(np.bincount(unit, weight * weight, minlength=len(rows)))
        return cls(vocabulary, np.array(sizes, np.float64), unit, term, weight / length[unit])


def _labels(vectors: _Vectors, most: int) -> _Ints:
    """Choose at most `most` terms so that each unit has a chosen term with a large weight. Return them sorted.

    This is greedy facility location with lazy evaluation, which reaches at least 1 - 1/e of the optimum. Source: Minoux
    1978, "Accelerated greedy algorithms for maximizing submodular set functions".
    """
    order = np.argsort(vectors.term, kind="stable")
    spread = np.bincount(vectors.term, minlength=len(vectors.terms))
    ends = np.cumsum(spread)
    holders = vectors.unit[order]
    worth = vectors.weight[order] * np.sqrt(vectors.size[holders])
    widest = max(2, int(_WIDEST_SHARE * len(vectors.size)))
    covered = np.zeros(len(vectors.size))

    def gain(term: int) -> float:
        at = slice(int(ends[term] - spread[term]), int(ends[term]))
        return float(np.maximum(worth[at] - covered[holders[at]], 0.0).sum())

    waiting = [(-gain(term), term) for term in np.flatnonzero((spread >= 2) & (spread <= widest)).tolist()]
    heapq.heapify(waiting)
    labels: list[int] = []
    while waiting and len(labels) < most:
        _, term = heapq.heappop(waiting)
        now = -gain(term)
        if waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, term))
        elif -now < _LEAST_GAIN:
            break
        else:
            labels.append(term)
            at = slice(int(ends[term] - spread[term]), int(ends[term]))
            covered[holders[at]] = np.maximum(covered[holders[at]], worth[at])
    return np.array(sorted(labels), np.int64)


def _nearest(vectors: _Vectors, labels: _Ints) -> _Ints:
    """Return (n_units,): the position in `labels` that each unit is assigned to, or -1 for none.

    First, each unit goes to the label in which it has the largest weight. Then one step of k-means moves each unit to
    the label whose units are most similar to it.
    """
    n_units, n_labels = len(vectors.size), len(labels)
    column = np.full(len(vectors.terms), -1)
    column[labels] = np.arange(n_labels)
    by_label = np.zeros((n_units, n_labels))
    is_label = column[vectors.term] >= 0
    by_label[vectors.unit[is_label], column[vectors.term[is_label]]] = vectors.weight[is_label]
    first = np.where(by_label.any(axis=1), by_label.argmax(axis=1), -1)

    counted = first[vectors.unit] >= 0
    flat = vectors.term[counted] * n_labels + first[vectors.unit[counted]]
    mass = vectors.weight[counted] * vectors.size[vectors.unit[counted]]
    centres = np.bincount(flat, mass, minlength=len(vectors.terms) * n_labels).reshape(-1, n_labels)
    centres /= np.maximum(np.sqrt((centres * centres).sum(axis=0)), 1e-12)
    likeness = np.zeros((n_units, n_labels))
    for label in range(n_labels):
        likeness[:, label] = np.bincount(vectors.unit, vectors.weight * centres[vectors.term, label], minlength=n_units)
    # Rounded, so that ties do not depend on the last bit of a floating-point sum.
    likeness = likeness.round(9)
    return np.where(likeness.any(axis=1), likeness.argmax(axis=1), -1)
