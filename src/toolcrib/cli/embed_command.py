"""`toolcrib embed fetch`: download the embedding model that a manifest pins."""

from __future__ import annotations

from pathlib import Path

import click

from toolcrib.cli.options import FILE
from toolcrib.cli.terminal_output import fail, plain, stderr, stdout
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.search.embedders import EmbeddingFailed
from toolcrib.search.embedders.download import Manifest, download


@click.group()
def embed() -> None:
    """Download an embedding model for search. No other command downloads one."""


@embed.command(short_help="Download the files that a manifest pins.")
@click.argument("manifest", type=FILE)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def fetch(manifest: Path, folder: Path) -> None:
    """Download the files that MANIFEST names into FOLDER, and check the SHA-256 hash of each file.

    FOLDER is created when all files are complete. MANIFEST is JSON:

    \b
      {"files": {"model.safetensors": {"url": "https://...", "sha256": "..."}}}
    """
    try:
        wanted = Manifest.read(manifest)
        _check_whole(manifest, wanted)
    except EmbeddingFailed as error:
        fail(InvalidConfig(str(error)), as_json=False)
    with stderr.status("") as status:

        def progress(name: str, size: int, total: int | None) -> None:
            if stderr.is_terminal:
                status.update(f"{name}: {_megabytes(size)}{f' of {_megabytes(total)}' if total is not None else ''}")
            elif size == 0:
                stderr.print(f"{name}: downloading{f' {_megabytes(total)}' if total is not None else ''}", markup=False)

        try:
            is_new = download(wanted, folder.absolute(), lambda line: stderr.print(plain(line), markup=False), progress)
        except EmbeddingFailed as error:
            fail(ProviderFailed(str(error)), as_json=False)
    stdout.print(f"{folder} {'is complete' if is_new else 'was already complete'}. Add it to the configuration:")
    stdout.print_json(data={"toolcrib": {"search": {"embedder": {"folder": str(folder.absolute())}}}})


def _check_whole(path: Path, manifest: Manifest) -> None:
    """Check that the files of `manifest` can be a model, before anything is downloaded.

    Raises:
        EmbeddingFailed: the model file or its tokenizer is missing.
    """
    from toolcrib.search.embedders.static import TOKENIZERS, WEIGHTS
    from toolcrib.search.embedders.transformer import GRAPHS

    names = {file.name for file in manifest.files}
    if names.isdisjoint((*WEIGHTS, *GRAPHS)):
        raise EmbeddingFailed(f"{path}: files: needs a model, which is `model.onnx` or `model.safetensors`")
    if names.isdisjoint(TOKENIZERS):
        raise EmbeddingFailed(f"{path}: files: needs `tokenizer.json`, because every model has one")


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
