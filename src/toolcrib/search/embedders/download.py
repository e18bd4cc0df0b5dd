"""Downloads a model, only on request, and only files that a manifest pins by hash."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast
from urllib.request import getproxies

import httpx2

from toolcrib.search.embedders.interface import EmbeddingFailed
from toolcrib.version import VERSION

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MAX_FILE_BYTES = 4 * 1024**3
MAX_REDIRECTS = 5

CONNECT_S = 10.0
SILENCE_S = 60.0

PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""How long to wait before each further attempt at a file, after the connection was lost or the server was busy."""

_BUSY = (429, 500, 502, 503, 504)
"""The states of a response after which a different one may follow soon."""

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)", re.ASCII)

Progress = Callable[[str, int, int | None], object]
"""Receives the name of a file, the bytes so far, and the total (None if unknown)."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One file of a model."""

    name: str
    """The path in the model's folder."""
    url: str
    sha256: str
    size: int | None = None
    """In bytes. None if the manifest does not say it."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a model: `{"files": {"model.onnx": {"url": "https://…", "sha256": "…", "bytes": 90405214}}}`.

    `bytes` may be left out.
    """

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
    manifest: Manifest, folder: Path, tell: Callable[[str], object], progress: Progress = _no_progress
) -> bool:
    """Download the files of `manifest` into `folder`. Returns False if all of them already exist. Then nothing is
    requested.

    The folder appears when every file is complete and matches the manifest. What was received before an error or an
    interruption is kept in a hidden folder next to `folder`, and the next call continues there. `tell` receives a line
    for each file and for each further attempt. `progress` is called first with the bytes that are already there, and
    then after each part.

    Raises:
        EmbeddingFailed: a file is unavailable or does not match, the disk is full, a different process downloads into
            the same folder, or the folder has other content or cannot be read.
    """
    folder = Path(os.path.realpath(folder))  # of a link to a folder on a different disk, the target is filled
    try:
        is_filled = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise EmbeddingFailed(f"could not read {folder}: {error.strerror or error}") from error
    if is_filled:
        if all(_is_there(folder / file.name, file.sha256) for file in manifest.files):
            return False
        raise EmbeddingFailed(f"{folder} already contains other files. Use a different folder, or remove it")
    kept = _kept(folder)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        with _alone(kept, folder):
            try:
                _fetch_all(manifest, kept, tell, progress)
                _place(manifest, kept, folder)
            except OSError as error:
                if error.errno == errno.ENOSPC:  # the space is more useful to other programs than the half of a model
                    shutil.rmtree(kept, ignore_errors=True)
                raise
            finally:
                if not any(path.is_file() and path.stat().st_size for path in kept.rglob("*")):
                    shutil.rmtree(kept, ignore_errors=True)
    except OSError as error:
        raise EmbeddingFailed(f"could not write {folder}: {error.strerror or error}") from error
    return True


def received(folder: Path) -> int:
    """Return how many bytes an earlier `download` into `folder` left to continue with."""
    with suppress(OSError):
        kept = _kept(Path(os.path.realpath(folder)))
        return sum(_size(path) for path in kept.iterdir() if not path.name.endswith(_ETAG))
    return 0


