"""A model is downloaded only on request, and completely or not at all."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.running import toolcrib
from tests.search.embedders.models import static_folder, unit, vector

from toolcrib.search.embedders import EmbeddingFailed, ModelFolder, download, open_embedder
from toolcrib.search.embedders.download import Manifest

HEAD = b"the first part of a file"


class Server:
    """Serves bytes by path, or redirects."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.elsewhere: dict[str, str] = {}
        self.cut_off: set[str] = set()
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"


@pytest.fixture
def server() -> Generator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            server.asked.append(path)
            if (to := server.elsewhere.get(path)) is not None:
                self.send_response(302)
                self.send_header("Location", to)
                self.end_headers()
                return
            content = server.files.get(path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"") + (path in server.cut_off)))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  overrides a method
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        http.shutdown()
        thread.join()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(path: Path, files: Mapping[str, Any]) -> Manifest:
    file = path / "manifest.json"
    file.write_text(json.dumps({"files": files}))
    return Manifest.read(file)


def pinned(server: Server, **files: bytes) -> dict[str, Any]:
    """Manifest entries for files that are added to the server."""
    server.files.update(files)
    return {name: {"url": server.url(name), "sha256": sha256(content)} for name, content in files.items()}


def fetched(found: Manifest, folder: Path) -> bool:
    return download.download(found, folder, lambda line: None)


def test_a_downloaded_model_can_be_used(server: Server, tmp_path: Path) -> None:
    made = static_folder(tmp_path / "made")
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    server.files.update(files)
    server.elsewhere["model.safetensors"] = "/moved"  # as model hubs do
    server.files["moved"] = files["model.safetensors"]
    entries = {name: {"url": server.url(name), "sha256": sha256(content)} for name, content in files.items()}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": entries}))
    folder = tmp_path / "models" / "tiny"
    ended = toolcrib("embed", "fetch", str(tmp_path / "manifest.json"), str(folder))
    assert ended.code == 0
    assert json.loads(ended.out[ended.out.index("{") :])["toolcrib"]["search"]["embedder"] == {"folder": str(folder)}
    embedder = open_embedder(ModelFolder(folder))
    np.testing.assert_allclose(embedder.embed_query("mail"), unit(vector("mail")), atol=1e-6)
    assert [each.name for each in folder.parent.iterdir()] == ["tiny"]


def test_files_may_be_in_subfolders_of_the_model(server: Server, tmp_path: Path) -> None:
    server.files["x"] = b"{}"
    entry = {"url": server.url("x"), "sha256": sha256(b"{}").upper()}
    assert fetched(manifest(tmp_path, {"1_Pooling/config.json": entry}), tmp_path / "tiny")
    assert (tmp_path / "tiny" / "1_Pooling" / "config.json").read_bytes() == b"{}"


def test_an_existing_download_is_not_requested_again(server: Server, tmp_path: Path) -> None:
    found = manifest(tmp_path, pinned(server, a=b"1", b=b"2"))
    (tmp_path / "tiny").mkdir()  # an empty folder may be used
    assert fetched(found, tmp_path / "tiny")
    server.asked.clear()
    assert not fetched(found, tmp_path / "tiny")
    assert server.asked == []


def test_a_folder_with_other_files_is_refused_and_left_unchanged(server: Server, tmp_path: Path) -> None:
    found = manifest(tmp_path, pinned(server, a=b"1"))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "a").write_bytes(b"another")
    with pytest.raises(EmbeddingFailed, match="already contains other files"):
        fetched(found, tmp_path / "tiny")
    assert server.asked == []
    assert (tmp_path / "tiny" / "a").read_bytes() == b"another"


