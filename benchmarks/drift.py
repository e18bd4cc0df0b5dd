"""Digesting and grading tools, and looking for what is suspicious: `python benchmarks/drift.py --tools 10000`.

Each tool is digested as a store of pins would have it done, then graded against itself, against itself with other
words, with one more optional parameter, and with one parameter less; and all its texts are read among the names of all
others. The ratio is to writing the same definitions as JSON once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

import catalog
from toolcrib.core.tools import Tool
from toolcrib.definitions.drift import Neighbours, drift_between, suspicions_in
from toolcrib.definitions.drift.definition_json import definition_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000)
    size: int = parser.parse_args().tools
    tools = [row.tool for row in catalog.rows(size)]
    later = {
        "nothing": [replace(tool) for tool in tools],
        "words": [replace(tool, description=f"{tool.description} Again.") for tool in tools],
        "one more parameter": [with_parameters(tool, {"added": {"type": "string"}}) for tool in tools],
        "one parameter less": [without_one(tool) for tool in tools],
    }
    written_us = each_us(lambda: [orjson.dumps(definition_of(tool)) for tool in tools], size)
    digested_us = each_us(lambda: [tool.digests for tool in tools], size)
    names_us = each_us(lambda: Neighbours.of(tools), size)
    neighbours = Neighbours.of(tools)
    read_us = each_us(lambda: [suspicions_in(tool, neighbours) for tool in tools], size)
    print(
        json.dumps(
            {
                "benchmark": "drift",
                "tools": size,
                "json_us": round(written_us, 1),
                "digests_us": round(digested_us, 1),
                "digests_over_json": round(digested_us / written_us, 1),
                "grading": {change: graded(tools, changed) for change, changed in later.items()},
                "suspicions_us": round(names_us + read_us, 1),
                "suspicions_over_json": round((names_us + read_us) / written_us, 1),
            },
            indent=1,
        )
    )


def graded(tools: list[Tool], later: list[Tool]) -> dict[str, Any]:
    taken_us: list[float] = []
    grades: Counter[str] = Counter()
    for before, after in zip(tools, later, strict=True):
        began = time.perf_counter()
        grades[drift_between(before, after).grade.value] += 1
        taken_us.append(1e6 * (time.perf_counter() - began))
    taken_us.sort()
    return {
        "mean_us": round(sum(taken_us) / len(taken_us), 1),
        "p99_us": round(taken_us[int(0.99 * len(taken_us))], 1),
        "max_us": round(taken_us[-1], 1),
        "grades": dict(grades),
    }


def with_parameters(tool: Tool, added: dict[str, Any]) -> Tool:
    schema = tool.input_schema
    return replace(tool, input_schema={**schema, "properties": {**(schema.get("properties") or {}), **added}})


def without_one(tool: Tool) -> Tool:
    properties = dict(tool.input_schema.get("properties") or {})
    if properties:
        properties.popitem()
    return replace(tool, input_schema={**tool.input_schema, "properties": properties})


def each_us(work: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - began) / count


if __name__ == "__main__":
    main()
