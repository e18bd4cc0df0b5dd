"""Grammars of real schemas: `python benchmarks/grammars.py [--real 557] [--bench 600] [--instances 20]`.

Prints one JSON object: how many schemas are held fully, partly (with a report), not at all or wrongly, judged against
jsonschema-rs on made values as llguidance reads the grammar; and what making and compiling grammars takes.

Needs ../shared/real-servers and ../shared/bench.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import catalog

sys.path.insert(0, str(Path(__file__).parents[1]))

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark
from tests.definitions.grammars.gbnf import Read
from tests.definitions.grammars.instances import Maker, changed
from tests.definitions.grammars.peers import LIMITS, TOKENIZER, Matcher, meant, spelled, validator

from toolcrib.definitions.grammars import arguments_grammar, call_grammar

REAL = catalog.SHARED / "real-servers" / "tools.json"
SETS = ("bfcl", "sealtools", "toolbench")
WALKS = 20
WRONG_SHOWN = 10


def real() -> list[tuple[str, Mapping[str, Any]]]:
    servers = json.loads(REAL.read_text())
    return [(f"{name}.{tool['name']}", tool["inputSchema"]) for name, each in servers.items() for tool in each["tools"]]


def sampled(count: int) -> list[tuple[str, Mapping[str, Any]]]:
    rows = [
        (f"{name}:{row.tool.name}", row.tool.input_schema)
        for name in SETS
        for row in catalog.set_rows(name)
        if row.tool.input_schema
    ]
    return random.Random(0).sample(rows, min(count, len(rows)))


def judged(schema: Mapping[str, Any], count: int, source: random.Random) -> tuple[str, list[str], Counter[str]]:
    """The verdict on one schema, up to a few mistakes, and how many values there were of which kind."""
    grammar = arguments_grammar(schema)
    if grammar.degraded:
        return "degraded", [grammar.degraded[0].why], Counter()
    matcher = Matcher(grammar.text)
    by_letter, by_meaning = validator(schema), validator(meant(schema))
    is_partial = bool(grammar.unenforced)
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    for value in values(schema, count, source):
        text = spelled(value)
        is_written, is_valid = matcher.accepts(text), by_letter.is_valid(value)
        seen["valid" if is_valid else "invalid"] += 1
        if is_written and not is_valid and not is_partial:
            wrong.append(f"written and not valid: {text[:200]}")
        if not is_written and by_meaning.is_valid(value) and is_valid and isinstance(value, dict):
            wrong.append(f"valid and not written: {text[:200]}")
        cut = text[: source.randrange(len(text))]
        if matcher.accepts(cut):
            wrong.append(f"cut off and written: {cut[:200]}")
    wrong += [f"begins with itself: {name}" for name in Read(grammar.text).left_recursive()]
    for text in walks(grammar.text, source):
        seen["walks"] += 1
        value = json.loads(text)
        if not isinstance(value, dict) or not (is_partial or by_letter.is_valid(value)):
            wrong.append(f"walked and not valid: {text[:200]}")
        if not matcher.accepts(text):
            wrong.append(f"walked and not accepted: {text[:200]}")
    return ("wrong" if wrong else "reported" if is_partial else "right"), wrong, seen


def values(schema: Mapping[str, Any], count: int, source: random.Random) -> Iterator[Any]:
    maker = Maker(schema, source)
    for _ in range(count):
        value = maker.value()
        yield value
        yield from list(changed(value, source))[:10]
        yield [value]
    yield "a text"


def walks(text: str, source: random.Random) -> Iterator[str]:
    read = Read(text)
    for _ in range(WALKS):
        yield read.walk(source)


def soundness(schemas: list[tuple[str, Mapping[str, Any]]], count: int) -> dict[str, Any]:
    verdicts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    keywords: Counter[str] = Counter()
    mistakes: dict[str, list[str]] = {}
    for name, schema in schemas:
        verdict, wrong, of_one = judged(schema, count, random.Random(name))
        verdicts[verdict] += 1
        seen += of_one
        keywords.update(each.keyword for each in arguments_grammar(schema).unenforced)
        if wrong:
            mistakes[name] = wrong[:3]
    return {
        "schemas": len(schemas),
        "values": dict(seen),
        **{verdict: verdicts[verdict] for verdict in ("right", "reported", "degraded", "wrong")},
        "reported_keywords": dict(keywords.most_common()),
        "mistakes": dict(list(mistakes.items())[:WRONG_SHOWN]),
    }


def timed(schemas: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    each: list[float] = []
    for _, schema in schemas:
        start = time.perf_counter()
        arguments_grammar(schema)
        each.append((time.perf_counter() - start) * 1000)
    return {
        "tools": len(each),
        "total_ms": round(sum(each), 1),
        "median_ms": round(statistics.median(each), 3),
        "most_ms": round(max(each), 1),
    }


def together(schemas: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    start = time.perf_counter()
    grammar = call_grammar(dict(schemas))
    emitted = time.perf_counter()
    lark = gbnf_to_lark(grammar.text)
    converted = time.perf_counter()
    matcher = LLMatcher(TOKENIZER, LLMatcher.grammar_from_lark(lark), limits=LIMITS)
    matcher.compute_bitmask()
    compiled = time.perf_counter()
    return {
        "tools": len(schemas),
        "bytes": len(grammar.text.encode()),
        "rules": grammar.text.count("\n"),
        "emit_ms": round((emitted - start) * 1000, 1),
        "llguidance_read_ms": round((converted - emitted) * 1000, 1),
        "llguidance_compile_ms": round((compiled - converted) * 1000, 1),
        "error": matcher.get_error()[:200],
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--real", type=int, default=10_000, help="schemas taken from the published servers")
    options.add_argument("--bench", type=int, default=600, help="schemas taken from the retrieval sets")
    options.add_argument("--instances", type=int, default=20, help="values made for each schema; ten changes of each")
    given = options.parse_args()
    if not REAL.exists():
        print(json.dumps({"benchmark": "grammars", "skipped": f"{REAL} is not there"}))
        return
    tools = real()[: given.real]
    report = {
        "benchmark": "grammars",
        "soundness": {
            "real servers": soundness(tools, given.instances),
            "retrieval sets": soundness(sampled(given.bench), given.instances),
        },
        "emit": timed(tools),
        "one grammar": together(random.Random(0).sample(tools, min(100, len(tools)))),
    }
    print(json.dumps(report, indent=2, ensure_ascii=False))


main()
