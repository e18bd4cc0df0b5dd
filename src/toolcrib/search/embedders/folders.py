"""A folder that holds a model: what is in it, and what is wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolcrib.search.embedders.base import EmbeddingFailed

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_HEADER_BYTES = 100_000_000
"""What the format of safetensors allows."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model that runs in this process, from files that are there."""

    path: Path

    def file(self, *names: str) -> Path | None:
        """The first of `names` that is there."""
        return next((self.path / name for name in names if (self.path / name).is_file()), None)

    def needed(self, *names: str) -> Path:
        """Likewise.

        Raises:
            EmbeddingFailed: none is.
        """
        if (found := self.file(*names)) is None:
            raise self.wrong(f"there is no `{'` or `'.join(names)}` in it")
        return found

    def json(self, name: str) -> Mapping[str, Any]:
        """The JSON object in the file `name`; an empty one where there is no such file.

        Raises:
            EmbeddingFailed: the file holds something else.
        """
        path = self.path / name
        if not path.is_file():
            return {}
        value = self._json_value(path)
        if not isinstance(value, dict):
            raise self.wrong(f"`{name}` holds no JSON object")
        return cast("Mapping[str, Any]", value)

    def modules(self) -> tuple[tuple[str, str], ...]:
        """Kind and path of the parts that `modules.json` lists, in order; none where there is no such file."""
        path = self.path / "modules.json"
        if not path.is_file():
            return ()
        try:
            listed = [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in self._json_value(path)]
        except (TypeError, KeyError) as error:
            raise self.wrong("`modules.json` does not list modules") from error
        return tuple(listed)

    def count(self, settings: Mapping[str, Any], key: str, default: int | None) -> int | None:
        """A number from 1 on, which `settings` has under `key`."""
        value = settings.get(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.wrong(f"its `{key}` is no number from 1 on")
        return value

    def tokenizer(self, path: Path) -> Tokenizer:
        """The tokenizer in the file at `path`, which neither pads nor cuts anything off."""
        tokenizers = extra("tokenizers")
        try:
            tokenizer: Tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # it raises plain ones, for whatever is wrong
            raise self.wrong(f"`{path.name}` holds no tokenizer: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def digest(self, files: Iterable[Path], settings: str) -> str:
        """16 hex digits for what is in `files`, and for `settings`."""
        whole = hashlib.blake2b(settings.encode(), digest_size=8)
        for path in files:
            try:
                with path.open("rb") as file:
                    # Each by its own digest, so that nothing can move from one to the next.
                    whole.update(hashlib.file_digest(file, "blake2b").digest())
            except OSError as error:
                raise self.wrong(f"`{path.name}` cannot be read: {error.strerror or error}") from error
        return whole.hexdigest()

    def tensors(self, path: Path) -> frozenset[str]:
        """The names of those in the safetensors file at `path`, as its head lists them."""
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                if length > min(_MAX_HEADER_BYTES, path.stat().st_size):
                    raise self.wrong(f"`{path.name}` is truncated, or holds no tensors")
                head = json.loads(file.read(length))
        except OSError as error:
            raise self.wrong(f"`{path.name}` cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise self.wrong(f"`{path.name}` is truncated, or holds no tensors") from error
        if not isinstance(head, dict):
            raise self.wrong(f"`{path.name}` is truncated, or holds no tensors")
        return frozenset(cast("dict[str, Any]", head))

    def wrong(self, what: str) -> EmbeddingFailed:
        """The error for something about it, to be raised."""
        return EmbeddingFailed(f"{self.path}: {what}", is_final=True)

    def _json_value(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except OSError as error:
            raise self.wrong(f"`{path.name}` cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise self.wrong(f"`{path.name}` is not JSON") from error


def extra(name: str) -> Any:
    """The module `name`, which comes with the extra.

    Raises:
        EmbeddingFailed: it is not installed, or does not load here.
    """
    try:
        return import_module(name)
    except ImportError as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded ({error})"
        raise EmbeddingFailed(
            f"a model in a folder needs `{name}`, which {why}: pip install 'toolcrib[embed]'", is_final=True
        ) from error
