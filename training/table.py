"""Makes the table of word vectors: `make table`. `docs/word-vectors.md` describes what it does, and with what result.

The student has a vector for each frequent word, for each frequent pair of words, and for buckets of character n-grams.
It learns to give a text the same neighbours as the teacher (all-MiniLM-L6-v2) does. It sees no labels: no pair of a
request and the tool that serves it.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from teacher import vectors
from texts import Source, Text, read_all
from toolcrib.search.index import word_vectors
from toolcrib.search.index.tokens import ascii_runs, words
from toolcrib.search.index.word_vectors import DIM, FIELD_WEIGHTS, FILE, MAGIC, WordVectors

PAGE = Path(__file__).parents[1] / "docs" / "word-vectors.md"

SEED = 20_261_122
N_WORDS, N_PAIRS, N_BUCKETS = 25_000, 20_000, 8_192
LEAST_COUNT = 2
"""How many texts must contain a word or a pair."""

STEPS, BATCH = 4_000, 768
RATE = 3e-3
SIMILARITY = 10.0
"""The weight of the error of similarities within a batch, relative to the error of the vectors themselves."""
RARE = 1e-3
"""Words with a larger share of all words start with a shorter vector: RARE / (RARE + share)."""
SPELLED = 0.2
"""The share of batches in which rare words are unknown, so that n-grams learn what they mean."""
TYPICAL_EVERY = 5
"""The mean vector of tools is computed from every fifth one."""
ALWAYS_KNOWN = 6_000
"""The number of the most frequent words that are never made unknown."""

Floats = NDArray[np.float32]

_NO_FACTS = {"typical": [0] * DIM}


@dataclass(frozen=True, slots=True)
class Features:
    """The rows of the table that each text uses: text `t` uses `rows[starts[t]:starts[t + 1]]`, with those weights."""

    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    weights: Floats

    def of(self, texts: NDArray[np.int64]) -> tuple[NDArray[np.int32], Floats, NDArray[np.int64]]:
        """Return rows, weights, and for each the position in `texts` of its text."""
        counts = self.starts[texts + 1] - self.starts[texts]
        ends = np.cumsum(counts)
        at = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts) + np.repeat(self.starts[texts], counts)
        return self.rows[at], self.weights[at], np.repeat(np.arange(len(texts)), counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path(".cache/MiniLM"), help="the folder of the teacher")
    parser.add_argument("--cache", type=Path, default=Path(".cache/table"), help="the folder of what is kept")
    parser.add_argument("--file", type=Path, default=FILE, help="the table to write")
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    sources = read_all(asked.cache)
    for source in sources:
        print(f"{source.name}: {len(source.texts):,} texts", file=sys.stderr)
    texts = [text for source in sources for text in source.texts]
    taught = vectors([text.told for text in texts], asked.model, asked.cache)
    empty = vocabulary(texts)
    targets = reduced(taught)
    table = trained(empty, texts, targets, asked.steps)
    write(asked.file, empty, table, sources)
    if asked.file == FILE:
        PAGE.write_text(described(PAGE.read_text(), WordVectors.load(FILE).facts))
    print(f"{asked.file}: {asked.file.stat().st_size:,} bytes, {json.dumps(dict(WordVectors.load(asked.file).facts))}")


def vocabulary(texts: Sequence[Text]) -> WordVectors:
    """Return a table without vectors: the words and pairs that most texts have."""
    of_words, of_pairs = Counter[str](), Counter[tuple[str, str]]()
    for text in texts:
        seen_words, seen_pairs = set[str](), set[tuple[str, str]]()
        for value in text.fields:
            found = _words(value)
            seen_words.update(found)
            seen_pairs.update(pairwise(found))
        of_words.update(seen_words)
        of_pairs.update(seen_pairs)
    ranked = sorted(of_words, key=lambda word: (-of_words[word], word))
    kept = [word for word in ranked if of_words[word] >= LEAST_COUNT and not _is_number(word)][:N_WORDS]
    row_of = {word: row for row, word in enumerate(kept)}
    known = (pair for pair in of_pairs if pair[0] in row_of and pair[1] in row_of)
    ranked_pairs = sorted(known, key=lambda pair: (-of_pairs[pair], pair))[:N_PAIRS]
    pairs = sorted(row_of[one] << 16 | row_of[other] for one, other in ranked_pairs)
    n_rows = len(kept) + len(pairs) + N_BUCKETS
    nothing = np.zeros((n_rows, DIM), np.int8)
    return WordVectors(kept, pairs, N_BUCKETS, rows=nothing, scales=np.ones(n_rows, np.float32), facts=_NO_FACTS)


def _words(text: str) -> list[str]:
    if text.isascii():
        return [word for run in ascii_runs(text) for word in words(run)]
    return list(words(text))


def _is_number(word: str) -> bool:
    return word.isdigit() and len(word) > 2


def reduced(taught: Floats) -> Floats:
    """Return the teacher's vectors in the dimensions of their principal components, the largest first."""
    _, directions = np.linalg.eigh(taught.T @ taught)
    kept = taught @ directions[:, ::-1][:, :DIM]
    return (kept / np.linalg.norm(kept, axis=1, keepdims=True)).astype(np.float32)


