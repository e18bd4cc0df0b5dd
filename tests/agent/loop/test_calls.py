"""Tool calls with every kind of result: each gets one answer that the model can act on."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from tests.agent.loop.playing import (
    INJECT,
    PROXY,
    RESTART,
    WAYS,
    Step,
    Watched,
    Way,
    answers,
    by_name_or_handle,
    plays,
    read,
)

from toolcrib import Toolcrib
from toolcrib.agent.conversation.events import CallAnswered, ConversationEvent
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, Stop, ToolCall, ToolMessage
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import InnerLoopConfig
from toolcrib.agent.sections import MarkdownSection, Prompt, PromptTemplate, SectionVisibility, ToolReference
from toolcrib.agent.session import Session
from toolcrib.catalog.access import Access, Rules
from toolcrib.core.client import SilentClient
from toolcrib.core.errors import ProviderFailed, ToolFailed
from toolcrib.core.principal import CallContext
from toolcrib.core.results import ToolResult

pytestmark = pytest.mark.anyio


def prompt(*tools: ToolReference) -> Prompt[str]:
    """A prompt with these tools, and a summarized section."""
    more = MarkdownSection(
        "More", "more", "All.", summary="Short.", visibility=SectionVisibility.SUMMARY, tools=(late,)
    )
    return PromptTemplate[str]("tests", "calls", [MarkdownSection("Task", "task", "Do it.", tools=tools), more]).bind()


def late() -> str:
    """Come late."""
    return "late"


def fine(text: str = "fine") -> str:
    """Answer."""
    return text


async def called(
    watched: Watched, tool: ToolReference, *calls: tuple[str, object], config: InnerLoopConfig | None = None
) -> list[ToolMessage]:
    """Return the answers to calls of one turn, as the model reads them."""
    adapter = INJECT.adapter(plays([*calls], "done"))
    loop = MainLoop(config=config or InnerLoopConfig())
    response = await loop.execute(prompt(tool, fine), session=watched.session(), adapter=adapter)
    assert response.output == "done"
    return answers(adapter.requests[-1])


def code(message: ToolMessage) -> str:
    assert message.is_error
    return json.loads(message.content)["error"]["code"]


async def test_a_tool_that_raises_is_answered_with_its_exception(watched: Watched) -> None:
    def broken() -> str:
        """Break."""
        raise RuntimeError("out of paper")

    answer, other = await called(watched, broken, ("broken", {}), ("fine", {}))
    assert (answer.is_error, answer.content) == (True, "RuntimeError: out of paper")
    assert (other.is_error, other.content) == (False, "fine")


async def test_a_long_error_of_a_tool_is_shortened(watched: Watched) -> None:
    def refuses() -> str:
        """Refuse."""
        raise ToolFailed("no " * 1_000_000)

    (answer,) = await called(watched, refuses, ("refuses", {}), config=InnerLoopConfig(max_result_chars=100))
    assert answer.is_error
    assert "TOOL_FAILED" in answer.content
    assert "more characters omitted" in answer.content
    assert len(answer.content) < 200


async def test_a_tool_that_hangs_times_out_and_the_other_calls_are_answered(watched: Watched) -> None:
    async def hangs() -> str:
        """Hang."""
        await anyio.sleep_forever()
        raise AssertionError

    answer, other = await called(
        watched, hangs, ("hangs", {}), ("fine", {}), config=InnerLoopConfig(call_timeout_s=0.5)
    )
    assert code(answer) == "SOURCE_UNAVAILABLE"
    assert "did not finish within 0.5 seconds. The tool may or may not have run." in answer.content
    assert other.content == "fine"


async def test_the_late_result_of_a_tool_that_timed_out_is_dropped(watched: Watched) -> None:
    go_on, answered = threading.Event(), threading.Event()

    def slow() -> str:
        """Take long."""
        go_on.wait()
        answered.set()
        return "too late"

    (answer,) = await called(watched, slow, ("slow", {}), config=InnerLoopConfig(call_timeout_s=0.05))
    go_on.set()
    await anyio.to_thread.run_sync(answered.wait)
    assert code(answer) == "SOURCE_UNAVAILABLE"


async def test_a_large_result_is_shortened_and_the_omission_is_reported(watched: Watched) -> None:
    def huge() -> str:
        """Say a lot."""
        return "x" * 10_000_000

    (answer,) = await called(watched, huge, ("huge", {}), config=InnerLoopConfig(max_result_chars=1_000))
    assert answer.content == "x" * 1_000 + "\n[9,999,000 more characters omitted]"
    assert not answer.is_error


@pytest.mark.parametrize(
    "arguments",
    [
        "{",
        "[1]",
        '"text"',
        "null",
        "NaN",
        "[" * 100_000,
        '{"text":' * 100_000,
        '{"text":' * 600 + "1" + "}" * 600,
        "9" * 10_000,
        "\ud800",
    ],
    ids=["cut", "list", "text", "null", "nan", "deep", "deep-object", "deep-and-whole", "long-number", "half-a-pair"],
)
async def test_arguments_that_are_not_a_json_object_are_refused_and_nothing_runs(
    arguments: str, watched: Watched
) -> None:
    ran: list[object] = []

    def careful(text: str = "") -> str:
        """Take care."""
        ran.append(text)
        return text

    for name in ("careful", "read_section"):
        (answer,) = await called(watched, careful, (name, arguments))
        assert code(answer) == "INVALID_ARGUMENTS"
    assert ran == []


@pytest.mark.parametrize("arguments", ["", "  \n"])
async def test_blank_arguments_count_as_an_empty_object(arguments: str, watched: Watched) -> None:
    (answer,) = await called(watched, fine, ("fine", arguments))
    assert (answer.is_error, answer.content) == (False, "fine")


@pytest.mark.parametrize(
    "arguments",
    ['{"text": "\\ud800"}', '{"txet": "\\udfff"}', '{"\\ud800": 1}', '{"text": 1%s}' % ("0" * 30), '{"text": NaN}'],
)
async def test_invalid_arguments_are_refused_with_an_encodable_message(arguments: str, watched: Watched) -> None:
    (answer,) = await called(watched, fine, ("fine", arguments))
    assert code(answer) == "INVALID_ARGUMENTS"
    answer.content.encode()


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 1_000_000, "call_tool", "fíne"])
async def test_calling_a_tool_that_was_never_offered_is_tool_not_found(name: str, watched: Watched) -> None:
    (answer,) = await called(watched, fine, (name, {}))
    assert code(answer) == "TOOL_NOT_FOUND"
    assert len(answer.content) < 1_000


async def test_errors_refer_to_tools_by_name_and_only_to_available_operations(watched: Watched) -> None:
    def fee(days: int) -> int:
        """What it costs."""
        raise ToolFailed("the till is closed")

    slip, failed = await called(watched, fee, ("fee", {"days": "3"}), ("fee", {"days": 3}))
    assert json.loads(slip.content)["error"]["next_action"] == {"operation": "fee", "arguments": {"days": 3}}
    error = json.loads(failed.content)["error"]
    assert "next_action" not in error
    assert error["hints"][-1] == "Your tools are: read_section, fee, fine."


async def test_a_misspelled_tool_name_is_answered_with_the_correct_name(watched: Watched) -> None:
    (answer,) = await called(watched, fine, ("fin", {}))
    assert json.loads(answer.content)["error"]["hints"] == ["Did you mean `fine`?"]


async def test_non_text_content_of_a_result_is_described(watched: Watched) -> None:
    def many() -> ToolResult:
        """Answer with many things."""
        blocks: list[Mapping[str, Any]] = [
            {"type": "text", "text": "half \ud800"},
            {"type": "image", "mimeType": "image/png", "data": ""},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource_link", "name": "b", "uri": "file:///b"},
        ]
        return ToolResult({"content": blocks}, warnings=("odd",))

    def structured() -> ToolResult:
        """Answer with no text."""
        return ToolResult({"content": [], "structuredContent": {"größe": 1}})

    (answer,) = await called(watched, many, ("many", {}))
    assert answer.content == "half ?\n[image image/png]\ninside\n[b: file:///b]\n[odd]"
    (answer,) = await called(watched, structured, ("structured", {}))
    assert answer.content == '{"größe": 1}'


async def test_calls_of_one_turn_run_concurrently_and_are_answered_in_order(watched: Watched) -> None:
    second_is_done = anyio.Event()

    async def waits() -> str:
        """Wait for the other."""
        await second_is_done.wait()
        return "first"

    async def frees() -> str:
        """Free the other."""
        second_is_done.set()
        return "second"

    session = watched.session()
    adapter = INJECT.adapter(plays([("waits", {}), ("frees", {})], "done"))
    await MainLoop().execute(prompt(waits, frees), session=session, adapter=adapter)

    assert [message.content for message in answers(adapter.requests[-1])] == ["first", "second"]
    ended = [event.message.content for event in watched.events(session) if isinstance(event, CallAnswered)]
    assert ended == ["second", "first"]


async def test_at_most_the_configured_number_of_calls_runs_at_once(watched: Watched) -> None:
    running, most = 0, 0

    async def counted() -> str:
        """Count."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return "counted"

    config = InnerLoopConfig(parallel_calls=3)
    calls: list[tuple[str, object]] = [("counted", {})] * 10
    told = await called(watched, counted, *calls, config=config)
    assert [message.content for message in told] == ["counted"] * 10
    assert most == 3


