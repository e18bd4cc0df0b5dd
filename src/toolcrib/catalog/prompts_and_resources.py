"""Prompts and resources of all sources, under names that are unique in the catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.catalog.catalog_state import SourceEntry
from toolcrib.core.names import URI_SCHEME, full_names, resource_uri, split_resource_uri, unique_names
from toolcrib.core.properties import cached_property


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt, a resource or a resource template."""

    source: str
    own_name: str
    """The name of the prompt, the URI of the resource or the URI template at its source."""
    wire: Mapping[str, Any]
    """The definition, with the name or URI that it has in the catalog."""


@dataclass(frozen=True)
class PromptsAndResources:
    """The prompts and resources of some sources.

    A prompt is named `source__name`, adjusted like the names of tools; a resource has the URI `toolcrib://source/URI`.
    Items of a source with `plain_names` keep their own name or URI, unless it is already taken.
    """

    sources: Mapping[str, SourceEntry]
    may_see: Callable[[str, str], bool] | None = None
    """Returns whether an item is visible, by source and its own name or URI there; None if all items are visible."""

    def __bool__(self) -> bool:
        return bool(self.prompts or self.resources or self.templates)

    @cached_property
    def prompts(self) -> Mapping[str, Item]:
        """The prompts by their name in the catalog, sorted."""
        offered = {
            f"{entry.name}.{wire['name']}": (entry.name, str(wire["name"]), wire)
            for entry in self.sources.values()
            for wire in entry.extras.prompts
            if self._sees(entry.name, str(wire["name"]))
        }
        own_names = {key: (source, own) for key, (source, own, _) in offered.items()}
        names = unique_names(full_names(own_names, self._plain))
        items = {
            names[key]: Item(source, own, {**wire, "name": names[key]}) for key, (source, own, wire) in offered.items()
        }
        return {name: items[name] for name in sorted(items)}

    @cached_property
    def resources(self) -> Mapping[str, Item]:
        """The resources by their URI in the catalog, sorted."""
        return self._under_uris("uri")

    @cached_property
    def templates(self) -> Mapping[str, Item]:
        """The resource templates by their URI template in the catalog, sorted."""
        return self._under_uris("uriTemplate")

    def locate(self, uri: str) -> tuple[str, str] | None:
        """Return the source of a resource and its URI there; None if it belongs to no source. It need not be listed."""
        if (item := self.resources.get(uri)) is not None:
            return item.source, item.own_name
        located = self._unlisted(uri)
        return located if located is not None and self._sees(*located) else None

    def _sees(self, source: str, own_name: str) -> bool:
        return self.may_see is None or self.may_see(source, own_name)

    def _unlisted(self, uri: str) -> tuple[str, str] | None:
        if (split := split_resource_uri(uri)) is not None:
            return split if split[0] in self.sources else None
        plain = [entry for entry in self.sources.values() if entry.plain_names]
        for entry in plain:
            if any(fits(uri, str(template["uriTemplate"])) for template in entry.extras.templates):
                return entry.name, uri
        return (plain[0].name, uri) if len(plain) == 1 else None

    def _under_uris(self, key: str) -> Mapping[str, Item]:
        items: dict[str, Item] = {}
        for entry in self.sources.values():
            for wire in entry.extras.resources if key == "uri" else entry.extras.templates:
                own = str(wire[key])
                if not self._sees(entry.name, own):
                    continue
                # A source's own URI that begins with our scheme is not kept: it could point to a different source.
                keeps = entry.plain_names and own not in items and not own.startswith(URI_SCHEME)
                uri = own if keeps else resource_uri(entry.name, own)
                items[uri] = Item(entry.name, own, {**wire, key: uri})
        return {uri: items[uri] for uri in sorted(items)}

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(name for name, entry in self.sources.items() if entry.plain_names)


def fits(uri: str, template: str) -> bool:
    """Return whether `uri` matches `template`. Each expression of the template matches any text."""
    first, *others = re.split(r"\{[^{}]*\}", template)
    if not others or not uri.startswith(first):
        return uri == template
    at = len(first)
    for part in others[:-1]:
        found = uri.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(uri) - len(others[-1]) >= at and uri.endswith(others[-1])
