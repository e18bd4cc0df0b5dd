"""`toolcrib.tools`: what an owner says of tools that it does not define."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.catalog.overrides import NO_OVERRIDES, MetadataOverride, Overrides
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig, InvalidTool
from toolcrib.core.metadata import KEYS


def read_overrides(settings: Settings, names: Mapping[str, str]) -> Overrides:
    """The overrides below `toolcrib.tools`, by id or pattern, in the file's order.

    `names` are those of the sources, by the labels of their servers: ids may begin with either.

    Raises:
        InvalidConfig: one is wrong.
    """
    settings.only(settings)  # for those that stand there twice
    if any(not pattern.strip() for pattern in settings):
        raise InvalidConfig(
            f"{settings.path}: {settings.where}: an id of a tool, or a pattern of ids, is expected here"
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
