"""A part of a prompt: its text, its visibility, and its tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias

from toolcrib.agent.sections.section_state import SectionState, SectionVisibility
from toolcrib.core.errors import InvalidPrompt, UnknownPath
from toolcrib.core.tools import Path, Tool, ToolPointer
from toolcrib.core.untrusted_text import as_id, as_path, on_one_line

if TYPE_CHECKING:  # the default is for type checkers: a section without parameters; Python 3.11 has no defaults
    from typing_extensions import TypeVar

    P = TypeVar("P", default=None)
else:
    from typing import TypeVar

    P = TypeVar("P")


class CatalogReader(Protocol):
    """A catalog as one principal sees it."""

    def summary(self, category: Path) -> str:
        """Return the summary of `category`. Empty if it has none.

        Raises:
            UnknownPath: the category does not exist, or may not be seen.
        """
        ...

    def pointers(self, category: Path) -> Sequence[ToolPointer]:
        """Return pointers to the tools in or below `category`, in any order.

        Raises:
            UnknownPath: the category does not exist, or may not be seen.
        """
        ...


_PLACE = re.compile(r"\$(?:\$|\{(?P<name>[^{}]*)(?P<end>\}?))")


def wrong_place(text: str, fields: Collection[str]) -> str | None:
    """Return the first placeholder of `text` that no field fills, as it is written. None if all can be filled."""
    for place in _PLACE.finditer(text):
        if place["name"] is not None and (not place["end"] or place["name"] not in fields):
            return place[0]
    return None


def filled(text: str, params: object) -> str:
    """Return `text` with its placeholders replaced by the attributes of `params`.

    Values are converted with `str`. Placeholders inside values are not replaced.
    """

    def fill(place: re.Match[str]) -> str:
        return "$" if place["name"] is None else str(getattr(params, place["name"]))

    return _PLACE.sub(fill, text).strip()


ToolReference: TypeAlias = Tool | str | Callable[..., Any]
"""A tool of the catalog, the id of a tool, or a function that becomes a tool. This module does not read it."""

Visibility: TypeAlias = SectionVisibility | Callable[[P, SectionState], SectionVisibility]
"""A fixed value, or a function of the bound parameters (None if a section takes none) and the state."""

Enabled: TypeAlias = bool | Callable[[P, SectionState], bool]
"""A fixed value, or a function of the bound parameters (None if a section takes none) and the state."""

_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class MarkdownSection(Generic[P]):
    """A part of a prompt with a fixed text.

    `template` and `summary` are Markdown with placeholders such as `${name}`, which are filled with the fields of
    `params`. `$$` is a dollar sign. A section without a summary is always shown in full.

    Raises:
        InvalidPrompt: the key is not a plain word, two children share a key, the title is not one line, no field fills
            a placeholder, a summary may be shown but is missing, or `params` is not a frozen dataclass.

    Source: dynamic tool registration, "Usage Example".
    """

    title: str
    key: str
    """Letters, digits, `_` and `-`. Sections with the same parent must have different keys."""
    template: str
    summary: str | None = None
    visibility: Visibility[P] = SectionVisibility.FULL
    tools: Sequence[ToolReference] = ()
    """The tools that are offered while the section is shown in full."""
    children: Sequence[Section] = ()
    enabled: Enabled[P] = True
    """A disabled section does not exist, and neither do the sections below it."""
    params: type[P] | None = None

    def __post_init__(self) -> None:
        _check_head(self.key, self.title)
        if isinstance(self.tools, str):
            raise InvalidPrompt(f"Section `{self.key}`: `tools` must be a sequence, not a string.")
        if self.visibility is not SectionVisibility.FULL and not self.has_summary:
            raise InvalidPrompt(f"Section `{self.key}`: it may be shown as a summary, but `summary` is missing.")
        known = _fields(self.key, self.params)
        for text in (self.template, self.summary or ""):
            if (place := wrong_place(text, known)) is not None:
                raise InvalidPrompt(
                    f"Section `{self.key}`: no field fills `{place[:80]}`. {_fillable(known)} "
                    "To write a literal `${`, use `$${`."
                )
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "children", distinct(self.children, f"Section `{self.key}`"))

    @property
    def has_summary(self) -> bool:
        return bool((self.summary or "").strip())

    def content(self, params: P, catalog: CatalogReader | None) -> str:
        """Return the text below the heading, without children."""
        return filled(self.template, params)

    def in_short(self, params: P, catalog: CatalogReader | None) -> str:
        return filled(self.summary or "", params)


@dataclass(frozen=True, slots=True)
class CatalogSection:
    """A category of the catalog as a part of a prompt. In full, it shows pointers to its tools.

    Functions for visibility and `enabled` receive None as parameters.

    Raises:
        InvalidPrompt: the key is not a plain word, or the title is not one line.
    """

    title: str
    key: str
    category: Path
    summary: str | None = None
    """The summary. If it is None, the catalog's summary of the category is used."""
    visibility: Visibility[None] = SectionVisibility.SUMMARY
    enabled: Enabled[None] = True

    tools: ClassVar[tuple[ToolReference, ...]] = ()
    children: ClassVar[tuple[Section, ...]] = ()
    params: ClassVar[None] = None
    has_summary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_head(self.key, self.title)

    def content(self, params: None, catalog: CatalogReader | None) -> str:
        """Return one line for each tool, ordered by id."""
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
            raise InvalidPrompt(f"Section `{self.key}` shows a category, so `render` needs a catalog.")
        return catalog

    @property
    def _nothing(self) -> str:
        return f"There are currently no tools in {self._place}."

    @property
    def _place(self) -> str:
        return f"the category {as_path(self.category)}" if self.category else "the catalog"


Section: TypeAlias = MarkdownSection[Any] | CatalogSection


def distinct(sections: Iterable[Section], whose: str) -> tuple[Section, ...]:
    """Return `sections` as a tuple. Their keys must differ.

    Raises:
        InvalidPrompt: two have the same key. The message starts with `whose`.
    """
    kept = tuple(sections)
    repeated = [key for key, count in Counter(section.key for section in kept).items() if count > 1]
    if repeated:
        raise InvalidPrompt(f"{whose}: duplicate section key `{repeated[0]}`.")
    return kept


def _check_head(key: str, title: str) -> None:
    if not _KEY.fullmatch(key):
        raise InvalidPrompt(f"Invalid section key `{key}`. Use letters, digits, `_` and `-`.")
    if len(title.splitlines()) != 1 or not title.strip():
        raise InvalidPrompt(f"Section `{key}`: the title must be one line.")


def _fields(key: str, params: type[Any] | None) -> tuple[str, ...]:
    """Return the names of the fields of `params`. Empty if it is None."""
    if params is None:
        return ()
    if not is_dataclass(params) or not params.__dataclass_params__.frozen:  # pyright: ignore
        raise InvalidPrompt(
            f"Section `{key}`: `params` must be a frozen dataclass, so that a bound prompt cannot change."
        )
    return tuple(field.name for field in fields(params))


def _fillable(known: Sequence[str]) -> str:
    return f"The fields are {', '.join(f'`{name}`' for name in known)}." if known else "There are no fields."
