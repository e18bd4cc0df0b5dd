"""Reads the values that a configuration refers to: stored secrets, entered inputs, and files."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path
from shlex import quote

from toolcrib.core.placeholders import Problem, Reference
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import SealBroken
from toolcrib.secrets.secret_store import SecretStore

MAX_FILE_BYTES = 64 * 1024
"""The largest file that is read as a value, or as a list of variables, in bytes."""


class SecretValues:
    """The values for the configuration at `config`. Each is read at the moment when it is needed, and not kept."""

    def __init__(self, config: Path, store: SecretStore) -> None:
        self._config = config
        self._store = store

    def value_of(self, reference: Reference) -> str:
        """Return the value of `reference`.

        Raises:
            Problem: there is no value now. Neither the message nor the remedy contains a value.
        """
        match reference.kind:
            case "file":
                path = Path(reference.name)
                return _read(self._config.absolute().parent / _expanded(path)).removesuffix("\n").removesuffix("\r")
            case "input":
                return self._stored(reference, self._config)
            case _:
                return self._stored(reference, None)

    def variables_in(self, env_file: str, workspace: Path) -> dict[str, str]:
        """Return the variables in the file at `env_file`, whose relative path starts at `workspace`.

        Raises:
            Problem: the file cannot be read.
        """
        return parse_env_file(_read(workspace / _expanded(Path(env_file))))

    def _stored(self, reference: Reference, config: Path | None) -> str:
        command = set_command(reference.name, config)
        try:
            value = self._store.get(reference.name, config)
        except KeyUnavailable as error:
            raise Problem(f"`{reference}` cannot be decrypted", remedy=str(error)) from error
        except SealBroken as error:
            raise Problem(
                f"`{reference}` cannot be decrypted: {error}",
                remedy=f"Use the key that encrypted it, or store the value again: `{command}`.",
            ) from error
        except (OSError, sqlite3.Error) as error:
            raise Problem(f"`{reference}` cannot be read: {self._store.path}: {error}") from error
        if value is None:
            raise Problem(f"`{reference}` has no value yet", remedy=f"Run `{command}`.")
        return value


def set_command(name: str, config: Path | None) -> str:
    """Return the command with which a person stores the value."""
    at = "" if config is None else f" --config {quote(str(config.absolute()))}"
    return f"toolcrib secret set {quote(name)}{at}"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # `~name`, and there is no such user
        raise Problem(str(error).rstrip(".")) from error


def _read(path: Path) -> str:
    """Return the content of a regular file of at most `MAX_FILE_BYTES`.

    Raises:
        Problem: there is no such file, or it cannot be read.
    """
    try:
        # Opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = "file not found" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise Problem(f"{path}: {reason}") from error
    except ValueError as error:  # a path with a NUL character
        raise Problem("the path of a file must not contain a NUL character") from error
    if len(content) > MAX_FILE_BYTES:
        raise Problem(f"{path}: the file is longer than {MAX_FILE_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem(f"{path}: must be UTF-8 text") from None  # the cause would show the content
    if "\0" in text:
        raise Problem(f"{path}: must not contain a NUL character")
    return text


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables in `text`, the content of an `.env` file. Lines without a variable are ignored.

    `NAME=value` or `NAME: value`, also after `export`. `#` begins a comment, unless it is in quotes. Quotes around the
    whole value are removed, and in double quotes `\\n` and `\\r` are line ends. Nothing else is special. A later line
    wins.

    Source: microsoft/vscode, `src/vs/base/common/envfile.ts`, with which VS Code reads the `envFile` of a server.
    """
    found: dict[str, str] = {}
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.strip()
        if line.startswith("#"):
            continue
        line = line.removeprefix("export ").strip()
        if (separator := _find_unquoted(line, "=:")) is None:
            continue
        name, value = line[:separator].strip(), line[separator + 1 :].strip()
        value = value[: _find_unquoted(value, "#")].strip()
        if len(value) >= 2 and value[0] == value[-1] and (mark := value[0]) in "\"'`":
            value = value[1:-1]
            if mark == '"':
                value = value.replace("\\n", "\n").replace("\\r", "\r")
        if name:
            found[name] = value
    return found


def _find_unquoted(text: str, wanted: str) -> int | None:
    """Return the position of the first of the characters `wanted` outside quotes, or None."""
    mark = ""
    for position, char in enumerate(text):
        if mark:
            if char == mark and text[position - 1] != "\\":
                mark = ""
        elif char in "\"'`":
            mark = char
        elif char in wanted:
            return position
    return None
