"""Downloads a model, only on request, and only files that a manifest pins by hash."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import httpx2

from toolcrib.search.embedders.interface import EmbeddingFailed
from toolcrib.version import VERSION

MAX_FILE_BYTES = 4 * 1024**3
MAX_REDIRECTS = 5

CONNECT_S = 10.0
SILENCE_S = 60.0

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One file of a model."""

    name: str
    """The path in the model's folder."""
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a model: `{"files": {"model.onnx": {"url": "https://…", "sha256": "…"}}}`."""

    files: tuple[Pinned, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest in the file at `path`.

        Raises:
            EmbeddingFailed: there is no manifest, an entry has no hash, or a name leads outside of the folder.
        """
        try:
            document: object = json.loads(path.read_bytes())
        except OSError as error:
            raise EmbeddingFailed(f"could not read {path}: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise EmbeddingFailed(f"{path} is not valid JSON") from error
        files = cast("Mapping[str, object]", document).get("files") if isinstance(document, Mapping) else None
        if not isinstance(files, Mapping) or not files:
            raise EmbeddingFailed(f"{path}: files: must be an object, with an entry for each file")
        entries = cast("Mapping[str, object]", files)
        return cls(tuple(_pinned(name, entry, f"{path}: files.{name}") for name, entry in entries.items()))


def _no_progress(name: str, size: int, total: int | None) -> None:
    """Ignore the progress."""


def download(
    manifest: Manifest,
    folder: Path,
    tell: Callable[[str], object],
    progress: Callable[[str, int, int | None], object] = _no_progress,
) -> bool:
    """Download the files of `manifest` into `folder`. Returns False if all of them already exist. Then nothing is
    requested.

    The folder appears when every file is complete and matches the manifest. After an error, nothing remains. `tell`
    receives a line for each file. `progress` receives the name of a file, the bytes so far and the total (None if
    unknown), first with 0 bytes and then after each part.

    Raises:
        EmbeddingFailed: a file is unavailable or does not match, or the folder has other content or cannot be read.
    """
    try:
        is_filled = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise EmbeddingFailed(f"could not read {folder}: {error.strerror or error}") from error
    if is_filled:
        if all(_is_there(folder / file.name, file.sha256) for file in manifest.files):
            return False
        raise EmbeddingFailed(f"{folder} already contains other files. Use a different folder, or remove it")
    partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        partial.mkdir(parents=True)
        with httpx2.Client(
            # Without compression, `Content-Length` is the size of the file, which `progress` needs.
            headers={"User-Agent": f"toolcrib/{VERSION}", "Accept-Encoding": "identity"},
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            follow_redirects=False,
        ) as client:
            for file in manifest.files:
                size = _fetched(client, file, partial / file.name, progress)
                tell(f"{file.name}: {size:,} bytes")
        if folder.is_dir():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise EmbeddingFailed(f"could not write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def _fetched(
    client: httpx2.Client, file: Pinned, path: Path, progress: Callable[[str, int, int | None], object]
) -> int:
    """Download the file to `path`. Returns its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    try:
        response = _answer(client, file)
        try:
            if response.status_code != 200:
                raise EmbeddingFailed(f"{file.name}: download failed (HTTP {response.status_code})")
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isascii() and length.isdecimal() else None
            progress(file.name, 0, total)
            with path.open("xb") as written:
                for part in response.iter_bytes():
                    size += len(part)
                    if size > MAX_FILE_BYTES:
                        raise EmbeddingFailed(f"{file.name}: the file has more than {MAX_FILE_BYTES:,} bytes")
                    digest.update(part)
                    written.write(part)
                    progress(file.name, size, total)
                written.flush()
                os.fsync(written.fileno())
        finally:
            response.close()
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        raise EmbeddingFailed(f"{file.name}: download failed ({error or type(error).__name__})") from error
    if digest.hexdigest() != file.sha256:
        raise EmbeddingFailed(f"{file.name}: the file does not match the manifest. Its sha256 is {digest.hexdigest()}")
    return size


def _answer(client: httpx2.Client, file: Pinned) -> httpx2.Response:
    """Send the request. Redirects are followed, because the content is verified, but never to an insecure address."""
    request = client.build_request("GET", file.url)
    for _ in range(MAX_REDIRECTS + 1):
        response = client.send(request, stream=True)
        if not response.has_redirect_location:
            return response
        response.close()
        if response.next_request is None or not _is_guarded(str(response.next_request.url)):
            raise EmbeddingFailed(f"{file.name}: redirected to an address that does not use https")
        request = response.next_request
    raise EmbeddingFailed(f"{file.name}: redirected more than {MAX_REDIRECTS} times")


def _pinned(name: str, entry: object, where: str) -> Pinned:
    if not all(map(_PART.fullmatch, name.split("/"))):
        raise EmbeddingFailed(
            f"{where}: a file name must consist of letters, digits, `.`, `_` and `-`, with `/` between parts"
        )
    members = cast("Mapping[str, Any]", entry if isinstance(entry, Mapping) else {})
    url, sha256 = members.get("url"), members.get("sha256")
    if not isinstance(url, str) or not _is_guarded(url):
        raise EmbeddingFailed(f"{where}.url: must be an https URL")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256.lower()):
        raise EmbeddingFailed(f"{where}.sha256: must be 64 hex digits. Files without a hash are not downloaded")
    return Pinned(name, url, sha256.lower())


def _is_guarded(url: str) -> bool:
    """Whether the URL uses https, or leads to this machine."""
    try:
        parts = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return False
    if parts.scheme == "http":
        with suppress(ValueError):
            return ipaddress.ip_address(parts.host).is_loopback
    return parts.scheme == "https" and bool(parts.host)


def _is_there(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
