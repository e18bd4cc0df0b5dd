"""The results of `toolcrib eval`: explains failed queries, and prints everything as JSON or for a person."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.padding import Padding
from rich.table import Column, Table

from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.view import View, document_of
from toolcrib.cli.terminal_output import escape, plain, stderr, stdout
from toolcrib.search.embedders.pinned_models import GAIN
from toolcrib.search.evaluation import NDCG, Answer, Change, Comparison, Estimate, Evaluation, Floor, Interleaved
from toolcrib.search.index.searching import Hit
from toolcrib.search.index.tokens import terms
from toolcrib.search.index.weights import WEIGHTS

SHOWN_GROUPS = 12
"""How many categories are shown. The worst ones come first."""

SHOWN_ABOVE = 3
"""How many tools are shown that ranked above the right tools."""

SHOWN_CHANGES = 3
"""How many improved and how many worsened queries are shown."""

SHOWN_UNKNOWN = 5
"""How many queries are shown that name tools which do not exist."""

ROOMY = 64
"""The width of a terminal, in columns, from which on intervals fit into the tables."""

SHOWN_CHARS = 300
"""How many characters of a failed query are shown."""

SHOWN_WORDS = 6
"""How many words are shown that a query and a tool share."""


_WORD = re.compile(r"[^\s,;:!?\"“”()\[\]{}]+")


@dataclass(frozen=True, slots=True)
class _RankedTool:
    """The place of one tool in the ranking of a query."""

    tool_id: str
    rank: int | None
    """The rank from 1, or None if the tool is not ranked."""
    confidence: float | None
    """None if the tool is not ranked."""
    words: tuple[str, ...] = ()
    """Words of the query that occur in the tool's definition, category or source, compared by their stems."""
    reason: str | None = None
    """Why the tool is not ranked."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "tool_id": self.tool_id,
            "rank": self.rank,
            "confidence": self.confidence,
            "words": list(self.words),
            **({"reason": self.reason} if self.reason is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class _FailedQuery:
    """A query that was not answered perfectly, and the reason."""

    answer: Answer
    relevant: tuple[_RankedTool, ...]
    """The right tools with their ranks in the whole catalog, best first. Tools without a rank come last."""
    above: tuple[_RankedTool, ...]
    """Other tools on the first page that rank above a right tool."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "id": self.answer.judged.id,
            "query": self.answer.judged.query,
            NDCG: round(self.answer.scores[0], 4),
            "refused": not self.answer.found,
            "relevant": [each.to_wire() for each in self.relevant],
            "above": [each.to_wire() for each in self.above],
        }


@dataclass(frozen=True, slots=True)
class OtherSettings:
    """The results of the same queries with different settings."""

    name: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Replayed:
    """The figures of a replayed audit, in addition to those of its searches."""

    learned: int
    """The number of searches from which search learned."""
    interleaved: Interleaved
    searches_per_call: tuple[float, float, float]
    """How many searches it took to show a called tool: in the audit, in this run, with the other setting. Means."""

    def to_wire(self) -> dict[str, Any]:
        return {
            "learned_from": self.learned,
            "interleaved": self.interleaved.to_wire(),
            "searches_per_call": dict(
                zip(("audit", "this", "other"), (round(each, 4) for each in self.searches_per_call), strict=True)
            ),
        }


@dataclass(frozen=True, slots=True)
class Scorecard:
    """All results of one run."""

    evaluation: Evaluation
    unknown: Mapping[str, tuple[str, ...]]
    """Names that no definition has, by query id."""
    failed_queries: tuple[_FailedQuery, ...]
    """The worst failed_queries first."""
    other: OtherSettings | None
    floors: tuple[Floor, ...]
    embedding: Comparison | None
    """From the same settings without their embedding model to those with it. None if no model was used."""
    replayed: Replayed | None = None

    @property
    def missed(self) -> tuple[Floor, ...]:
        return tuple(floor for floor in self.floors if floor.missed_by(self.evaluation))

    def to_wire(self) -> dict[str, Any]:
        wire = self.evaluation.to_wire()
        wire["unknown"] = {query_id: list(names) for query_id, names in self.unknown.items()}
        wire["categories"] = [group.to_wire() for group in self.evaluation.groups]
        wire["worst"] = [failed.to_wire() for failed in self.failed_queries]
        wire["answers"] = [_answer_wire(answer) for answer in self.evaluation.answers]
        if self.floors:
            wire["floors"] = [
                {
                    "metric": floor.metric,
                    "floor": floor.least,
                    "mean": round(self.evaluation.means[floor.metric], 4),
                    "missed_by": floor.missed_by(self.evaluation),
                }
                for floor in self.floors
            ]
        if self.embedding is not None:
            wire["embedding"] = {"without": self.embedding.one.to_wire(), "difference": self.embedding.to_wire()}
        if self.replayed is not None:
            wire["replay"] = self.replayed.to_wire()
        if self.other is not None:
            comparison = self.other.comparison
            wire["comparison"] = {
                "with": self.other.name,
                **comparison.other.to_wire(),
                "difference": comparison.to_wire(),
                "answers": [_answer_wire(answer) for answer in comparison.other.answers],
            }
        return wire


