"""Reads `toolcrib.declared`: tools that are commands or HTTP requests, by source and name."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from toolcrib.config.settings import JsonObject, Settings
from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.sources.declared.definition import DeclaredTools, read_declared_source


def read_declarations(settings: Settings, servers: Collection[str]) -> tuple[DeclaredTools, ...]:
    """Read the sources below `toolcrib.declared`, in the file's order. None of them may have the name of a server.

    Raises:
        InvalidConfig: a declaration is invalid, or contains a duplicate key.
    """
    settings.only(settings)
    found: list[DeclaredTools] = []
    for name in settings:
        value = settings.values[name]
        _check_once(value, settings, name)
        if name in servers:
            raise settings.wrong(name, "a server already has this name; rename one of them")
        try:
            found.append(read_declared_source(name, value, where=settings.at(name)))
        except InvalidTool as error:
            raise InvalidConfig(f"{settings.path}: {error.message}") from error
    return tuple(found)


def _check_once(value: object, settings: Settings, place: str) -> None:
    """Check that `value` has no duplicate keys at any depth, because one of their values would be ignored."""
    if isinstance(value, list):
        for position, each in enumerate(cast("list[object]", value)):
            _check_once(each, settings, f"{place}.{position}")
    elif isinstance(value, JsonObject):
        for key in value.repeated:
            raise settings.wrong(f"{place}.{key}", "duplicate key")
        for key, each in value.items():
            _check_once(each, settings, f"{place}.{key}")
