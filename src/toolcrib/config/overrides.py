"""Reads `toolcrib.tools`: the owner's metadata for tools that others define."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.catalog.overrides import NO_OVERRIDES, MetadataOverride, Overrides
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.core.metadata import KEYS


def read_overrides(settings: Settings, names: Mapping[str, str]) -> Overrides:
    """Read the overrides below `toolcrib.tools`, by id or pattern, in the file's order.

    `names` maps the labels of servers to the names of their sources. Ids may begin with either.

    Raises:
        InvalidConfig: an override is invalid.
    """
    settings.only(settings)  # refuses duplicate keys
    if any(not pattern.strip() for pattern in settings):
        raise InvalidConfig(
            f"{settings.path}: {settings.where}: a key must be a tool id or a pattern of ids, and must not be empty"
        )
    found: list[MetadataOverride] = []
    for pattern in settings:
        here = settings.settings(pattern)
        here.only(KEYS)
        for meant in under_source_names((pattern,), names):
            try:
                found.append(MetadataOverride.from_wire(meant, here.values))
            except InvalidTool as error:
                raise InvalidConfig(f"{settings.path}: {settings.at(pattern)}.{error.message}") from error
    return Overrides(found) if found else NO_OVERRIDES
