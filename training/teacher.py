"""The vectors that all-MiniLM-L6-v2 gives the training texts. They are kept on disk, because they take half an hour."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

MAX_TOKENS = 96
TOKENS_AT_ONCE = 4_096
KEPT_EVERY = 20_000

Rows = NDArray[np.float32]


def vectors(texts: Sequence[str], model: Path, cache: Path) -> Rows:
    """(len(texts), 384), unit rows."""
    cache.mkdir(parents=True, exist_ok=True)
    digest = sha256((model / "model.onnx").read_bytes() + str(MAX_TOKENS).encode()).hexdigest()[:12]
    kept = _Kept(cache / f"teacher-{digest}.npz")
    missing = [text for text in dict.fromkeys(texts) if text not in kept.row_of]
    if missing:
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        tokenizer.enable_truncation(MAX_TOKENS)  # pyright: ignore[reportUnknownMemberType]
        tokenizer.no_padding()
        runtime: Any = onnxruntime  # its own types are incomplete
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        session = runtime.InferenceSession(str(model / "model.onnx"), options, providers=["CPUExecutionProvider"])
        for start in range(0, len(missing), KEPT_EVERY):
            some = missing[start : start + KEPT_EVERY]
            kept.add(some, _embedded(some, tokenizer, session))
            print(f"teacher: {start + len(some):,} of {len(missing):,} texts", file=sys.stderr, flush=True)
    return kept.rows[[kept.row_of[text] for text in texts]].astype(np.float32)


class _Kept:
    """Vectors in a file, found by the digest of their text."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows = np.empty((0, 384), np.float16)
        self.texts: list[str] = []
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                self.rows = file["rows"]
                self.texts = file["texts"].tobytes().decode("utf-8", "surrogatepass").split("\0")
        self.row_of = {text: row for row, text in enumerate(self.texts)}

    def add(self, texts: Sequence[str], rows: Rows) -> None:
        self.rows = np.concatenate([self.rows, rows.astype(np.float16)])
        self.texts += texts
        self.row_of = {text: row for row, text in enumerate(self.texts)}
        told = np.frombuffer("\0".join(self.texts).encode("utf-8", "surrogatepass"), np.uint8)
        new = self._path.with_suffix(".new.npz")
        np.savez(new, rows=self.rows, texts=told)
        new.replace(self._path)


def _embedded(texts: Sequence[str], tokenizer: Tokenizer, session: Any) -> Rows:
    """Run the model over texts of similar length at once, so that little is padding."""
    encoded = [each.ids for each in tokenizer.encode_batch([text.replace("\0", " ") for text in texts])]
    order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
    rows = np.zeros((len(texts), 384), np.float32)
    while order:
        longest = len(encoded[order[-1]])
        count = max(1, TOKENS_AT_ONCE // longest)
        some, order = order[-count:], order[:-count]
        ids = np.zeros((len(some), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, at in enumerate(some):
            ids[row, : len(encoded[at])] = encoded[at]
            mask[row, : len(encoded[at])] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states: NDArray[np.float32] = np.asarray(session.run(None, inputs)[0])
        summed = (states * mask[..., None]).sum(1)
        rows[some] = summed / np.linalg.norm(summed, axis=1, keepdims=True)
    return rows