def _answer_wire(answer: Answer) -> dict[str, Any]:
    judged = answer.judged
    return {
        "id": judged.id,
        "query": judged.query,
        "relevant": sorted(judged.relevant),
        "refused": not answer.found,
        "rank": answer.rank,
        "found": [{"tool_id": found.tool_id, "confidence": found.confidence} for found in answer.found],
        **({NDCG: round(answer.scores[0], 4)} if judged.relevant else {}),
    }


def examined(view: View, answer: Answer) -> _FailedQuery:
    """Rank the whole catalog for the query of `answer`, and find the ranks of its right tools.

    `view` must rank as `answer` was ranked, but refuse nothing: so an empty page can be explained, too.
    """
    query, wanted = answer.judged.query, answer.judged.relevant
    ranked = view.search(query, limit=len(view.tools)).hits
    hits = {hit.tool_id: (rank, hit) for rank, hit in enumerate(ranked, 1)}
    relevant = sorted(
        (_ranked_tool(view, query, tool_id, hits.get(tool_id)) for tool_id in wanted),
        key=lambda each: (each.rank or len(hits) + 1, each.tool_id),
    )
    last = relevant[-1].rank or len(hits) + 1
    above = [
        _ranked_tool(view, query, found.tool_id, hits.get(found.tool_id))
        for rank, found in enumerate(answer.found, 1)
        if found.tool_id not in wanted and rank < last
    ]
    return _FailedQuery(answer, tuple(relevant), tuple(above))


def _ranked_tool(view: View, query: str, tool_id: str, ranked: tuple[int, Hit] | None) -> _RankedTool:
    if (tool := view.tools.get(tool_id)) is None:
        return _RankedTool(tool_id, None, None, reason="it is not in the catalog")
    document = document_of(view.sources, view.visible.state.categories, tool)
    words = _shared(query, (term for field, _ in WEIGHTS.of_fields(document) for term in field))
    if ranked is not None:
        return _RankedTool(tool_id, ranked[0], ranked[1].confidence, words)
    reason = "it is not among the matches" if words else "it has no word of the query"
    return _RankedTool(tool_id, None, None, words, reason)


def _shared(query: str, held: Iterable[str]) -> tuple[str, ...]:
    """Return the different words of `query` that have a term in `held`, spelled as in the query.

    For scripts without spaces, return the terms: a whole query may be one word there.
    """
    known = frozenset(held)
    found: list[str] = []
    shown_terms: set[str] = set()
    for word in _WORD.findall(query):
        new = [term for term in dict.fromkeys(terms(word)) if term in known and term not in shown_terms]
        shown_terms.update(new)
        found += [word.strip(".'’")] if new and word.isascii() else new
    return tuple(found)


# -- what a person sees -----------------------------------------------------------------------------------------------


def report_unavailable(view: View) -> None:
    lost = sorted(name for name, entry in view.sources.items() if entry.status is not SourceStatus.READY)
    if lost:
        stderr.print(f"Not searched, because unavailable: {plain(', '.join(lost))}.", style="yellow", markup=False)


def report_unknown(unknown: Mapping[str, tuple[str, ...]]) -> None:
    if not unknown:
        return
    what = "1 query names tools" if len(unknown) == 1 else f"{len(unknown)} queries name tools"
    stderr.print(f"{what} that are not in the catalog; they count as not found:", style="yellow")
    for query_id, names in [*unknown.items()][:SHOWN_UNKNOWN]:
        stderr.print(f"  {plain(query_id)}: {plain(', '.join(names))}", style="yellow", markup=False)
    if len(unknown) > SHOWN_UNKNOWN:
        stderr.print(f"  … and {len(unknown) - SHOWN_UNKNOWN} more (`--json` has all).", style="yellow", markup=False)


