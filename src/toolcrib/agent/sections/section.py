"""A part of a prompt: its words, when they are shown, and the tools that come with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias

from toolcrib.agent.sections.events import SectionVisibility
from toolcrib.agent.sections.reader import CatalogReader
from toolcrib.agent.sections.state import SectionState
from toolcrib.agent.sections.texts import filled, wrong_place
from toolcrib.core.errors import InvalidPrompt, UnknownPath
from toolcrib.core.quoting import as_id, as_path, on_one_line
from toolcrib.core.tools import Path, Tool

if TYPE_CHECKING:  # a default tells type checkers of a section without parameters; Python 3.11 itself knows none
    from typing_extensions import TypeVar

    P = TypeVar("P", default=None)
else:
    from typing import TypeVar

    P = TypeVar("P")

ToolReference: TypeAlias = Tool | str | Callable[..., Any]
"""A tool of the catalog, the id of one, or a function that becomes one. Nothing here looks inside."""

Visibility: TypeAlias = SectionVisibility | Callable[[P, SectionState], SectionVisibility]
"""Fixed, or decided each time by the bound parameters (None where a section takes none) and the state."""

Enabled: TypeAlias = bool | Callable[[P, SectionState], bool]
"""Likewise."""

_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class MarkdownSection(Generic[P]):
    """A part of a prompt in the words of its author.

    `template` and `summary` are Markdown with places like `${name}`, which the fields of `params` fill; `$$` is a
    dollar sign. A section without a summary is always shown in full.

    Raises:
        InvalidPrompt: a key that is not a plain word or that two children share, a title that is not one line, a place
            that no field fills, no summary where one may be shown, or `params` that are no frozen dataclass.

    Source: dynamic tool registration, "Usage Example".
    """

    title: str
    key: str
    """Letters, digits, `_` and `-`; no two sections side by side have the same."""
    template: str
    summary: str | None = None
    visibility: Visibility[P] = SectionVisibility.FULL
    tools: Sequence[ToolReference] = ()
    """Offered where the section is shown in full."""
    children: Sequence[Section] = ()
    enabled: Enabled[P] = True
    """One that is not enabled does not exist, nor does what is below it."""
    params: type[P] | None = None

    def __post_init__(self) -> None:
        _check_head(self.key, self.title)
        if isinstance(self.tools, str):
            raise InvalidPrompt(f"Section `{self.key}`: its tools are a sequence, not one text.")
        if self.visibility is not SectionVisibility.FULL and not self.has_summary:
            raise InvalidPrompt(f"Section `{self.key}`: it may be shown as a summary and has none.")
        known = _fields(self.key, self.params)
        for text in (self.template, self.summary or ""):
            if (place := wrong_place(text, known)) is not None:
                raise InvalidPrompt(
                    f"Section `{self.key}`: nothing fills `{place[:80]}`. {_fillable(known)} "
                    "Write `$${` for `${` itself."
                )
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "children", distinct(self.children, f"Section `{self.key}`"))

    @property
    def has_summary(self) -> bool:
        return bool((self.summary or "").strip())

    def content(self, params: P, catalog: CatalogReader | None) -> str:
        """What stands below the heading, children aside."""
        return filled(self.template, params)

    def in_short(self, params: P, catalog: CatalogReader | None) -> str:
        return filled(self.summary or "", params)


@dataclass(frozen=True, slots=True)
class CatalogSection:
    """A category of the catalog as a part of a prompt: in full, pointers to its tools.

    Functions of visibility and `enabled` get None for their parameters.

    Raises:
        InvalidPrompt: a key that is not a plain word, or a title that is not one line.
    """

    title: str
    key: str
    category: Path
    summary: str | None = None
    """What the catalog says of the category, where none is given."""
    visibility: Visibility[None] = SectionVisibility.SUMMARY
    enabled: Enabled[None] = True

    tools: ClassVar[tuple[ToolReference, ...]] = ()
    children: ClassVar[tuple[Section, ...]] = ()
    params: ClassVar[None] = None
    has_summary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_head(self.key, self.title)

    def content(self, params: None, catalog: CatalogReader | None) -> str:
        """A line for each tool, by id."""
        try:
            pointers = self._read(catalog).pointers(self.category)
        except UnknownPath:
            return self._nothing
        lines = sorted(f"- {as_id(pointer.tool_id)}: {on_one_line(pointer.summary)}" for pointer in pointers)
        return "\n".join(lines) or self._nothing

    def in_short(self, params: None, catalog: CatalogReader | None) -> str:
        if self.summary is not None:
            return self.summary.strip()
        try:
            said = self._read(catalog).summary(self.category)
        except UnknownPath:
            return self._nothing
        return on_one_line(said) or f"Tools of {self._place}."

    def _read(self, catalog: CatalogReader | None) -> CatalogReader:
        if catalog is None:
            raise InvalidPrompt(f"Section `{self.key}` shows a category: a catalog is needed to render it.")
        return catalog

    @property
    def _nothing(self) -> str:
        return f"There are no tools in {self._place} now."

    @property
    def _place(self) -> str:
        return f"the category {as_path(self.category)}" if self.category else "the catalog"


Section: TypeAlias = MarkdownSection[Any] | CatalogSection


def distinct(sections: Iterable[Section], whose: str) -> tuple[Section, ...]:
    """`sections`, of which no two have the same key.

    Raises:
        InvalidPrompt: two do; the message begins with `whose`.
    """
    kept = tuple(sections)
    repeated = [key for key, count in Counter(section.key for section in kept).items() if count > 1]
    if repeated:
        raise InvalidPrompt(f"{whose}: two sections side by side have the key `{repeated[0]}`.")
    return kept


def _check_head(key: str, title: str) -> None:
    if not _KEY.fullmatch(key):
        raise InvalidPrompt(f"`{key}` cannot be the key of a section; letters, digits, `_` and `-` can.")
    if len(title.splitlines()) != 1 or not title.strip():
        raise InvalidPrompt(f"Section `{key}`: its title is one line.")


def _fields(key: str, params: type[Any] | None) -> tuple[str, ...]:
    """What `params` can fill; nothing where there are none."""
    if params is None:
        return ()
    if not is_dataclass(params) or not params.__dataclass_params__.frozen:  # pyright: ignore
        raise InvalidPrompt(f"Section `{key}`: `params` is a frozen dataclass, so that a prompt stays as it was bound.")
    return tuple(field.name for field in fields(params))


def _fillable(known: Sequence[str]) -> str:
    return f"The fields are {', '.join(f'`{name}`' for name in known)}." if known else "There are no fields."
