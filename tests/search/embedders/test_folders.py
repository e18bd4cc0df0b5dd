"""Errors in model folders and missing packages are reported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]
from tests.search.embedders.models import bert_folder, static_folder, transformer_folder, vectors

from toolcrib.search.embedders import EmbeddingFailed, ModelFolder, open_embedder


def failure(folder: Path) -> str:
    with pytest.raises(EmbeddingFailed) as failed:
        open_embedder(ModelFolder(folder))
    assert failed.value.is_final
    assert str(failed.value).startswith(f"{folder}: ")
    return str(failed.value).removeprefix(f"{folder}: ")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    assert failure(tmp_path / "none") == "the folder does not exist"
    (tmp_path / "file").write_text("")
    assert failure(tmp_path / "file") == "the folder does not exist"


def test_a_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    assert failure(tmp_path).startswith("it contains no model. ")


def test_a_folder_with_both_kinds_of_model_is_opened_according_to_its_tensors(tmp_path: Path) -> None:
    both = static_folder(tmp_path / "both")
    transformer_folder(tmp_path / "onnx")
    (tmp_path / "onnx" / "model.onnx").rename(both / "model.onnx")
    assert open_embedder(ModelFolder(both)).model_id.startswith("static")
    torch = transformer_folder(tmp_path / "torch")
    save_file({"embeddings.word_embeddings.weight": vectors()}, torch / "model.safetensors")
    assert open_embedder(ModelFolder(torch)).model_id.startswith("transformer")


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_truncated_static_model_is_reported(name: str, share: float, tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: int(len(whole) * share)])
    assert name in failure(folder)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9])
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_truncated_transformer_is_reported(name: str, share: float, tmp_path: Path) -> None:
    folder = transformer_folder(tmp_path / "tiny")
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: int(len(whole) * share)])
    failure(folder)


@pytest.mark.parametrize("made", [static_folder, transformer_folder])
def test_a_model_without_a_tokenizer_is_reported(made: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = made(tmp_path / "tiny")
    (folder / "tokenizer.json").unlink()
    assert "contains no `tokenizer.json`" in failure(folder)


@pytest.mark.parametrize(
    ("text", "told"), [("{", "`config.json` is not valid JSON"), ("[]", "`config.json` is not a JSON object")]
)
def test_invalid_json_settings_are_reported(text: str, told: str, tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    (folder / "config.json").write_text(text)
    assert failure(folder) == told


def test_an_undecodable_settings_file_is_reported(tmp_path: Path) -> None:
    folder = transformer_folder(tmp_path / "tiny")
    (folder / "config.json").write_bytes(b"\xff\xfe{}")
    assert failure(folder) == "`config.json` is not valid JSON"


WITHOUT = """
import sys
from collections.abc import Callable
from pathlib import Path
sys.modules[sys.argv[2]] = None  # as if it were not installed
from toolcrib.search.embedders import EmbeddingFailed, ModelFolder, open_embedder
try:
    open_embedder(ModelFolder(Path(sys.argv[1])))
except EmbeddingFailed as error:
    print(error.is_final, error)
"""


@pytest.mark.parametrize("missing", ["tokenizers", "safetensors", "onnxruntime", "threadpoolctl"])
def test_a_missing_package_is_reported_with_the_extra_to_install(missing: str, tmp_path: Path) -> None:
    folder = (
        transformer_folder(tmp_path / "t") if missing in {"tokenizers", "onnxruntime"} else bert_folder(tmp_path / "b")
    )
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(folder), missing], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith(f"True a model in a folder needs `{missing}`")
    assert "pip install 'toolcrib[embed]'" in ran.stdout


LATE = """
import sys
import toolcrib.search.embedders, toolcrib.search.embedding, toolcrib.config.search_settings
print({"onnxruntime", "tokenizers", "safetensors", "threadpoolctl", "huggingface_hub", "torch"} & {*sys.modules})
"""


def test_packages_of_the_extra_are_imported_only_when_a_model_is_opened(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


RUNS = """
import sys
from collections.abc import Callable
from pathlib import Path
from toolcrib.search.embedders import ModelFolder, open_embedder
for folder in sys.argv[1:]:
    open_embedder(ModelFolder(Path(folder))).embed_query("mail")
print({"huggingface_hub", "torch", "transformers"} & {*sys.modules})
"""


def test_models_run_without_packages_that_use_the_network(tmp_path: Path) -> None:
    made = (static_folder(tmp_path / "s"), transformer_folder(tmp_path / "t"), bert_folder(tmp_path / "b"))
    folders = [*map(str, made)]
    ran = subprocess.run([sys.executable, "-c", RUNS, *folders], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("set()\n", "")
