"""Parses JSON that a person wrote: comments are allowed, and duplicate keys are found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from toolcrib.core.errors import InvalidConfig


class JsonObject(dict[str, Any]):
    """A JSON object that remembers its duplicate keys."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__()
        self.repeated: list[str] = []
        for key, value in pairs:
            if key in self:
                self.repeated.append(key)
            self[key] = value


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


def refuse_duplicates(value: object, place: str) -> None:
    """Check that `value` has no duplicate keys at any depth, because one of their values would be ignored.

    Raises:
        InvalidConfig: a key is a duplicate.
    """
    waiting = [(place, value)]  # not a recursion, because a document can be nested deeply
    while waiting:
        place, here = waiting.pop()
        if isinstance(here, JsonObject):
            for key in here.repeated:
                raise InvalidConfig(f"{place}.{key}: duplicate key")
            waiting += ((f"{place}.{key}", member) for key, member in here.items())
        elif isinstance(here, list):
            waiting += ((f"{place}.{position}", each) for position, each in enumerate(cast("list[object]", here)))


def parse_object(text: str, path: Path) -> JsonObject:
    """Parse the JSON object in `text`, the content of the file at `path`. Comments and trailing commas are allowed.

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
