"""Strings with placeholders for the arguments of a call and for environment variables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from toolcrib.core.errors import InvalidArguments, InvalidTool
from toolcrib.core.placeholders import expanded
from toolcrib.core.schema import nearest

Values = Mapping[str, Any]
"""The arguments of a call, with the defaults of the input schema. No value is null."""


@dataclass(frozen=True, slots=True)
class _Argument:
    """A placeholder for an argument."""

    name: str


@dataclass(frozen=True, slots=True)
class _Variable:
    """A placeholder for an environment variable. `text` is how it was written."""

    text: str


# In `${{`, the dollar is literal and `{{` is an escaped brace.
_MARK = re.compile(r"(?P<variable>\$\{(?!\{)[^}]*\})|(?P<brace>\{\{|\}\})|\{(?P<argument>[^{}]+)\}|(?P<lone>[{}])")
_VARIABLE = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """Text, arguments and variables, in order: `{name}` is an argument, `${env:NAME}` a variable, `{{` a literal
    brace."""

    parts: tuple[str | _Argument | _Variable, ...]

    @classmethod
    def read(cls, text: object, where: str) -> Self:
        """Read the template `text`. Errors name its place as `where`.

        Raises:
            InvalidTool: it is not a string, or contains an unknown placeholder.
        """
        if not isinstance(text, str):
            raise InvalidTool(f"{where}: must be a string")
        parts: list[str | _Argument | _Variable] = []
        end = 0
        for mark in _MARK.finditer(text):
            parts.append(text[end : mark.start()])
            parts.append(_part(mark, where))
            end = mark.end()
        parts.append(text[end:])
        return cls(_joined(parts))

    @property
    def names(self) -> frozenset[str]:
        """The names of the arguments in the template."""
        return frozenset(part.name for part in self.parts if isinstance(part, _Argument))

    @property
    def has_variables(self) -> bool:
        return any(isinstance(part, _Variable) for part in self.parts)

    @property
    def bare(self) -> str | None:
        """The name of the argument, if the template consists of one argument only; else None."""
        match self.parts:
            case (_Argument(name=name),):
                return name
            case _:
                return None

    @property
    def literal(self) -> str | None:
        """The whole text, if the template has no placeholders; else None."""
        match self.parts:
            case ():
                return ""
            case (str() as text,):
                return text
            case _:
                return None

    def filled(self, where: str, environ: Mapping[str, str], written: Callable[[str], str] = str) -> Self:
        """Return a copy with environment variables filled in from `environ`, each converted by `written`.

        Raises:
            Problem: a variable is not set.
        """
        parts = [
            written(expanded(part.text, where, environ)) if isinstance(part, _Variable) else part for part in self.parts
        ]
        return type(self)(_joined(parts))

    def rendered(self, values: Values, written: Callable[[str], str] = str) -> str | None:
        """Return the text with `values` filled in, each converted by `as_text` and `written`; None if a value is
        missing."""
        if not self.names <= values.keys():
            return None
        return "".join(
            written(as_text(values[part.name])) if isinstance(part, _Argument) else cast("str", part)
            for part in self.parts
        )


def as_text(value: object) -> str:
    """Return a string unchanged, and any other value as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_values(input_schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Values:
    """Return `arguments`, with the defaults of `input_schema` for missing ones. null counts as missing."""
    properties = cast("Mapping[str, object]", input_schema.get("properties", {}))
    defaults = {name: default_of(each) for name, each in properties.items()}
    given = {name: value for name, value in arguments.items() if value is not None}
    return {**{name: value for name, value in defaults.items() if value is not None}, **given}


def default_of(schema: object) -> Any:
    """Return the default in the schema of a property, or None."""
    return cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None


def refused(name: str, message: str) -> InvalidArguments:
    """Return the error for an argument whose value is not allowed in its place. Nothing ran."""
    place = f"/{name.replace('~', '~0').replace('/', '~1')}"
    return InvalidArguments(
        f"`{name}` {message}. Nothing ran.",
        details={"violations": [{"place": place, "message": f"`{name}` {message}"}]},
    )


def check_name(name: str, properties: Mapping[str, Any], where: str) -> None:
    """Check that `name` is one of `properties`.

    Raises:
        InvalidTool: it is not. The message names the nearest property.
    """
    if name not in properties:
        near = nearest(name, properties)
        meant = f" (did you mean `{{{near}}}`?)" if near else "; write literal braces as `{{` and `}}`"
        raise InvalidTool(f"{where}: `{{{name}}}` is not a property of the input schema{meant}")


def _part(mark: re.Match[str], where: str) -> str | _Argument | _Variable:
    if mark["brace"]:
        return mark["brace"][0]
    if mark["lone"]:
        raise InvalidTool(f"{where}: write a literal `{mark['lone']}` as `{2 * mark['lone']}`")
    if mark["argument"]:
        return _Argument(mark["argument"])
    if not _VARIABLE.fullmatch(mark["variable"]):
        raise InvalidTool(
            f"{where}: `{mark['variable']}` is not a placeholder; write an environment variable as `${{env:NAME}}`"
        )
    return _Variable(mark["variable"])


def _joined(parts: Sequence[str | _Argument | _Variable]) -> tuple[str | _Argument | _Variable, ...]:
    """Return `parts` without empty strings, and with adjacent strings joined."""
    joined: list[str | _Argument | _Variable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)
