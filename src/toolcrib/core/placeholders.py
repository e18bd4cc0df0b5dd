"""Fills environment variables and the principal into strings of a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

WHO = "\0"
"""Marks the position of a principal's id in a string.

Variables and arguments of a program cannot contain NUL. So nothing else looks like this mark, and no program can start
with a string that still has it.
"""

_PRINCIPAL = "principal"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([^}:]*)(:-(?P<default>[^}]*))?(?P<rest>[^}]*)\}")


class Problem(Exception):
    """A problem in the configuration of one server or tool. The message names the key."""


def unfilled(text: str) -> str:
    """Return `text` as it was written, with `${principal}` instead of the mark `WHO`."""
    return text.replace(WHO, f"${{{_PRINCIPAL}}}")


def for_each_principal(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return `environ` for a server with one instance per principal: `${principal}` becomes `WHO`."""
    return {**environ, _PRINCIPAL: WHO}


def expanded(value: object, where: str, environ: Mapping[str, str]) -> str:
    """Return `value` with `${VAR}`, `${VAR:-default}` and `${env:VAR}` filled in from `environ`.

    Raises:
        Problem: `value` is not a string, a variable is not set, or a placeholder belongs to a different program
            (`${input:token}`).
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # ports in `env` and `args` are often written as numbers
    if not isinstance(value, str):
        raise Problem(f"{where}: must be a string")
    if WHO in value:
        raise Problem(f"{where}: must not contain a NUL character")

    def fill(match: re.Match[str]) -> str:
        variable = match[1]
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

    return _PLACEHOLDER.sub(fill, value)


def expanded_members(value: object, where: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the members of the object `value`, each with placeholders filled in. `null` counts as an empty object.

    Raises:
        Problem: `value` is not an object, or `expanded` refuses one of its members.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Problem(f"{where}: must be an object whose values are strings")
    texts = cast("Mapping[str, object]", value)
    return {key: expanded(part, f"{where}.{key}", environ) for key, part in texts.items()}
