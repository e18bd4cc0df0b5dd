"""`toolcrib embed fetch`: download a model that a manifest pins."""

from __future__ import annotations

from pathlib import Path

import click

from toolcrib.cli.output import plain, stderr, stdout
from toolcrib.embedders import EmbeddingFailed
from toolcrib.embedders.download import Manifest, download


def fetch(manifest: Path, folder: Path) -> None:
    """Fetch what is not there yet, and say how to use it; the process ends with 1 where that cannot be done."""
    try:
        is_new = download(
            Manifest.read(manifest), folder.absolute(), lambda line: stderr.print(plain(line), markup=False)
        )
    except EmbeddingFailed as error:
        raise click.ClickException(plain(str(error))) from error
    stdout.print(f"{folder} {'is there' if is_new else 'was there already'}: name it in the configuration, as")
    stdout.print_json(data={"toolcrib": {"search": {"embedder": {"folder": str(folder.absolute())}}}})
