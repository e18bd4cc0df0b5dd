"""Properties of conversations over random scripts: saving, provider caching, and equal results of all deliveries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.agent.loop.playing import (
    DEFER,
    DEFER_UNLISTED,
    PROXY,
    WAYS,
    Step,
    Way,
    answers,
    by_name_or_handle,
    check_answered,
    check_saved,
    handles,
    plays,
    read,
    turn,
    wire,
)
from tests.examples import examples

from toolcrib import Toolcrib
from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, ToolCall
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import InnerLoopConfig
from toolcrib.agent.sections import (
    CatalogSection,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Section,
    SectionPath,
    SectionVisibility,
    dotted,
)

FULL, SUMMARY = SectionVisibility.FULL, SectionVisibility.SUMMARY


@dataclass(frozen=True)
class Part:
    """A section, closed at first or not, with or without a tool."""

    is_closed: bool
    has_tool: bool
    parts: tuple[Part, ...] = ()


def _nested(inner: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    return st.builds(Part, st.booleans(), st.booleans(), st.lists(inner, max_size=2).map(tuple))


PLANS = st.lists(st.recursive(st.builds(Part, st.booleans(), st.booleans()), _nested, max_leaves=4), min_size=1,
                 max_size=3).map(tuple)  # fmt: skip


def tool_of(path: SectionPath) -> str:
    return f"tool_{'_'.join(path)}"


def function(path: SectionPath) -> Callable[[], str]:
    def tool() -> str:
        """Tell where it stands."""
        return f"from {dotted(path)}"

    tool.__name__ = tool_of(path)
    return tool


def sections(parts: Sequence[Part], above: SectionPath = ()) -> list[Section]:
    made: list[Section] = []
    for number, part in enumerate(parts):
        path = (*above, f"s{number}")
        tools = (function(path),) if part.has_tool else ()
        visibility = SUMMARY if part.is_closed else FULL
        below = sections(part.parts, path)
        made.append(MarkdownSection(path[-1], path[-1], dotted(path), "Short.", visibility, tools, below))
    return made


def paths(parts: Sequence[Part], above: SectionPath = ()) -> list[tuple[SectionPath, Part]]:
    found: list[tuple[SectionPath, Part]] = []
    for number, part in enumerate(parts):
        path = (*above, f"s{number}")
        found += [(path, part), *paths(part.parts, path)]
    return found


def prompt(parts: Sequence[Part]) -> Prompt[str]:
    catalog = CatalogSection("Catalog", "catalog", ("functions",))
    return PromptTemplate[str]("tests", "drawn", [*sections(parts), catalog]).bind()


def crib() -> Toolcrib:
    made = Toolcrib()

    def weather(city: str) -> str:
        """Tell the weather."""
        return f"rain in {city}"

    def time_of_day(city: str = "Ulm") -> str:
        """Tell the time."""
        return f"noon in {city}"

    made.add(weather)
    made.add(time_of_day)
    return made


@dataclass(frozen=True)
class Scene:
    """A prompt, and a model's script that may contain any mistake."""

    parts: tuple[Part, ...]
    script: tuple[Step, ...]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    parts = draw(PLANS)
    keys = st.sampled_from([*(dotted(path) for path, _ in paths(parts)), "catalog", "gone", "s0.gone"])
    names = st.sampled_from([*(tool_of(path) for path, _ in paths(parts)), "functions__weather", "invented"])
    ids = st.sampled_from(["functions.weather", "functions.time_of_day", "functions.gone"])
    acts: st.SearchStrategy[tuple[str, object]] = st.one_of(
        keys.map(read),
        keys.map(read),
        names.map(lambda name: (name, {"city": "Ulm"} if name.startswith("functions") else {})),
        names.map(lambda name: (name, "{")),
        ids.map(lambda tool_id: ("expand_tool", {"tool_id": tool_id})),
        st.lists(ids, min_size=1, max_size=3).map(lambda tool_ids: ("expand_tool", {"tool_ids": tool_ids})),
        ids.map(lambda tool_id: ("call_tool", {"tool_id": tool_id})),
        st.just(("search_tools", {"query": "weather"})),
    )
    turns = draw(st.lists(st.lists(acts, min_size=1, max_size=4), max_size=5))
    return Scene(parts, (*turns, "done"))


async def perform(way: Way, scene: Scene) -> tuple[list[ModelRequest], list[ConversationState]]:
    """Return the requests, and the state after each event."""
    session = crib().session()
    events: list[ConversationEvent] = []
    states: list[ConversationState] = []

    def listen(event: ConversationEvent) -> None:
        events.append(event)
        states.append(session.conversation.state)

    session.conversation.subscribe(listen)
    adapter = way.adapter(plays(*scene.script))
    loop = MainLoop(config=InnerLoopConfig(operations=("search_tools",)))
    response = await loop.execute(prompt(scene.parts), session=session, adapter=adapter)
    assert response.output == "done"
    check_answered(session.conversation.state)
    assert reduce(ConversationState.after, events, ConversationState()) == session.conversation.state
    return adapter.requests, states


