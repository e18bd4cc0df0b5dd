"""`toolcrib eval`: measure how well search finds the right tools, where it fails, and what other settings change."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import click

from toolcrib.catalog.view import QueryKnowledge, View
from toolcrib.cli.opened_catalog import opened, until_understood
from toolcrib.cli.options import (
    EXISTING_FILE,
    FILE,
    config_either_way,
    is_config_named,
    json_option,
    tools_option,
    wait_option,
)
from toolcrib.cli.scorecard import (
    OtherSettings,
    Replayed,
    Scorecard,
    examined,
    report_missed,
    report_unavailable,
    report_unknown,
    show,
)
from toolcrib.cli.terminal_output import asynchronous, print_json
from toolcrib.config import read_config
from toolcrib.config.search_settings import DEFAULT_SEARCH, Search
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.principal import Principal
from toolcrib.search.evaluation import (
    DEPTH,
    Answer,
    Comparison,
    Evaluation,
    Floor,
    Found,
    JudgedQuery,
    interleaved,
    read_queries,
)
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import SIGNALS, Weights
from toolcrib.search.past_calls import PastSearch, Replay, replay
from toolcrib.sources.catalog_file import CatalogFileSource

if TYPE_CHECKING:
    from toolcrib.search.index.history import History
    from toolcrib.search.index.meaning import Understood

WITHOUT = "without:"
"""The prefix of a `--compare` value that names signals instead of a file."""

LEARNING = f"{WITHOUT}history,trace"
"""The other setting of a replayed audit, unless `--compare` names one: nothing is learned."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """Settings to rank with, and their name in the report."""

    name: str
    search: Search

    def without(self, names: Sequence[str], option: str) -> _Setting:
        """Return these settings with some signals turned off. `option` names the option in error messages."""
        for name in names:
            if name not in SIGNALS:
                raise click.BadParameter(
                    f"`{name}` is not a signal; use one of: {', '.join(SIGNALS)}", param_hint=option
                )
        return replace(self, search=replace(self.search, weights=self.search.weights.without(*names)))


@click.command("eval")
@config_either_way
@tools_option
@click.option(
    "--queries",
    type=EXISTING_FILE,
    help='A file with one {"query": ..., "relevant": [tool ids]} per line. No ids means that no tool fits.',
)
@click.option(
    "--from-audit",
    "from_audit",
    is_flag=True,
    help="Instead of --queries: learn from the first half of the audit, and repeat the searches of the second half.",
)
@click.option("--path", metavar="FILE", type=FILE, help="With --from-audit: use this audit instead of CONFIG's.")
@click.option("--without", metavar="SIGNAL", multiple=True, help="Rank without this signal. Repeatable.")
@click.option(
    "--compare",
    metavar="SETTINGS",
    help="Also rank with these settings: `toolcrib.search` of a different mcp.json, or `without:SIGNAL,SIGNAL`.",
)
@click.option(
    "--floor",
    "floors",
    metavar="[METRIC=]VALUE",
    multiple=True,
    help="Exit with 1 if the mean is lower: `0.8` (of nDCG@10), `recall@5=0.9`. Repeatable.",
)
@click.option(
    "--worst",
    type=click.IntRange(0),
    metavar="COUNT",
    default=5,
    show_default=True,
    help="How many failures to explain.",
)
@wait_option
@json_option
@asynchronous
async def evaluate(
    config: Path,
    tools: Path | None,
    queries: Path | None,
    *,
    from_audit: bool,
    path: Path | None,
    without: Sequence[str],
    compare: str | None,
    floors: Sequence[str],
    worst: int,
    wait_s: float,
    as_json: bool,
) -> int:
    """Measure how well search finds the right tools of CONFIG's servers: nDCG@10, recall@1/5/10 and MRR.

    Prints intervals, results by category, and the worst queries with the tools that ranked above the right ones.

    \b
      toolcrib eval --queries queries.jsonl --floor ndcg@10=0.8
      toolcrib eval --tools tools.json --queries queries.jsonl --compare without:synonyms
      toolcrib eval --from-audit
    """
    if (queries is not None) == from_audit:
        raise click.UsageError("Pass either --queries FILE or --from-audit.")
    if path is not None and not from_audit:
        raise click.UsageError("--path only works with --from-audit.")
    least = tuple(map(_floor, floors))
    past = _replay(config, path) if from_audit else None
    judged = read_queries(queries) if queries is not None else _judged(past)
    setting = _own(config if tools is None or is_config_named() else None, without)
    if past is not None and compare is None:
        compare = LEARNING
    other = _other(compare, setting) if compare is not None else None
    async with opened(config, tools, wait_s=wait_s, searched=True) as crib:
        await until_understood(crib, wait_s)
        view = crib.view()
        asked, unknown = _resolved(view, judged)
        searches = {each.id: each for each in past.tried} if past is not None else {}

        def view_of(query: JudgedQuery) -> View:
            return view if past is None else _as_then(view, past, searches[query.id])

        evaluation = _measured(view_of, setting, asked)
        nothing = setting.search.weights.refusing_nothing()
        failed = tuple(examined(weighted(view_of(each.judged), nothing), each) for each in evaluation.worst(worst))
        compared, replayed = None, None
        if other is not None:
            compared = OtherSettings(other.name, Comparison(evaluation, _measured(view_of, other, asked)))
            if past is not None:
                replayed = _replayed(view, past, (setting, other), compared.comparison)
        embedding = crib.knowledge.embedding
        gain = None
        if embedding is not None and embedding.condition.embedded and setting.search.weights.embedding:
            words = replace(
                setting, search=replace(setting.search, weights=setting.search.weights.without("embedding"))
            )
            gain = Comparison(_measured(view_of, words, asked), evaluation)
        card = Scorecard(evaluation, unknown, failed, compared, least, gain, replayed)
        report_unavailable(view)
    report_unknown(unknown)
    if as_json:
        print_json(card.to_wire())
    else:
        show(card)
    report_missed(card)
    return int(bool(card.missed))


def weighted(view: View, weights: Weights) -> View:
    """Return `view` with `weights` instead of its own. Everything else in the search stays the same."""
    visible = view.visible
    state = replace(visible.state, index=visible.state.index.weighted(weights))
    return replace(view, visible=replace(visible, state=state, earlier=None, base=None))


def _measured(view_of: Callable[[JudgedQuery], View], setting: _Setting, asked: Sequence[JudgedQuery]) -> Evaluation:
    """Search with every query in its own view."""
    answers: list[Answer] = []
    for each in asked:
        hits = weighted(view_of(each), setting.search.weights).search(each.query, limit=DEPTH).hits
        answers.append(Answer(each, tuple(Found(hit.tool_id, hit.confidence) for hit in hits)))
    return Evaluation(tuple(answers), len(view_of(asked[0]).tools))


@dataclass(frozen=True, slots=True)
class _PastKnowledge:
    """What search knew after the first part of an audit."""

    past: Replay
    now: QueryKnowledge | None

    def understood(self, query: Query) -> Understood | None:
        return self.now.understood(query) if self.now is not None else None

    def history_for(self, principal: Principal) -> History | None:
        return self.past.history_for(principal)


def _replay(config: Path, path: Path | None) -> Replay:
    """Return the audit at `path`, or else that of `config`, with the groups of `config` if it learns.

    Raises:
        InvalidConfig: the audit is off, or cannot be replayed.
    """
    said = read_config(config) if path is None or config.exists() else None
    if path is None and said is not None and said.audit is not None:
        path = said.audit.place
    if path is None:
        raise InvalidConfig(
            f"{config}: toolcrib.audit: the audit is turned off",
            hints=["Pass --path FILE to replay an audit that was written before."],
        )
    return replay(path, (said.search.history if said is not None else None) or HistoryConfig())


def _judged(past: Replay | None) -> tuple[JudgedQuery, ...]:
    tried = past.tried if past is not None else ()
    return tuple(JudgedQuery(each.id, each.attempts[-1], each.called) for each in tried)


def _as_then(view: View, past: Replay, search: PastSearch) -> View:
    """Return `view` as a search of the audit had it: with its principal, its trace, and what was known before."""
    knowledge = _PastKnowledge(past, view.knowledge)
    return replace(view, principal=Principal(search.principal), knowledge=knowledge, used=search.used)


def _replayed(view: View, past: Replay, settings: tuple[_Setting, _Setting], comparison: Comparison) -> Replayed:
    def attempts(setting: _Setting, search: PastSearch) -> int:
        """Return the number of searches until a called tool was on the first page, at most those of the audit."""
        then = weighted(_as_then(view, past, search), setting.search.weights)
        pages = ({hit.tool_id for hit in then.search(query, limit=DEPTH).hits} for query in search.attempts)
        return next((number for number, page in enumerate(pages, 1) if page & search.called), len(search.attempts))

    counts = [[attempts(setting, search) for search in past.tried] for setting in settings]
    in_audit = [len(search.attempts) for search in past.tried]
    means = tuple(mean(each) for each in (in_audit, *counts))
    return Replayed(past.learned, interleaved(comparison), (means[0], means[1], means[2]))


def _own(config: Path | None, without: Sequence[str]) -> _Setting:
    setting = _Setting("this run", DEFAULT_SEARCH if config is None else read_config(config).search)
    return setting.without(without, "--without")


def _other(compare: str, own: _Setting) -> _Setting:
    """Return the settings that `--compare` names.

    Raises:
        InvalidConfig: the file cannot be used, or needs a model or a history that this run does not have.
    """
    if compare.startswith(WITHOUT):
        names = [name.strip() for name in compare.removeprefix(WITHOUT).split(",")]
        return replace(own, name=compare).without(names, "--compare")
    other = read_config(Path(compare)).search
    weights = other.weights
    for signal, has, this_has in (
        ("embedding", other.embedder, own.search.embedder),
        ("history", other.history, own.search.history),
    ):
        if has is None:
            weights = weights.without(signal)
        elif has != this_has:
            raise InvalidConfig(
                f"{compare}: its `{signal}` differs from the `{signal}` of this run",
                hints=["Run `toolcrib eval` with that configuration, and pass this one to --compare."],
            )
    return _Setting(compare, replace(other, weights=weights))


def _floor(text: str) -> Floor:
    try:
        return Floor.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--floor") from error


def _resolved(
    view: View, judged: Sequence[JudgedQuery]
) -> tuple[tuple[JudgedQuery, ...], Mapping[str, tuple[str, ...]]]:
    """Replace names of tools by tool ids, and fill in categories. Also return the unknown names by query id."""
    sources = [entry.source for entry in view.sources.values()]
    rows = ChainMap(*(dict(source.row_ids) for source in sources if isinstance(source, CatalogFileSource)))
    asked: list[JudgedQuery] = []
    unknown: dict[str, tuple[str, ...]] = {}
    for query in judged:
        tools = {name: view.tools.get(rows.get(name, name)) or view.find(name) for name in query.relevant}
        if missing := sorted(name for name, tool in tools.items() if tool is None):
            unknown[query.id] = (*unknown.get(query.id, ()), *missing)
        relevant = frozenset(tool.id if tool is not None else name for name, tool in tools.items())
        found = (tool for tool in tools.values() if tool is not None)
        tops = {place[0] for tool in found for place in view.whole_ontology.places(tool)}
        asked.append(replace(query, relevant=relevant, categories=query.categories or tuple(sorted(tops))))
    return tuple(asked), unknown
