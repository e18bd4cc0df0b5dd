"""Finds possible mistakes in a configuration: patterns, tags and paths that match nothing in the whole catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property

from toolcrib.catalog.access import Rule
from toolcrib.catalog.catalog_state import SourceStatus
from toolcrib.catalog.categories import Category
from toolcrib.catalog.id_patterns import nearest_id
from toolcrib.catalog.view import View
from toolcrib.config import Config
from toolcrib.config.server_entries import EVERYONE_ELSE
from toolcrib.core.placeholders import references_in
from toolcrib.core.principal import LOCAL
from toolcrib.core.schema import nearest
from toolcrib.core.tools import Path
from toolcrib.sources.mcp.server_spec import StdioServer


class ConfigMistakes:
    """The possible mistakes in one file. Nothing is reported that an unlisted or isolated source could explain."""

    def __init__(self, config: Config, view: View) -> None:
        """`view` must hold everything that was listed, whatever the policy hides."""
        self._config = config
        self._view = view
        self._categories = {category.path: category for category in config.categories.given}

    def __iter__(self) -> Iterator[str]:
        """Yield sentences without a full stop, each with the key it is about, in the order of the file's settings."""
        yield from self._of_command_lines()
        for override in self._config.overrides.given:
            yield from self._of_tools((override.tools,), "toolcrib.tools")
        yield from self._of_examples()
        for category in self._categories.values():
            yield from self._of_category(category)
        if self._config.search.history is not None and self._config.audit is None:
            yield "toolcrib.search.history: nothing is learned from past calls, because `toolcrib.audit` is off"
        for number, rule in enumerate(self._config.policy.rules if self._config.policy is not None else (), start=1):
            yield from self._of_principals(rule, number)
            yield from self.of_rule(rule, number)

    @property
    def named_as_sources(self) -> tuple[str, ...]:
        """The categories that are merged with the source of the same name."""
        return tuple(server.name for server in self._config.enabled if (server.name,) in self._categories)

    def _of_command_lines(self) -> Iterator[str]:
        """Yield the secrets that other users of the machine can read in the list of processes."""
        for server in self._config.enabled:
            if isinstance(server.server, StdioServer):
                for position, arg in enumerate(server.server.args):
                    for reference in references_in(arg):
                        if reference.kind == "input" and self._config.inputs.by_id[reference.name].is_password:
                            yield (
                                f"`{server.name}`: args.{position}: other users of this machine can read the value of "
                                f"`{reference}` in the list of processes. Use `env` if the server allows that"
                            )

    def _of_category(self, category: Category) -> Iterator[str]:
        path = category.path
        where = f"toolcrib.categories.{'.categories.'.join(path)}"
        claimed = self._config.overrides.claims.get(path, ())
        yield from self._of_tools((each for each in category.tools if each not in claimed), f"{where}.tools")
        yield from self._of_tags(category.tagged, f"{where}.tagged")
        for above in category.also_under:
            if above not in self._nodes and above[0] not in self._unknown:
                yield f"{where}.also_under: category `{_shown(above)}` not found{self._meant_node(above)}"
        if not (claimed or self._is_filled(path) or path in self._perhaps_filled):
            yield f"{where}: the category is empty"

    def _of_examples(self) -> Iterator[str]:
        """Yield the examples in the file that the schema of their tool refuses."""
        for tool in self._view.tools.values():
            for problem in self._config.overrides.problems(tool):
                yield f"toolcrib.tools: `{tool.id}`: {problem}"

    def _of_principals(self, rule: Rule, number: int) -> Iterator[str]:
        if (known := self._principals) is None:
            return
        for pattern in rule.principals or ():
            if not any(fnmatchcase(principal, pattern) for principal in known):
                near = nearest(pattern, known)
                where = f"toolcrib.policy.rules.{number - 1}.principals"
                yield f"{where}: no token and no isolated server has the principal `{pattern}`{_meant(near)}"

    def of_rule(self, rule: Rule, number: int) -> Iterator[str]:
        """Yield the slips in the conditions of a rule, except its principals. `number` counts from 1."""
        where = f"toolcrib.policy.rules.{number - 1}"
        for path in rule.paths or ():
            if not (self._is_filled(path) or path in self._perhaps_filled or path in self._of_sources):
                yield f"{where}.paths: `{_shown(path)}` has no tools{self._meant_node(path)}"
        yield from self._of_tags((rule.tags or ()), f"{where}.tags")
        for pattern in rule.sources or ():
            if pattern not in self._other_labels and not any(fnmatchcase(name, pattern) for name in self._sources):
                near = nearest(pattern, self._sources)
                yield f"{where}.sources: `{pattern}` matches no source{_meant(near)}"
        yield from self._of_tools((rule.tools or ()), f"{where}.tools")

    def _of_tools(self, patterns: Iterable[str], where: str) -> Iterator[str]:
        for pattern in patterns:
            # A colon marks the URI of a resource, and resources do not have to be listed.
            if ":" in pattern or any(_may_begin(pattern, f"{name}.") for name in self._unknown):
                continue
            if any(pattern.startswith(f"{label}.") for label in self._other_labels):
                continue
            if not self._is_met(pattern):
                yield f"{where}: `{pattern}` matches no tool{self._meant_tools(pattern)}"

    def _is_met(self, pattern: str) -> bool:
        return any(fnmatchcase(tool_id, pattern) for tool_id in self._ids)

    def _meant_tools(self, pattern: str) -> str:
        source, dot, name = pattern.partition(".")
        if not dot:
            return "; tool ids have the form SOURCE.NAME"
        there = nearest(source, self._sources)
        if there is None or self._is_met(f"{there}.{name}"):
            return _meant(there and f"{there}.{name}")
        return _meant(nearest_id(f"{there}.{name}", self._ids))

    def _of_tags(self, tags: Iterable[str], where: str) -> Iterator[str]:
        for tag in tags:
            if tag not in self._tags and not self._unknown:
                yield f"{where}: no tool has the tag `{tag}`{_meant(nearest(tag, self._tags))}"

    def _is_filled(self, path: Path) -> bool:
        """Return whether a tool is in the category or below it, or may be, because a source is not fully known."""
        branch = self._view.whole_ontology.nodes.get(path)
        return path[0] in self._unknown or (branch is not None and branch.count > 0)

    def _meant_node(self, path: Path) -> str:
        return _meant(nearest(_shown(path), (_shown(node) for node in self._nodes if node != path)))

    @cached_property
    def _principals(self) -> frozenset[str] | None:
        """The ids of the principals of tokens and isolated servers; None if the file does not list all principals.

        An issuer can provide any principal. Without tokens, every client is `local`, and a rule for other principals
        may be written for tokens that are added later.
        """
        auth = self._config.auth
        if auth.jwt is not None or not auth.tokens:
            return None
        named = (each for server in self._config.servers for each in server.principals or () if each != EVERYONE_ELSE)
        return frozenset((LOCAL.id, *(token.principal.id for token in auth.tokens), *named))

    @cached_property
    def _perhaps_filled(self) -> frozenset[Path]:
        """The categories that may hold tools of sources that are not fully known, and the categories above them."""
        found: set[Path] = set()
        waiting = [each.path for each in self._categories.values() if self._may_be_filled(each)]
        while waiting:
            path = waiting.pop()
            for node in (path[:depth] for depth in range(1, len(path) + 1)):
                if node not in found:
                    found.add(node)
                    waiting += self._categories[node].also_under if node in self._categories else ()
        return frozenset(found)

    def _may_be_filled(self, category: Category) -> bool:
        return any(
            category.tagged or any(_may_begin(pattern, f"{name}.") for pattern in category.tools)
            for name in self._unknown
        )

    @cached_property
    def _unknown(self) -> frozenset[str]:
        """Sources whose tools are not known, or not known for all principals."""
        listed = {name for name, entry in self._view.sources.items() if entry.status is SourceStatus.READY}
        shared = {server.name for server in self._config.enabled if server.isolation == "shared"}
        shared |= {each.name for each in (*self._config.plugins, *self._config.declared)}
        return self._sources - (listed & shared)

    @cached_property
    def _sources(self) -> frozenset[str]:
        """All sources that the file names, also disabled ones."""
        return frozenset(each.name for each in (*self._config.servers, *self._config.plugins, *self._config.declared))

    @cached_property
    def _other_labels(self) -> frozenset[str]:
        """Keys of servers whose source has a different name. Patterns may use either."""
        return frozenset(label for label, name in self._config.source_names.items() if label != name)

    @cached_property
    def _of_sources(self) -> frozenset[Path]:
        """Categories that also hold prompts and resources."""
        return frozenset((name,) for name in self._sources)

    @cached_property
    def _ids(self) -> tuple[str, ...]:
        """The ids of tools and prompts, which patterns are compared with. Patterns of resources are not checked."""
        prompts = (f"{item.source}.{item.own_name}" for item in self._view.prompts_and_resources.prompts.values())
        return *self._view.tools, *prompts

    @cached_property
    def _tags(self) -> frozenset[str]:
        return frozenset(tag for tool in self._view.tools.values() for tag in tool.metadata.tags)

    @cached_property
    def _nodes(self) -> frozenset[Path]:
        """The categories that exist without any links."""
        places = {place for tool in self._view.tools.values() for place in self._config.categories.places(tool)}
        above = {place[:depth] for place in places for depth in range(1, len(place) + 1)}
        return frozenset({*above, *self._view.visible.state.described})


def _may_begin(pattern: str, beginning: str) -> bool:
    """Return whether `pattern` could match a string that begins with `beginning`."""
    return any(fnmatchcase(beginning, pattern[:end]) for end in range(1, len(pattern) + 1))


def _shown(path: Path) -> str:
    return "/".join(path)


def _meant(what: str | None) -> str:
    return f" (did you mean `{what}`?)" if what is not None else ""
