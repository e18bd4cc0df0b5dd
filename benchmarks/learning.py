"""What past requests teach: half of a set's queries as what was asked before, the other half asked."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Sequence
from typing import Any

from rankers import JudgedSet, toolcrib
from toolcrib.search.evaluation import NDCG, JudgedQuery, evaluate
from toolcrib.search.index.history import Confirmed, History
from toolcrib.search.index.query import Query

Json = dict[str, Any]


def measured(judged: JudgedSet) -> Json:
    """nDCG@10 of what is asked, and of those among it that no remembered tool serves; without a past and with it."""
    past = [query for query in judged.queries if crc32(query.id.encode()) % 2]
    asked = [query for query in judged.queries if not crc32(query.id.encode()) % 2]
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


def _ndcg(search: Any, queries: Sequence[JudgedQuery], judged: JudgedSet) -> float:
    return round(evaluate(search, queries, tools=len(judged.rows)).means[NDCG], 4)
