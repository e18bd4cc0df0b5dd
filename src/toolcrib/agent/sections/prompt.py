"""A prompt made of sections: its template, and what a model sees of it in one state of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from toolcrib.agent.sections.outline import ReadSectionResult, SectionRead, SectionTool, VisibleSection, outline
from toolcrib.agent.sections.section import CatalogReader, Section, distinct
from toolcrib.agent.sections.section_state import (
    SectionPath,
    SectionState,
    SectionVisibility,
    SetVisibilityOverride,
    dotted,
    undotted,
)
from toolcrib.core.errors import InvalidPrompt
from toolcrib.core.schema import nearest

if TYPE_CHECKING:  # the default is for type checkers: a prompt answers with text; Python 3.11 has no defaults
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")

MAX_NAMED = 8
"""How many keys an error names. More would hide the first ones."""

_ECHO_CHARS = 80
"""The length to which an unknown key from a model is cut."""


@dataclass(frozen=True, slots=True)
class PromptTemplate(Generic[Output]):
    """A prompt without its parameters. `PromptTemplate[Answer](...)` asks for an `Answer`; `PromptTemplate(...)` for
    text.

    Raises:
        InvalidPrompt: `ns` or `key` is blank, or two sections with the same parent have the same key.

    Source: dynamic tool registration, "Usage Example".
    """

    ns: str
    """The owner of the prompt, which distinguishes prompts with the same key."""
    key: str
    sections: Sequence[Section] = ()

    _output: ClassVar[Any] = str

    def __class_getitem__(cls, output: Any) -> Any:
        return cls if isinstance(output, TypeVar) else _answering(cls, output)

    def __post_init__(self) -> None:
        if not self.ns.strip() or not self.key.strip():
            raise InvalidPrompt("A prompt needs a namespace and a key.")
        object.__setattr__(self, "sections", distinct(self.sections, f"Prompt `{self.ns}/{self.key}`"))

    @property
    def output_type(self) -> type[Output]:
        """The type of the final answer."""
        return self._output

    def walk(self) -> Iterator[tuple[SectionPath, Section]]:
        """Yield all sections, visible or not, each before its children."""
        return _all(self.sections)

    def bind(self, *params: object) -> Prompt[Output]:
        """Bind one value for each type of parameters that a section takes, in any order.

        Raises:
            InvalidPrompt: a value is missing, given twice, or not taken by any section. The message names it.
        """
        bound: dict[type, object] = {}
        taken = dict.fromkeys(section.params for _, section in self.walk() if section.params is not None)
        for value in params:
            kind = type(value)
            if kind not in taken:
                raise InvalidPrompt(f"No section of `{self.ns}/{self.key}` takes a `{kind.__name__}`.")
            if kind in bound:
                raise InvalidPrompt(f"Two values were given for `{kind.__name__}`.")
            bound[kind] = value
        if missing := [kind.__name__ for kind in taken if kind not in bound]:
            raise InvalidPrompt(
                f"Prompt `{self.ns}/{self.key}` needs a value for {', '.join(f'`{name}`' for name in missing)}."
            )
        return Prompt(self, bound)


@cache
def _answering(template: type[PromptTemplate[Any]], output: Any) -> type[PromptTemplate[Any]]:
    """Return a subclass of `template` for one type of answer. A frozen instance cannot receive the type after its
    creation."""
    name = f"{template.__name__}[{getattr(output, '__name__', output)}]"
    return type(name, (template,), {"__slots__": (), "__module__": template.__module__, "_output": output})


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as a model sees it. Equal states give equal prompts."""

    text: str
    """The Markdown text."""
    tools: tuple[SectionTool, ...]
    """The tools of all sections that are shown in full, in the order of the text."""
    summarized: tuple[SectionPath, ...]
    """Sections that are shown as summaries. If there are any, `READ_SECTION` must be among the tools."""


