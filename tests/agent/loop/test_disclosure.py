"""Sections that a model opens during a conversation, and their tools, with every delivery."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from tests.agent.loop.playing import (
    DEFER,
    DEFER_UNLISTED,
    INJECT,
    PROXY,
    RESTART,
    WAYS,
    Step,
    Watched,
    Way,
    answers,
    by_name_or_handle,
    handles,
    offered,
    plays,
    read,
    turn,
)

from toolcrib import Toolcrib
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.events import NameCollided
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn, UserMessage
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import InnerLoopConfig
from toolcrib.agent.loop.toolbox import MAX_POINTERS
from toolcrib.agent.sections import (
    CatalogSection,
    MarkdownSection,
    PromptTemplate,
    Section,
    SectionVisibility,
    SetVisibilityOverride,
    ToolReference,
    ToolsInjected,
)
from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.core.errors import InvalidPrompt
from toolcrib.sources.functions import plain_tool

pytestmark = pytest.mark.anyio

SUMMARY = SectionVisibility.SUMMARY
MAIN = MainLoop()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def closed(key: str, *tools: ToolReference, children: tuple[Section, ...] = ()) -> MarkdownSection:
    return MarkdownSection(
        key.title(),
        key,
        f"All about {key}.",
        summary=f"{key}, in short.",
        visibility=SUMMARY,
        tools=tools,
        children=children,
    )


NESTED = PromptTemplate[str](
    "tests", "nested", [closed("sums", add, children=(closed("products", multiply),)), closed("words")]
).bind()


def call(name: str, **arguments: object) -> Callable[[ModelRequest], Step]:
    """A call by name, or by handle if the tool has no name."""

    def step(request: ModelRequest) -> Step:
        made = by_name_or_handle(request, name, arguments)
        assert made is not None, f"{name} cannot be called"
        return [made]

    return step


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_nested_tool_becomes_callable_after_two_expansions_and_not_before(way: Way, watched: Watched) -> None:
    session = watched.session()
    adapter = way.adapter(plays([read("sums")], [read("sums.products")], call("multiply", a=6, b=7), "42"))

    response = await MAIN.execute(NESTED, session=session, adapter=adapter, request="Six times seven?")

    assert response.output == "42"
    assert answers(adapter.requests[-1])[-1].content == "42"
    callable_by_now = [offered(request) | {*handles(request)} for request in adapter.requests]
    assert ["add" in each for each in callable_by_now] == [False, True, True, True]
    assert ["multiply" in each for each in callable_by_now] == [False, False, True, True]
    assert session.conversation.state.sections.overrides == {
        ("sums",): SectionVisibility.FULL,
        ("sums", "products"): SectionVisibility.FULL,
    }
    assert session.conversation.state.restarts == (2 if way is RESTART else 0)
    for request in adapter.requests:
        assert [message.text for message in request.messages if isinstance(message, UserMessage)] == [
            "Six times seven?"
        ]


async def test_each_delivery_shows_a_new_tool_in_its_own_way(watched: Watched) -> None:
    async def requests(way: Way) -> tuple[ModelRequest, ModelRequest]:
        adapter = way.adapter(plays([read("sums")], "done"))
        await MAIN.execute(NESTED, session=watched.session(), adapter=adapter)
        first, second = adapter.requests
        return first, second

    def listed(request: ModelRequest) -> dict[str, bool]:
        return {tool.name: tool.is_deferred for tool in request.tools}

    first, second = await requests(INJECT)
    assert listed(first) == {"read_section": False}
    assert listed(second) == {"read_section": False, "add": False}
    assert first.system == second.system

    first, second = await requests(DEFER)
    assert listed(first) == listed(second) == {"read_section": False, "add": True, "multiply": True}
    assert [tool.name for tool in answers(second)[0].revealed] == ["add"]

    first, second = await requests(DEFER_UNLISTED)
    assert listed(first) == listed(second) == {"read_section": False}
    assert [tool.name for tool in answers(second)[0].revealed] == ["add"]

    first, second = await requests(PROXY)
    assert listed(first) == listed(second) == {"read_section": False, "call_tool": False}
    assert [*handles(second)] == ["add"]

    first, second = await requests(RESTART)
    assert listed(first) == {"read_section": False}
    assert listed(second) == {"read_section": False, "add": False}
    assert "All about sums." in second.system
    assert "All about sums." not in first.system


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_reading_a_section_twice_in_one_turn_adds_its_tools_once(way: Way, watched: Watched) -> None:
    session = watched.session()
    adapter = way.adapter(plays([read("sums"), read("sums")], call("add", a=1, b=2), "3"))

    await MAIN.execute(NESTED, session=session, adapter=adapter)

    first, second, sum_ = answers(adapter.requests[-1])
    assert (first.is_error, second.is_error, sum_.content) == (False, False, "3")
    assert "already open" in second.content
    assert [*second.revealed] == []
    assert sum(isinstance(event, ToolsInjected) for event in watched.events(session)) == (way not in {PROXY, RESTART})
    assert sum(isinstance(event, SetVisibilityOverride) for event in watched.events(session)) == 1


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_two_sections_read_in_one_turn_are_both_opened(way: Way, watched: Watched) -> None:
    session = watched.session()
    template = PromptTemplate[str]("tests", "two", [closed("sums", add), closed("products", multiply)])
    adapter = way.adapter(
        plays([read("sums"), read("products")], call("add", a=1, b=2), call("multiply", a=2, b=2), "done")
    )

    await MAIN.execute(template.bind(), session=session, adapter=adapter)

    assert [message.content for message in answers(adapter.requests[-1])][2:] == ["3", "4"]
    assert {*session.conversation.state.sections.overrides} == {("sums",), ("products",)}
    assert session.conversation.state.restarts == (1 if way is RESTART else 0)


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_subsection_can_be_read_in_the_turn_that_opens_its_section(way: Way, watched: Watched) -> None:
    adapter = way.adapter(plays([read("sums"), read("sums.products")], call("multiply", a=6, b=7), "42"))
    await MAIN.execute(NESTED, session=watched.session(), adapter=adapter)
    assert answers(adapter.requests[-1])[-1].content == "42"


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("order", [0, 1], ids=["section-first", "tool-first"])
async def test_a_tool_cannot_be_called_in_the_turn_that_opens_its_section(
    way: Way, order: int, watched: Watched
) -> None:
    ran: list[int] = []

    def note(number: int) -> str:
        """Note a number."""
        ran.append(number)
        return "noted"

    template = PromptTemplate[str]("tests", "one", [closed("notes", note)])
    both = [read("notes"), ("note", {"number": 1})]
    adapter = way.adapter(plays(both[order:] + both[:order], call("note", number=2), "done"))

    await MAIN.execute(template.bind(), session=watched.session(), adapter=adapter)

    refused = next(message for message in answers(adapter.requests[-1]) if message.name == "note")
    assert refused.is_error
    code = json.loads(refused.content)["error"]["code"]
    assert code == ("TOOL_NOT_FOUND" if way is PROXY else "NOT_EXPANDED")
    assert ran == [2]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_tool_called_before_its_section_is_opened_is_not_found(way: Way, watched: Watched) -> None:
    adapter = way.adapter(plays([("multiply", {"a": 1, "b": 1}), ("invented", {})], [read("words")], "done"))

    await MAIN.execute(NESTED, session=watched.session(), adapter=adapter)

    for refused, name in zip(answers(adapter.requests[1]), ("multiply", "invented"), strict=True):
        error = json.loads(refused.content)["error"]
        assert refused.is_error
        assert (error["code"], error["message"]) == ("TOOL_NOT_FOUND", f'Tool "{name}" not found.')
        assert "multiply" not in json.dumps(error.get("hints"))


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_an_unknown_section_is_answered_with_a_suggestion(way: Way, watched: Watched) -> None:
    wrong: Step = [
        read("sum"),
        read("sums.products"),
        read("\ud800"),
        ("read_section", {}),
        ("read_section", {"key": 1}),
    ]
    adapter = way.adapter(plays(wrong, "done"))
    session = watched.session()

    await MAIN.execute(NESTED, session=session, adapter=adapter)

    told = answers(adapter.requests[-1])
    assert all(message.is_error for message in told)
    assert 'Did you mean "sums"?' in told[0].content
    assert 'Did you mean "sums"?' in told[1].content
    assert session.conversation.state.sections.overrides == {}


async def test_a_section_without_tools_opens_without_a_restart(watched: Watched) -> None:
    session = watched.session()
    adapter = RESTART.adapter(plays([read("words")], "done"))

    await MAIN.execute(NESTED, session=session, adapter=adapter)

    assert session.conversation.state.restarts == 0
    assert "All about words." in answers(adapter.requests[-1])[0].content
    assert session.conversation.state.sections.overrides == {("words",): SectionVisibility.FULL}


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_the_second_of_two_tools_with_one_name_is_skipped_and_reported(
    way: Way, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    def shared(text: str) -> str:
        """Say it once."""
        return text

    def other() -> Callable[..., str]:
        def shared(text: str) -> str:
            """Say it twice."""
            return text * 2

        return shared

    template = PromptTemplate[str]("tests", "collision", [closed("one", shared), closed("two", other())])
    session = watched.session()
    adapter = way.adapter(plays([read("one")], [read("two")], "done"))

    with caplog.at_level(logging.WARNING, "toolcrib.agent.loop"):
        await MAIN.execute(template.bind(), session=session, adapter=adapter)

    if way is PROXY:  # handles differ, so names do not collide
        assert not any(isinstance(event, NameCollided) for event in watched.events(session))
        return
    assert NameCollided("shared", "two") in watched.events(session)
    assert "its name is taken" in caplog.text
    tools = [tool for tool in adapter.requests[-1].tools if tool.name == "shared"]
    tools += [tool for message in answers(adapter.requests[-1]) for tool in message.revealed]
    assert {tool.description for tool in tools} == {"Say it once."}


async def test_a_tool_named_like_an_operation_runs_if_that_is_not_offered(watched: Watched) -> None:
    def read_section(section_key: str) -> str:
        """Read a section of a book."""
        return f"the book's {section_key}"

    template = PromptTemplate[str]("tests", "book", [MarkdownSection("Book", "book", "A book.", tools=(read_section,))])
    adapter = INJECT.adapter(plays([read("preface")], "done"))

    await MAIN.execute(template.bind(), session=watched.session(), adapter=adapter)

    assert answers(adapter.requests[-1])[0].content == "the book's preface"


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_without_dynamic_tools_a_section_with_tools_opens_with_a_restart(way: Way, watched: Watched) -> None:
    session = watched.session()
    adapter = way.adapter(plays([read("sums")], call("add", a=1, b=2), "3"))
    loop = MainLoop(config=InnerLoopConfig(supports_dynamic_tools=False))

    await loop.execute(NESTED, session=session, adapter=adapter)

    assert session.conversation.state.restarts == 1
    assert "add" in offered(adapter.requests[-1])


def catalog() -> tuple[Toolcrib, list[str]]:
    crib, asked = Toolcrib(), list[str]()

    @crib.add
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        asked.append(city)
        return f"Rain in {city}."

    return crib, asked


WEATHER = PromptTemplate[str]("tests", "catalog", [CatalogSection("Tools", "tools", ("functions",))]).bind()


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "asked_for", [{"tool_id": "functions.weather"}, {"tool_ids": ["functions.weather"]}], ids=["one", "several"]
)
async def test_a_catalog_section_lists_pointers_and_an_expanded_tool_can_be_called(
    way: Way, asked_for: dict[str, object], watched: Watched
) -> None:
    crib, asked = catalog()

    def calls(request: ModelRequest) -> Step:
        name = "functions__weather" if "functions__weather" in offered(request) else "weather"
        return call(name, city="Ulm")(request)

    adapter = way.adapter(plays([read("tools")], [("expand_tool", asked_for)], calls, "wet"))
    await MAIN.execute(WEATHER, session=watched.session(crib), adapter=adapter)

    section, expansion, rain = answers(adapter.requests[-1])
    assert "functions.weather: Tell the weather in a city." in section.content
    assert not expansion.is_error
    assert rain.content == "Rain in Ulm."
    assert asked == ["Ulm"]
    assert rain.name == ("functions__weather" if way in {INJECT, DEFER_UNLISTED} else "call_tool")


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_tools_that_cannot_be_expanded_are_reported_next_to_expanded_ones(way: Way, watched: Watched) -> None:
    crib, _ = catalog()
    ids = {"tool_ids": ["functions.weather", "functions.wether"]}
    adapter = way.adapter(plays([("expand_tool", ids)], [("expand_tool", ids)], "done"))

    await MAIN.execute(WEATHER, session=watched.session(crib), adapter=adapter)

    for expansion in answers(adapter.requests[-1]):
        (error,) = json.loads(expansion.content)["errors"]
        assert (error["tool_id"], error["error"]["code"]) == ("functions.wether", "TOOL_NOT_FOUND")


async def test_a_catalog_section_lists_the_tools_of_its_category_up_to_a_limit(
    watched: Watched,
) -> None:
    async def named(count: int) -> list[str]:
        crib = Toolcrib()
        for at in range(count):
            crib.add(plain_tool(f"tool{at:03}", f"Do thing {at}.", str))
        adapter = INJECT.adapter(plays([read("tools")], "done"))
        await MAIN.execute(WEATHER, session=watched.session(crib), adapter=adapter)
        lines = answers(adapter.requests[-1])[0].content.splitlines()
        return [line.split(":")[0] for line in lines if line.startswith("- ")]

    assert await named(150) == [f"- functions.tool{at:03}" for at in range(150)]
    assert len(await named(MAX_POINTERS + 30)) == MAX_POINTERS


async def test_operations_are_offered_if_the_loop_is_configured_with_them(watched: Watched) -> None:
    crib, asked = catalog()
    template = PromptTemplate[str]("tests", "bare", [MarkdownSection("Task", "task", "Find out.")])
    config = InnerLoopConfig(operations=("call_tool", "search_tools", "expand_tool"))
    adapter = PROXY.adapter(
        plays(
            [("search_tools", {"query": "weather"}), ("search_tools", {"limit": "many"})],
            [("expand_tool", {"tool_id": "functions.weather"})],
            call("weather", city="Ulm"),
            "wet",
        )
    )

    await MainLoop(config=config).execute(template.bind(), session=watched.session(crib), adapter=adapter)

    assert [tool.name for tool in adapter.requests[0].tools] == ["search_tools", "expand_tool", "call_tool"]
    found, wrong, *_ = answers(adapter.requests[-1])
    assert "functions.weather" in found.content
    assert json.loads(wrong.content)["error"]["code"] == "INVALID_ARGUMENTS"
    assert asked == ["Ulm"]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "shown_by",
    [("expand_tool", {"tool_id": "functions.weather"}), ("search_tools", {"query": "weather", "detail_level": "full"})],
    ids=["expanded", "searched-in-full"],
)
async def test_a_tool_shown_in_full_is_callable_with_every_delivery(
    way: Way, shown_by: tuple[str, object], watched: Watched
) -> None:
    crib, asked = catalog()
    template = PromptTemplate[str]("tests", "bare", [MarkdownSection("Task", "task", "Find out.")])

    def calls(request: ModelRequest) -> Step:
        if "functions__weather" in offered(request):
            return [("functions__weather", {"city": "Ulm"})]
        told = json.loads(answers(request)[-1].content)
        (shown,) = told.get("results", [told])
        assert "call_tool" in offered(request)
        return [("call_tool", {"tool_id": shown["handle"], "arguments": {"city": "Ulm"}})]

    adapter = way.adapter(plays([shown_by], calls, "wet"))
    config = InnerLoopConfig(operations=("search_tools", "expand_tool"))
    await MainLoop(config=config).execute(template.bind(), session=watched.session(crib), adapter=adapter)

    shown, rain = answers(adapter.requests[-1])
    assert "functions.weather" in shown.content or "functions__weather" in shown.content
    assert rain.content == "Rain in Ulm."
    assert (rain.name == "functions__weather") is (way in {INJECT, DEFER_UNLISTED})
    assert asked == ["Ulm"]


async def test_a_loop_with_only_read_only_calls_offers_no_other_call_operation(watched: Watched) -> None:
    adapter = PROXY.adapter(plays("done"))
    config = InnerLoopConfig(operations=("expand_tool", "call_read_only_tool"))
    template = PromptTemplate[str]("tests", "bare", [MarkdownSection("Task", "task", "Find out.")])
    await MainLoop(config=config).execute(template.bind(), session=watched.session(), adapter=adapter)
    assert [tool.name for tool in adapter.requests[0].tools] == ["expand_tool", "call_read_only_tool"]


async def test_a_loop_with_an_unknown_operation_is_refused() -> None:
    loop = MainLoop(config=InnerLoopConfig(operations=("delete_everything",)))
    with pytest.raises(InvalidPrompt, match="delete_everything"):
        await loop.execute(NESTED, session=Toolcrib().session(), adapter=ScriptedAdapter([]))


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_section_tool_that_the_principal_may_not_see_is_not_offered(way: Way, watched: Watched) -> None:
    crib = Toolcrib(policy=Rules((Rule(Access.HIDDEN, tools=("functions.secret",)),), Access.CALL))

    @crib.add
    def secret() -> str:
        """Tell a secret."""
        raise AssertionError

    @crib.add
    def known() -> str:
        """Tell what all know."""
        return "known"

    template = PromptTemplate[str]("tests", "policy", [closed("all", secret_tool := "functions.secret", known)])
    assert crib.session().view().find(secret_tool) is None
    adapter = way.adapter(plays([read("all")], [("functions__secret", {}), ("secret", {})], "done"))

    await MAIN.execute(template.bind(), session=watched.session(crib), adapter=adapter)

    for request in adapter.requests:
        assert not any("secret" in name for name in offered(request) | {*handles(request)})
        assert not any("secret" in tool.name for tool in request.tools)
    assert all(message.is_error for message in answers(adapter.requests[-1])[1:])


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_section_can_be_read_without_a_function_that_the_policy_hides(way: Way, watched: Watched) -> None:
    crib = Toolcrib(policy=Rules((Rule(Access.HIDDEN, tools=("*.multiply",)),), Access.CALL))
    template = PromptTemplate[str]("tests", "policy", [closed("all", multiply, add)])
    adapter = way.adapter(plays([read("all")], [("multiply", {"a": 1, "b": 1})], call("add", a=1, b=2), "done"))

    await MAIN.execute(template.bind(), session=watched.session(crib), adapter=adapter)

    for request in adapter.requests:
        assert "multiply" not in offered(request) | {*handles(request)}
        assert "multiply" not in {tool.name for tool in request.tools}
    section, refused, sum_ = answers(adapter.requests[-1])
    assert (section.is_error, refused.is_error, sum_.content) == (False, True, "3")


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_tool_in_two_open_sections_is_added_once(way: Way, watched: Watched) -> None:
    crib, asked = catalog()
    weather = "functions.weather"
    shown = MarkdownSection("Shown", "shown", "Look.", tools=(weather,))
    template = PromptTemplate[str]("tests", "twice", [shown, closed("more", weather)])
    session = watched.session(crib)
    adapter = way.adapter(plays([read("more")], call("functions__weather", city="Ulm"), "done"))

    await MAIN.execute(template.bind(), session=session, adapter=adapter)

    assert [tool.name for tool in adapter.requests[-1].tools].count("functions__weather") == 1
    assert not any(message.revealed for message in answers(adapter.requests[-1]))
    assert not any(isinstance(event, ToolsInjected | NameCollided) for event in watched.events(session))
    assert asked == ["Ulm"]


async def test_a_request_never_has_only_deferred_tools(watched: Watched) -> None:
    absent = MarkdownSection("Absent", "absent", "Not there.", tools=(add,), enabled=False)
    template = PromptTemplate[str]("tests", "absent", [MarkdownSection("Task", "task", "Do it."), absent])
    adapter = DEFER.adapter(plays("done"))
    await MAIN.execute(template.bind(), session=watched.session(), adapter=adapter)
    assert adapter.requests[0].tools == ()


async def test_an_error_in_a_section_function_is_answered_as_an_error(watched: Watched) -> None:
    def seen(params: None, state: object) -> SectionVisibility:
        if getattr(state, "overrides", None):
            raise RuntimeError("the author's mistake")
        return SUMMARY

    odd = MarkdownSection("Odd", "odd", "Text.", summary="Short.", visibility=seen)
    template = PromptTemplate[str]("tests", "odd", [closed("words"), odd])
    adapter = INJECT.adapter(plays([read("words")], "done"))

    await MAIN.execute(template.bind(), session=watched.session(), adapter=adapter)

    (refused,) = answers(adapter.requests[-1])
    assert json.loads(refused.content)["error"]["code"] == "SOURCE_UNAVAILABLE"
    assert "the author's mistake" not in refused.content


async def test_events_of_each_delivery_are_in_order(watched: Watched) -> None:
    async def names(way: Way) -> list[str]:
        session = watched.session()
        steps = plays([read("sums")], call("add", a=1, b=2), "3")
        await MAIN.execute(NESTED, session=session, adapter=way.adapter(steps))
        return [type(event).__name__ for event in watched.events(session)]

    began, answered, ended = "EvaluationBegan", ["ModelAnswered", "CallAnswered"], ["ModelAnswered", "EvaluationEnded"]
    opened = [*answered, "SetVisibilityOverride"]
    brought = [*answered, "ToolsOffered", "SetVisibilityOverride", "ToolsInjected"]
    assert await names(INJECT) == [began, *brought, *answered, *ended]
    assert await names(DEFER_UNLISTED) == [began, *brought, *answered, *ended]
    assert await names(DEFER) == [began, *opened, "ToolsInjected", *answered, *ended]
    assert await names(PROXY) == [began, *opened, *answered, *ended]
    restart = [*answered, "RestartRequired", "SetVisibilityOverride", "EvaluationRestarted"]
    assert await names(RESTART) == [began, *restart, began, *answered, *ended]


async def test_injected_tools_are_reported_with_their_section(watched: Watched) -> None:
    session = watched.session()
    await MAIN.execute(NESTED, session=session, adapter=INJECT.adapter(plays([read("sums")], "done")))
    (injected,) = [event for event in watched.events(session) if isinstance(event, ToolsInjected)]
    assert (injected.tool_names, injected.section_key) == (("add",), "sums")
    assert SetVisibilityOverride(("sums",), SectionVisibility.FULL) in watched.events(session)


async def test_a_second_evaluation_continues_with_earlier_messages_and_open_sections(watched: Watched) -> None:
    session = watched.session()
    first = INJECT.adapter(plays([read("sums")], "opened"))
    await MAIN.execute(NESTED, session=session, adapter=first, request="Open it.")
    second = INJECT.adapter(plays(call("add", a=1, b=2), "3"))

    response = await MAIN.execute(NESTED, session=session, adapter=second, request="Add.")

    assert response.output == "3"
    texts = [message.to_wire().get("text") for message in second.requests[0].messages]
    assert texts == ["Open it.", "", None, "opened", "Add."]
    assert "All about sums." in second.requests[0].system
    assert "add" in offered(second.requests[0])


def test_execute_sync_runs_an_evaluation_in_its_own_event_loop(watched: Watched) -> None:
    class Entered(ScriptedAdapter):
        entered: int = 0

        async def __aenter__(self) -> Entered:
            self.entered += 1
            return self

    adapter = Entered(lambda request: turn(request, [read("sums")] if len(request.messages) == 1 else "done"))
    response = MAIN.execute_sync(NESTED, session=watched.session(), adapter=adapter)
    assert (response.output, adapter.entered) == ("done", 1)


async def test_text_is_passed_to_the_listener(watched: Watched) -> None:
    heard: list[str] = []
    adapter = INJECT.adapter(plays([read("sums")], "done"))
    await MAIN.execute(NESTED, session=watched.session(), adapter=adapter, on_text=heard.append)
    assert heard == ["done"]


async def test_a_request_without_text_still_has_one_user_message(watched: Watched) -> None:
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelTurn:
        asked.append(request)
        return turn(request, "done")

    await MAIN.execute(NESTED, session=watched.session(), adapter=INJECT.adapter(answer))
    assert [message.to_wire()["role"] for message in asked[0].messages] == ["user"]
    assert asked[0].messages[0].to_wire()["text"]


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_operations_do_not_reveal_tools_of_closed_sections(way: Way, watched: Watched) -> None:
    section = MarkdownSection("Sums", "sums", "How to add.", "Sums.", SUMMARY, [add])
    prompt = PromptTemplate("tests", "closed", [section]).bind()
    adapter = way.adapter(
        plays(
            [("search_tools", {"query": "add two numbers"}), ("expand_tool", {"tool_id": "session-sums.add"})], "done"
        )
    )
    config = InnerLoopConfig(operations=("search_tools", "expand_tool"))
    session = watched.session()
    await MainLoop(config=config).execute(prompt, session=session, adapter=adapter)

    searched, expanded = answers(adapter.requests[-1])
    assert "session-sums" not in searched.content
    assert "TOOL_NOT_FOUND" in expanded.content or '"errors"' in expanded.content
    assert "session-sums.add" not in session.view().tools
