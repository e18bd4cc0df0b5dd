"""Chooses where the key of this installation is kept, remembers the choice, and reads the key."""

from __future__ import annotations

import base64
import binascii
import errno
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeVar, cast

import platformdirs

from toolcrib.database import keep_private, make_folder
from toolcrib.secrets.sealing import KEY_BYTES, Seal

logger = logging.getLogger(__name__)

VARIABLE = "TOOLCRIB_KEY"
"""The environment variable that can contain the key, or several keys with commas between them, newest first."""

KEYRING_TIMEOUT_S = 30.0
"""How long to wait for the system's keyring, in seconds. It may ask a person for a password first."""

_WRITING_TIMEOUT_S = 2.0
"""How long to wait while a different process writes the key file, in seconds."""

_FAILED_S = 5.0
"""For how long a key that could not be read counts as unavailable, in seconds.

Otherwise, with a locked keyring, callers would wait one after the other, each for `KEYRING_TIMEOUT_S`.
"""

_STEP_S = 0.02
_SERVICE = "toolcrib"
_IN_VARIABLE = "variable"
_IN_KEYRING = "keyring "
_ABOUT = """\
# This file says where Toolcrib's key is, or contains it. The key opens everything that Toolcrib stores sealed.
# Do not share this file. If you remove it, Toolcrib cannot read its stored secrets any more.
"""


class KeyUnavailable(Exception):
    """The key cannot be read, or no place can keep one. The message says what to do. It never contains a key.

    The message is for the owner: it contains paths. Do not send it to a caller.
    """


class _Refused(Exception):
    """The system's keyring did not do what it was asked to do."""


class _Backend(Protocol):
    """What Toolcrib uses of a `keyring.backend.KeyringBackend`."""

    @property
    def priority(self) -> float: ...
    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


T = TypeVar("T")

_seals: dict[tuple[Path, str | None], Seal] = {}
_failures: dict[tuple[Path, str | None], tuple[KeyUnavailable, float]] = {}
"""The last error of each place, and until when it is the answer."""
_reading = threading.Lock()


def seal(folder: Path | None = None) -> Seal:
    """Return the seal of this installation. The first call on a system creates the key.

    The first of these places that can be used keeps the key:

    1. the environment variable `TOOLCRIB_KEY`: base64 of 32 random bytes. It always wins.
    2. the system's keyring, if the package `keyring` is installed and finds one.
    3. the file `key` in `folder`, which only its owner may read.

    The file `key` also records the choice. So if a place loses the key, that is an error, and not a reason for a new
    key. Processes that start at the same time end up with the same key.

    The keys are read once per process. `folder` defaults to the folder of Toolcrib's state.

    Raises:
        KeyUnavailable: the chosen place does not return the key now, or nothing can keep a key.
    """
    if folder is None:
        folder = platformdirs.user_state_path("toolcrib")
    variable = os.environ.get(VARIABLE)
    which = folder.absolute(), variable
    with _reading:
        failure, until = _failures.pop(which, (None, 0.0))
        if failure is not None and time.monotonic() < until:
            _failures[which] = failure, until
            raise KeyUnavailable(str(failure)) from failure
        if which not in _seals:
            try:
                _seals[which] = Seal(_keys(folder / "key", variable))
            except KeyUnavailable as error:
                _failures[which] = error, time.monotonic() + _FAILED_S
                raise
        return _seals[which]


def _keys(path: Path, variable: str | None) -> list[bytes]:
    """Return the keys, newest first. `path` is the file that records where they are."""
    if variable is not None:
        keys = _parsed(variable, f"The environment variable {VARIABLE}")
        with suppress(OSError):  # a container may have no folder that can be written
            if not path.exists():
                _record(path, _IN_VARIABLE)
        return keys
    try:
        record = _read(path)
        if record is None:
            _choose(path)
            record = _read(path)
    except OSError as error:
        raise KeyUnavailable(
            f"Toolcrib's key file cannot be used: {path}: {error.strerror or error}. Make it readable, or set the"
            f" environment variable {VARIABLE}."
        ) from error
    if record == _IN_VARIABLE:
        raise KeyUnavailable(
            f"Toolcrib's key is in the environment variable {VARIABLE}, but it is not set. {_start_anew(path)}"
        )
    if record is not None and record.startswith(_IN_KEYRING):
        return _from_keyring(record.removeprefix(_IN_KEYRING), path)
    return _parsed(record or "", f"The key file {path}")


