"""A prompt of sections: its template, and what a model is shown of it in one state of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from toolcrib.agent.sections.events import SectionPath, SectionVisibility, SetVisibilityOverride, dotted, undotted
from toolcrib.agent.sections.outline import Entry, outline
from toolcrib.agent.sections.reader import CatalogReader
from toolcrib.agent.sections.reading import ReadSectionResult, SectionRead, SectionTool
from toolcrib.agent.sections.section import Section, distinct
from toolcrib.agent.sections.state import SectionState
from toolcrib.core.errors import InvalidPrompt
from toolcrib.core.schema import nearest

if TYPE_CHECKING:  # a default tells type checkers what an answer is unless somebody says; 3.11 itself knows none
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")

MAX_NAMED = 8
"""Keys that an error names; more would drown the first."""

_ECHO_CHARS = 80
"""Of a key that a model made up."""


@dataclass(frozen=True, slots=True)
class PromptTemplate(Generic[Output]):
    """A prompt before its parameters are known. `PromptTemplate[Answer](...)` asks for an `Answer`; without, for text.

    Raises:
        InvalidPrompt: `ns` or `key` is blank, or two sections side by side have one key.

    Source: dynamic tool registration, "Usage Example".
    """

    ns: str
    """Whose it is, so that two of one key can be told apart."""
    key: str
    sections: Sequence[Section] = ()

    _output: ClassVar[Any] = str

    def __class_getitem__(cls, output: Any) -> Any:
        return cls if isinstance(output, TypeVar) else _answering(cls, output)

    def __post_init__(self) -> None:
        if not self.ns.strip() or not self.key.strip():
            raise InvalidPrompt("A prompt has a namespace and a key.")
        object.__setattr__(self, "sections", distinct(self.sections, f"Prompt `{self.ns}/{self.key}`"))

    @property
    def output_type(self) -> type[Output]:
        """What the final answer is to be."""
        return self._output

    def walk(self) -> Iterator[tuple[SectionPath, Section]]:
        """All of its sections, whether they are there or not, each before those inside it."""
        return _all(self.sections)

    def bind(self, *params: object) -> Prompt[Output]:
        """With one value for each type of parameters that a section takes, in any order.

        Raises:
            InvalidPrompt: one is missing, given twice, or taken by no section; the message names it.
        """
        bound: dict[type, object] = {}
        taken = dict.fromkeys(section.params for _, section in self.walk() if section.params is not None)
        for value in params:
            kind = type(value)
            if kind not in taken:
                raise InvalidPrompt(f"No section of `{self.ns}/{self.key}` takes a `{kind.__name__}`.")
            if kind in bound:
                raise InvalidPrompt(f"Two values are bound for `{kind.__name__}`.")
            bound[kind] = value
        if missing := [kind.__name__ for kind in taken if kind not in bound]:
            raise InvalidPrompt(
                f"Prompt `{self.ns}/{self.key}` lacks its {', '.join(f'`{name}`' for name in missing)}."
            )
        return Prompt(self, bound)


@cache
def _answering(template: type[PromptTemplate[Any]], output: Any) -> type[PromptTemplate[Any]]:
    """`template` for one type of answer: a frozen instance cannot be told after it was made, as `typing` would."""
    name = f"{template.__name__}[{getattr(output, '__name__', output)}]"
    return type(name, (template,), {"__slots__": (), "__module__": template.__module__, "_output": output})


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as a model is shown it; equal for equal states."""

    text: str
    """Markdown."""
    tools: tuple[SectionTool, ...]
    """Of all sections that are shown in full, as these stand in the text."""
    summarized: tuple[SectionPath, ...]
    """Sections that are shown as summaries: where there are any, `READ_SECTION` belongs among the tools."""