@dataclass(frozen=True, slots=True)
class Prompt(Generic[Output]):
    """A template with its parameters."""

    template: PromptTemplate[Output]
    params: Mapping[type, object]
    """The parameters by their types. Do not change the mapping."""

    @property
    def output_type(self) -> type[Output]:
        return self.template.output_type

    def render(self, state: SectionState, catalog: CatalogReader | None = None) -> RenderedPrompt:
        """Render what a model sees in `state`: byte for byte the same for the same state and catalog.

        Raises:
            InvalidPrompt: a section shows a category, and no `catalog` was given.
        """
        entries = self._outline(state)
        return RenderedPrompt(
            "\n\n".join(entry.markdown(catalog) for entry in entries),
            tuple(tool for entry in entries for tool in entry.tools),
            tuple(path for path, entry in _known(entries).items() if not entry.is_open),
        )

    def tools(self, state: SectionState) -> tuple[SectionTool, ...]:
        """Return the tools of all sections that are shown in full in `state`, as in `render`."""
        return tuple(tool for entry in self._outline(state) for tool in entry.tools)

    def read_section(self, key: str, state: SectionState, catalog: CatalogReader | None = None) -> SectionRead:
        """Return the answer for a model that reads the section with the dotted `key`. `state` does not change.

        A section below a summary is unknown, because the model has not seen it. A section that is already open gives
        its content and no tools. Otherwise, the result is as in `render` after `override_for(key)`. Sections below it
        that are summaries stay closed.

        Raises:
            InvalidPrompt: a section shows a category, and no `catalog` was given.

        Source: dynamic tool registration, "Handler Behavior", "Error Handling". The choice of tools is our own.
        """
        path = undotted(key)
        known = _known(self._outline(state))
        if (entry := known.get(path)) is None:
            return SectionRead(False, _unknown(key, known), path)
        if entry.is_open:
            return SectionRead(
                True, f'Section "{key}" is already open.', path, ReadSectionResult(entry.markdown(catalog))
            )
        opened = _known(self._outline(state.after(_opening(path)))).get(path)
        if opened is None:  # a function of this section, or of one around it, hides it once it is open
            return SectionRead(False, f'Section "{key}" cannot be read now.', path)
        result = ReadSectionResult(opened.markdown(catalog), tuple(opened.tools))
        return SectionRead(True, f'Section "{key}":', path, result, opens=True)

    def override_for(self, key: str) -> SetVisibilityOverride:
        """Return the change of the state that reading the section with the dotted `key` causes.

        Raises:
            InvalidPrompt: the template has no such section.
        """
        keys = [dotted(path) for path, _ in self.template.walk()]
        if key not in keys:
            near = nearest(key, keys)
            meant = f" Did you mean `{near}`?" if near else ""
            raise InvalidPrompt(f"Prompt `{self.template.ns}/{self.template.key}` has no section `{key}`.{meant}")
        return _opening(undotted(key))

    def _outline(self, state: SectionState) -> tuple[VisibleSection, ...]:
        return outline(self.template.sections, self.params, state)


def _opening(path: SectionPath) -> SetVisibilityOverride:
    return SetVisibilityOverride(path, SectionVisibility.FULL)


def _known(entries: Sequence[VisibleSection]) -> dict[SectionPath, VisibleSection]:
    """Return the sections that a model can know, in the order of the text."""
    return {entry.path: entry for top in entries for entry in top.walk()}


def _all(sections: Sequence[Section], above: SectionPath = ()) -> Iterator[tuple[SectionPath, Section]]:
    for section in sections:
        yield (*above, section.key), section
        yield from _all(section.children, (*above, section.key))


def _unknown(key: str, known: Mapping[SectionPath, VisibleSection]) -> str:
    # As JSON, because a model can write anything here, even invalid Unicode.
    missing = f"Section {json.dumps(key[:_ECHO_CHARS])} not found."
    if near := _near(undotted(key), known):
        return f"{missing} Did you mean {' or '.join(map(_quoted, near[:MAX_NAMED]))}?"
    closed = [_quoted(path) for path, entry in known.items() if not entry.is_open]
    return f"{missing} You can read: {', '.join(closed[:MAX_NAMED])}." if closed else missing


def _quoted(path: SectionPath) -> str:
    return f'"{dotted(path)}"'


def _near(path: SectionPath, known: Mapping[SectionPath, VisibleSection]) -> Sequence[SectionPath]:
    """Return the sections that were probably meant. If one is below a summary, that summary must be read first."""
    for length in range(len(path) - 1, 0, -1):
        around = known.get(path[:length])
        if around is not None and not around.is_open:
            return [path[:length]]
    if same := [each for each in known if each[-1] == path[-1]]:
        return same
    near = nearest(dotted(path), map(dotted, known))
    return [undotted(near)] if near else []