def features(table: WordVectors, texts: Sequence[Text]) -> Features:
    starts, rows, weights = [0], list[int](), list[float]()
    for text in texts:
        some, their = table.features(zip(text.fields, FIELD_WEIGHTS, strict=False))
        rows += some
        weights += their
        starts.append(len(rows))
    return Features(np.array(starts), np.array(rows, np.int32), np.array(weights, np.float32))


def forgetful(table: WordVectors) -> WordVectors:
    """Return the table with only the frequent words known. The rows stay the same."""
    names = [word if row < ALWAYS_KNOWN else f"\0{row}" for word, row in table.words.items()]
    nothing = np.zeros((0, DIM), np.int8)
    return WordVectors(
        names, list(table.pairs), N_BUCKETS, rows=nothing, scales=np.zeros(0, np.float32), facts=_NO_FACTS
    )


def trained(table: WordVectors, texts: Sequence[Text], targets: Floats, steps: int) -> Floats:
    """Return the vector of each row of `table`, (n_rows, DIM)."""
    whole, spelled = features(table, texts), features(forgetful(table), texts)
    n_rows = len(table.rows)
    random = np.random.default_rng(SEED)
    vectors_of_rows = _initial(whole, targets, n_rows) + _initial(spelled, targets, n_rows, after=n_rows - N_BUCKETS)
    first, second = np.zeros_like(vectors_of_rows), np.zeros_like(vectors_of_rows)
    usable = np.flatnonzero((np.diff(whole.starts) > 0) & (np.diff(spelled.starts) > 0))
    began = time.monotonic()
    for step in range(1, steps + 1):
        some = random.choice(usable, BATCH, replace=False)
        used = spelled if random.random() < SPELLED else whole
        rows, gradients, loss = _gradients(vectors_of_rows, used, some, targets[some])
        first[rows] = 0.9 * first[rows] + 0.1 * gradients
        second[rows] = 0.999 * second[rows] + 0.001 * gradients * gradients
        rate = RATE * min(1.0, 2 * (1 - step / (steps + 1))) * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        vectors_of_rows[rows] -= np.float32(rate) * first[rows] / (np.sqrt(second[rows]) + np.float32(1e-8))
        if step % 100 == 0:
            print(f"step {step}: {loss:.4f}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return vectors_of_rows


def _initial(used: Features, targets: Floats, n_rows: int, after: int = 0) -> Floats:
    """Return for each row from `after` on the mean of the targets of the texts that use it, shorter if many do."""
    total = np.zeros((n_rows, DIM), np.float32)
    of_text = np.repeat(np.arange(len(targets)), np.diff(used.starts))
    order = np.argsort(used.rows, kind="stable")
    rows, starts, counts = np.unique(used.rows[order], return_index=True, return_counts=True)
    for at, row in enumerate(rows):
        if row >= after:
            held = of_text[order[starts[at] : starts[at] + counts[at]]]
            total[row] = targets[held].mean(0) * (RARE / (RARE + counts[at] / len(order)))
    return total if after else total * (np.arange(n_rows) < n_rows - N_BUCKETS)[:, None]


def _gradients(
    vectors_of_rows: Floats, used: Features, some: NDArray[np.int64], targets: Floats
) -> tuple[NDArray[np.int32], Floats, float]:
    """Return the rows that a batch uses, the gradient of the loss for each, and the loss.

    The loss is the mean of 1 - cosine to the target, plus `SIMILARITY` times the mean squared error of the cosines
    between the texts of the batch.
    """
    rows, weights, of_text = used.of(some)
    weighted = vectors_of_rows[rows] * weights[:, None]
    starts = np.flatnonzero(np.diff(of_text, prepend=-1))
    summed = np.add.reduceat(weighted, starts, axis=0)
    lengths = np.maximum(np.linalg.norm(summed, axis=1, keepdims=True), 1e-6)
    unit = summed / lengths
    errors = unit @ unit.T - targets @ targets.T
    size = np.float32(len(some))
    loss = 1 - float((unit * targets).sum() / size) + SIMILARITY * float((errors * errors).mean())
    gradient = -targets / size + np.float32(4 * SIMILARITY) / (size * size) * (errors @ unit)
    gradient = (gradient - (gradient * unit).sum(1, keepdims=True) * unit) / lengths
    order = np.argsort(rows, kind="stable")
    different, starts = np.unique(rows[order], return_index=True)
    of_rows = np.add.reduceat(gradient[of_text[order]] * weights[order, None], starts, axis=0)
    return different, of_rows, loss


def write(path: Path, empty: WordVectors, table: Floats, sources: Sequence[Source]) -> None:
    scales = np.maximum(np.abs(table).max(1), 1e-9).astype(np.float32) / 127
    rows = np.rint(table / scales[:, None]).astype(np.int8)
    names = "\n".join(empty.words).encode()
    pairs = np.array(list(empty.pairs), "<u4").tobytes()
    body = names + pairs + scales.astype("<f4").tobytes() + rows.tobytes()
    tools = [text.fields for source in sources for text in source.texts if len(text.fields) == len(FIELD_WEIGHTS)]
    quantised = WordVectors(list(empty.words), list(empty.pairs), N_BUCKETS, rows=rows, scales=scales, facts=_NO_FACTS)
    typical = np.mean([quantised.of_fields(fields) for fields in tools[::TYPICAL_EVERY]], axis=0)
    facts: dict[str, Any] = {
        "typical": np.rint(typical).astype(int).tolist(),
        "dim": DIM,
        "words": len(empty.words),
        "pairs": len(empty.pairs),
        "buckets": N_BUCKETS,
        "bytes_of_words": len(names),
        "crc32": zlib.crc32(body),
        "sha256": sha256(body).hexdigest(),
        "teacher": "all-MiniLM-L6-v2 (Apache-2.0)",
        "seed": SEED,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "sources": [
            {"name": each.name, "licence": each.licence, "texts": len(each.texts), "digest": each.digest}
            for each in sources
        ],
    }
    path.write_bytes(MAGIC + json.dumps(facts).encode() + b"\n" + body)


def described(page: str, facts: Mapping[str, Any]) -> str:
    """Return the page with the facts anew between `<!-- measured: table -->` and `<!-- end -->`."""
    rows = [f"| {each['name']} | {each['texts']:,} | {each['licence']} |" for each in facts["sources"]]
    sizes = f"{facts['words']:,} words, {facts['pairs']:,} pairs of words, {facts['buckets']:,} buckets of n-grams"
    told = [f"{sizes}, {facts['dim']} dimensions. SHA-256 of the content:", "", f"`{facts['sha256']}`", ""]
    told += ["| Texts of | Texts | Licence |", "|---|---|---|", *rows]
    part = re.compile(r"(<!-- measured: table -->\n).*?(<!-- end -->)", re.DOTALL)
    return part.sub(lambda found: f"{found[1]}{chr(10).join(told)}\n{found[2]}", page)


if __name__ == "__main__":
    word_vectors.logger.disabled = True
    main()