@dataclass(frozen=True, slots=True)
class Prompt(Generic[Output]):
    """A template with its parameters."""

    template: PromptTemplate[Output]
    params: Mapping[type, object]
    """By their types; read-only by agreement."""

    @property
    def output_type(self) -> type[Output]:
        return self.template.output_type

    def render(self, state: SectionState, catalog: CatalogReader | None = None) -> RenderedPrompt:
        """What a model is shown in `state`: byte for byte the same for the same state and catalog.

        Raises:
            InvalidPrompt: a section shows a category, and there is no `catalog`.
        """
        entries = self._outline(state)
        return RenderedPrompt(
            "\n\n".join(entry.markdown(catalog) for entry in entries),
            tuple(tool for entry in entries for tool in entry.tools),
            tuple(path for path, entry in _known(entries).items() if not entry.is_open),
        )

    def tools(self, state: SectionState) -> tuple[SectionTool, ...]:
        """Those of all sections that are shown in full in `state`, as `render` has them."""
        return tuple(tool for entry in self._outline(state) for tool in entry.tools)

    def read_section(self, key: str, state: SectionState, catalog: CatalogReader | None = None) -> SectionRead:
        """What a model gets that asks for the section of the dotted `key`; `state` stays as it is.

        A section below a summary is unknown, as the model was not told of it. One that is open already gives its
        content and no tools. Otherwise all is as `render` has it after `override_for(key)`: sections below that are
        summaries themselves stay closed.

        Raises:
            InvalidPrompt: a section shows a category, and there is no `catalog`.

        Source: dynamic tool registration, "Handler Behavior", "Error Handling"; which tools come along is our own.
        """
        path = undotted(key)
        known = _known(self._outline(state))
        if (entry := known.get(path)) is None:
            return SectionRead(False, _unknown(key, known), path)
        if entry.is_open:
            return SectionRead(
                True, f'Section "{key}" is open already.', path, ReadSectionResult(entry.markdown(catalog))
            )
        opened = _known(self._outline(state.after(_opening(path)))).get(path)
        if opened is None:  # a function of it, or of one around it, answers otherwise once it is open
            return SectionRead(False, f'Section "{key}" cannot be read now.', path)
        result = ReadSectionResult(opened.markdown(catalog), tuple(opened.tools))
        return SectionRead(True, f'Section "{key}":', path, result, opens=True)

    def override_for(self, key: str) -> SetVisibilityOverride:
        """What reading the section of the dotted `key` does to the state.

        Raises:
            InvalidPrompt: the template has no such section.
        """
        keys = [dotted(path) for path, _ in self.template.walk()]
        if key not in keys:
            near = nearest(key, keys)
            meant = f" Did you mean `{near}`?" if near else ""
            raise InvalidPrompt(f"Prompt `{self.template.ns}/{self.template.key}` has no section `{key}`.{meant}")
        return _opening(undotted(key))

    def _outline(self, state: SectionState) -> tuple[Entry, ...]:
        return outline(self.template.sections, self.params, state)


def _opening(path: SectionPath) -> SetVisibilityOverride:
    return SetVisibilityOverride(path, SectionVisibility.FULL)


def _known(entries: Sequence[Entry]) -> dict[SectionPath, Entry]:
    """What a model can know of, as it stands in the text."""
    return {entry.path: entry for top in entries for entry in top.walk()}


def _all(sections: Sequence[Section], above: SectionPath = ()) -> Iterator[tuple[SectionPath, Section]]:
    for section in sections:
        yield (*above, section.key), section
        yield from _all(section.children, (*above, section.key))


def _unknown(key: str, known: Mapping[SectionPath, Entry]) -> str:
    # As JSON: a model can write anything here, also what no text can hold.
    missing = f"There is no section {json.dumps(key[:_ECHO_CHARS])}."
    if near := _near(undotted(key), known):
        return f"{missing} Did you mean {' or '.join(map(_quoted, near[:MAX_NAMED]))}?"
    closed = [_quoted(path) for path, entry in known.items() if not entry.is_open]
    return f"{missing} These can be read: {', '.join(closed[:MAX_NAMED])}." if closed else missing


def _quoted(path: SectionPath) -> str:
    return f'"{dotted(path)}"'


def _near(path: SectionPath, known: Mapping[SectionPath, Entry]) -> Sequence[SectionPath]:
    """Keys that were probably meant. Below a summary nothing is known, so that is what to read first."""
    for length in range(len(path) - 1, 0, -1):
        around = known.get(path[:length])
        if around is not None and not around.is_open:
            return [path[:length]]
    if same := [each for each in known if each[-1] == path[-1]]:
        return same
    near = nearest(dotted(path), map(dotted, known))
    return [undotted(near)] if near else []
