"""Tests for the setting `toolcrib.search.embedder`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.search.embedders.models import static_folder

from toolcrib.config import parse_config
from toolcrib.config.search_settings import EmbedderConfig
from toolcrib.core.errors import InvalidConfig
from toolcrib.search.embedders import EmbeddingFailed, ModelEndpoint, ModelFolder

HERE = Path("/etc/crib/mcp.json")
KEY = "sk-very-secret-4711"
ENDPOINT = {"endpoint": "https://api.example.com/v1", "model": "small"}


def read(embedder: Any, path: Path = HERE, environ: Mapping[str, str] | None = None) -> EmbedderConfig:
    document = {"toolcrib": {"search": {"embedder": embedder}}}
    found = parse_config(json.dumps(document), path, environ or {}).search.embedder
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["{}", '{"embedder": null}'])
def test_there_is_no_embedder_by_default(text: str) -> None:
    assert parse_config(f'{{"toolcrib": {{"search": {text}}}}}', HERE, {}).search.embedder is None


def test_a_model_folder_is_relative_to_the_configuration() -> None:
    assert read({"folder": "models/tiny"}).model == ModelFolder(Path("/etc/crib/models/tiny"))
    assert read({"folder": "/models/tiny"}).model == ModelFolder(Path("/models/tiny"))
    assert read({"folder": "${MODELS}/tiny"}, environ={"MODELS": "/m"}).model == ModelFolder(Path("/m/tiny"))
    assert read({"folder": "~/tiny"}).model == ModelFolder(Path.home() / "tiny")
    assert read({"folder": "/tiny", "api_key": None}).model == ModelFolder(Path("/tiny"))


def test_a_relative_model_folder_can_be_opened(tmp_path: Path) -> None:
    static_folder(tmp_path / "models" / "tiny")
    assert read({"folder": "models/tiny"}, tmp_path / "mcp.json").open().dim == 3


def test_an_endpoint_is_read_with_its_model_key_and_dimensions() -> None:
    assert read(ENDPOINT).model == ModelEndpoint("https://api.example.com/v1", "small")
    full = {**ENDPOINT, "api_key": "${KEY}", "dimensions": 256}
    assert read(full, environ={"KEY": KEY}).model == ModelEndpoint("https://api.example.com/v1", "small", KEY, 256)
    assert KEY not in repr(read(full, environ={"KEY": KEY}))


@pytest.mark.parametrize(
    ("embedder", "environ", "expected"),
    [
        ({**ENDPOINT, "api_key": "${KEY}"}, {}, "toolcrib.search.embedder.api_key: environment variable `KEY`"),
        ({**ENDPOINT, "api_key": "${KEY}"}, {"KEY": f"{KEY}\n"}, "an HTTP header cannot contain"),
        ({**ENDPOINT, "endpoint": "${URL}"}, {"URL": f"ftp://{KEY}"}, "must be an http or https URL"),
        ({**ENDPOINT, "endpoint": f"https://me:{KEY}@example.com"}, {}, "without a user name"),
        ({"folder": "${MODELS}/tiny"}, {}, "variable `MODELS` is not set"),
    ],
)
def test_an_error_from_the_environment_disables_only_the_embedder(
    embedder: Any, environ: dict[str, str], expected: str
) -> None:
    found = read(embedder, environ=environ)
    assert found.model is None
    assert expected in (found.problem or "")
    assert KEY not in (found.problem or "")
    with pytest.raises(EmbeddingFailed) as failed:
        found.open()
    assert failed.value.is_final
    assert str(failed.value) == found.problem


@pytest.mark.parametrize(
    ("embedder", "expected"),
    [
        ({}, "toolcrib.search.embedder: needs either `folder` or `endpoint`"),
        ({**ENDPOINT, "folder": "tiny"}, "toolcrib.search.embedder: needs either `folder` or `endpoint`"),
        ("tiny", "toolcrib.search.embedder: must be an object"),
        ({"folder": 7}, "toolcrib.search.embedder.folder: must be a string"),
        ({"foldr": "tiny"}, "did you mean `folder`"),
        ({"folder": "tiny", "dimensions": 7}, "toolcrib.search.embedder.dimensions: is only for an `endpoint`"),
        ({"folder": "tiny", "api_key": KEY}, "toolcrib.search.embedder.api_key: is only for an `endpoint`"),
        ({"folder": "tiny", "api_key": ""}, "toolcrib.search.embedder.api_key: is only for an `endpoint`"),
        ({"folder": "tiny", "model": ""}, "toolcrib.search.embedder.model: is only for an `endpoint`"),
        ({**ENDPOINT, "model": None}, "toolcrib.search.embedder.model: must be the name"),
        ({"endpoint": "https://example.com"}, "toolcrib.search.embedder.model: must be the name"),
        ({**ENDPOINT, "dimensions": 0}, "toolcrib.search.embedder.dimensions: must be a whole number"),
        ({**ENDPOINT, "dimensions": "256"}, "toolcrib.search.embedder.dimensions: must be a whole number"),
    ],
)
def test_an_invalid_embedder_setting_is_reported_with_its_path(embedder: Any, expected: str) -> None:
    with pytest.raises(InvalidConfig) as failed:
        read(embedder)
    assert expected in failed.value.message
    assert KEY not in failed.value.message
