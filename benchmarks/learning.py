"""What past requests teach: half of a set's queries as what was asked before, the other half asked.

`python benchmarks/learning.py` prints what the tools of one trace teach, and what calls of wrong tools cost. There the
traces are made up: a trace calls all tools that serve a query, in the order of their ids.
"""

from __future__ import annotations

import json
import random
import statistics
from binascii import crc32
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rankers import JudgedSet, toolcrib
from toolcrib.search.evaluation import NDCG, JudgedQuery, evaluate
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.index import Index
from toolcrib.search.index.query import Query
from toolcrib.search.index.ranking import Knowledge

Json = dict[str, Any]

SEED = 7

WRONG = 0.3
"""The share of past requests for which a wrong tool was called first."""


def measured(judged: JudgedSet) -> Json:
    """nDCG@10 of what is asked, and of those among it that no remembered tool serves; without a past and with it."""
    past, asked = _halves(judged)
    remembered = frozenset[str]().union(*(query.relevant for query in past))
    groups = {"asked": asked, "of tools without a past": [q for q in asked if not q.relevant & remembered]}
    searches = {"without": toolcrib(judged), "with": toolcrib(judged, history=history(past))}
    return {
        name: {"queries": len(queries)}
        | {how: _ndcg(search, queries, judged) for how, search in searches.items() if queries}
        for name, queries in groups.items()
    }


def history(past: Sequence[JudgedQuery]) -> History:
    """As if every tool that serves a request had been called after it, once."""
    return History.of(
        Confirmed(Query.parse(each.query), tool_id, at=0.0) for each in past for tool_id in sorted(each.relevant)
    )


def in_traces(judged: JudgedSet) -> Json:
    """After one tool of a query was called: the share of its other tools among the first three, used ones left out.

    The query is searched a second time in the same words. Only queries that need several tools count. Also how often
    an expansion of the first tool names tools that often come next, and how many of these the query needs.
    """
    judged = _named_by_source(judged)
    past, asked = _halves(judged)
    index = Index.build(judged.documents)
    known = _called(past)
    recall = known.over(index.parts)
    found: dict[str, list[float]] = {"without": [], "with": []}
    expanded, named, right = 0, 0, 0
    for query in (each for each in asked if len(each.relevant) > 1):
        hits = index.search(query.query, limit=10, knowledge=Knowledge(recall=recall)).hits
        first = next((hit.tool_id for hit in hits if hit.tool_id in query.relevant), None)
        if first is None:
            continue
        left = query.relevant - {first}
        for how, used in (("without", frozenset[str]()), ("with", frozenset({first}))):
            again = index.search(query.query, limit=4, knowledge=Knowledge(recall=replace(recall, used=used))).hits
            others = [hit.tool_id for hit in again if hit.tool_id != first][:3]
            found[how].append(len(left.intersection(others)) / len(left))
        often = known.following(first)[:3]
        expanded, named, right = expanded + bool(often), named + len(often), right + len(left.intersection(often))
    return {
        "queries": len(found["with"]),
        "same source": round(known.same_source, 3),
        **{how: round(statistics.mean(values), 3) for how, values in found.items()},
        "expansions that name tools": expanded,
        "named": named,
        "named and needed": right,
    }


def with_wrong_calls(judged: JudgedSet) -> Json:
    """nDCG@10 of what is asked. Some past requests first led to a wrong tool, then in other words to a right one.

    "counted" is with whole votes for the wrong calls, and "doubted" is with halves.
    """
    source = random.Random(SEED)
    past, asked = _halves(judged)
    find = toolcrib(judged)
    calls: list[Confirmed] = []
    for query in past:
        right = min(query.relevant)
        words = query.query.split()
        tools = [each if isinstance(each, str) else each.tool_id for each in find(query.query, 10)]
        wrong = next((tool_id for tool_id in tools if tool_id not in query.relevant), None)
        if wrong is None or source.random() >= WRONG:
            calls.append(Confirmed(Query.parse(query.query), right, 0.0))
            continue
        calls.append(Confirmed(Query.parse(query.query), wrong, 0.0, replaced_by=frozenset({right})))
        reworded = " ".join(word for word in words if source.random() < 3 / 4) or query.query
        calls.append(Confirmed(Query.parse(reworded), right, 1.0))
    counted = History.of(replace(each, replaced_by=frozenset[str]()) for each in calls)
    return {
        "asked": len(asked),
        "without": _ndcg(find, asked, judged),
        "counted": _ndcg(toolcrib(judged, history=counted), asked, judged),
        "doubted": _ndcg(toolcrib(judged, history=History.of(calls)), asked, judged),
    }


def _halves(judged: JudgedSet) -> tuple[list[JudgedQuery], list[JudgedQuery]]:
    """What was asked before, and what is asked."""
    past = [query for query in judged.queries if crc32(query.id.encode()) % 2]
    return past, [query for query in judged.queries if not crc32(query.id.encode()) % 2]


def _called(past: Sequence[JudgedQuery]) -> History:
    return History.of(
        Confirmed(Query.parse(each.query), tool_id, float(at), ("past", each.id))
        for each in past
        for at, tool_id in enumerate(sorted(each.relevant))
    )


def _named_by_source(judged: JudgedSet) -> JudgedSet:
    """The set with ids that name the source of the tool, as in a catalog."""
    rows: list[Any] = []
    names: dict[str, str] = {}
    for row in judged.rows:
        tool = replace(row.tool, source=row.tool.source.replace(".", "-"))
        names[row.tool.id] = tool.__dict__["id"] = f"{tool.source}.{row.tool.id}"
        rows.append(replace(row, tool=tool))
    queries = [
        replace(each, relevant=frozenset(names.get(tool_id, tool_id) for tool_id in each.relevant))
        for each in judged.queries
    ]
    return replace(judged, rows=rows, queries=queries)


def _ndcg(search: Any, queries: Sequence[JudgedQuery], judged: JudgedSet) -> float:
    return round(evaluate(search, queries, tools=len(judged.rows)).means[NDCG], 4)


if __name__ == "__main__":
    sets = [JudgedSet.read(name) for name in ("toolbench", "sealtools")]
    report: Json = {"in traces": {each.name: in_traces(each) for each in sets}}
    report["with wrong calls"] = {each.name: with_wrong_calls(each) for each in (*sets, JudgedSet.read("metatool"))}
    print(json.dumps(report, indent=1))
