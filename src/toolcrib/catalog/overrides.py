"""Metadata that an owner sets for tools of other authors, by patterns of tool ids."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcrib.catalog.categories import Category
from toolcrib.catalog.id_patterns import Patterns
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import NO_METADATA, ToolMetadata, read_members, with_members
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, Tool, check_metadata, example_problems

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetadataOverride:
    """Metadata for the tools that match a pattern.

    Raises:
        InvalidTool: `tools` is empty, a member is not a field of `ToolMetadata`, or its value is invalid.
    """

    tools: str
    """A tool id, or a pattern: `*` matches any characters, `?` one character, `[...]` one of several."""
    members: Mapping[str, Any]
    """Fields of `ToolMetadata` by name. Other fields stay unchanged."""

    def __post_init__(self) -> None:
        if not isinstance(self.tools, str) or not self.tools.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTool("must be a tool id or a pattern of tool ids")
        object.__setattr__(self, "members", read_members(self.members))
        check_metadata(self.metadata)

    @classmethod
    def of(cls, tools: str, **members: object) -> Self:
        """Make an override from JSON values, under the names of the fields of `ToolMetadata`.

        Raises:
            InvalidTool: `tools` is empty, a member is not a field of `ToolMetadata`, or its value is invalid.
        """
        return cls.from_wire(tools, members)

    @classmethod
    def from_wire(cls, tools: str, wire: object) -> Self:
        """Make an override from a JSON object; see `of`.

        Raises:
            InvalidTool: `tools` is empty, a member is not a field of `ToolMetadata`, or its value is invalid.
        """
        return cls(tools, cast("Mapping[str, Any]", wire))

    @cached_property
    def metadata(self) -> ToolMetadata:
        """The metadata of a tool to which only this override applies."""
        return with_members(NO_METADATA, self.members)

    def to_wire(self) -> dict[str, Any]:
        """Return the members as JSON values."""
        said = self.metadata.to_wire()
        # Write members with default values, too: they can undo what an earlier override set.
        plain = {key: getattr(self.metadata, key) for key in self.members if key not in said}
        return {**said, **{key: _json(value) for key, value in plain.items()}}


class Overrides:
    """All overrides. If several apply to one tool, a later one takes precedence; `ADDING` lists the exceptions."""

    def __init__(self, given: Iterable[MetadataOverride] = ()) -> None:
        self.given = tuple(given)
        self._by_id = Patterns((override.tools, override) for override in self.given)

    def __bool__(self) -> bool:
        return bool(self.given)

    @cached_property
    def digest(self) -> str:
        """A digest that is equal if and only if two sets of overrides say the same."""
        return digest([[override.tools, override.to_wire()] for override in self.given])

    @cached_property
    def claims(self) -> Mapping[Path, tuple[str, ...]]:
        """By the path of a category, the patterns of the tools that overrides put there."""
        found: dict[Path, tuple[str, ...]] = {}
        for override in self.given:
            if category := override.metadata.category:
                found[category] = (*found.get(category, ()), override.tools)
        return found

    def said_of(self, tool: Tool) -> ToolMetadata | None:
        """Return what the overrides say about `tool`, without its own metadata; None if no override applies."""
        members = self._members(tool)
        return None if members is None else with_members(NO_METADATA, members)

    def applied(self, tool: Tool) -> Tool:
        """Return `tool` with the overrides applied; the same object if no override applies.

        Examples that do not match the tool's schema are left out and logged, because the tool's author can change the
        schema at any time.
        """
        members = self._members(tool)
        if members is None:
            return tool
        problems = self.problems(tool)
        for problem in problems:
            logger.warning("%s: %s", tool.id, problem)
        if problems:
            members = {**members, "examples": _good_examples(tool, members["examples"])}
        return replace(tool, metadata=with_members(tool.metadata, members))

    def problems(self, tool: Tool) -> tuple[str, ...]:
        """Return what is wrong with the overrides of `tool`: examples that do not match its schema."""
        members = self._members(tool)
        try:
            return tuple(example_problems(tool, members["examples"])) if members and "examples" in members else ()
        except InvalidTool as error:  # its schema does not compile
            return (error.message,)

    def _members(self, tool: Tool) -> dict[str, Any] | None:
        """Return the joined members of all overrides for `tool`; None if no override applies."""
        speaking = self._by_id.of(tool.id)
        if not speaking:
            return None
        said: dict[str, Any] = {}
        metadata = NO_METADATA
        for override in speaking:
            metadata = with_members(metadata, override.members)
            said |= dict.fromkeys(override.members)
        return {key: getattr(metadata, key) for key in said}


def _json(value: object) -> object:
    return [*cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def _good_examples(tool: Tool, examples: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return tuple(example for example in examples if not [*example_problems(tool, (example,))])
    except InvalidTool:
        return ()


NO_OVERRIDES = Overrides()


def with_claims(given: Iterable[Category], claims: Mapping[Path, tuple[str, ...]]) -> tuple[Category, ...]:
    """Return `given` with `claims` added to their tools, and new categories for the paths that `given` lacks."""
    left = dict(claims)
    claiming = [
        replace(category, tools=tuple(dict.fromkeys((*category.tools, *left.pop(category.path)))))
        if category.path in left
        else category
        for category in given
    ]
    return (*claiming, *(Category(path, tools=tools) for path, tools in left.items()))
