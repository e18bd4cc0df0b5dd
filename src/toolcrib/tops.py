"""The top of the catalog as a configuration tells of it: what a model hears of before anything has started."""

from __future__ import annotations

from toolcrib.catalog.access import EVERYTHING, Access, Permissions, something_of
from toolcrib.catalog.view import subject_of
from toolcrib.config import Config
from toolcrib.core.principal import LOCAL, Principal
from toolcrib.core.tools import Path
from toolcrib.protocol.rules import Top


def tops(config: Config, permissions: Permissions = EVERYTHING, principal: Principal = LOCAL) -> tuple[Top, ...]:
    """The top of the catalog that a principal has, as the configuration tells of it, whatever has started by now.

    Without what could hold nothing that the principal may see.
    """

    def may_show(path: Path) -> bool:
        inside = (category for category in config.categories.given if category.path[: len(path)] == path)
        subjects = (subject_of(tool, config.categories) for category in inside for tool in category.possible_tools())
        return any(permissions.decide(subject) is not Access.HIDDEN for subject in subjects)

    taken = {each.name for each in (*config.enabled, *config.declared)}
    nodes = (category.node for category in config.categories.given if len(category.path) == 1)
    return (
        *(Top(node.name, node.summary or node.title or "") for node in nodes if may_show(node.path)),
        *(
            Top(server.name, server.summary or server.title or "")
            for server in config.enabled
            if server.of(principal.id) is not None
            and permissions.decide(something_of(server.name)) is not Access.HIDDEN
        ),
        *(
            Top(declared.name, declared.summary or declared.title or "")
            for declared in config.declared
            if permissions.decide(something_of(declared.name)) is not Access.HIDDEN
        ),
        *(
            Top(plugin.name, plugin.summary or plugin.title or plugin.installed.summary)
            for plugin in config.plugins
            if plugin.name not in taken
            and not plugin.installed.problem
            and permissions.decide(something_of(plugin.name)) is not Access.HIDDEN
        ),
    )