def report_missed(card: Scorecard) -> None:
    for floor in card.missed:
        stderr.print(f"[bold red]Below the floor[/]: {_missed(card.evaluation, floor)}", soft_wrap=True)


def _missed(evaluation: Evaluation, floor: Floor) -> str:
    estimate = evaluation.metrics[floor.metric]
    return (
        f"{floor.metric} is {estimate.mean:.4f} ({estimate.low:.3f} to {estimate.high:.3f}), "
        f"{floor.missed_by(evaluation):.4f} less than {floor.least:g}."
    )


def show(card: Scorecard) -> None:
    evaluation = card.evaluation
    if card.other is None:
        _print(_metrics_table(evaluation))
    else:
        _print(f"[dim]“other” is {escape(card.other.name)}[/]")
        _print(_comparison_table(card.other.comparison))
    counted = f"{evaluation.queries} queries" if evaluation.queries != 1 else "1 query"
    _print(f"\n{counted} over {evaluation.tools} tools")
    _show_refused(evaluation)
    _print(f"[dim]no embedding model. {GAIN}[/]" if card.embedding is None else _gain_of_embedding(card.embedding))
    if card.replayed is not None:
        _show_replayed(card.replayed)
    if card.other is not None:
        _show_changes(card.other.comparison)
    if len(evaluation.groups) > 1:
        _show_groups(evaluation)
    if card.failed_queries:
        _print("\n[bold]Worst[/]")
    for failed in card.failed_queries:
        _show_failed_query(failed)


def _gain_of_embedding(comparison: Comparison) -> str:
    """Return a sentence on what the embedding model changes for these queries."""
    with_it, without = comparison.other.means[NDCG], comparison.one.means[NDCG]
    difference = comparison.differences[NDCG]
    chance = "" if difference.is_distinguishable else ", which may be chance"
    return f"embedding model: nDCG@10 {with_it:.3f}, and {without:.3f} with word vectors instead{chance}"


def _print(shown: Any, indent: int = 0) -> None:
    stdout.print(Padding.indent(shown, indent) if indent else shown, soft_wrap=False)


def _table(*columns: str) -> Table:
    """Return a table with a text column, which wraps on narrow terminals, and columns of numbers."""
    text, *numbers = columns
    made = [Column(text, overflow="fold", min_width=9)]
    made += [Column(name, justify="right", no_wrap=True) for name in numbers]
    return Table(*made, box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)


def _metrics_table(evaluation: Evaluation) -> Table:
    table = _table("", "mean", "95 % interval")
    for name, estimate in evaluation.metrics.items():
        table.add_row(f"[bold]{name}[/]", f"{estimate.mean:.3f}", _interval(estimate))
    return table


def _comparison_table(comparison: Comparison) -> Table:
    interval = ("95 % interval",) if stdout.width >= ROOMY else ()
    table = _table("", "this", "other", "gain", *interval, "chance?")
    for name, difference in comparison.differences.items():
        gain, style = difference.estimate, ""
        if difference.is_distinguishable:
            style = "green" if gain.mean > 0 else "red"
        table.add_row(
            f"[bold]{name}[/]",
            f"{comparison.one.means[name]:.3f}",
            f"{comparison.other.means[name]:.3f}",
            f"{gain.mean:+.3f}",
            *([f"{gain.low:+.3f} to {gain.high:+.3f}"] if interval else []),
            "no" if difference.is_distinguishable else "maybe",
            style=style,
        )
    return table


def _show_replayed(replayed: Replayed) -> None:
    found, searches = replayed.interleaved, replayed.searches_per_call
    _print(f"learned from {replayed.learned} earlier searches")
    table = _table("", "this", "other", "audit")
    table.add_row("searches per successful call", f"{searches[1]:.2f}", f"{searches[2]:.2f}", f"{searches[0]:.2f}")
    table.add_row("interleaved, better for", str(found.one), str(found.other), "")
    _print(table)


