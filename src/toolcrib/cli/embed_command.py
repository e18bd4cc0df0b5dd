"""`toolcrib embed fetch`: download an embedding model by its name, or the one that a manifest pins."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import platformdirs

from toolcrib.cli.options import json_option
from toolcrib.cli.terminal_output import fail, plain, print_json, say, show_json, stderr, stdout
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.search.embedders import EmbeddingFailed, ModelFolder, open_embedder
from toolcrib.search.embedders.download import Manifest, download, received
from toolcrib.search.embedders.pinned_models import MODELS

if TYPE_CHECKING:
    from toolcrib.search.embedders.download import Progress


@click.group()
def embed() -> None:
    """Download an embedding model for search. No other command downloads one."""


_HELP = """Download MODEL into FOLDER, and check the SHA-256 hash of each file.

\b
{models}

MODEL can also be a manifest, which is a JSON file that pins the files of a different model:

\b
  {{"files": {{"model.safetensors": {{"url": "https://...", "sha256": "..."}}}}}}

The command creates FOLDER when all files are complete. By default, FOLDER is in Toolcrib's data folder. After an
interruption, the same command continues the download.
""".format(
    models="\n".join(
        f"  {name:<10} {each.size / 1e6:>4.0f} MB  {each.license:<10}  {each.about}" for name, each in MODELS.items()
    )
)


@embed.command(short_help="Download a model by its name, or the files of a manifest.", help=_HELP)
@click.argument("model")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), required=False)
@json_option
def fetch(model: str, folder: Path | None, *, as_json: bool) -> None:
    pinned = MODELS.get(model)
    if folder is None and pinned is None:
        hints = [f"The names of models are {', '.join(MODELS)}.", "For a manifest, also pass a folder."]
        fail(InvalidConfig(f"`{model}` is not the name of a model", hints=hints), as_json=as_json)
    if pinned is not None:
        manifest = pinned.manifest
        folder = folder or platformdirs.user_data_path("toolcrib") / "models" / pinned.folder
    else:
        try:
            manifest = Manifest.read(Path(model))
            _check_whole(Path(model), manifest)
        except EmbeddingFailed as error:
            fail(InvalidConfig(str(error)), as_json=as_json)
    folder = (folder or Path()).absolute()
    is_new = _downloaded(manifest, folder, as_json=as_json)
    configuration = {"toolcrib": {"search": {"embedder": {"folder": str(folder)}}}}
    problem = _problem(folder)
    if as_json:
        files = [{"name": file.name, "sha256": file.sha256} for file in manifest.files]
        print_json(
            {
                "folder": str(folder),
                "downloaded": is_new,
                "files": files,
                "configuration": configuration,
                "problem": problem,
            }
        )
        return
    stdout.print(f"{folder} {'is complete' if is_new else 'was already complete'}. Add it to the configuration:")
    show_json(configuration)
    if problem is not None:
        say(f"The model cannot be used yet: {problem}")


def _downloaded(manifest: Manifest, folder: Path, *, as_json: bool) -> bool:
    """Download the files. Returns False if they were already there. Exits if that fails or is interrupted."""
    try:
        with _shown_progress(as_json=as_json) as progress:
            return download(manifest, folder, _ignored if as_json else _told, progress)
    except EmbeddingFailed as error:
        fail(ProviderFailed(str(error), hints=_continuing(folder), retryable=True), as_json=as_json)
    except KeyboardInterrupt:
        say("\n".join(("Interrupted.", *_continuing(folder))))
        sys.exit(130)


def _told(line: str) -> None:
    stderr.print(plain(line), markup=False)


def _ignored(*what: object) -> None:
    """Print nothing."""


def _continuing(folder: Path) -> list[str]:
    if not (size := received(folder)):
        return []
    return [f"{_megabytes(size)} were received and kept. Run the same command again to continue."]


@contextmanager
def _shown_progress(*, as_json: bool) -> Generator[Progress]:
    """Return a function that shows the progress: as a bar on a terminal, else as a line for each file."""
    if as_json:
        yield _ignored
        return
    if not stderr.is_terminal:

        def line(name: str, size: int, total: int | None) -> None:
            if (name, total) not in begun:
                begun.add((name, total))
                what = f"continuing after {_megabytes(size)}" if size else "downloading"
                whole = f"{' of' if size else ''} {_megabytes(total)}" if total is not None else ""
                stderr.print(f"{name}: {what}{whole}", markup=False)

        begun: set[tuple[str, int | None]] = set()
        yield line
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bars:
        bar: Any = None
        current = ""

        def show(name: str, size: int, total: int | None) -> None:
            nonlocal bar, current
            if name != current:
                if bar is not None:
                    bars.remove_task(bar)
                # Speed and time left count only what arrives now, not what was already there.
                bar, current = bars.add_task(name, completed=size, total=total), name
            bars.update(bar, completed=size, total=total)

        yield show


def _problem(folder: Path) -> str | None:
    """Return why the model in `folder` cannot be used, such as a package that is not installed."""
    try:
        open_embedder(ModelFolder(folder))
    except EmbeddingFailed as error:
        return str(error)
    return None


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