def _kept(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.part")


# The files in the folder of an unfinished download. No name in a manifest contains a `!`.
_SLASH, _INCOMPLETE, _ETAG, _READY = "!", "!part", "!etag", "!ready"


@contextmanager
def _alone(kept: Path, folder: Path) -> Generator[None]:
    """Keep other processes from downloading into the same folder, where the system supports that."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(kept, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EmbeddingFailed(f"a different process is downloading into {folder}. Wait for it to end") from error
        except OSError:  # a network file system without locks
            pass
        yield
    finally:
        os.close(descriptor)


def _fetch_all(manifest: Manifest, kept: Path, tell: Callable[[str], object], progress: Progress) -> None:
    """Download each file of `manifest` to `kept`, as far as it is not already there."""
    missing = [file for file in manifest.files if not _is_there(_complete(kept, file), file.sha256)]
    needed = sum(file.size or 0 for file in missing)
    needed -= sum(each.stat().st_size for file in missing if (each := _incomplete(kept, file)).is_file())
    if needed > (free := shutil.disk_usage(kept).free):
        raise EmbeddingFailed(f"the disk has {free:,} bytes of free space, but the model needs {needed:,} more")
    with httpx2.Client(
        # Without compression, `Content-Length` is the size of the file, and a part of the file can be requested.
        headers={"User-Agent": f"toolcrib/{VERSION}", "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
        follow_redirects=False,
    ) as client:
        for file in manifest.files:
            if file in missing:
                _fetch(client, file, kept, tell, progress)
            tell(f"{file.name}: {_complete(kept, file).stat().st_size:,} bytes")


def _place(manifest: Manifest, kept: Path, folder: Path) -> None:
    """Move the files of `manifest` from `kept` to `folder`, all at once."""
    ready = kept / _READY
    shutil.rmtree(ready, ignore_errors=True)
    for file in manifest.files:
        (ready / file.name).parent.mkdir(parents=True, exist_ok=True)
        _complete(kept, file).rename(ready / file.name)
    if folder.is_dir():
        folder.rmdir()
    ready.rename(folder)
    shutil.rmtree(kept, ignore_errors=True)


def _complete(kept: Path, file: Pinned) -> Path:
    return kept / file.name.replace("/", _SLASH)


def _incomplete(kept: Path, file: Pinned) -> Path:
    # Of a different manifest, a file with this name can be something else.
    return kept / f"{file.name.replace('/', _SLASH)}.{file.sha256[:16]}{_INCOMPLETE}"


class _Lost(Exception):
    """The connection was lost, or the server is busy. The message says why. A further attempt may work."""


def _fetch(client: httpx2.Client, file: Pinned, kept: Path, tell: Callable[[str], object], progress: Progress) -> None:
    """Download `file` to `kept`, and continue what is already there. Tries again if the connection is lost.

    Raises:
        EmbeddingFailed: the file is unavailable or does not match.
    """
    path = _incomplete(kept, file)
    pauses = [*PAUSES_S]
    while True:
        had = _size(path)
        try:
            found = _receive(client, file, path, progress)
        except _Lost as lost:
            if not pauses:
                raise EmbeddingFailed(f"{file.name}: download failed ({lost})") from lost
            tell(f"{file.name}: {lost}. Trying again after {_size(path):,} bytes")
            time.sleep(pauses.pop(0))
            continue
        except httpx2.RequestError as error:
            raise EmbeddingFailed(f"{file.name}: {_unreachable(file, error)}") from error
        except httpx2.InvalidURL as error:
            raise EmbeddingFailed(f"{file.name}: download failed ({error})") from error
        if found == file.sha256:
            path.replace(_complete(kept, file))
            path.with_name(f"{path.name}{_ETAG}").unlink(missing_ok=True)
            return
        path.unlink()
        if not had:
            raise EmbeddingFailed(f"{file.name}: the file does not match the manifest. Its sha256 is {found}")
        # The earlier part may be of a different version. This happens only once, because now nothing is left of it.
        tell(f"{file.name}: the file does not match the manifest. Starting again from the beginning")


def _receive(client: httpx2.Client, file: Pinned, path: Path, progress: Progress) -> str:
    """Send one request, and append its content to `path`, or replace what is there. Returns the digest of the whole.

    Raises:
        EmbeddingFailed: the file is unavailable, or larger than expected.
        _Lost: a further attempt may work.
    """
    etag = path.with_name(f"{path.name}{_ETAG}")
    size = _size(path)
    if size >= (file.size or MAX_FILE_BYTES) and size:  # an interruption after the last byte, or something else
        if size == file.size:
            progress(file.name, size, size)
            return _digest(path).hexdigest()
        path.unlink()
        size = 0
    wanted = {} if not size else {"Range": f"bytes={size}-"}
    if size and etag.is_file():
        wanted["If-Range"] = etag.read_text()
    response = _answer(client, file, wanted)
    try:
        if response.status_code == 416 and size:
            path.unlink()
            raise _Lost("the server does not have the rest of the file")
        if response.status_code in _BUSY:
            raise _Lost(f"HTTP {response.status_code}")
        if response.status_code not in (200, 206) or (response.status_code == 206 and not size):
            raise EmbeddingFailed(f"{file.name}: download failed (HTTP {response.status_code})")
        if response.status_code == 206:
            begins = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if begins is None or int(begins[1]) != size or "Content-Encoding" in response.headers:
                path.unlink()
                raise _Lost("the server sent a different part of the file")
        else:
            size = 0
            _remember(etag, response)
        length = response.headers.get("Content-Length", "")
        total = size + int(length) if length.isascii() and length.isdecimal() else file.size
        if file.size not in {None, total} and "Content-Encoding" not in response.headers:
            raise EmbeddingFailed(
                f"{file.name}: the file does not match the manifest. It has {total:,} bytes instead of {file.size:,}"
            )
        return _append(response, file, path, progress, size=size, total=total)
    finally:
        response.close()


def _append(
    response: httpx2.Response, file: Pinned, path: Path, progress: Progress, *, size: int, total: int | None
) -> str:
    """Write the content of `response` to `path`, after the first `size` bytes. Returns the digest of the whole."""
    most = file.size or MAX_FILE_BYTES
    digest = _digest(path) if size else hashlib.sha256()
    progress(file.name, size, total)
    with path.open("ab" if size else "wb") as written:
        try:
            for part in response.iter_bytes():
                size += len(part)
                if size > most:
                    written.truncate(0)
                    raise EmbeddingFailed(f"{file.name}: the file has more than {most:,} bytes")
                digest.update(part)
                written.write(part)
                progress(file.name, size, total)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            raise _Lost("the connection was lost") from error
        except httpx2.ReadTimeout as error:
            raise _Lost(f"no data for {SILENCE_S:g} s") from error
        finally:
            written.flush()
        os.fsync(written.fileno())
    if file.size is not None and size < file.size:
        raise _Lost("the connection was lost")
    return digest.hexdigest()


def _remember(etag: Path, response: httpx2.Response) -> None:
    """Keep what identifies this version of the file at the server, to ask only for the rest of the same version."""
    version = response.headers.get("ETag", "")
    if not version.startswith('"'):  # a weak one is not allowed in `If-Range`
        version = response.headers.get("Last-Modified", "")
    if version and version.isascii() and "Content-Encoding" not in response.headers:
        etag.write_text(version, "ascii")
    else:
        etag.unlink(missing_ok=True)


def _answer(client: httpx2.Client, file: Pinned, headers: Mapping[str, str]) -> httpx2.Response:
    """Send the request. Redirects are followed, because the content is verified, but never to an insecure address."""
    request = client.build_request("GET", file.url, headers=headers)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            response = client.send(request, stream=True)
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            raise _Lost("the connection was lost") from error
        except httpx2.ReadTimeout as error:
            raise _Lost(f"no data for {SILENCE_S:g} s") from error
        if not response.has_redirect_location:
            return response
        response.close()
        if response.next_request is None or not _is_guarded(str(response.next_request.url)):
            raise EmbeddingFailed(f"{file.name}: redirected to an address that does not use https")
        request = response.next_request
    raise EmbeddingFailed(f"{file.name}: redirected more than {MAX_REDIRECTS} times")


def _unreachable(file: Pinned, error: httpx2.RequestError) -> str:
    """Say why no connection was made. A proxy is named by its variable, because its address may have a password."""
    url = httpx2.URL(file.url)
    with suppress(RuntimeError):  # the error has no request
        url = error.request.url
    reason = "no answer" if isinstance(error, httpx2.TimeoutException) else str(error) or type(error).__name__
    variable = f"{url.scheme.upper()}_PROXY"
    if isinstance(error, httpx2.ProxyError):
        return f"the proxy in {variable} did not connect to {url.host} ({reason})"
    proxies = getproxies()
    if url.scheme in proxies or "all" in proxies:
        return f"could not connect to {url.host} ({reason}). Check the network and the proxy in {variable}"
    return f"could not connect to {url.host} ({reason}). Check the network. Behind a proxy, set {variable}"


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
    size = members.get("bytes")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_FILE_BYTES):
        raise EmbeddingFailed(f"{where}.bytes: must be a whole number up to {MAX_FILE_BYTES:,}")
    return Pinned(name, url, sha256.lower(), size)


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


def _size(path: Path) -> int:
    """Return the size of a file, or 0 if it does not exist."""
    return path.stat().st_size if path.is_file() else 0


def _digest(path: Path) -> Any:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


def _is_there(path: Path, sha256: str) -> bool:
    try:
        return _digest(path).hexdigest() == sha256
    except OSError:
        return False