def _choose(path: Path) -> None:
    """Create a key and keep it in the best place. If a different process is faster, its key remains."""
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    name = f"key {secrets.token_hex(4)}"  # a new name each time, so that no process overwrites the key of another one

    def keep(backend: _Backend) -> bool:
        if backend.priority < 1:  # `keyring` itself does not recommend these: they fail, store nothing, or use files
            return False
        backend.set_password(_SERVICE, name, key)
        return backend.get_password(_SERVICE, name) == key

    try:
        in_keyring = _ask_keyring(keep)
    except ModuleNotFoundError:
        in_keyring = False
    except _Refused as error:
        # The text of the error may contain what was to be stored.
        cause = type(error.__cause__).__name__ if error.__cause__ is not None else str(error)
        logger.warning("the system's keyring does not store a key (%s), so it is stored in %s", cause, path)
        in_keyring = False
    if not _record(path, f"{_IN_KEYRING}{name}" if in_keyring else key) and in_keyring:
        with suppress(_Refused):
            _ask_keyring(lambda backend: backend.delete_password(_SERVICE, name))


def _from_keyring(name: str, path: Path) -> list[bytes]:
    try:
        kept = _ask_keyring(lambda backend: backend.get_password(_SERVICE, name))
    except ModuleNotFoundError as error:
        raise KeyUnavailable(
            "Toolcrib's key is in the system's keyring, but the Python package `keyring` is not installed. Install"
            f" `toolcrib[keyring]`. {_start_anew(path)}"
        ) from error
    except _Refused as error:
        raise KeyUnavailable(
            "Toolcrib's key is in the system's keyring, but the keyring does not return it:"
            f" {str(error).rstrip('.')}. Unlock the keyring and try again. {_start_anew(path)}"
        ) from error
    if kept is None:
        raise KeyUnavailable(
            f"Toolcrib's key is no longer in the system's keyring (service `{_SERVICE}`, name `{name}`)."
            f" {_start_anew(path)}"
        )
    return _parsed(kept, f"The entry `{name}` of the service `{_SERVICE}` in the system's keyring")


def _start_anew(path: Path) -> str:
    return (
        f"If the key is lost, nothing can decrypt the stored data: remove {path} to start with a new key, and enter"
        " your secrets again."
    )


def _ask_keyring(work: Callable[[_Backend], T]) -> T:
    """Return the result of `work`, which gets the keyring of this system.

    `keyring` is imported only here, because it may start programs and connect to D-Bus. Waiting happens in a thread,
    because a locked keyring waits until a person has answered its window.

    Raises:
        ModuleNotFoundError: the package `keyring` is not installed.
        _Refused: the keyring failed, or did not answer within `KEYRING_TIMEOUT_S`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(cast("_Backend", import_module("keyring").get_keyring())))
        except BaseException as error:  # noqa: BLE001  a backend can raise errors of any package; raised again below
            errors.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(KEYRING_TIMEOUT_S)
    if results:
        return results[0]
    if not errors:
        raise _Refused(f"it did not answer within {KEYRING_TIMEOUT_S:g} seconds")
    if isinstance(errors[0], ModuleNotFoundError) and errors[0].name == "keyring":
        raise errors[0]
    raise _Refused(f"{type(errors[0]).__name__}: {errors[0]}") from errors[0]


def _parsed(text: str, where: str) -> list[bytes]:
    """Return the keys in `text`, which commas or white space separate. `where` begins the message of an error.

    Raises:
        KeyUnavailable: `text` contains no key, or something else.
    """
    keys: list[bytes] = []
    for each in text.replace(",", " ").split():
        try:
            keys.append(base64.b64decode(each.translate({ord("-"): "+", ord("_"): "/"}), validate=True))
        except (binascii.Error, ValueError):
            keys.append(b"")
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise KeyUnavailable(
            f"{where} must contain base64 of {KEY_BYTES} random bytes (`openssl rand -base64 {KEY_BYTES}` prints some)."
        ) from None
    return keys


def _read(path: Path) -> str | None:
    """Return what the file records, without its comments, or None if there is no file.

    Raises:
        OSError: the file cannot be read, or other users can read it and that cannot be changed.
    """
    until = time.monotonic() + _WRITING_TIMEOUT_S
    while True:
        try:
            keep_private(path)
            text = path.read_bytes().decode("ascii", "replace")
        except FileNotFoundError:
            if path.is_symlink():
                raise
            return None
        if text.endswith("\n") or time.monotonic() >= until:
            return "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        time.sleep(_STEP_S)  # a different process is writing it, on a file system without hard links


def _record(path: Path, line: str) -> bool:
    """Create the file with `line`. Return False if a different process was faster: then the file stays as it is.

    Raises:
        OSError: the file cannot be created.
    """
    make_folder(path.parent)
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    text = f"{_ABOUT}{line}\n".encode("ascii")
    try:
        _write(new, text)
        try:
            os.link(new, path)  # unlike a rename, this never replaces a file
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
                raise
            try:
                _write(path, text)  # the file system does not support hard links
            except FileExistsError:
                return False
    finally:
        new.unlink(missing_ok=True)
    with suppress(OSError):  # the name of the file must be on the disk too, before anything is sealed
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return True


def _write(path: Path, text: bytes) -> None:
    """Write a new file that only its owner may read, and wait until it is on the disk."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