@pytest.mark.parametrize("way", WAYS, ids=str)
@settings(max_examples=examples(30))
@given(scenes())
def test_every_state_seen_by_a_listener_is_saved_and_restored_unchanged(way: Way, scene: Scene) -> None:
    _, states = anyio.run(perform, way, scene)
    for state in states:
        check_saved(state)


@pytest.mark.parametrize("way", [DEFER, DEFER_UNLISTED, PROXY], ids=str)
@settings(max_examples=examples(60))
@given(scenes())
@example(Scene((Part(True, True, (Part(True, True),)),), ([read("s0")], [read("s0.s0")], "done")))
def test_each_request_is_a_prefix_of_the_next_request(way: Way, scene: Scene) -> None:
    requests, _ = anyio.run(perform, way, scene)
    for before, after in pairwise(requests):
        assert wire(after).startswith(wire(before))


@pytest.mark.parametrize("way", WAYS, ids=str)
@settings(max_examples=examples(25))
@given(scenes())
def test_content_of_a_request_is_never_removed_within_an_evaluation(way: Way, scene: Scene) -> None:
    requests, _ = anyio.run(perform, way, scene)
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert before.system != after.system or after.tools[: len(before.tools)] == before.tools


# -- all deliveries give the same result ------------------------------------------------------------------------------


def tool_seeker(targets: Sequence[SectionPath], *, at_once: bool) -> Callable[[ModelRequest], ModelTurn]:
    """A model that wants to call the tools of these sections: it first reads the closed sections around them."""

    def step(request: ModelRequest, path: SectionPath) -> tuple[str, object]:
        if (made := by_name_or_handle(request, tool_of(path), {})) is not None:
            return made
        was_read = {message.call_id.partition(":")[2] for message in answers(request) if message.name == "read_section"}
        shown = "\n".join([request.system, *(message.content for message in answers(request))])
        for length in range(1, len(path) + 1):
            key = dotted(path[:length])
            if f'with key "{key}"' in shown and f"{key}" not in was_read:
                return read(key)
        raise AssertionError(f"there is no way to {dotted(path)}")

    def answer(request: ModelRequest) -> ModelTurn:
        results = {
            message.call_id.partition(":")[2]: message.content
            for message in answers(request)
            if message.name != "read_section"
        }
        missing = [path for path in targets if tool_of(path) not in results]
        if not missing:
            return turn(request, json.dumps(results, sort_keys=True))
        calls: dict[str, ToolCall] = {}
        for path in missing if at_once else missing[:1]:
            name, given_ = step(request, path)
            about = given_["section_key"] if name == "read_section" else tool_of(path)  # pyright: ignore
            call_id = f"{len(request.messages)}:{about}"
            calls[call_id] = ToolCall(call_id, name, json.dumps(given_))
        return ModelTurn(AssistantMessage("", tuple(calls.values())))

    return answer


async def reach_tools(
    way: Way, parts: Sequence[Part], targets: Sequence[SectionPath], at_once: bool
) -> tuple[object, ...]:
    session = crib().session()
    adapter = way.adapter(tool_seeker(targets, at_once=at_once))
    response = await MainLoop(max_restarts=100).execute(prompt(parts), session=session, adapter=adapter)
    check_answered(session.conversation.state)
    assert json.loads(response.output) == {tool_of(path): f"from {dotted(path)}" for path in targets}
    return response.output, session.conversation.state.sections.to_wire(), len(adapter.requests)


@settings(max_examples=examples(40))
@given(PLANS, st.data(), st.booleans())
def test_all_deliveries_reach_the_same_output_and_sections_with_as_many_requests(
    parts: tuple[Part, ...], data: st.DataObject, at_once: bool
) -> None:
    there = [path for path, part in paths(parts) if part.has_tool]
    targets = [path for path in there if data.draw(st.booleans())]
    reached = [anyio.run(partial(reach_tools, way, parts, targets, at_once)) for way in WAYS]
    assert reached == reached[:1] * len(WAYS)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_tool_two_levels_down_is_reached_with_three_expansions(way: Way) -> None:
    leaf = Part(True, True, (Part(True, True, (Part(True, True),)),))
    _, opened, requests = anyio.run(partial(reach_tools, way, [leaf], [("s0", "s0", "s0")], False))
    assert opened == {"overrides": {"s0": "full", "s0.s0": "full", "s0.s0.s0": "full"}}
    assert requests == 3 + 1 + 1  # to read, to call, to answer


def test_handles_of_a_proxy_are_found_in_the_answers() -> None:
    """The tests above depend on this: without handles, a proxy could call no tool."""
    scene = Scene((Part(True, True),), ([read("s0")], "done"))
    requests, _ = anyio.run(perform, PROXY, scene)
    assert [*handles(requests[-1])] == ["tool_s0"]
