"""`toolcrib embed fetch`: download a model that a manifest pins."""

from __future__ import annotations

from pathlib import Path

from toolcrib.cli.output import fail, plain, stderr, stdout
from toolcrib.core.errors import InvalidConfig, ProviderFailed
from toolcrib.search.embedders import EmbeddingFailed
from toolcrib.search.embedders.download import Manifest, download


def fetch(manifest: Path, folder: Path) -> None:
    """Fetch what is not there yet, and say how to use it.

    The process ends with 2 if the manifest cannot be used, and with 1 if the download fails.
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
    stdout.print(f"{folder} {'is there' if is_new else 'was there already'}: name it in the configuration, as")
    stdout.print_json(data={"toolcrib": {"search": {"embedder": {"folder": str(folder.absolute())}}}})


def _check_whole(path: Path, manifest: Manifest) -> None:
    """Pass if the files of `manifest` can be a model: no download may end in a folder that cannot be used.

    Raises:
        EmbeddingFailed: the model itself or its tokenizer is not among them.
    """
    from toolcrib.search.embedders.static import TOKENIZERS, WEIGHTS
    from toolcrib.search.embedders.transformer import GRAPHS

    names = {file.name for file in manifest.files}
    if names.isdisjoint((*WEIGHTS, *GRAPHS)):
        raise EmbeddingFailed(f"{path}: files: there is no model, which is `model.onnx` or `model.safetensors`")
    if names.isdisjoint(TOKENIZERS):
        raise EmbeddingFailed(f"{path}: files: there is no `tokenizer.json`, which every model needs")


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
