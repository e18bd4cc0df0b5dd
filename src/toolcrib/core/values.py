"""Reads strings, lists of strings, paths and members of enums, as programs and configuration files give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from toolcrib.core.errors import InvalidArguments, InvalidConfig, InvalidTool
from toolcrib.core.schema import nearest

ValueT = TypeVar("ValueT")
ErrorType = type[InvalidArguments] | type[InvalidConfig] | type[InvalidTool]

PATHS_EXPECTED = 'a list of paths is expected here, as in [["Coding", "Refactoring"]]'


def read_string(value: object, place: str, error: ErrorType = InvalidConfig) -> str:
    """`value`, which has to be a string.

    Raises:
        error: it is anything else; the message begins with `place`.
    """
    if not isinstance(value, str):
        raise error(f"{place}: a text is expected here, and not an empty one")
    return value


def check_string(value: object, place: str, error: ErrorType = InvalidConfig) -> None:
    """Pass where `value` is a string that is not blank and can be written as UTF-8.

    Raises:
        error: it is anything else; the message begins with `place`.
    """
    if not isinstance(value, str) or not value.strip():
        raise error(f"{place}: a text is expected here, and not an empty one")
    try:
        value.encode()
    except UnicodeEncodeError as reason:
        raise error(f"{place}: the text holds half a surrogate pair, which is no Unicode text") from reason


def read_strings(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[str, ...]:
    """The strings of a list or tuple. A lone string counts as a list of one.

    Raises:
        error: `value` or one of its elements is anything else.
    """
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise error(f"{place}: a list of texts is expected here")
    each = enumerate(cast("list[object]", value))
    return tuple(read_string(string, f"{place}.{position}", error) for position, string in each)


def read_path(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[str, ...]:
    """A path as a list or tuple of names. In a lone string, `/` stands between the names.

    Raises:
        error: `value` or one of its elements is anything else.
    """
    return read_strings(value.split("/") if isinstance(value, str) else value, place, error)


def read_paths(value: object, place: str, error: ErrorType = InvalidConfig) -> tuple[tuple[str, ...], ...]:
    """A list or tuple of paths, each a list or tuple of names. A lone string counts as one path; see `read_path`.

    A list of strings could mean one path or several, so it is refused.

    Raises:
        error: `value` or one of the paths is anything else.
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
    """The value that `known` has under the word `value`; one of its values stands for itself.

    Raises:
        error: `value` is neither; the message names the words, and the one that was probably meant.
    """
    for word, meant in known.items():
        if value == word or value is meant:
            return meant
    raise error(f"{place}: one of {', '.join(known)} is expected here{did_you_mean(value, known)}")


def read_flag(value: object, place: str, error: ErrorType = InvalidConfig) -> bool:
    """`value`, which has to be true or false.

    Raises:
        error: it is anything else.
    """
    if not isinstance(value, bool):
        raise error(f"{place}: true or false is expected here")
    return value


def check_kind(value: object, kind: type, place: str, error: ErrorType = InvalidConfig) -> None:
    """Pass where `value` is an instance of `kind`.

    Raises:
        error: it is not; the message begins with `place`.
    """
    if not isinstance(value, kind):
        raise error(f"{place}: a `{kind.__name__}` is expected here, not `{type(value).__name__}`")


def unknown(given: object, known: Iterable[str]) -> str:
    """How an error ends that says `given` is not one of `known`: with the one that was probably meant, or with all."""
    known = list(known)
    return did_you_mean(given, known) or f"; known are: {', '.join(known) or 'none'}"


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """How an error ends where `given` is probably meant to be one of `known`; else empty."""
    near = nearest(given, known) if isinstance(given, str) else None
    return f" (did you mean `{near}`?)" if near else ""
