"""Reads `toolcrib.categories`: your own categories, by name, each with the categories below it."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.catalog.categories import NO_CATEGORIES, Categories, Category
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.tools import ROOT, Path

CATEGORY_SETTINGS: Mapping[str, str] = {
    "title": "The title that people see.",
    "summary": "One line about the content. Models read it before they look inside.",
    "tags": "What the category is about, in single words.",
    "tools": "The tools in this category: tool ids, or patterns of ids such as `git.*`.",
    "tagged": "Tools with one of these tags are in this category as well.",
    "also_under": 'Paths of other categories that contain this one as well: `[["Quality"]]`.',
    "group": "`true` lets the catalog show more than a dozen tools in groups (`false`).",
    "categories": "The categories below this one, by name, with the same keys.",
}
"""Every key of one category."""


def read_categories(settings: Settings, names: Mapping[str, str]) -> Categories:
    """Read the categories below `toolcrib.categories`: outer ones before inner ones, otherwise in the file's order.

    `names` maps the labels of servers to the names of their sources. Ids may begin with either.

    Raises:
        InvalidConfig: a category is invalid, or is below itself.
    """
    found: list[Category] = []
    waiting: list[tuple[Path, Settings]] = [(ROOT, settings)]
    while waiting:
        above, members = waiting.pop(0)
        members.only(members)
        for name in members:
            here = members.settings(name)
            here.only(CATEGORY_SETTINGS)
            path = (*above, name)
            found.append(
                Category(
                    path=path,
                    title=here.text("title") or None,
                    summary=here.text("summary"),
                    tags=here.texts("tags"),
                    tools=under_source_names(here.texts("tools"), names),
                    tagged=here.texts("tagged"),
                    also_under=here.paths("also_under"),
                    group=here.flag("group"),
                )
            )
            waiting.append((path, here.settings("categories")))
    try:
        return Categories(found) if found else NO_CATEGORIES
    except InvalidConfig as error:
        raise InvalidConfig(f"{settings.path}: {settings.where}: {error.message}") from error
