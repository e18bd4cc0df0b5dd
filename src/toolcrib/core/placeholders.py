"""Texts in which a variable of the environment, or the principal, is still to be filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

WHO = "\0"
"""Stands where the id of a principal goes. No variable or argument of a program can hold it, so nothing else looks like
it, and no program can be started with a text in which it was left."""

_PRINCIPAL = "principal"
_PLACEHOLDER = re.compile(r"\$\{(?:env:)?([^}:]*)(:-(?P<default>[^}]*))?(?P<rest>[^}]*)\}")


class Problem(Exception):
    """What is wrong with one server or tool, and with which of its keys."""


def unfilled(text: str) -> str:
    """`text` as somebody wrote it, where the principal is still to be filled in."""
    return text.replace(WHO, f"${{{_PRINCIPAL}}}")


def for_each_principal(environ: Mapping[str, str]) -> Mapping[str, str]:
    """`environ` for a server that each principal has for itself: `${principal}` comes to `WHO`."""
    return {**environ, _PRINCIPAL: WHO}


def expanded(value: object, where: str, environ: Mapping[str, str]) -> str:
    """`value` with `${VAR}`, `${VAR:-default}` and `${env:VAR}` filled in from `environ`.

    Raises:
        Problem: not a text, a variable that is not set, or a placeholder of another program (`${input:token}`).
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)  # ports in `env` and `args` are often written as numbers
    if not isinstance(value, str):
        raise Problem(f"{where}: a text is expected here")
    if WHO in value:
        raise Problem(f"{where}: a text cannot hold a NUL character here")

    def fill(match: re.Match[str]) -> str:
        variable = match[1]
        if match["rest"] or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            raise Problem(f"{where}: `{match[0]}` is not a variable that Toolcrib can fill in")
        if variable in environ and (environ[variable] or match["default"] is None):
            return environ[variable]
        if match["default"] is not None:
            if "${" in match["default"]:
                raise Problem(f"{where}: a default cannot hold another placeholder")
            return match["default"]
        if variable == _PRINCIPAL:
            raise Problem(f"{where}: `{match[0]}` is filled in only for a server whose `isolation` is `principal`")
        raise Problem(f"{where}: the environment variable `{variable}` is not set")

    return _PLACEHOLDER.sub(fill, value)


def expanded_members(value: object, where: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """An object of such texts; none is as an empty one. Raises as `expanded` does."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Problem(f"{where}: an object of texts is expected here")
    texts = cast("Mapping[str, object]", value)
    return {key: expanded(part, f"{where}.{key}", environ) for key, part in texts.items()}
