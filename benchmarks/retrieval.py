"""Quality of search on the public sets beside its peers: `python benchmarks/retrieval.py [--model FOLDER] [--write]`.

Prints one JSON object; `--write` puts its tables into `docs/search.md`. Constants were chosen on `toolbench`, the other
sets are held out. Embeddings are measured where a model is: `make retrieval` exports MiniLM to ONNX first, and writes.
What a model made of the texts is kept beside it, so that a second run takes a tenth of the time.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import catalog
import learning
import refusal
from rankers import MODEL, JudgedSet, Model, rankers, toolcrib
from toolcrib.search.evaluation import evaluate
from toolcrib.search.index.weights import WEIGHTS, Weights

PAGE = Path(__file__).parents[1] / "docs" / "search.md"

Json = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, help="a folder with an embedding model")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    asked = parser.parse_args()
    if not catalog.SHARED.exists():
        sys.exit(f"{catalog.SHARED} is not here, and the sets with it")
    if asked.write and not asked.model.exists():
        sys.exit(f"{asked.model} is not here, and the page has its figures: `make retrieval`")
    model = Model.load(asked.model) if asked.model.exists() else None
    sets = [JudgedSet.read(name) for name in catalog.SETS]
    modes: dict[str, tuple[Weights, Model | None]] = {
        "words": (WEIGHTS.without("meaning"), None),
        "table": (WEIGHTS, None),
    }
    if model is not None:
        modes[model.name] = WEIGHTS, model
    report: Json = {
        "ranking": {judged.name: ranking(judged, model) for judged in sets},
        "everyday": ranking(JudgedSet.everyday(), model),
        "nothing here": {
            mode: refusal.measured(sets, {judged.name: toolcrib(judged, weights, model=used) for judged in sets})
            for mode, (weights, used) in modes.items()
        },
        "learning": {judged.name: learning.measured(judged) for judged in sets},
    }
    print(json.dumps(report, indent=1))
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(), report))


def ranking(judged: JudgedSet, model: Model | None) -> Json:
    """Metrics of each ranker on one set."""
    found: Json = {}
    for name, search in rankers(judged, model):
        found[name] = evaluate(search, judged.queries, tools=len(judged.rows)).to_wire()["metrics"]
        print(f"{judged.name}, {name}: {found[name]['ndcg@10']:.3f}", file=sys.stderr)
    return found


def written(page: str, report: Json) -> str:
    """The page with a table anew between each `<!-- measured: NAME -->` and `<!-- end -->`."""
    part = re.compile(r"(<!-- measured: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return part.sub(lambda found: f"{found[1]}{TABLES[found[2]](report)}\n{found[3]}", page)


def _ranking(report: Json) -> str:
    by_set: Mapping[str, Json] = report["ranking"]
    rankers_of_all = list(next(iter(by_set.values())))

    def cells(ranker: str) -> Iterable[str]:
        found = [metrics[ranker] for metrics in by_set.values()]
        yield ranker
        yield from (f"{_digits(each['ndcg@10'])} / {_digits(each['recall@5'])}" for each in found)
        yield _digits(statistics.mean(each["ndcg@10"] for each in found))

    return _table(("", *by_set, "mean nDCG@10"), map(cells, rankers_of_all))


def _everyday(report: Json) -> str:
    head = ("", "nDCG@10", "recall@5", "recall@10")
    rows = ((name, *(_digits(found[key.lower()]) for key in head[1:])) for name, found in report["everyday"].items())
    return _table(head, rows)


def _nothing_here(report: Json) -> str:
    modes: Json = report["nothing here"]
    figures = {"auroc": _digits, "own refused": _percent, "others refused": _percent, "calibration error": _digits}

    def cells(name: str, *sets: str) -> Iterable[str]:
        yield name
        for mode in modes.values():
            for figure, shown in figures.items():
                yield shown(statistics.mean(mode["sets"][each][figure] for each in sets))

    names = list(report["ranking"])
    head = ("", *(f"{figure}, {mode}" for mode in modes for figure in figures))
    return _table(head, [*(cells(name, name) for name in names), cells("mean", *names)])


def _reliability(report: Json) -> str:
    modes: Json = report["nothing here"]
    bins = {mode: {each["from"]: each for each in found["reliability"]} for mode, found in modes.items()}

    def cells(least: float) -> Iterable[str]:
        yield f"{_digits(least, 1)} to {_digits(least + 0.1, 1)}"
        for found in bins.values():
            if least in found:
                yield f"{found[least]['results']:,}"
                yield from (_digits(found[least][key], 2) for key in ("said", "served"))
            else:
                yield from ("", "", "")

    head = ("confidence", *(f"{key}, {mode}" for mode in modes for key in ("results", "said", "served")))
    return _table(head, map(cells, sorted({least for found in bins.values() for least in found})))


def _learning(report: Json) -> str:
    def cells(name: str, groups: Json) -> Iterable[str]:
        yield name
        for found in groups.values():
            yield f"{found['queries']:,}"
            yield from (_digits(found[how]) if how in found else "" for how in ("without", "with"))

    head = ("", "asked", "without a past", "with it", "of tools that have none", "without a past", "with it")
    return _table(head, (cells(name, groups) for name, groups in report["learning"].items()))


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def _digits(value: float, count: int = 3) -> str:
    """To `count` digits, without the zero before the point."""
    return f"{value:.{count}f}".removeprefix("0")


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


TABLES = {
    "ranking": _ranking,
    "everyday": _everyday,
    "nothing here": _nothing_here,
    "reliability": _reliability,
    "learning": _learning,
}


if __name__ == "__main__":
    main()
