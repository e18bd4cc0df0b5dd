"""Catalogs of any size for the benchmarks, recombined from the definitions of real tools."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib.core.tools import Tool
from toolcrib.sources.base import server_summary

SHARED = Path(__file__).resolve().parents[2] / "shared"
SETS = ("toolbench", "bfcl", "sealtools", "metatool")
TOOLS_OF_A_SERVER = 25

# What catalogs are made of where the sets are absent; small, so figures measured with it are not comparable.
_VERBS = "get list create update delete search send read write move copy find convert count merge fetch publish"
_NOUNS = "issue file message user invoice page ticket branch commit event report table record image channel order"
_PLACES = "repository workspace project folder calendar account database mailbox store board team cluster"


@dataclass(frozen=True, slots=True)
class Row:
    """One tool with what a catalog knows besides its definition."""

    tool: Tool
    category: tuple[str, ...]
    server: str

    @property
    def text(self) -> str:
        """Name and description: what search engines that know no fields are given."""
        return f"{self.tool.name} {self.tool.description}"


def rows(count: int, seed: int = 0) -> Iterator[Row]:
    """`count` different tools, always the same ones for one seed.

    Each takes the description and some parameters of one real tool, words of its name and a sentence of a second, and
    one word in twelve of anything; 25 in a row are of one server.
    """
    source = random.Random(seed)
    originals = _originals()
    words = [word for name, text, *_ in originals for word in f"{name} {text}".split()]
    server, category = "", ()
    for at in range(count):
        if at % TOOLS_OF_A_SERVER == 0:
            first = source.choice(originals)
            server, category = f"{first[4] or first[0]} {source.choice(words)}", first[3]
        name, text, schema, _, _ = source.choice(originals)
        other_name, other_text, other_schema, _, _ = source.choice(originals)
        sentence = source.choice(other_text.split(". ") or [""])[:300]
        mixed = [source.choice(words) if source.random() < 1 / 12 else word for word in f"{text} {sentence}".split()]
        new_name = re.sub(r"[^A-Za-z0-9]+", "_", f"{name[:40]}_{source.choice(re.split(r'[._]', other_name))[:20]}")
        properties = {**_properties(schema, source), **_properties(other_schema, source)}
        tool = Tool(
            source=f"server{at // TOOLS_OF_A_SERVER}",
            name=f"{new_name}_{at % TOOLS_OF_A_SERVER}",
            description=" ".join(mixed),
            input_schema={"type": "object", "properties": properties},
        )
        yield Row(tool, category, server)


def set_rows(name: str) -> Iterator[Row]:
    """The tools of one of `SETS`, each with its id in the set as its tool's name."""
    for row in _json_lines(SHARED / "bench" / name / "tools.jsonl"):
        tool = Tool(row["server"] or "set", row["name"], row["description"] or "", row["input_schema"] or {})
        tool.__dict__["id"] = row["id"]
        yield Row(tool, tuple(row["category"] or ()), row["server"] or "")


def published_rows() -> Iterator[Row]:
    """The tools of published servers, with the words that a gateway knows of each server."""
    for server, answer in json.loads((SHARED / "real-servers" / "tools.json").read_text()).items():
        info = answer.get("server_info") or {}
        summary = server_summary(answer.get("instructions"), info.get("description"))
        said = " ".join((server, info.get("title") or "", summary))
        for tool in answer["tools"]:
            yield Row(Tool(server, tool["name"], tool.get("description", ""), tool["inputSchema"]), (), said)


def queries(count: int, seed: int = 0) -> list[str]:
    """Texts of requests that people wrote or models wrote for them, from all sets alike."""
    source = random.Random(seed)
    texts = [
        query["query"]
        for name in SETS
        if (path := SHARED / "bench" / name / "queries.jsonl").exists()
        for query in source.sample(list(_json_lines(path)), 500)
    ]
    parts = [words.split() for words in (_VERBS, _NOUNS, _PLACES)]
    made_up = (f"please {' '.join(map(source.choice, parts))}" for _ in range(count))
    return source.sample(texts, min(count, len(texts))) if texts else list(made_up)


_Original = tuple[str, str, Mapping[str, Any], tuple[str, ...], str]


def _originals() -> Sequence[_Original]:
    found: list[_Original] = []
    if (servers := SHARED / "real-servers" / "tools.json").exists():
        for server, answer in json.loads(servers.read_text()).items():
            found += [
                (tool["name"], tool.get("description", ""), tool["inputSchema"], (), server) for tool in answer["tools"]
            ]
    for name in SETS:
        if (SHARED / "bench" / name / "tools.jsonl").exists():
            found += [
                (row.tool.name, row.tool.description, row.tool.input_schema, row.category, row.server)
                for row in set_rows(name)
            ]
    return found or [
        (f"{verb}_{noun}", f"{verb.title()} a {noun} of the {place}.", _schema(noun, place), (place,), place)
        for verb in _VERBS.split()
        for noun in _NOUNS.split()
        for place in _PLACES.split()
    ]


def _schema(noun: str, place: str) -> dict[str, Any]:
    text = {"type": "string", "description": f"The {noun} in the {place}."}
    return {"type": "object", "properties": {f"{noun}_id": text, f"{place}_name": text}}


def _properties(schema: Mapping[str, Any], source: random.Random) -> dict[str, Any]:
    return {key: value for key, value in (schema.get("properties") or {}).items() if source.random() < 0.6}


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
