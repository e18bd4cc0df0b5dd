"""What an owner says of tools that it does not define: metadata by patterns of their ids."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcrib.catalog.categories import Category
from toolcrib.catalog.patterns import Patterns
from toolcrib.core.checks import check_metadata, example_problems
from toolcrib.core.digests import digest
from toolcrib.core.errors import InvalidTool
from toolcrib.core.metadata import NO_METADATA, ToolMetadata, read_members, with_members
from toolcrib.core.properties import cached_property
from toolcrib.core.tools import Path, Tool

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetadataOverride:
    """What is said of the tools that meet a pattern.

    Raises:
        InvalidTool: `tools` is empty, or a member is no such field or no value for it.
    """

    tools: str
    """An id, or a pattern of ids: `*` stands for any characters, `?` for one, `[...]` for one of several."""
    members: Mapping[str, Any]
    """Fields of `ToolMetadata` by name; those that are not here stay as they are."""

    def __post_init__(self) -> None:
        if not isinstance(self.tools, str) or not self.tools.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTool("an id of a tool, or a pattern of ids, is expected here")
        object.__setattr__(self, "members", read_members(self.members))
        check_metadata(self.metadata)

    @classmethod
    def of(cls, tools: str, **members: object) -> Self:
        """One made of JSON values, under the names of the fields of `ToolMetadata`.

        Raises:
            InvalidTool: `tools` is empty, or a member is no such field or no value for it.
        """
        return cls.from_wire(tools, members)

    @classmethod
    def from_wire(cls, tools: str, wire: object) -> Self:
        """The same; raises as it does."""
        return cls(tools, cast("Mapping[str, Any]", wire))

    @cached_property
    def metadata(self) -> ToolMetadata:
        """What it says, of a tool of which nothing else is said."""
        return with_members(NO_METADATA, self.members)

    def to_wire(self) -> dict[str, Any]:
        """The members as JSON values."""
        said = self.metadata.to_wire()
        # What is said to be as it is by default is said all the same: it may take back what somebody else said.
        plain = {key: getattr(self.metadata, key) for key in self.members if key not in said}
        return {**said, **{key: _json(value) for key, value in plain.items()}}


class Overrides:
    """All of them. Of several that speak of one tool the last one given has the last word; see `ADDING` for tags."""

    def __init__(self, given: Iterable[MetadataOverride] = ()) -> None:
        self.given = tuple(given)
        self._by_id = Patterns((override.tools, override) for override in self.given)

    def __bool__(self) -> bool:
        return bool(self.given)

    @cached_property
    def digest(self) -> str:
        """Equal for two that say the same."""
        return digest([[override.tools, override.to_wire()] for override in self.given])

    @cached_property
    def claims(self) -> Mapping[Path, tuple[str, ...]]:
        """Patterns of the tools that are said to hang in a category, by its path."""
        found: dict[Path, tuple[str, ...]] = {}
        for override in self.given:
            if category := override.metadata.category:
                found[category] = (*found.get(category, ()), override.tools)
        return found

    def said_of(self, tool: Tool) -> ToolMetadata | None:
        """What they say of `tool`, whatever it says of itself; None where they say nothing."""
        members = self._members(tool)
        return None if members is None else with_members(NO_METADATA, members)

    def applied(self, tool: Tool) -> Tool:
        """`tool` as they have it: itself where they say nothing of it.

        Examples that its schema would refuse are left out, and logged: the schema is somebody else's, and may change.
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
        """What of that cannot be so."""
        members = self._members(tool)
        try:
            return tuple(example_problems(tool, members["examples"])) if members and "examples" in members else ()
        except InvalidTool as error:  # its schema does not compile
            return (error.message,)

    def _members(self, tool: Tool) -> dict[str, Any] | None:
        """All that is said of `tool` as one."""
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
    """`given`, claiming what `claims` say besides, and a category of each path that none of them has."""
    left = dict(claims)
    claiming = [
        replace(category, tools=tuple(dict.fromkeys((*category.tools, *left.pop(category.path)))))
        if category.path in left
        else category
        for category in given
    ]
    return (*claiming, *(Category(path, tools=tools) for path, tools in left.items()))
