"""Fills environment variables and the principal into strings of a configuration, and finds references to secrets.

A reference, such as `${keyring:NAME}`, stays in the string. It is filled in when the server starts. So secrets are not
in configurations, in digests of servers or in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

WHO = "\0"
"""Marks the position of a principal's id in a string.

Variables and arguments of a program cannot contain NUL. So nothing else looks like this mark, and no program can start
with a string that still has it.
"""

_PRINCIPAL = "principal"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([^}:]*)(:-(?P<default>[^}]*))?(?P<rest>[^}]*)\}")


_REFERENCE = re.compile(r"\$\{(?P<kind>keyring|file|input):(?!-)(?P<name>[^}]*)\}")
"""`${file:-default}` is not a reference: it is the environment variable `file`, with a default."""


class Problem(Exception):
    """A problem in the configuration of one server or tool. The message names the key."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        """`remedy` says what the owner can do, as a sentence. It may name a command, but no value."""
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Reference:
    """A placeholder for a value that is stored outside the configuration."""

    kind: str
    """`keyring`, `file` or `input`."""
    name: str

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"


def references_in(text: str) -> list[Reference]:
    """Return the references in `text`, in order."""
    return [Reference(found["kind"], found["name"]) for found in _REFERENCE.finditer(text)]


def with_values(text: str, value_of: Callable[[Reference], str]) -> str:
    """Return `text` with each reference replaced by its value. Values are not searched for references."""
    return _REFERENCE.sub(lambda found: value_of(Reference(found["kind"], found["name"])), text)


def unfilled(text: str) -> str:
    """Return `text` as it was written, with `${principal}` instead of the mark `WHO`."""
    return text.replace(WHO, f"${{{_PRINCIPAL}}}")


def for_each_principal(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return `environ` for a server with one instance per principal: `${principal}` becomes `WHO`."""
    return {**environ, _PRINCIPAL: WHO}


def expanded(
    value: object, where: str, environ: Mapping[str, str], check: Callable[[Reference], str] | None = None
) -> str:
    """Return `value` with `${VAR}`, `${VAR:-default}` and `${env:VAR}` filled in from `environ`.

    References stay as they are. `check` returns what is wrong with one, or an empty string. Without `check`, no
    references are allowed.

    Raises:
        Problem: `value` is not a string, a variable is not set, a reference is wrong, or a placeholder belongs to a
            different program.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # ports in `env` and `args` are often written as numbers
    if not isinstance(value, str):
        raise Problem(f"{where}: must be a string")
    if WHO in value:
        raise Problem(f"{where}: must not contain a NUL character")

    def fill(match: re.Match[str]) -> str:
        variable = match[1]
        if (found := _REFERENCE.fullmatch(match[0])) is not None:
            reference = Reference(found["kind"], found["name"])
            wrong = "is only available in the servers of a configuration" if check is None else check(reference)
            if wrong:
                raise Problem(f"{where}: `{match[0]}` {wrong}")
            return match[0]
        if match["rest"] or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise Problem(f"{where}: Toolcrib cannot fill in `{match[0]}`, because it is not an environment variable")
        if variable in environ and (environ[variable] or match["default"] is None):
            return environ[variable]
        if match["default"] is not None:
            if "${" in match["default"]:
                raise Problem(f"{where}: a default must not contain a placeholder")
            return match["default"]
        if variable == _PRINCIPAL:
            raise Problem(f"{where}: `{match[0]}` is only available to a server with `isolation` set to `principal`")
        raise Problem(f"{where}: environment variable `{variable}` is not set")

    filled = _PLACEHOLDER.sub(fill, value)
    if references_in(filled) != references_in(value):
        # A variable may be set by a stranger, for example to the name of a branch. It must not name a secret.
        raise Problem(f"{where}: the value of an environment variable must not contain a placeholder")
    return filled


def expanded_members(
    value: object, where: str, environ: Mapping[str, str], check: Callable[[Reference], str] | None = None
) -> Mapping[str, str]:
    """Return the members of the object `value`, each with placeholders filled in. `null` counts as an empty object.

    Raises:
        Problem: `value` is not an object, or `expanded` refuses one of its members.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Problem(f"{where}: must be an object whose values are strings")
    texts = cast("Mapping[str, object]", value)
    return {key: expanded(part, f"{where}.{key}", environ, check) for key, part in texts.items()}
