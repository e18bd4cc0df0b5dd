"""`toolcrib.bundles`: sets of tools for a purpose, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolcrib.catalog.bundles import NO_BUNDLES, Bundles, ToolBundle
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig

BUNDLE_SETTINGS: Mapping[str, str] = {
    "description": "One line on what it is for.",
    "required": "Without these it is incomplete: ids of tools, patterns of them (`git.*`), or names and aliases.",
    "optional": "What belongs to it as well, where it is there.",
    "includes": "Names of other bundles, whose tools are its own as well.",
}
"""Every key of one bundle."""


def read_bundles(settings: Settings, names: Mapping[str, str]) -> Bundles:
    """The bundles below `toolcrib.bundles`.

    `names` are those of the sources, by the labels of their servers: ids may begin with either.

    Raises:
        InvalidConfig: one is wrong, includes one that is not there, or itself.
    """
    settings.only(settings)
    found = [read_bundle(settings, name, names) for name in settings]
    try:
        return Bundles(found) if found else NO_BUNDLES
    except InvalidConfig as error:
        raise InvalidConfig(f"{settings.path}: {settings.where}: {error.message}") from error


def read_bundle(settings: Settings, name: str, names: Mapping[str, str]) -> ToolBundle:
    """The one called `name` below `toolcrib.bundles`, whatever it includes; `names` are as for `read_bundles`.

    Raises:
        InvalidConfig: it is wrong in itself.
    """
    here = settings.settings(name)
    here.only(BUNDLE_SETTINGS)
    try:
        return ToolBundle(
            name,
            here.text("description"),
            required=_under_one_name(here.texts("required"), names),
            optional=under_source_names(here.texts("optional"), names),
            includes=here.texts("includes"),
        )
    except InvalidConfig as error:
        raise InvalidConfig(f"{settings.path}: {settings.where}: {error.message}") from error


def _under_one_name(entries: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """`entries`, the labels of servers in them replaced by the names of their sources: nothing could meet a label."""
    return tuple(dict.fromkeys(under_source_names((entry,), names)[-1] for entry in entries))