async def test_duplicate_call_ids_in_one_turn_are_a_provider_error_and_nothing_runs(watched: Watched) -> None:
    ran: list[str] = []

    def noted() -> str:
        """Note."""
        ran.append("ran")
        return "noted"

    twice = AssistantMessage("", (ToolCall("1", "noted", "{}"), ToolCall("1", "noted", "{}")))
    adapter = INJECT.adapter(lambda request: ModelTurn(twice, Stop.CALLS))
    loop = MainLoop(config=InnerLoopConfig(retries=0))
    with pytest.raises(ProviderFailed, match="same id"):
        await loop.execute(prompt(noted), session=watched.session(), adapter=adapter)
    assert ran == []


async def test_call_ids_may_be_reused_in_a_later_turn(watched: Watched) -> None:
    def answer(request: ModelRequest) -> ModelTurn:
        if len(request.messages) > 5:
            return ModelTurn(AssistantMessage("done"))
        return ModelTurn(
            AssistantMessage("", (ToolCall("1", "fine", json.dumps({"text": str(len(request.messages))})),))
        )

    session = watched.session()
    await MainLoop().execute(prompt(fine), session=session, adapter=INJECT.adapter(answer))
    finished = session.conversation.state.finished_calls
    assert [(call.arguments, message.content) for call, message in finished] == [
        ('{"text": "1"}', "1"), ('{"text": "3"}', "3"), ('{"text": "5"}', "5"),
    ]  # fmt: skip


