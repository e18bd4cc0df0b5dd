"""The end of an evaluation: an answer of the requested type, or an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from tests.agent.loop.playing import (
    INJECT,
    RESTART,
    WAYS,
    Step,
    Watched,
    Way,
    answers,
    by_name_or_handle,
    offered,
    plays,
    read,
    turn,
)

from toolcrib import Toolcrib
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.events import Corrected
from toolcrib.agent.conversation.messages import AssistantMessage, ModelRequest, ModelTurn, Stop, Usage
from toolcrib.agent.loop.inner import FIRST_PAUSE_S, LAST_PAUSE_S, MAX_PAUSE_S, InnerLoop
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import Delivery, InnerLoopConfig, TextListener, VisibilityExpansionRequired
from toolcrib.agent.sections import MarkdownSection, Prompt, PromptTemplate, SectionState, SectionVisibility
from toolcrib.core.errors import (
    BudgetExceeded,
    InvalidConfig,
    InvalidOutput,
    InvalidPrompt,
    InvalidTool,
    ProviderFailed,
    ToolcribError,
)
from toolcrib.sources.functions import plain_tool

pytestmark = pytest.mark.anyio


def again() -> str:
    """Go on."""
    return "go on"


TASK = MarkdownSection("Task", "task", "Do it.", tools=(again,))
PLAIN = PromptTemplate[str]("tests", "plain", [TASK]).bind()


@dataclass(frozen=True)
class Total:
    total: int


class Report(BaseModel):
    title: str
    totals: list[Total]


def prompt(output: object) -> Prompt[object]:
    template: type[PromptTemplate[object]] = PromptTemplate[output]  # pyright: ignore[reportInvalidTypeArguments]
    return template("tests", "typed", [TASK]).bind()


# -- output -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Total, '{"total": 3}', Total(3)),
        (Total, '```json\n{"total": 3}\n```', Total(3)),
        (Total, '```json\r\n{"total": 3}\r\n```', Total(3)),
        (Total, '\n```\n{"total": 3}\n```\n', Total(3)),
        (Report, '{"title": "a", "totals": [{"total": 1}]}', Report(title="a", totals=[Total(1)])),
        (str, '{"total": 3}', '{"total": 3}'),
        (str, "", ""),
        (list[int], "[1, 2]", [1, 2]),
        (int | None, "null", None),
    ],
)
async def test_the_final_answer_has_the_requested_type(
    output: object, text: str, value: object, watched: Watched
) -> None:
    adapter = INJECT.adapter(plays(text))
    response = await MainLoop().execute(prompt(output), session=watched.session(), adapter=adapter)
    assert response.output == value
    assert response.text == text
    assert response.usage == Usage(10, 1)


async def test_the_provider_gets_the_schema_of_an_answer_that_is_not_a_string(watched: Watched) -> None:
    adapter = INJECT.adapter(plays('{"total": 3}'))
    await MainLoop().execute(prompt(Total), session=watched.session(), adapter=adapter)
    schema = adapter.requests[0].output_schema
    assert schema is not None
    assert schema["properties"]["total"]["type"] == "integer"

    adapter = INJECT.adapter(plays("three"))
    await MainLoop().execute(PLAIN, session=watched.session(), adapter=adapter)
    assert adapter.requests[0].output_schema is None


@pytest.mark.parametrize("wrong", ["three", '{"total": "many"}', "", "[" * 10_000, "\ud800", '{"total": 1', "null"])
async def test_an_invalid_answer_is_explained_and_the_model_may_repair_it(wrong: str, watched: Watched) -> None:
    session = watched.session()
    adapter = INJECT.adapter(plays(wrong, '{"total": 3}'))
    response = await MainLoop().execute(prompt(Total), session=session, adapter=adapter)
    assert response.output == Total(3)
    told = adapter.requests[1].messages[-1].to_wire()
    assert told["role"] == "user"
    assert "does not have the required form" in told["text"]
    assert [event.text for event in watched.events(session) if isinstance(event, Corrected)] == [told["text"]]


@pytest.mark.parametrize("output", [Total, int | None, Report, list[int]])
async def test_the_number_of_repairs_is_limited(output: object, watched: Watched) -> None:
    adapter = INJECT.adapter(lambda request: turn(request, "never"))
    with pytest.raises(InvalidOutput) as raised:
        await MainLoop(config=InnerLoopConfig(repair_turns=3)).execute(
            prompt(output), session=watched.session(), adapter=adapter
        )
    assert len(adapter.requests) == 4
    assert raised.value.details["problems"]


async def test_a_session_can_be_used_again_after_a_failed_evaluation(watched: Watched) -> None:
    session = watched.session()
    config = InnerLoopConfig(repair_turns=0)
    with pytest.raises(InvalidOutput):
        await MainLoop(config=config).execute(prompt(Total), session=session, adapter=INJECT.adapter(plays("never")))
    response = await MainLoop().execute(prompt(Total), session=session, adapter=INJECT.adapter(plays('{"total": 1}')))
    assert response.output == Total(1)


# -- budgets ----------------------------------------------------------------------------------------------------------


def endless(request: ModelRequest) -> ModelTurn:
    return turn(request, [("again", {}), ("invented", {}), ("again", "{")])


async def test_an_endless_model_is_stopped_at_the_turn_limit(watched: Watched) -> None:
    adapter = INJECT.adapter(endless)
    with pytest.raises(BudgetExceeded, match="7 turns"):
        await MainLoop(config=InnerLoopConfig(max_turns=7)).execute(PLAIN, session=watched.session(), adapter=adapter)
    assert len(adapter.requests) == 7


async def test_a_model_is_stopped_at_the_token_limit(watched: Watched) -> None:
    adapter = INJECT.adapter(endless)
    with pytest.raises(BudgetExceeded, match="limit of 30 tokens is reached: 33 were used"):
        await MainLoop(config=InnerLoopConfig(max_tokens=30)).execute(PLAIN, session=watched.session(), adapter=adapter)
    assert len(adapter.requests) == 3


async def test_a_larger_budget_continues_an_evaluation_that_exceeded_its_budget(watched: Watched) -> None:
    session = watched.session()
    loop = MainLoop(config=InnerLoopConfig(max_turns=2, max_tokens=30))
    with pytest.raises(BudgetExceeded):
        await loop.execute(PLAIN, session=session, adapter=INJECT.adapter(endless), request="Count.")
    with pytest.raises(BudgetExceeded):
        await loop.execute(PLAIN, session=session, adapter=INJECT.adapter(plays("unheard")), request="Not heard.")
    adapter = INJECT.adapter(plays([("again", {})], "done"))
    larger = MainLoop(config=InnerLoopConfig(max_turns=4, max_tokens=100))
    response = await larger.execute(PLAIN, session=session, adapter=adapter, request="Not heard.")
    assert response.usage == Usage(40, 4)
    users = [message.to_wire()["text"] for message in adapter.requests[0].messages if "text" in message.to_wire()]
    assert users[0] == "Count."
    assert "Not heard." not in users


async def test_a_provider_that_does_not_answer_hits_the_time_limit(watched: Watched) -> None:
    async def silent(request: ModelRequest) -> ModelTurn:
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(BudgetExceeded, match="reached its time limit"):
        await MainLoop(config=InnerLoopConfig(timeout_s=0.05)).execute(
            PLAIN, session=watched.session(), adapter=INJECT.adapter(silent)
        )


async def test_a_tool_that_hangs_is_answered_with_an_error_at_the_time_limit(watched: Watched) -> None:
    async def hangs() -> str:
        """Hang."""
        await anyio.sleep_forever()
        raise AssertionError

    session = watched.session()
    template = PromptTemplate[str]("tests", "hanging", [MarkdownSection("Task", "task", "Do it.", tools=(hangs,))])
    with pytest.raises(BudgetExceeded):
        await MainLoop(config=InnerLoopConfig(timeout_s=0.2)).execute(
            template.bind(), session=session, adapter=INJECT.adapter(plays([("hangs", {}), ("hangs", {})]))
        )
    assert [message.is_error for _, message in session.conversation.state.finished_calls] == [True, True]


@pytest.mark.parametrize("timeout_s", [None, 300.0])
async def test_a_timeout_error_of_an_adapter_is_raised_unchanged(timeout_s: float | None, watched: Watched) -> None:
    def answer(request: ModelRequest) -> ModelTurn:
        raise TimeoutError("the adapter's own")

    with pytest.raises(TimeoutError, match="the adapter's own"):
        await MainLoop(config=InnerLoopConfig(timeout_s=timeout_s)).execute(
            PLAIN, session=watched.session(), adapter=INJECT.adapter(answer)
        )


# -- restarts ---------------------------------------------------------------------------------------------------------


def many(count: int) -> Prompt[str]:
    """A prompt with sections that each open with a restart."""
    sections = [
        MarkdownSection(f"S{at}", f"s{at}", "All.", summary="Short.", visibility=SectionVisibility.SUMMARY,
                        tools=(numbered_tool(at),))
        for at in range(count)
    ]  # fmt: skip
    return PromptTemplate[str]("tests", "many", sections).bind()


def numbered_tool(at: int):
    def tool() -> str:
        """Do something."""
        return "done"

    tool.__name__ = f"tool{at}"
    return tool


async def test_the_number_of_restarts_is_limited_and_the_next_evaluation_continues(watched: Watched) -> None:
    template = many(12)
    session = watched.session()
    steps: list[Step] = [[read(f"s{at}")] for at in range(12)]
    left = iter(steps)
    adapter = RESTART.adapter(lambda request: turn(request, next(left, "done")))

    with pytest.raises(BudgetExceeded, match="10 times"):
        await MainLoop().execute(template, session=session, adapter=adapter)
    assert session.conversation.state.restarts == 10
    assert len(adapter.requests) == 11

    response = await MainLoop().execute(template, session=session, adapter=adapter)
    assert response.output == "done"
    assert session.conversation.state.restarts == 12
    assert {tool.name for tool in adapter.requests[-1].tools} == {"read_section", *(f"tool{at}" for at in range(12))}


async def test_without_a_main_loop_a_restart_raises_the_sections_to_open(watched: Watched) -> None:
    session = watched.session()
    with pytest.raises(VisibilityExpansionRequired) as raised:
        await RESTART.adapter(plays([read("s1"), read("s0")])).evaluate(many(2), session=session)
    assert raised.value.section_keys == ("s1", "s0")
    assert raised.value.requested_overrides == {
        ("s1",): SectionVisibility.FULL,
        ("s0",): SectionVisibility.FULL,
    }
    assert raised.value.reason


# -- the provider -----------------------------------------------------------------------------------------------------


class RecordedPauses:
    """An inner loop that records its pauses instead of waiting."""

    def __init__(self, watched: Watched, *failures: ProviderFailed, retries: int = 4) -> None:
        self.pauses: list[float] = []
        left = iter(failures)

        def answer(request: ModelRequest) -> ModelTurn:
            if (failure := next(left, None)) is not None:
                raise failure
            return turn(request, "done")

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        self.adapter = INJECT.adapter(answer)
        self.loop = InnerLoop(
            self.adapter,
            PLAIN,
            watched.session(),
            InnerLoopConfig(retries=retries),
            delivery=Delivery.INJECT,
            sleep=sleep,
        )


def busy(retry_after_s: float | None = None) -> ProviderFailed:
    return ProviderFailed("busy", retryable=True, retry_after_s=retry_after_s)


async def test_a_retryable_error_is_retried_with_growing_pauses(watched: Watched) -> None:
    recorded = RecordedPauses(watched, *[busy()] * 8, retries=8)
    assert (await recorded.loop.run()).output == "done"
    assert recorded.pauses == [min(FIRST_PAUSE_S * 2**at, LAST_PAUSE_S) for at in range(8)]
    assert len({id(request) for request in recorded.adapter.requests}) == 1, "the same request each time"


async def test_a_retry_waits_as_long_as_the_provider_requested(watched: Watched) -> None:
    recorded = RecordedPauses(watched, busy(7.5), busy(0.0), busy(), retries=4)
    assert (await recorded.loop.run()).output == "done"
    assert recorded.pauses == [7.5, 0.0, FIRST_PAUSE_S * 4]


async def test_a_provider_that_keeps_failing_is_not_retried_forever(watched: Watched) -> None:
    recorded = RecordedPauses(watched, *[busy()] * 9, retries=2)
    with pytest.raises(ProviderFailed, match="busy"):
        await recorded.loop.run()
    assert len(recorded.pauses) == 2


@pytest.mark.parametrize("failure", [ProviderFailed("no such model"), busy(MAX_PAUSE_S + 1)])
async def test_a_permanent_error_or_a_long_wait_is_not_retried(failure: ProviderFailed, watched: Watched) -> None:
    recorded = RecordedPauses(watched, failure)
    with pytest.raises(ProviderFailed) as raised:
        await recorded.loop.run()
    assert raised.value is failure
    assert recorded.pauses == []


async def test_a_broken_stream_is_discarded_and_requested_again(watched: Watched) -> None:
    class Breaks(ScriptedAdapter):
        is_whole = False

        async def respond(self, request: ModelRequest, on_text: TextListener | None = None) -> ModelTurn:
            if self.is_whole:
                return await super().respond(request, on_text)
            self.is_whole = True
            assert on_text is not None
            on_text("do")
            raise ProviderFailed("the connection was lost", retryable=True, retry_after_s=0)

    heard: list[str] = []
    session = watched.session()
    adapter = Breaks(plays("done"))
    await MainLoop().execute(PLAIN, session=session, adapter=adapter, on_text=heard.append)
    assert heard == ["do", "done"]
    assert len(adapter.requests[0].messages) == 1
    assert [message.to_wire()["text"] for message in session.conversation.state.messages[1:]] == ["done"]


@pytest.mark.parametrize(("stop", "error"), [(Stop.REFUSED, ProviderFailed), (Stop.LENGTH, BudgetExceeded)])
async def test_a_refused_or_truncated_answer_is_an_error_and_is_not_sent_again(
    stop: Stop, error: type[ToolcribError], watched: Watched
) -> None:
    session = watched.session()
    dropped = ModelTurn(AssistantMessage("I will n"), stop, Usage(10, 1))
    with pytest.raises(error):
        await MainLoop().execute(PLAIN, session=session, adapter=INJECT.adapter(plays(dropped)))
    adapter = INJECT.adapter(plays("I will"))
    response = await MainLoop().execute(PLAIN, session=session, adapter=adapter)
    assert response.output == "I will"
    assert response.usage == Usage(20, 2)
    assert len(adapter.requests[0].messages) == 1


async def test_calls_of_a_truncated_turn_are_answered(watched: Watched) -> None:
    def cut(request: ModelRequest) -> ModelTurn:
        return ModelTurn(turn(request, [("again", {}), ("again", '{"a": ')]).message, Stop.LENGTH)

    adapter = INJECT.adapter(plays(cut, "done"))
    await MainLoop().execute(PLAIN, session=watched.session(), adapter=adapter)
    whole, half = answers(adapter.requests[-1])
    assert whole.content == "go on"
    assert json.loads(half.content)["error"]["code"] == "INVALID_ARGUMENTS"


async def test_session_tools_are_invisible_to_other_sessions_and_to_the_crib(watched: Watched) -> None:
    crib = Toolcrib()
    one, two = watched.session(crib), watched.session(crib)
    await MainLoop().execute(PLAIN, session=one, adapter=INJECT.adapter(plays([("again", {})], "done")))
    assert [tool.name for tool in one.view().tools.values()] == ["again"]
    assert not two.view().tools
    assert not crib.view().tools
    assert not crib.search_tools("go on").results


async def test_budgets_apply_to_one_request_including_its_restarts(watched: Watched) -> None:
    keys = ("one", "two", "three")
    sections = [
        MarkdownSection(
            key, key, "Open.", "Closed.", SectionVisibility.SUMMARY, [plain_tool(f"say_{key}", "Says.", str)]
        )
        for key in keys
    ]
    anew = PromptTemplate("tests", "anew", sections).bind()
    session, adapter = watched.session(), RESTART.adapter(plays(*([read(key)] for key in keys)))
    with pytest.raises(BudgetExceeded, match="2 turns"):
        await MainLoop(config=InnerLoopConfig(max_turns=2)).execute(anew, session=session, adapter=adapter)
    assert len(adapter.requests) == session.conversation.state.restarts == 2


async def test_a_different_prompt_is_refused_during_an_unfinished_evaluation(watched: Watched) -> None:
    session = watched.session()
    with pytest.raises(BudgetExceeded):
        await MainLoop(config=InnerLoopConfig(max_turns=1)).execute(
            PLAIN, session=session, adapter=INJECT.adapter(endless)
        )
    other = PromptTemplate("tests", "other", [TASK]).bind()
    with pytest.raises(InvalidPrompt, match="in the middle of"):
        await MainLoop().execute(other, session=session, adapter=INJECT.adapter(plays("done")))


async def test_the_schema_of_the_answer_is_in_the_system_prompt(watched: Watched) -> None:
    adapter = INJECT.adapter(plays('{"total": 3}'))
    await MainLoop().execute(prompt(Total), session=watched.session(), adapter=adapter)
    assert '"total"' in adapter.requests[0].system
    plain = INJECT.adapter(plays("3"))
    await MainLoop().execute(PLAIN, session=watched.session(), adapter=plain)
    assert plain.requests[0].system == PLAIN.render(SectionState()).text


@pytest.mark.parametrize(
    "wrong", [{"parallel_calls": 0}, {"retries": -1}, {"max_turns": 0}, {"max_result_chars": 0}, {"repair_turns": -1}]
)
def test_an_impossible_limit_is_refused_with_its_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidConfig, match=rf"`InnerLoopConfig\.{name}`"):
        InnerLoopConfig(**wrong)


async def test_a_negative_limit_of_restarts_allows_no_restart(watched: Watched) -> None:
    more = MarkdownSection("More", "more", "All.", "Short.", SectionVisibility.SUMMARY, [again])
    anew = PromptTemplate("tests", "anew", [more]).bind()
    session, adapter = watched.session(), RESTART.adapter(plays([read("more")], "done"))
    with pytest.raises(BudgetExceeded, match="restarted 0 times"):
        await MainLoop(max_restarts=-1).execute(anew, session=session, adapter=adapter)


async def test_a_session_refuses_a_second_request_while_one_is_running(watched: Watched) -> None:
    session, asked, go_on = watched.session(), anyio.Event(), anyio.Event()
    done: list[str] = []

    async def slow(request: ModelRequest) -> ModelTurn:
        asked.set()
        await go_on.wait()
        return turn(request, "done")

    async def first() -> None:
        done.append((await MainLoop().execute(PLAIN, session=session, adapter=INJECT.adapter(slow))).output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await asked.wait()
        with pytest.raises(InvalidPrompt, match="Wait until it ends, or start a new session"):
            await MainLoop().execute(PLAIN, session=session, adapter=INJECT.adapter(plays("too early")))
        go_on.set()

    after = await MainLoop().execute(PLAIN, session=session, adapter=INJECT.adapter(plays("after")))
    assert (done, after.output) == (["done"], "after")


@pytest.mark.parametrize("later", WAYS, ids=str)
@pytest.mark.parametrize("first", WAYS, ids=str)
async def test_a_session_can_continue_with_an_adapter_of_a_different_delivery(
    first: Way, later: Way, watched: Watched
) -> None:
    section = MarkdownSection("Sums", "sums", "Add.", "Sums.", SectionVisibility.SUMMARY, [again])
    opened = PromptTemplate("tests", "switched", [section]).bind()
    session = watched.session()
    with pytest.raises((BudgetExceeded, VisibilityExpansionRequired)):
        await first.adapter(plays([read("sums")])).evaluate(
            opened, session=session, config=InnerLoopConfig(max_turns=1)
        )

    def calls(request: ModelRequest) -> Step:
        if answers(request)[-1].content == "go on":
            return "done"
        if "again" in offered(request):
            return [("again", {})]
        if (call := by_name_or_handle(request, "again", {})) is not None:
            return [call]
        return [read("sums")]

    adapter = later.adapter(plays(*[calls] * 4))
    response = await MainLoop().execute(opened, session=session, adapter=adapter)
    assert response.output == "done"


async def test_a_section_tool_that_is_missing_from_the_catalog_is_logged(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    lacking = PromptTemplate("tests", "lacking", [MarkdownSection("A", "a", "B.", tools=["archive.search"])]).bind()
    await MainLoop().execute(lacking, session=watched.session(), adapter=INJECT.adapter(plays("done")))
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told == ["`archive.search` of section `a` is not in the catalog, so it is not offered"]


def test_a_delivery_can_be_given_by_name_and_an_unknown_name_is_refused() -> None:
    assert ScriptedAdapter([], delivery="proxy").delivery is Delivery.PROXY  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidConfig, match="defer, inject, proxy, restart"):
        ScriptedAdapter([], delivery="push")  # pyright: ignore[reportArgumentType]


# -- invalid prompts --------------------------------------------------------------------------------------------------


async def no_arguments_can_be_named(*numbers: int) -> int:
    """Add numbers."""
    return sum(numbers)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("bad", [lambda: "x", no_arguments_can_be_named], ids=["no name", "any number"])
async def test_an_invalid_function_of_a_closed_section_is_reported_before_the_first_request(
    watched: Watched, way: Way, bad: Callable[..., Any]
) -> None:
    closed = MarkdownSection(
        "Sums", "sums", "All.", summary="Short.", visibility=SectionVisibility.SUMMARY, tools=(bad,)
    )
    prompt = PromptTemplate[str]("tests", "bad", [MarkdownSection("Top", "top", "All.", children=[closed])]).bind()
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ModelTurn:
        asked.append(request)
        return turn(request, "never")

    with pytest.raises(InvalidTool, match=r"^Section `top\.sums`: "):
        await MainLoop().execute(prompt, session=watched.session(), adapter=way.adapter(answer))
    assert asked == []


async def test_a_template_that_is_not_bound_is_refused_with_a_hint(watched: Watched) -> None:
    template: Any = PromptTemplate[str]("tests", "plain", [TASK])
    with pytest.raises(InvalidPrompt, match=r"`tests/plain` is a template. Bind it first with `template\.bind\(\)`"):
        await MainLoop().execute(template, session=watched.session(), adapter=INJECT.adapter(plays("never")))
