"""`toolcrib.categories`: nodes that somebody set up, by name, with those below them."""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.catalog.categories import NO_CATEGORIES, Categories, Category
from toolcrib.config.servers import under_source_names
from toolcrib.config.settings import Settings
from toolcrib.core.errors import InvalidConfig
from toolcrib.core.tools import ROOT, Path

CATEGORY_SETTINGS: Mapping[str, str] = {
    "title": "What people call it.",
    "summary": "One line on what is inside; models read it before they look.",
    "tags": "What it is about, in single words.",
    "tools": "Ids of tools that hang in it, or patterns of them: `git.*`.",
    "tagged": "Tools that carry one of these tags hang in it too.",
    "also_under": 'Paths of nodes that it hangs under as well: `[["Quality"]]`.',
    "group": "With `true`, the catalog may show its tools in groups where there are more than a dozen; off by default.",
    "categories": "The categories below it, by name, each with these same keys.",
}
"""Every key of one category."""


def read_categories(settings: Settings, names: Mapping[str, str]) -> Categories:
    """The categories below `toolcrib.categories`, outer ones before those inside them, else in the file's order.

    `names` are those of the sources, by the labels of their servers: ids may begin with either.

    Raises:
        InvalidConfig: one is wrong, or hangs below itself.
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
