"""The `inputs` of a configuration, as VS Code defines them: values that a person enters once.

Source: code.visualstudio.com/docs/copilot/reference/mcp-configuration, "Input variables for sensitive data".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from toolcrib.core.placeholders import Reference

SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/-]{0,99}")
"""Names of stored secrets. They are typed on command lines and written in placeholders."""


@dataclass(frozen=True, slots=True)
class Input:
    """One entry of `inputs`."""

    id: str
    description: str = ""
    default: str = ""
    """What a person is offered. It is never used without asking."""
    is_password: bool = False
    options: tuple[tuple[str, str], ...] = ()
    """The label and the value of each choice. Empty if any value can be entered."""
    problem: str = ""
    """Why this value cannot be entered, as the end of a sentence. Empty if it can be."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All entries of `inputs`, by id."""

    by_id: Mapping[str, Input] = field(default_factory=dict[str, Input])

    def wrong_with(self, reference: Reference) -> str:
        """Return why `reference` cannot have a value, as the end of a sentence; empty if it can have one."""
        match reference.kind:
            case "keyring":
                valid = SECRET_NAME.fullmatch(reference.name)
                return "" if valid else "is not a valid name of a secret: use letters, digits and `_.@/-`"
            case "file":
                return "" if reference.name and "$" not in reference.name else "needs the path of a file"
            case _:
                known = self.by_id.get(reference.name)
                return "is not defined under `inputs`" if known is None else known.problem


NO_INPUTS = Inputs()


def read_inputs(given: object) -> Inputs:
    """Return the entries of the key `inputs`. Entries without an id are ignored, because no placeholder means them.

    Other programs may use this key for something else. So a wrong entry is only a problem of the servers that use it.
    """
    found: dict[str, Input] = {}
    for each in cast("list[object]", given) if isinstance(given, list) else ():
        if isinstance(each, dict) and isinstance(name := (entry := cast("dict[str, object]", each)).get("id"), str):
            known = Input(name, problem="is defined twice under `inputs`") if name in found else _input(name, entry)
            found[name] = known
    return Inputs(found)


def _input(name: str, entry: Mapping[str, object]) -> Input:
    description, default = (str(entry.get(key) or "") for key in ("description", "default"))
    match entry.get("type"):
        case "promptString":
            # Only `false` shows what is typed: anything else was probably meant to hide it.
            return Input(name, description, default, is_password=entry.get("password", False) is not False)
        case "pickString":
            options = _options(entry.get("options"))
            return Input(
                name,
                description,
                default,
                options=options,
                problem="" if options else "has no `options` under `inputs`",
            )
        case "command":
            return Input(
                name, problem="runs a command of VS Code, which only VS Code can do. Make it a `promptString` input"
            )
        case _:
            return Input(name, problem="has an unknown `type` under `inputs`: use promptString or pickString")


def _options(given: object) -> tuple[tuple[str, str], ...]:
    """Return the choices. An entry is a string, or an object with a `label` and a `value`; others are ignored."""
    found: list[tuple[str, str]] = []
    for each in cast("list[object]", given) if isinstance(given, list) else ():
        if isinstance(each, str):
            found.append((each, each))
        elif isinstance(each, dict):
            option = cast("dict[str, object]", each)
            if isinstance(value := option.get("value"), str):
                found.append((str(option.get("label") or value), value))
    return tuple(found)
