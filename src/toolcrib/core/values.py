"""Readers for strings, lists of strings, paths, flags and choices that come from programs or configuration files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from toolcrib.core.errors import InvalidArguments, InvalidConfig, InvalidTool
from toolcrib.core.schema import nearest

ValueT = TypeVar("ValueT")
ErrorType = type[InvalidArguments] | type[InvalidConfig] | type[InvalidTool]

PATHS_EXPECTED = 'must be a list of paths, for example [["Coding", "Refactoring"]]'


def read_string(value: object, place: str, error: ErrorType = InvalidConfig) -> str:
    """Return `value` if it is a string.

    Raises:
        error: `value` is not a string; the message begins with `place`.
    """
    if not isinstance(value, str):
        raise error(f"{place}: must be a string")
    return value


def check_string(value: object, place: str, error: ErrorType = InvalidConfig) -> None:
    """Check that `value` is a string that is not blank and can be written as UTF-8.

    Raises:
        error: it is not; the message begins with `place`.
    """
    if not isinstance(value, str) or not value.strip():
        raise error(f"{place}: must be a non-empty string")
    try:
        value.encode()
    except UnicodeEncodeError as reason:
        raise error(f"{place}: the string contains half a surrogate pair, which is not valid Unicode") from reason


def read_strings(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[str, ...]:
    """Return the strings of a list or tuple. A lone string counts as a list of one.

    Raises:
        error: `value` or one of its elements has a different type.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise error(f"{place}: must be a list of strings")
    each = enumerate(cast("list[object]", value))
    return tuple(read_string(string, f"{place}.{position}", error) for position, string in each)


def read_path(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[str, ...]:
    """Return a path that is a list or tuple of names, or a string with `/` between the names.

    Raises:
        error: `value` or one of its elements has a different type.
    """
    return read_strings(value.split("/") if isinstance(value, str) else value, place, error)


def read_paths(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[tuple[str, ...], ...]:
    """Return the paths of a list or tuple. Each path is a list or tuple of names.

    A lone string counts as one path; see `read_path`. A list of strings is refused, because it could mean one path or
    several.

    Raises:
        error: `value` or one of the paths has a different type.
    """
    if isinstance(value, str):
        return (read_path(value, place, error),)
    if not isinstance(value, list | tuple):
        raise error(f"{place}: {PATHS_EXPECTED}")
    found: list[tuple[str, ...]] = []
    for position, path in enumerate(cast("list[object]", value)):
        if not isinstance(path, list | tuple):
            raise error(f"{place}: {PATHS_EXPECTED}")
        found.append(read_path(cast("object", path), f"{place}.{position}", error))
    return tuple(found)


def read_choice(value: object, place: str, known: Mapping[str, ValueT], error: ErrorType = InvalidConfig) -> ValueT:
    """Return the value of the key `value` in `known`. If `value` is itself one of the values of `known`, return it.

    Raises:
        error: `value` is neither. The message lists the keys, and the one that was probably meant.
    """
    for word, meant in known.items():
        if value == word or value is meant:
            return meant
    raise error(f"{place}: must be one of: {', '.join(known)}{did_you_mean(value, known)}")


def read_flag(value: object, place: str, error: ErrorType = InvalidConfig) -> bool:
    """Return `value` if it is a boolean.

    Raises:
        error: `value` is not a boolean.
    """
    if not isinstance(value, bool):
        raise error(f"{place}: must be true or false")
    return value


def check_kind(value: object, kind: type, place: str, error: ErrorType = InvalidConfig) -> None:
    """Check that `value` is an instance of `kind`.

    Raises:
        error: it is not; the message begins with `place`.
    """
    if not isinstance(value, kind):
        raise error(f"{place}: must be a `{kind.__name__}`, not `{type(value).__name__}`")


def unknown(given: object, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name: the known name that was probably meant, or all."""
    known = list(known)
    return did_you_mean(given, known) or f"; known: {', '.join(known) or 'none'}"


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` with the closest of `known`, or an empty string if none is close to `given`."""
    near = nearest(given, known) if isinstance(given, str) else None
    return f" (did you mean `{near}`?)" if near else ""
