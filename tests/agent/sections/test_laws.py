"""Properties of prompts: what is shown and hidden, and that reading a section equals opening it."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from tests.agent.sections.prompts import FULL, Part, body, made, paths, situations, summary, tools

from toolcrib.agent.sections import SectionPath, SectionState, SectionTool, dotted


def shown(plan: tuple[Part, ...], state: SectionState) -> dict[SectionPath, bool]:
    """Map the sections that a model can know to whether they are open: a second implementation of the rule."""
    known: dict[SectionPath, bool] = {}
    for path, part in paths(plan):
        around = len(path) == 1 or known.get(path[:-1], False)
        if around and part.enabled:
            known[path] = not part.can_close or state.overrides.get(path, part.visibility) is FULL
    return known


def without_disabled(plan: tuple[Part, ...]) -> tuple[Part, ...]:
    """Remove disabled sections at the end. Keys are numbers, so removing an earlier section would rename later ones."""
    kept = list(plan)
    while kept and not kept[-1].enabled:
        kept.pop()
    return tuple(replace(part, parts=without_disabled(part.parts)) for part in kept)


@given(situations())
def test_a_restored_state_renders_the_same_bytes(
    situation: tuple[tuple[Part, ...], SectionState],
) -> None:
    plan, state = situation
    restored = SectionState.from_wire(json.loads(json.dumps(state.to_wire())))

    assert restored == state
    assert json.dumps(restored.to_wire()) == json.dumps(state.to_wire())
    assert made(plan).render(restored) == made(plan).render(state)


@given(situations())
def test_a_section_shows_its_text_or_its_summary_and_a_summary_hides_subsections(
    situation: tuple[tuple[Part, ...], SectionState],
) -> None:
    plan, state = situation
    text = made(plan).render(state).text
    known = shown(plan, state)

    for path, _ in paths(plan):
        assert (body(path) in text) is known.get(path, False)
        assert (summary(path) in text) is not known.get(path, True)
        assert (f"Title {dotted(path)}\n" in text) is (path in known)
        assert (f'with key "{dotted(path)}".]' in text) is not known.get(path, True)


@given(situations())
def test_a_prompt_has_the_tools_of_its_open_sections_in_order(
    situation: tuple[tuple[Part, ...], SectionState],
) -> None:
    plan, state = situation
    rendered = made(plan).render(state)
    known = shown(plan, state)

    assert rendered.tools == tuple(
        SectionTool(path, tool) for path, part in paths(plan) if known.get(path) for tool in tools(path, part)
    )
    assert rendered.summarized == tuple(path for path, is_open in known.items() if not is_open)


@given(situations())
def test_reading_a_summarized_section_gives_what_the_prompt_shows_after_opening_it(
    situation: tuple[tuple[Part, ...], SectionState],
) -> None:
    plan, state = situation
    prompt = made(plan)
    before = prompt.render(state)

    for path in before.summarized:
        key = dotted(path)
        read = prompt.read_section(key, state)
        after = prompt.render(state.after(prompt.override_for(key)))

        assert read.success
        assert read.path == path
        assert read.value is not None
        assert read.value.content in after.text
        assert read.value.content not in before.text
        assert read.value.expanded_tools == tuple(tool for tool in after.tools if tool not in before.tools)
        assert set(before.tools) <= set(after.tools)


@given(situations())
def test_reading_an_open_section_gives_its_text_in_the_prompt_and_no_tools(
    situation: tuple[tuple[Part, ...], SectionState],
) -> None:
    plan, state = situation
    prompt = made(plan)

    for path in [path for path, is_open in shown(plan, state).items() if is_open]:
        read = prompt.read_section(dotted(path), state)
        assert read.success
        assert read.value is not None
        assert read.value.content in prompt.render(state).text
        assert read.value.expanded_tools == ()


@given(situations())
def test_a_hidden_section_is_answered_like_an_unknown_section(situation: tuple[tuple[Part, ...], SectionState]) -> None:
    plan, state = situation
    prompt = made(plan)
    known = shown(plan, state)

    for path, _ in paths(plan):
        if len(path) > 1 and known.get(path[:-1]) is False:
            hidden, absent = (prompt.read_section(dotted(each), state) for each in (path, (*path[:-1], "none")))
            assert not hidden.success
            assert hidden.value is None
            assert hidden.message.replace(dotted(path), "KEY") == absent.message.replace(
                f"{dotted(path[:-1])}.none", "KEY"
            )


@given(situations())
def test_a_disabled_section_changes_nothing_in_a_prompt(situation: tuple[tuple[Part, ...], SectionState]) -> None:
    plan, state = situation
    with_it, without = made(plan), made(without_disabled(plan))

    assert with_it.render(state) == without.render(state)
    for path, _ in paths(plan):
        assert with_it.read_section(dotted(path), state) == without.read_section(dotted(path), state)
