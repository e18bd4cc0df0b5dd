"""Reads the files of a folder with a model, and reports problems with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolcrib.search.embedders.interface import EmbeddingFailed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model that runs in this process, from files in a folder."""

    path: Path

    def file(self, *names: str) -> Path | None:
        """Return the first of the files `names` that exists. None if none exists."""
        return next((self.path / name for name in names if (self.path / name).is_file()), None)

    def needed(self, *names: str) -> Path:
        """Return the first of the files `names` that exists.

        Raises:
            EmbeddingFailed: none of them exists.
        """
        if (found := self.file(*names)) is None:
            raise self.wrong(f"it contains no `{'` or `'.join(names)}`")
        return found

    def json(self, name: str) -> Mapping[str, Any]:
        """Return the JSON object in the file `name`, or an empty one if the file does not exist.

        Raises:
            EmbeddingFailed: the file contains something else.
        """
        path = self.path / name
        if not path.is_file():
            return {}
        value = self._json_value(path)
        if not isinstance(value, dict):
            raise self.wrong(f"`{name}` is not a JSON object")
        return cast("Mapping[str, Any]", value)

    def modules(self) -> tuple[tuple[str, str], ...]:
        """Return kind and path of the parts in `modules.json`, in order. Empty if the file does not exist."""
        path = self.path / "modules.json"
        if not path.is_file():
            return ()
        try:
            listed = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in self._json_value(path)]
        except (TypeError, KeyError) as error:
            raise self.wrong("`modules.json` does not list modules") from error
        return tuple(listed)

    def count(self, settings: Mapping[str, Any], key: str, default: int | None) -> int | None:
        """Return the positive number under `key` in `settings`, or `default`."""
        value = settings.get(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.wrong(f"its `{key}` must be a number of at least 1")
        return value

    def tokenizer(self, path: Path) -> Tokenizer:
        """Load the tokenizer in the file at `path`, without padding and truncation."""
        tokenizers = extra("tokenizers")
        try:
            tokenizer: Tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain `Exception` for every problem
            raise self.wrong(f"`{path.name}` is not a tokenizer: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def digest(self, files: Iterable[Path], settings: str) -> str:
        """Return 16 hex digits for the content of `files` and `settings`."""
        whole = hashlib.blake2b(settings.encode(), digest_size=8)
        for path in files:
            try:
                with path.open("rb") as file:
                    # Each file has its own digest, so that content cannot move between files unnoticed.
                    whole.update(hashlib.file_digest(file, "blake2b").digest())
            except OSError as error:
                raise self.wrong(f"could not read `{path.name}`: {error.strerror or error}") from error
        return whole.hexdigest()

    def tensors(self, path: Path) -> frozenset[str]:
        """Return the names of the tensors in the safetensors file at `path`, from its header."""
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if length > min(_MAX_HEADER_BYTES, path.stat().st_size):
                    raise self.wrong(f"`{path.name}` is truncated, or contains no tensors")
                head = json.loads(file.read(length))
        except OSError as error:
            raise self.wrong(f"could not read `{path.name}`: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"`{path.name}` is truncated, or contains no tensors") from error
        if not isinstance(head, dict):
            raise self.wrong(f"`{path.name}` is truncated, or contains no tensors")
        return frozenset(cast("dict[str, Any]", head))

    def wrong(self, what: str) -> EmbeddingFailed:
        """Make the error for a problem with this folder. The caller raises it."""
        return EmbeddingFailed(f"{self.path}: {what}", is_final=True)

    def _json_value(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except OSError as error:
            raise self.wrong(f"could not read `{path.name}`: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"`{path.name}` is not valid JSON") from error


def extra(name: str) -> Any:
    """Import the module `name`, which comes with the extra `embed`.

    Raises:
        EmbeddingFailed: the module is not installed, or cannot be imported.
    """
    try:
        return import_module(name)
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
        raise EmbeddingFailed(
            f"a model in a folder needs `{name}`, which {why}: pip install 'toolcrib[embed]'", is_final=True
        ) from error
