"""Texts in which arguments of a call are still to be filled in, and variables of the environment."""

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
"""The arguments of a call that are there, defaults of the input schema included; none of them is null."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Where an argument goes."""

    name: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable of the environment goes; `text` is how it was written."""

    text: str


# `${{` is a dollar before a brace that stands for itself.
_MARK = re.compile(r"(?P<variable>\$\{(?!\{)[^}]*\})|(?P<brace>\{\{|\}\})|\{(?P<argument>[^{}]+)\}|(?P<lone>[{}])")
_VARIABLE = re.compile(r"\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """Text, arguments and variables, in order: `{name}` is an argument, `${env:NAME}` a variable, `{{` a brace."""

    parts: tuple[str | Argument | Variable, ...]

    @classmethod
    def read(cls, text: object, where: str) -> Self:
        """The template that `text` writes, which stands at `where`.

        Raises:
            InvalidTool: it is no text, or holds something in braces that is neither of these.
        """
        if not isinstance(text, str):
            raise InvalidTool(f"{where}: must be a string")
        parts: list[str | Argument | Variable] = []
        end = 0
        for mark in _MARK.finditer(text):
            parts.append(text[end : mark.start()])
            parts.append(_part(mark, where))
            end = mark.end()
        parts.append(text[end:])
        return cls(_joined(parts))

    @property
    def names(self) -> frozenset[str]:
        """Of the arguments in it."""
        return frozenset(part.name for part in self.parts if isinstance(part, Argument))

    @property
    def has_variables(self) -> bool:
        return any(isinstance(part, Variable) for part in self.parts)

    @property
    def bare(self) -> str | None:
        """The argument that is all there is of it; None where there is more, or none."""
        match self.parts:
            case (Argument(name=name),):
                return name
            case _:
                return None

    @property
    def literal(self) -> str | None:
        """The whole text, where nothing is to be filled in."""
        match self.parts:
            case ():
                return ""
            case (str() as text,):
                return text
            case _:
                return None

    def filled(self, where: str, environ: Mapping[str, str], written: Callable[[str], str] = str) -> Self:
        """The same with its variables as `environ` has them, each as `written` gives it.

        Raises:
            Problem: one of them is not set.
        """
        parts = [
            written(expanded(part.text, where, environ)) if isinstance(part, Variable) else part for part in self.parts
        ]
        return type(self)(_joined(parts))

    def rendered(self, values: Values, written: Callable[[str], str] = str) -> str | None:
        """The text with `values` in it, each as `as_text` and then `written` give it; None where one is not there."""
        if not self.names <= values.keys():
            return None
        return "".join(
            written(as_text(values[part.name])) if isinstance(part, Argument) else cast("str", part)
            for part in self.parts
        )


def as_text(value: object) -> str:
    """A text as it is, everything else as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_values(input_schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Values:
    """`arguments`, with the defaults of `input_schema` for those that are not there; null is as not there."""
    properties = cast("Mapping[str, object]", input_schema.get("properties", {}))
    defaults = {name: default_of(each) for name, each in properties.items()}
    given = {name: value for name, value in arguments.items() if value is not None}
    return {**{name: value for name, value in defaults.items() if value is not None}, **given}


def default_of(schema: object) -> Any:
    """What the schema of a property says that its value is where none is given; None where it says nothing."""
    return cast("Mapping[str, Any]", schema).get("default") if isinstance(schema, Mapping) else None


def refused(name: str, message: str) -> InvalidArguments:
    """The error for an argument whose value cannot go where it should; nothing was run."""
    place = f"/{name.replace('~', '~0').replace('/', '~1')}"
    return InvalidArguments(
        f"Nothing was run: `{name}` {message}.",
        details={"violations": [{"place": place, "message": f"`{name}` {message}"}]},
    )


def check_name(name: str, properties: Mapping[str, Any], where: str) -> None:
    """Pass where `name` is one of `properties`.

    Raises:
        InvalidTool: it is not; the message names the nearest that is.
    """
    if name not in properties:
        near = nearest(name, properties)
        meant = (
            f" (did you mean `{{{near}}}`?)" if near else "; braces that stand for themselves are written `{{` and `}}`"
        )
        raise InvalidTool(f"{where}: `{{{name}}}` is no property of the input schema{meant}")


def _part(mark: re.Match[str], where: str) -> str | Argument | Variable:
    if mark["brace"]:
        return mark["brace"][0]
    if mark["lone"]:
        raise InvalidTool(f"{where}: a `{mark['lone']}` that stands for itself is written `{2 * mark['lone']}`")
    if mark["argument"]:
        return Argument(mark["argument"])
    if not _VARIABLE.fullmatch(mark["variable"]):
        raise InvalidTool(
            f"{where}: `{mark['variable']}` is no placeholder: a variable of the environment is written `${{env:NAME}}`"
        )
    return Variable(mark["variable"])


def _joined(parts: Sequence[str | Argument | Variable]) -> tuple[str | Argument | Variable, ...]:
    """`parts` without empty texts, and with neighbouring texts as one."""
    joined: list[str | Argument | Variable] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)
