"""Reads `toolcrib.bundles`: named sets of tools for a purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolcrib.catalog.bundles import NO_BUNDLES, Bundles, ToolBundle
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig

BUNDLE_SETTINGS: Mapping[str, str] = {
    "description": "One line that says what the bundle is for.",
    "required": "The bundle is incomplete without these: tool ids, patterns of ids (`git.*`), names or aliases.",
    "optional": "Tools that also belong to the bundle if they are available.",
    "includes": "Names of other bundles. Their tools belong to this bundle as well.",
}
"""Every key of one bundle."""


def read_bundles(settings: Settings, names: Mapping[str, str]) -> Bundles:
    """Read the bundles below `toolcrib.bundles`.

    `names` maps the labels of servers to the names of their sources. Ids may begin with either.

    Raises:
        InvalidConfig: a bundle is invalid, includes itself, or includes a bundle that does not exist.
    """
    settings.only(settings)
    found = [read_bundle(settings, name, names) for name in settings]
    try:
        return Bundles(found) if found else NO_BUNDLES
    except InvalidConfig as error:
        raise InvalidConfig(f"{settings.path}: {settings.where}: {error.message}") from error


def read_bundle(settings: Settings, name: str, names: Mapping[str, str]) -> ToolBundle:
    """Read the bundle `name` below `toolcrib.bundles`, without checking what it includes.

    `names` are as for `read_bundles`.

    Raises:
        InvalidConfig: the bundle itself is invalid.
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
    """Replace server labels in `entries` by source names. A required entry with a label could never match."""
    return tuple(dict.fromkeys(under_source_names((entry,), names)[-1] for entry in entries))