async def test_a_restart_during_a_batch_runs_every_call_once_and_shows_its_result(
    watched: Watched,
) -> None:
    ran: list[str] = []

    def noted(text: str) -> str:
        """Note."""
        ran.append(text)
        return f"noted {text}"

    session = watched.session()
    batch: Step = [("noted", {"text": "a"}), read("more"), ("noted", {"text": "b"}), ("noted", "{")]
    adapter = RESTART.adapter(plays(batch, [("late", {})], "done"))

    await MainLoop().execute(prompt(noted), session=session, adapter=adapter)

    assert session.conversation.state.restarts == 1
    assert sorted(ran) == ["a", "b"]  # concurrently
    a, opened, b, wrong, came = answers(adapter.requests[-1])
    assert (a.content, b.content, came.content) == ("noted a", "noted b", "late")
    assert not opened.is_error
    assert code(wrong) == "INVALID_ARGUMENTS"
    assert answers(adapter.requests[1]) == [a, opened, b, wrong]


class Stopped(Exception):
    """Raised by a test that has seen enough."""


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_cancelled_evaluation_leaves_no_open_call_and_can_be_continued(way: Way, watched: Watched) -> None:
    scope, quick_is_answered = anyio.CancelScope(), anyio.Event()
    ran: list[str] = []

    def listen(event: ConversationEvent) -> None:
        if isinstance(event, CallAnswered) and event.message.name == "quick":
            quick_is_answered.set()

    def quick() -> str:
        """Be quick."""
        ran.append("quick")
        return "quick"

    async def cancels() -> str:
        """Have all of it cancelled, and hang."""
        ran.append("cancels")
        await quick_is_answered.wait()
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    session = watched.session()
    session.conversation.subscribe(listen)
    batch: Step = [("quick", {}), read("more"), ("cancels", {})]
    with scope:
        await MainLoop().execute(prompt(quick, cancels), session=session, adapter=way.adapter(plays(batch)))
    assert scope.cancelled_caught
    assert session.conversation.state.open_calls == ()

    def goes_on(request: ModelRequest) -> list[tuple[str, object]]:
        made = by_name_or_handle(request, "late", {})
        assert made is not None
        return [made]

    adapter = way.adapter(plays(goes_on, "done"))
    await MainLoop().execute(prompt(quick, cancels), session=session, adapter=adapter)

    done, opened, cancelled, came = answers(adapter.requests[-1])
    assert (done.content, came.content) == ("quick", "late")
    assert not opened.is_error
    assert "`cancels` was cancelled. The tool may or may not have run." in cancelled.content
    assert sorted(ran) == ["cancels", "quick"]


