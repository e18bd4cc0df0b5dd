"""Reads dataclasses from JSON with Pydantic, and turns its errors into messages for the author of the JSON.

A setting is a field of a subclass of `Settings`: its type, its default, and a docstring that the documentation lists.
Pydantic is imported when the first of them is read, because many programs read none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.core.values import (
    PATHS_EXPECTED,
    read_choice,
    read_flag,
    read_paths,
    read_string,
    read_strings,
    unknown,
)

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

SettingsT = TypeVar("SettingsT", bound="Settings")
ValueT = TypeVar("ValueT")
_Read = Callable[[Any, str], object]


class Settings:
    """The base of all dataclasses that are read from JSON objects. Unknown keys are errors.

    `__post_init__` may check several fields together. It and every reader report a problem with `ValueError` and a
    clause, such as "must be a string". The place of the value is added to it. A clause that begins with `.` continues
    that place: ".issuer: must be an https URL".

    Subclasses that live only while a file is read have neither `eq` nor `repr`: creating these methods takes
    milliseconds of every start, and a `repr` could show a secret.
    """

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_before_validator_function  # noqa: PLC0415  see above

        return no_info_before_validator_function(partial(_check_keys, cls), handler(source))


def _check_keys(cls: Any, value: object) -> object:
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")  # noqa: TRY004  Pydantic catches only this one
    known = {field.name: field for field in fields(cls)}
    for key in cast("Mapping[str, object]", value):
        if key not in known:
            raise ValueError(f"unknown key `{key}`{unknown(key, known)}")
    for key, field in known.items():
        if key not in value and field.default is field.default_factory is MISSING:
            raise ValueError(f"`{key}` is required{field.metadata.get('why', '')}")
    return cast("object", value)


class Reader:
    """How a value is read. It belongs into an annotation: `days: Annotated[int, whole_number(1, 30, "days")]`.

    `read` gets the value from the JSON and an empty string as its place, and returns the value of the field.
    """

    def __init__(self, read: _Read) -> None:
        self._read = read

    def __call__(self, value: object) -> object:
        try:
            return self._read(value, "")
        except (InvalidConfig, InvalidTool) as error:
            raise ValueError(error.message) from error

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_plain_validator_function  # noqa: PLC0415

        return no_info_plain_validator_function(self)


class Before(Reader):
    """Changes a value of the JSON before it is read as the annotated type."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core.core_schema import no_info_before_validator_function  # noqa: PLC0415

        return no_info_before_validator_function(self, handler(source))


class _Section(Reader):
    """Reads an object whose schema is built when the object is there. Building takes milliseconds, and most sections
    are missing.

    With `is_switch`, the object can also be `true` (all of its defaults) or `false` (None).
    """

    def __init__(self, *, is_switch: bool = False) -> None:
        self._is_switch = is_switch

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        parts = get_args(source)
        kind = next(part for part in parts if part is not NoneType) if NoneType in parts else source
        return Reader(partial(self._read_as, kind)).__get_pydantic_core_schema__(source, handler)

    def _read_as(self, kind: Any, value: object, place: str) -> object:
        if not self._is_switch:
            return read_settings(kind, value, place)
        if not isinstance(value, bool | dict):
            raise ValueError("must be true, false or an object")  # noqa: TRY004  see `_check_keys`
        given: object = {} if value is True else cast("object", value)
        return None if value is False else read_settings(kind, given, place)


_EXPECTED = {"dict_type": "must be an object", "tuple_type": "must be a list of objects"}
"""What the errors that Pydantic raises itself become. All others come from readers and `__post_init__`."""


def read_settings(kind: type[SettingsT], value: object, place: str) -> SettingsT:
    """Return `value`, a part of a parsed file, as `kind`. Errors name its place as `place`.

    `kind` may also be a `dict` of settings by name.

    Raises:
        InvalidConfig: `value` is invalid. The message begins with the place of the problem.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raised = first.get("ctx", {}).get("error")
        clause = str(raised) if isinstance(raised, ValueError) else _EXPECTED.get(first["type"], first["msg"])
        colon = "" if clause.startswith((".", ":")) else ": "
        # Not `from error`: the error of Pydantic shows the value, which may be a secret.
        raise InvalidConfig(f"{'.'.join([place, *map(str, first['loc'])])}{colon}{clause}") from None


@contextmanager
def errors_at(place: str, kind: type[InvalidConfig] | type[InvalidTool] = InvalidConfig) -> Generator[None]:
    """Put `place` in front of the messages of errors that values raise for themselves, and raise them as `kind`."""
    try:
        yield
    except (InvalidConfig, InvalidTool) as error:
        raise kind(f"{place}{error.message}") from error


@cache
def _adapter(kind: type[SettingsT]) -> TypeAdapter[SettingsT]:
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(kind)


def choice(known: Iterable[str] | Mapping[str, Any]) -> Reader:
    """Return a reader of one of several words. A mapping turns each word into its value."""
    words = cast("Mapping[str, Any]", known) if isinstance(known, Mapping) else {word: word for word in known}
    return Reader(lambda value, place: read_choice(value, place, words))


def whole_number(least: int, most: int, of: str) -> Reader:
    """Return a reader of a whole number from `least` to `most`. `of` says what is counted, for the message."""

    def read(value: object, _: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number of {of}, from {least} to {most}")
        return value

    return Reader(read)


def seconds(most: float) -> Reader:
    """Return a reader of a number of seconds, greater than 0 and at most `most`."""

    def read(value: object, _: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
            raise ValueError(f"must be a number of seconds, greater than 0 and at most {most:g}")
        return float(value)

    return Reader(read)


def words(known: Iterable[str], what: str, *, empty: tuple[str, ...] = ()) -> Reader:
    """Return a reader of a list of strings that are all in `known`. `what` says what each of them is.

    An empty list is read as `empty`.
    """
    known = tuple(known)

    def read(value: object, place: str) -> tuple[str, ...]:
        found = _read_strings(value, place)
        for word in found:
            if word not in known:
                raise ValueError(f"`{word}` is not {what}. Use: {', '.join(known)}")
        return found or empty

    return Reader(read)


def _read_text(value: object, place: str) -> str:
    return "" if value is None else read_string(value, place)


def _read_strings(value: object, place: str) -> tuple[str, ...]:
    return () if value is None else read_strings(value, place)


def _read_paths(value: object, place: str) -> tuple[tuple[str, ...], ...]:
    paths = () if value is None else read_paths(value, place)
    if not all(paths):
        raise ValueError(PATHS_EXPECTED)
    return paths


String = Annotated[str, Reader(read_string)]
"""A string. `null` is an error."""
Text = Annotated[str, Reader(_read_text)]
"""A string. `null` counts as an empty one."""
Strings = Annotated[tuple[str, ...], Reader(_read_strings)]
"""A list of strings. A lone string counts as a list of one, and `null` as an empty list."""
Paths = Annotated[tuple[tuple[str, ...], ...], Reader(_read_paths)]
"""A list of paths, none of them empty. A string is one path with `/` between names. `null` counts as an empty list."""
Flag = Annotated[bool, Reader(read_flag)]
"""`true` or `false`. `null` is an error."""
Seconds = Annotated[float, seconds(86_400)]
Section = Annotated[ValueT, _Section()]
"""An object of settings, or a `dict` of them, that most files do not have. `null` is an error."""
Switch = Annotated[ValueT, _Section(is_switch=True)]
"""An object of settings, `true` for all of its defaults, or `false` for None."""
NULL_IS_EMPTY = Before(lambda value, _: () if value is None else value)
"""For a list of objects. `null` counts as an empty list."""