def _interval(estimate: Estimate) -> str:
    return f"{estimate.low:.3f} to {estimate.high:.3f}"


def _show_refused(evaluation: Evaluation) -> None:
    negatives = len(evaluation.negatives)
    counts = f"empty results for {_share(evaluation.refused, evaluation.queries)}"
    if evaluation.auroc is None:
        _print(counts)
        return
    _print(f"{counts}, and for {_share(evaluation.rightly_refused, negatives)} that no tool fits")
    error = evaluation.calibration_error
    gap = f", calibration error {error:.3f}" if error is not None else ""
    _print(f"confidence of the first result: AUROC {evaluation.auroc:.3f}{gap}")


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({count / of:.1%})"


def _show_groups(evaluation: Evaluation) -> None:
    groups = evaluation.groups
    _print("\n[bold]By category[/]")
    is_roomy = stdout.width >= ROOMY
    table = _table("", "queries", NDCG, *(("95 % interval", "recall@5") if is_roomy else ()), "empty")
    for group in groups[:SHOWN_GROUPS]:
        ndcg, recall = group.metrics[NDCG], group.metrics["recall@5"]
        more = (_interval(ndcg), f"{recall.mean:.3f}") if is_roomy else ()
        table.add_row(escape(group.name), str(group.queries), f"{ndcg.mean:.3f}", *more, str(group.refused or ""))
    _print(table)
    if len(groups) > SHOWN_GROUPS:
        _print(f"[dim]… and {len(groups) - SHOWN_GROUPS} better ones (`--json` lists all)[/]")


def _show_changes(comparison: Comparison) -> None:
    difference = comparison.differences[NDCG]
    if not difference.better + difference.worse:
        _print(f"no query has a different {NDCG}")
        return
    better, worse = comparison.most_changed(SHOWN_CHANGES)
    for word, count, changes in (("better", difference.better, better), ("worse", difference.worse, worse)):
        if changes:
            most = f"; the {len(changes)} largest changes" if len(changes) < count else ""
            _print(f"\n[bold]{count} {word} with “other”[/]{most}")
            for change in changes:
                _show_change(change)


def _show_change(change: Change) -> None:
    went = f"{change.before.scores[0]:.2f} → {change.after.scores[0]:.2f}"
    judged = change.after.judged
    line = f"{went}  [dim]{escape(judged.id)}[/]  {_line(judged.query)}"
    stdout.print(line, no_wrap=True, overflow="ellipsis", soft_wrap=False)


def _line(text: str, limit: int | None = None) -> str:
    line = " ".join(text.split())
    return escape(line if limit is None or len(line) <= limit else f"{line[:limit]}…")


def _show_failed_query(failed: _FailedQuery) -> None:
    answer = failed.answer
    said = "" if answer.found else ", empty result"
    stdout.print(f"\n[bold]{escape(answer.judged.id)}[/]  [dim]{NDCG} {answer.scores[0]:.2f}{said}[/]", soft_wrap=True)
    _print(_line(answer.judged.query, SHOWN_CHARS), 2)
    rank, confidence = (Column(justify="right", no_wrap=True) for _ in range(2))
    tool, why = Column(overflow="fold", ratio=3), Column(overflow="fold", ratio=4)
    table = Table.grid(rank, tool, confidence, why, padding=(0, 2, 0, 0))
    shown = failed.above[:SHOWN_ABOVE]
    for ranked in sorted((*shown, *failed.relevant), key=lambda ranked: ranked.rank or math.inf):
        _add_ranked_tool(table, ranked, "red" if ranked in shown else "green")
        if (more := len(failed.above) - len(shown)) and ranked is shown[-1]:
            table.add_row("", f"[dim]… {more} more above[/]", "", "")
    _print(table, 2)


def _add_ranked_tool(table: Table, ranked: _RankedTool, style: str) -> None:
    words = ", ".join(ranked.words[:SHOWN_WORDS]) + (", …" if len(ranked.words) > SHOWN_WORDS else "")
    rank = str(ranked.rank) if ranked.rank is not None else "–"
    confidence = f"{ranked.confidence:.2f}" if ranked.confidence is not None else ""
    why = ranked.reason if ranked.reason is not None else words or "no word in common"
    table.add_row(rank, f"[{style}]{escape(ranked.tool_id)}[/]", confidence, f"[dim]{escape(why)}[/]")