FAULTS = {
    "different": "bad: the file does not match the manifest",
    "missing": r"bad: download failed \(HTTP 404\)",
    "cut off": "bad: download failed",
    "too long": "bad: the file has more than 1,000 bytes",
    "redirect": "bad: redirected to an address that does not use https",
    "unreachable": "bad: download failed",
    "full": "No space left",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_download_leaves_no_files(
    fault: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = pinned(server, good=HEAD, bad=HEAD * 100)
    match fault:
        case "different":
            server.files["bad"] = HEAD
        case "missing":
            del server.files["bad"]
        case "cut off":
            server.cut_off.add("bad")
        case "too long":
            monkeypatch.setattr(download, "MAX_FILE_BYTES", 1_000)
        case "redirect":
            server.elsewhere["bad"] = "http://model.example.com/bad"  # a different machine, without TLS
        case "unreachable":
            entries["bad"]["url"] = "http://127.0.0.1:1/bad"
        case _:
            monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EmbeddingFailed, match=FAULTS[fault]):
        fetched(manifest(tmp_path, entries), tmp_path / "models" / "tiny")
    assert [*(tmp_path / "models").iterdir()] == []


def full(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_an_interrupted_download_leaves_no_files(server: Server, tmp_path: Path) -> None:
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download.download(manifest(tmp_path, pinned(server, a=b"1", b=b"2")), tmp_path / "models" / "tiny", interrupt)
    assert [*(tmp_path / "models").iterdir()] == []


def test_an_unreadable_folder_is_reported(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = manifest(tmp_path, pinned(server, a=b"1"))
    with pytest.raises(EmbeddingFailed, match=r"could not read .*: File name too long"):
        fetched(file, tmp_path / ("long" * 100))

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "tiny").mkdir()
    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(EmbeddingFailed, match=r"could not read .*tiny: Permission denied"):
        fetched(file, tmp_path / "tiny")


def test_the_number_of_redirects_is_limited(server: Server, tmp_path: Path) -> None:
    entries = pinned(server, a=b"1")
    server.elsewhere["a"] = "/a"
    with pytest.raises(EmbeddingFailed, match="redirected more than"):
        fetched(manifest(tmp_path, entries), tmp_path / "tiny")


GOOD = {"url": "https://models.example.com/a", "sha256": sha256(b"")}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "files: must be an object"),
        ({"a": {"url": GOOD["url"]}}, r"files\.a\.sha256: must be 64 hex digits.* are not downloaded"),
        ({"a": {**GOOD, "sha256": "0" * 63}}, "sha256: must be 64 hex"),
        ({"a": {**GOOD, "url": "http://models.example.com/a"}}, r"files\.a\.url: must be an https URL"),
        ({"a": {**GOOD, "url": "file:///etc/passwd"}}, "url: must be an https URL"),
        ({"a": "https://models.example.com/a"}, "url: must be an https URL"),
        *(
            ({name: GOOD}, "a file name must consist of letters")
            for name in ("../a", "/a", "a/../b", "", "a//b", "a\\b", "..", ".a")
        ),
    ],
)
def test_a_manifest_without_hashes_or_with_unsafe_paths_is_refused(files: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(EmbeddingFailed, match=told):
        manifest(tmp_path, files)


def test_an_unreadable_manifest_is_reported_by_the_command(tmp_path: Path) -> None:
    missing = toolcrib("embed", "fetch", str(tmp_path / "none.json"), str(tmp_path / "tiny"))
    assert (missing.code, "could not read" in missing.err) == (2, True)
    assert missing.err.startswith("INVALID_CONFIG: ")
    (tmp_path / "list.json").write_text("[")
    assert "is not valid JSON" in toolcrib("embed", "fetch", str(tmp_path / "list.json"), str(tmp_path / "tiny")).err
    assert not (tmp_path / "tiny").exists()


def test_the_command_reports_progress_during_the_download(server: Server, tmp_path: Path) -> None:
    manifest(tmp_path, pinned(server, **{"model.onnx": HEAD, "tokenizer.json": b"{}"}))
    told = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny").err.splitlines()
    assert told[:2] == ["model.onnx: downloading 0.0 MB", f"model.onnx: {len(HEAD)} bytes"]

    seen: list[tuple[str, int, int | None]] = []
    found = manifest(tmp_path, pinned(server, a=b"x" * 200_000))

    def progress(name: str, size: int, total: int | None) -> None:
        seen.append((name, size, total))

    download.download(found, tmp_path / "large", lambda line: None, progress)
    assert (seen[0], seen[-1]) == (("a", 0, 200_000), ("a", 200_000, 200_000))
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("names", "lacking"), [(["model.onnx"], "needs `tokenizer.json`"), (["tokenizer.json", "README"], "needs a model")]
)
def test_a_manifest_of_an_incomplete_model_is_refused_before_the_download(
    names: list[str], lacking: str, server: Server, tmp_path: Path
) -> None:
    manifest(tmp_path, pinned(server, **dict.fromkeys(names, HEAD)))
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny")
    assert (ended.code, lacking in ended.err) == (2, True)
    assert server.asked == []


def test_a_failed_download_exits_with_1(server: Server, tmp_path: Path) -> None:
    manifest(tmp_path, pinned(server, **{"model.onnx": HEAD, "tokenizer.json": b"{}"}))
    del server.files["tokenizer.json"]
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny")
    assert (ended.code, "PROVIDER_FAILED: tokenizer.json: download failed (HTTP 404)" in ended.err) == (1, True)
