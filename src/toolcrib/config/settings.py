"""Reads JSON that a person wrote, with errors that name the file and the key."""

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
    """A JSON object that remembers its duplicate keys."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self:
                self.repeated.append(key)
            self[key] = value


@dataclass(frozen=True, slots=True)
class Settings:
    """An object in the file at `path`; `where` is its place in the file.

    Each reader raises `InvalidConfig` if a value has the wrong type. The message names the file, the key and what is
    expected.
    """

    values: JsonObject
    path: Path
    where: str

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def at(self, key: str) -> str:
        """Return the place of a member, as `where.key`."""
        return f"{self.where}.{key}"

    def wrong(self, key: str, expected: str) -> InvalidConfig:
        """Return the error about a member. The caller raises it."""
        return InvalidConfig(f"{self.path}: {self.at(key)}: {expected}")

    def only(self, known: Iterable[str]) -> None:
        """Check that all keys are in `known`, without duplicates.

        Raises:
            InvalidConfig: a key is unknown or a duplicate.
        """
        known = list(known)
        for key in self.values.repeated:
            raise self.wrong(key, "duplicate key")
        for key in self.values:
            if key not in known:
                raise InvalidConfig(f"{self.path}: {self.where}: unknown key `{key}`{unknown(key, known)}")

    def settings(self, key: str) -> Settings:
        """Return the object under `key`, or an empty one if the key is missing."""
        return Settings(as_object(self.values.get(key, {}), self.path, self.at(key)), self.path, self.at(key))

    def each(self, key: str) -> tuple[Settings, ...]:
        """Return the objects in the list under `key`. Their places contain their positions, from 0."""
        return tuple(
            Settings(as_object(entry, self.path, f"{self.at(key)}.{position}"), self.path, f"{self.at(key)}.{position}")
            for position, entry in enumerate(self._list(key, "must be a list of objects"))
        )

    def text(self, key: str, default: str = "") -> str:
        """Return the string under `key`. `null` counts as missing."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "must be a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of strings under `key`. A single string is a list of one; `null` counts as missing."""
        value = self.values.get(key)
        return () if value is None else read_strings(value, self._place(key))

    def paths(self, key: str) -> tuple[tuple[str, ...], ...]:
        """Return the list of paths under `key`, none of them empty. A string is one path with `/` between names."""
        value = self.values.get(key)
        paths = () if value is None else read_paths(value, self._place(key))
        if not all(paths):
            raise self.wrong(key, PATHS_EXPECTED)
        return paths

    def choice(self, key: str, known: Iterable[str], default: str) -> str:
        """Return the value under `key`, which must be one of `known`."""
        return read_choice(self.values.get(key, default), self._place(key), {word: word for word in known})

    def flag(self, key: str, default: bool = False) -> bool:
        return read_flag(self.values.get(key, default), self._place(key))

    def seconds(self, key: str, default: float, most: float = 86_400) -> float:
        """Return the number of seconds under `key`, greater than 0 and at most `most`."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise self.wrong(key, f"must be a number of seconds, greater than 0 and at most {most:g}")
        return float(value)

    def count(self, key: str, default: int, least: int, most: int, of: str) -> int:
        """Return the whole number under `key`, from `least` to `most`. `of` says what is counted, for the message."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"must be a whole number of {of}, from {least} to {most}")
        return value

    def _list(self, key: str, expected: str) -> list[object]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.wrong(key, expected)
        return cast("list[object]", value or [])

    def _place(self, key: str) -> str:
        return f"{self.path}: {self.at(key)}"


def as_object(value: object, path: Path, where: str) -> JsonObject:
    """Return `value` as an object. `where` is its place in the file at `path`.

    Raises:
        InvalidConfig: `value` is not an object.
    """
    if not isinstance(value, JsonObject):
        if value == {}:
            return JsonObject()
        raise InvalidConfig(f"{path}: {where}: must be an object")
    return value


def parsed(text: str, path: Path) -> JsonObject:
    """Parse the JSON object in `text`. Comments and trailing commas are allowed.

    Raises:
        InvalidConfig: `text` is not valid JSON, or not an object.
    """
    try:
        document = json.loads(text, object_pairs_hook=JsonObject)
    except (ValueError, RecursionError):
        # Some clients allow comments and trailing commas. Plain JSON is tried first, because that is faster.
        try:
            document = json.loads(_without_comments(text), object_pairs_hook=JsonObject)
        except json.JSONDecodeError as error:
            raise InvalidConfig(f"{path}: {_not_json(text, error)}") from error
        except RecursionError as error:
            raise InvalidConfig(f"{path}: nested too deeply") from error
        except ValueError as error:  # a number with thousands of digits
            raise InvalidConfig(f"{path}: {error}") from error
    return as_object(document, path, "the file")


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    """Say in a clause what is wrong with `text`."""
    if not text.strip():
        return 'the file is empty; the smallest configuration is {"mcpServers": {}}'
    import tomllib  # noqa: PLC0415  only needed for a broken file

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
    """Blank out comments and trailing commas. Line numbers stay the same, so that errors name the right line."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or re.sub(r"[^\n]", " ", match[0])

    return _TEXT_OR_LAST_COMMA.sub(blank, _TEXT_OR_COMMENT.sub(blank, text))
