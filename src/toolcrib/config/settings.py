"""Reading JSON that a person wrote: what is wrong is named with its place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolcrib.core.errors import InvalidConfig
from toolcrib.core.values import PATHS_EXPECTED, read_choice, read_flag, read_paths, read_strings, unknown


class JsonObject(dict[str, Any]):
    """A JSON object that remembers which of its keys stood there twice."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self:
                self.repeated.append(key)
            self[key] = value


@dataclass(frozen=True, slots=True)
class Settings:
    """An object of the file at `path`, which stands at `where` in it.

    Each reader raises `InvalidConfig`, naming both and what is expected, where a value is of another kind.
    """

    values: JsonObject
    path: Path
    where: str

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def at(self, key: str) -> str:
        """The place of one of its members."""
        return f"{self.where}.{key}"

    def wrong(self, key: str, expected: str) -> InvalidConfig:
        """The error for one of its members, to be raised."""
        return InvalidConfig(f"{self.path}: {self.at(key)}: {expected}")

    def only(self, known: Iterable[str]) -> None:
        """Pass where each key is of `known`, once.

        Raises:
            InvalidConfig: another, or one that stands there twice.
        """
        known = list(known)
        for key in self.values.repeated:
            raise self.wrong(key, "it stands there twice")
        for key in self.values:
            if key not in known:
                raise InvalidConfig(f"{self.path}: {self.where}: unknown key `{key}`{unknown(key, known)}")

    def settings(self, key: str) -> Settings:
        """The object under `key`; an empty one where there is none."""
        return Settings(as_object(self.values.get(key, {}), self.path, self.at(key)), self.path, self.at(key))

    def each(self, key: str) -> tuple[Settings, ...]:
        """The objects in the list under `key`, each at its position from 0."""
        return tuple(
            Settings(as_object(entry, self.path, f"{self.at(key)}.{position}"), self.path, f"{self.at(key)}.{position}")
            for position, entry in enumerate(self._list(key, "must be a list of objects"))
        )

    def text(self, key: str, default: str = "") -> str:
        """A null is as none."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A lone text is a list of one; a null is as none."""
        value = self.values.get(key)
        return () if value is None else read_strings(value, self._place(key))

    def paths(self, key: str) -> tuple[tuple[str, ...], ...]:
        """A list of lists of texts, none of them empty. A lone text is one path, with `/` between its names."""
        value = self.values.get(key)
        paths = () if value is None else read_paths(value, self._place(key))
        if not all(paths):
            raise self.wrong(key, PATHS_EXPECTED)
        return paths

    def choice(self, key: str, known: Iterable[str], default: str) -> str:
        """One of `known`."""
        return read_choice(self.values.get(key, default), self._place(key), {word: word for word in known})

    def flag(self, key: str, default: bool = False) -> bool:
        return read_flag(self.values.get(key, default), self._place(key))

    def seconds(self, key: str, default: float, most: float = 86_400) -> float:
        """More than 0 and at most `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise self.wrong(key, f"seconds are expected, more than 0 and at most {most:g}")
        return float(value)

    def count(self, key: str, default: int, least: int, most: int, of: str) -> int:
        """A number of `of`, in words, from `least` to `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"a number of {of} is expected, from {least} to {most}")
        return value

    def _list(self, key: str, expected: str) -> list[object]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, expected)
        return cast("list[object]", value or [])

    def _place(self, key: str) -> str:
        return f"{self.path}: {self.at(key)}"


def as_object(value: object, path: Path, where: str) -> JsonObject:
    """`value`, which stands at `where` in the file at `path`, as the object it should be.

    Raises:
        InvalidConfig: it is none.
    """
    if not isinstance(value, JsonObject):
        if value == {}:
            return JsonObject()
        raise InvalidConfig(f"{path}: {where}: must be an object")
    return value


def parsed(text: str, path: Path) -> JsonObject:
    """The object that is written in `text`, comments and trailing commas allowed.

    Raises:
        InvalidConfig: there is none.
    """
    try:
        document = json.loads(text, object_pairs_hook=JsonObject)
    except (ValueError, RecursionError):
        # Some clients allow comments and trailing commas; only a file that is no plain JSON is read this way.
        try:
            document = json.loads(_without_comments(text), object_pairs_hook=JsonObject)
        except json.JSONDecodeError as error:
            raise InvalidConfig(f"{path}: {_not_json(text, error)}") from error
        except RecursionError as error:
            raise InvalidConfig(f"{path}: nested too deeply") from error
        except ValueError as error:  # a number of thousands of digits
            raise InvalidConfig(f"{path}: {error}") from error
    return as_object(document, path, "the file")


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong with `text`, as a clause."""
    if not text.strip():
        return 'the file is empty; the smallest configuration is {"mcpServers": {}}'
    import tomllib  # noqa: PLC0415  a start reads no broken file

    try:
        is_toml = bool(tomllib.loads(text))
    except (ValueError, RecursionError):
        is_toml = False
    if is_toml:
        return "this is TOML; a configuration is JSON, with the servers under `mcpServers`"
    return f"line {error.lineno}, column {error.colno}: {error.msg}"


_TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def _without_comments(text: str) -> str:
    """`text` with comments and trailing commas blanked, every line where it was, so that errors name the right one."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _TEXT_OR_LAST_COMMA.sub(blank, _TEXT_OR_COMMENT.sub(blank, text))
