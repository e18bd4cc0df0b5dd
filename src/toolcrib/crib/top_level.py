"""The top level of the catalog according to a configuration: what a model sees before any server has started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolcrib.catalog.access import EVERYTHING, Access, Permissions, something_of
from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.catalog.categories import Categories
from toolcrib.catalog.view import subject_of
from toolcrib.config import Config
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Path, Tool
from toolcrib.operations.briefing import Top

if TYPE_CHECKING:
    from toolcrib.sources.declared.definition import DeclaredTools


def top_level(
    config: Config,
    permissions: Permissions = EVERYTHING,
    principal: Principal = LOCAL,
    *,
    program: Iterable[SourceEntry] = (),
    tools: Iterable[Tool] = (),
) -> tuple[Top, ...]:
    """Return the top level of the catalog for a principal, according to the configuration.

    The result does not depend on which servers have started. `program` are sources that the program added. If they have
    no summary, the names of their tools among `tools` are used.

    Left out are nodes in which the principal may see nothing, and sources whose tools are all claimed by categories.
    For a server that has not started, only a pattern such as `git.*` shows that.
    """

    def may_show(path: Path) -> bool:
        inside = (category for category in config.categories.given if category.path[: len(path)] == path)
        subjects = (subject_of(tool, config.categories) for category in inside for tool in category.possible_tools())
        return any(permissions.decide(subject) is not Access.HIDDEN for subject in subjects)

    def is_named(name: str) -> bool:
        """Whether the list of the top level may show the source `name` to the principal, as far as is known now."""
        is_hidden = permissions.decide(something_of(name)) is Access.HIDDEN
        return not is_hidden and not _is_left_out(name, config.categories)

    taken = {each.name for each in (*config.enabled, *config.declared)}
    nodes = (category.node for category in config.categories.given if len(category.path) == 1)
    entries = [
        *(Top(node.name, node.summary or node.title or "") for node in nodes if may_show(node.path)),
        *(
            Top(server.name, server.summary or server.title or "")
            for server in config.enabled
            if server.of(principal.id) is not None and is_named(server.name)
        ),
        *(
            Top(declared.name, declared.summary or declared.title or "")
            for declared in config.declared
            if is_named(declared.name) and not _stands_in_categories(declared, config.categories)
        ),
        *(
            Top(plugin.name, plugin.summary or plugin.title or plugin.installed.summary)
            for plugin in config.plugins
            if plugin.name not in taken and not plugin.installed.problem and is_named(plugin.name)
        ),
    ]
    entries += _of_program(program, tools, config.categories, permissions)
    by_name: dict[str, Top] = {}
    for top in entries:  # a category with the name of a source is the node of that source
        if not by_name.setdefault(top.name, top).summary:
            by_name[top.name] = top
    return tuple(by_name.values())


def _of_program(
    program: Iterable[SourceEntry], tools: Iterable[Tool], categories: Categories, permissions: Permissions
) -> Iterator[Top]:
    """Yield the sources of `program` in whose own node the principal sees a tool, or may see one after listing."""
    names: dict[str, list[str] | None] = {entry.name: None for entry in program}
    for tool in tools:
        if tool.source in names:
            shown = names[tool.source] = names[tool.source] or []
            stands_here = categories.places(tool)[0][0] == tool.source
            if stands_here and permissions.decide(subject_of(tool, categories)) is not Access.HIDDEN:
                shown.append(tool.name)
    for entry in program:
        shown = names[entry.name]
        if shown:
            yield Top(entry.name, entry.summary or ", ".join(sorted(shown)))
        elif shown is None and permissions.decide(something_of(entry.name)) is not Access.HIDDEN:
            yield Top(entry.name, entry.summary or entry.title or "")


def _is_left_out(source: str, categories: Categories) -> bool:
    """Whether categories claim all tools that `source` can have, so that the top level does not list the source."""
    if categories.leads_to_one((source,)):
        return False
    # A pattern that ends in `*` and matches the start of an id matches every id with that start.
    patterns = (pattern for category in categories.given for pattern in category.tools if pattern.endswith("*"))
    return any(fnmatchcase(f"{source}.", pattern) for pattern in patterns)


def _stands_in_categories(declared: DeclaredTools, categories: Categories) -> bool:
    primary = [categories.places(each.tool)[0] for each in declared.tools]
    return bool(primary) and all(path[0] != declared.name for path in primary)
