"""`toolcrib eval`: measure how well search finds the right tools, where it fails, and what other settings change."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from toolcrib.catalog.view import View
from toolcrib.cli.opened_catalog import opened, until_understood
from toolcrib.cli.options import (
    EXISTING_FILE,
    config_either_way,
    is_config_named,
    json_option,
    tools_option,
    wait_option,
)
from toolcrib.cli.scorecard import (
    OtherSettings,
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
from toolcrib.search.evaluation import Comparison, Evaluation, Floor, Found, JudgedQuery, read_queries
from toolcrib.search.evaluation import evaluate as measured
from toolcrib.search.index.weights import SIGNALS, Weights
from toolcrib.sources.catalog_file import CatalogFileSource

WITHOUT = "without:"
"""The prefix of a `--compare` value that names signals instead of a file."""


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
    required=True,
    type=EXISTING_FILE,
    help='A file with one {"query": ..., "relevant": [tool ids]} per line. No ids means that no tool fits.',
)
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
    queries: Path,
    *,
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
    """
    least = tuple(map(_floor, floors))
    judged = read_queries(queries)
    setting = _own(config if tools is None or is_config_named() else None, without)
    other = _other(compare, setting) if compare is not None else None
    async with opened(config, tools, wait_s=wait_s, searched=True) as crib:
        await until_understood(crib, wait_s)
        view = crib.view()
        asked, unknown = _resolved(view, judged)
        evaluation = _measured(view, setting, asked)
        everything = weighted(view, setting.search.weights.refusing_nothing())
        failed = tuple(examined(everything, answer) for answer in evaluation.worst(worst))
        compared = None
        if other is not None:
            compared = OtherSettings(other.name, Comparison(evaluation, _measured(view, other, asked)))
        embedding = crib.knowledge.embedding
        gain = None
        if embedding is not None and embedding.condition.embedded and setting.search.weights.embedding:
            words = replace(
                setting, search=replace(setting.search, weights=setting.search.weights.without("embedding"))
            )
            gain = Comparison(_measured(view, words, asked), evaluation)
        card = Scorecard(evaluation, unknown, failed, compared, least, gain)
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


def _measured(view: View, setting: _Setting, asked: Sequence[JudgedQuery]) -> Evaluation:
    ranking = weighted(view, setting.search.weights)

    def search(query: str, limit: int) -> list[Found]:
        return [Found(hit.tool_id, hit.confidence) for hit in ranking.search(query, limit=limit).hits]

    return measured(search, asked, tools=len(view.tools))


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