async def test_a_tool_that_ignores_cancellation_is_answered_once(watched: Watched) -> None:
    scope = anyio.CancelScope()

    async def stubborn() -> str:
        """Not give up."""
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "done after all"
        raise AssertionError

    session = watched.session()
    with scope:
        adapter = INJECT.adapter(plays([("stubborn", {}), ("fine", {})]))
        await MainLoop().execute(prompt(stubborn, fine), session=session, adapter=adapter)
    assert len(session.conversation.state.finished_calls) == 2


@dataclass(frozen=True)
class Person:
    """A person who gives one answer to every request for approval."""

    answer: str
    capabilities: Mapping[str, Any] = field(default_factory=lambda: {"elicitation": {}})
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(params)
        return {"action": self.answer, "content": {"answer": "once"}}

    @property
    def log_level(self) -> None:
        return None

    def log(self, params: Mapping[str, Any]) -> None:
        """Ignore the log message."""


@pytest.mark.parametrize("way", [INJECT, PROXY, RESTART], ids=str)
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_person_is_asked_for_approval_before_a_call_runs(way: Way, action: str, watched: Watched) -> None:
    crib, person, ran = Toolcrib(policy=Rules((), Access.ASK)), Person(action), list[str]()

    def risky() -> str:
        """Risk something."""
        ran.append("ran")
        return "went well"

    session = watched.watch(Session(crib, CallContext(client=person)))
    adapter = way.adapter(plays([("risky", {}), ("risky", {})], "done"))
    await MainLoop().execute(prompt(risky), session=session, adapter=adapter)

    assert len(person.asked) == 2
    if action == "accept":
        assert [message.content for message in answers(adapter.requests[-1])] == ["went well", "went well"]
    else:
        assert [code(message) for message in answers(adapter.requests[-1])] == ["NOT_AUTHORIZED"] * 2
    assert ran == (["ran"] * 2 if action == "accept" else [])


async def test_without_a_person_to_ask_nothing_runs(watched: Watched) -> None:
    crib = Toolcrib(policy=Rules((), Access.ASK))
    session = watched.watch(Session(crib, CallContext(client=SilentClient({}))))
    adapter = INJECT.adapter(plays([("fine", {})], "done"))
    await MainLoop().execute(prompt(fine), session=session, adapter=adapter)
    assert code(answers(adapter.requests[-1])[0]) == "NOT_AUTHORIZED"
