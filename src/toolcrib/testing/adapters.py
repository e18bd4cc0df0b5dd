"""Checks of the contract of a provider's adapter, for any implementation."""

# ruff: noqa: S101  # a broken promise is an AssertionError, which test runners show best
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import anyio

from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.agent.conversation.messages import AssistantMessage, ToolMessage, Usage
from toolcrib.agent.loop.inner import TurnAdapter
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.loop.provider import Delivery, InnerLoopConfig, PromptResponse, ProviderAdapter, TextListener
from toolcrib.agent.sections import MarkdownSection, Prompt, PromptTemplate, SectionVisibility, ToolsInjected
from toolcrib.agent.session import Session
from toolcrib.core.errors import ProviderFailed
from toolcrib.crib.crib import Toolcrib
from toolcrib.testing.vendors.server import Call, Cut, Failure, Silence, Step, Turn

_PATIENCE_S = 60.0
"""The time limit for one part of the check, in seconds. A part that exceeds it counts as hanging."""


@dataclass(frozen=True, slots=True)
class Stage:
    """An adapter that was not entered yet, connected to a provider that plays a script."""

    adapter: ProviderAdapter
    sent: Callable[[], Sequence[bytes]]
    """The requests so far, each as the JSON of its tools, system text and messages.

    The order is that of the provider's cache. There are no closing brackets, and parts outside the cache key are left
    out. So a longer request begins with the bytes of a shorter one.
    """


Play: TypeAlias = Callable[[Iterable[Step]], AbstractAsyncContextManager[Stage]]
"""Sets up a stage whose provider answers with these steps. Each step is taken when its request arrives."""


async def check_adapter(play: Play) -> None:
    """Check everything that `ProviderAdapter` promises, on the stages that `play` sets up.

    The checks depend on the adapter's `delivery` and `reveals_unlisted`, and on whether it is a `TurnAdapter`.

    Raises:
        AssertionError: a promise is broken. The message says which.
    """
    for check in (
        _check_text,
        _check_calls,
        _check_opening,
        _check_output,
        _check_empty,
        _check_end,
        _check_failures,
        _check_leaving,
        _check_cancelled_request,
        _check_cancelled_call,
    ):
        with anyio.move_on_after(_PATIENCE_S) as patience:
            await check(play)
        assert not patience.cancelled_caught, f"the adapter hangs ({check.__name__.removeprefix('_check_')})"


# -- the prompts -----------------------------------------------------------------------------------------------------

_NO_RETRIES = MainLoop(config=InnerLoopConfig(retries=0))


@dataclass(frozen=True, slots=True)
class _Total:
    total: int


@dataclass
class _Work:
    """Tools that record their calls."""

    done: list[str] = field(default_factory=list[str])
    began: anyio.Event = field(default_factory=anyio.Event)

    def add(self, a: int, b: int) -> str:
        """Adds, the slow way."""
        self.done.append(f"add {a} {b}")
        return f"{a} and {b} make {a + b}"

    def multiply(self, a: int, b: int) -> str:
        """Multiplies, the slow way."""
        self.done.append(f"multiply {a} {b}")
        return f"{a} times {b} is {a * b}"

    async def wait(self) -> str:
        """Waits for ever."""
        self.began.set()
        await anyio.sleep_forever()
        return "never"


def _prompt(*tools: Callable[..., Any]) -> Prompt[str]:
    sums = MarkdownSection("Sums", "sums", "Reckon by hand.", tools=tools)
    return PromptTemplate[str]("check", "sums", [sums]).bind()


def _closed(work: _Work) -> Prompt[str]:
    """Return a prompt with two nested sections, each with a tool."""
    products = MarkdownSection(
        "Products", "products", "Multiply.", "Of products.", SectionVisibility.SUMMARY, tools=[work.multiply]
    )
    sums = MarkdownSection(
        "Sums", "sums", "Add.", "Of sums.", SectionVisibility.SUMMARY, tools=[work.add], children=[products]
    )
    return PromptTemplate[str]("check", "closed", [sums]).bind()


def _call(name: str, **arguments: Any) -> Call:
    return Call(name, json.dumps(arguments))


def _check_whole(session: Session) -> None:
    """Check that every call has one answer, in the order of the calls."""
    state = session.conversation.state
    assert not state.open_calls, f"calls without an answer: {[call.name for call in state.open_calls]}"
    wanted: list[str] = []
    for message in state.messages:
        match message:
            case AssistantMessage():
                assert not wanted, "a turn begins before all calls of the previous turn are answered"
                wanted = [call.id for call in message.calls]
            case ToolMessage():
                assert wanted[:1] == [message.call_id], (
                    "an answer belongs to no call, or is not in the order of the calls"
                )
                del wanted[0]
            case _:
                assert not wanted, "there is a message between calls and their answers"


def _check_usage(usage: Usage) -> None:
    assert min(usage.input, usage.output, usage.cached) >= 0, f"usage is negative: {usage}"
    assert usage.cached <= usage.input, f"`cached` is greater than `input`: {usage}"


async def _failing(stage: Stage, session: Session, on_text: TextListener | None = None) -> ProviderFailed:
    try:
        answer = await _NO_RETRIES.execute(_prompt(), session=session, adapter=stage.adapter, on_text=on_text)
    except ProviderFailed as error:
        _check_whole(session)
        return error
    except Exception as error:
        raise AssertionError(f"a failure is raised as {type(error).__name__} and not as ProviderFailed") from error
    raise AssertionError(f"the failure of the provider is read as the answer {answer.text!r}")


async def _check_answer(stage: Stage, session: Session, wanted: str, *, after: str) -> PromptResponse[str]:
    answer = await _NO_RETRIES.execute(_prompt(), session=session, adapter=stage.adapter, request="And now?")
    assert answer.output == wanted, f"after {after} the output is {answer.output!r} and not {wanted!r}"
    return answer


# -- the promises -----------------------------------------------------------------------------------------------------


async def _check_text(play: Play) -> None:
    said = Turn(("It is ", "four."))
    async with Toolcrib() as crib, play([said, said]) as stage, stage.adapter:
        adapter = stage.adapter
        assert adapter.name, "`name` is empty"
        assert adapter.model, "`model` is empty"
        is_dynamic = adapter.delivery is not Delivery.RESTART
        assert adapter.supports_dynamic_tools is is_dynamic, "`supports_dynamic_tools` contradicts `delivery`"
        heard: list[str] = []
        for on_text in (None, heard.append):
            session = crib.session()
            answer = await MainLoop().execute(
                _prompt(), session=session, adapter=adapter, request="What is 2 + 2?", on_text=on_text
            )
            assert (answer.output, answer.text) == ("It is four.",) * 2, f"the output is {answer.output!r}"
            _check_usage(answer.usage)
            last = session.conversation.state.messages[-1]
            is_kept = isinstance(last, AssistantMessage) and last.text == "It is four." and not last.calls
            assert is_kept, "the answer is not the last message of the conversation"
        assert "".join(heard) == "It is four.", f"the pieces of text do not add up to the text: {heard}"
        for request in stage.sent():
            for part in (b"Reckon by hand.", b"What is 2 + 2?"):
                assert part in request, f"{part.decode()!r} was not sent"


async def _check_calls(play: Play) -> None:
    """Check parallel calls: two that work, one of an unknown tool, and one whose arguments are not JSON."""
    work = _Work()
    calls = (_call("add", a=1, b=2), Call("nowhere", offered=False), Call("add", '{"a": 4,'), _call("add", a=4, b=5))
    script = [Turn(("Let me ", "see. "), calls), Turn("Done.")]
    async with Toolcrib() as crib, play(script) as stage, stage.adapter:
        session = crib.session()
        heard: list[str] = []
        answer = await MainLoop().execute(
            _prompt(work.add), session=session, adapter=stage.adapter, on_text=heard.append
        )
        assert answer.output == "Done.", f"after the calls the output is {answer.output!r}"
        _check_whole(session)
        assert sorted(work.done) == ["add 1 2", "add 4 5"], f"these calls of one turn ran: {work.done}"
        for result in (b"1 and 2 make 3", b"4 and 5 make 9"):
            assert result in stage.sent()[-1], f"the answer to a call was not sent to the model: {result.decode()}"
        assert "".join(heard) == "Let me see. Done.", f"the pieces of text do not add up to the text: {heard}"


async def _check_opening(play: Play) -> None:
    """Check nested sections with tools. Then continue the saved conversation."""
    work = _Work()
    async with Toolcrib() as crib:
        session = crib.session()
        events: list[ConversationEvent] = []
        session.conversation.subscribe(events.append)
        async with play(_opening(session)) as stage, stage.adapter:
            prompt = _closed(work)
            answer = await MainLoop().execute(prompt, session=session, adapter=stage.adapter)
            assert answer.output == "It is 42.", f"after opening sections the output is {answer.output!r}"
            assert work.done == ["multiply 6 7"], f"these calls of tools in two sections ran: {work.done}"
            _check_whole(session)
            _check_usage(answer.usage)
            _check_delivery(stage, session, events)
            resumed = crib.session(saved=session.to_json())
            answer = await MainLoop().execute(prompt, session=resumed, adapter=stage.adapter, request="And then?")
            assert answer.output == "Nothing more.", "a saved conversation cannot be continued"


def _opening(session: Session) -> Iterator[Step]:
    yield Turn(calls=(_call("read_section", section_key="sums"),))
    yield Turn(calls=(_call("read_section", section_key="sums.products"),))
    handle = _handle(session, "multiply")
    if handle is None:
        yield Turn(calls=(_call("multiply", a=6, b=7),))
    else:
        yield Turn(calls=(_call("call_tool", tool_id=handle, arguments={"a": 6, "b": 7}),))
    yield Turn("It is 42.")
    yield Turn("Nothing more.")


def _handle(session: Session, tool: str) -> str | None:
    """Return the handle of a tool whose definition the model read in an answer, or None if it read none."""
    for message in session.conversation.state.messages:
        for line in message.content.splitlines() if isinstance(message, ToolMessage) else ():
            if line.startswith('{"') and f"{tool}@" in line:
                return str(json.loads(line)["handle"])
    return None


def _check_delivery(stage: Stage, session: Session, events: Sequence[ConversationEvent]) -> None:
    delivery, sent = stage.adapter.delivery, stage.sent()
    assert len(sent) == 4, f"four turns needed {len(sent)} requests"
    is_by_name = delivery in {Delivery.DEFER, Delivery.INJECT}
    injected = [event.tool_names for event in events if isinstance(event, ToolsInjected)]
    told = [("add",), ("multiply",)] if is_by_name else []
    assert injected == told, f"with {delivery} these tools are reported as injected: {injected}"
    restarts = session.conversation.state.restarts
    assert restarts == (2 if delivery is Delivery.RESTART else 0), f"with {delivery} it restarted {restarts} times"
    tool = b"Multiplies, the slow way."
    if delivery is not Delivery.DEFER or stage.adapter.reveals_unlisted:
        assert tool not in sent[1], "a tool was sent before its section was read"
    assert tool in sent[2], "a tool was not sent, although its section was read"
    if delivery in {Delivery.DEFER, Delivery.PROXY}:
        for number, (before, after) in enumerate(pairwise(sent), 2):
            assert after.startswith(before), f"request {number} does not begin with the previous request ({delivery})"


async def _check_output(play: Play) -> None:
    prompt = PromptTemplate[_Total]("check", "total", [MarkdownSection("Sums", "sums", "Reckon by hand.")]).bind()
    async with Toolcrib() as crib, play([Turn('{"total": 42}')]) as stage, stage.adapter:
        answer = await MainLoop().execute(prompt, session=crib.session(), adapter=stage.adapter)
        assert answer.output == _Total(42), f"a JSON answer is read as {answer.output!r}"


async def _check_empty(play: Play) -> None:
    """Check an empty answer. An adapter with its own loop may ask again instead."""
    async with Toolcrib() as crib, play([Turn(), Turn("Yes.")]) as stage, stage.adapter:
        if isinstance(stage.adapter, TurnAdapter):
            session = crib.session()
            await _check_answer(stage, session, "", after="nothing")
            await _check_answer(stage, session, "Yes.", after="a turn in which nothing was said")


async def _check_end(play: Play) -> None:
    async with Toolcrib() as crib, play(()) as stage, stage.adapter:
        error = await _failing(stage, crib.session())
        assert error.message.strip(), "a failure has no message"


async def _check_failures(play: Play) -> None:
    """Check failures. An adapter with its own loop only passes `_check_end`, because it may retry by itself."""
    async with play(()) as stage:
        if not isinstance(stage.adapter, TurnAdapter):
            return
    script = (
        Failure(400, "This is no request."),
        Turn("First."),
        Failure(503, "Later.", {"retry-after": "7"}),
        Failure(429, "Not so fast.", {"retry-after": "7"}),
        Turn("Second."),
    )
    async with Toolcrib() as crib, play(script) as stage, stage.adapter:
        session = crib.session()
        error = await _failing(stage, session)
        assert not error.retryable, "a refused request is reported as retryable"
        await _check_answer(stage, session, "First.", after="a refusal")
        for why in ("a provider that is down", "a provider that is asked too often"):
            error = await _failing(stage, session)
            assert error.retryable, f"{why} is not reported as retryable"
            assert error.retry_after_s == 7, (
                f"{why} asked for a delay of 7 seconds, but {error.retry_after_s} is reported"
            )
        await _check_answer(stage, session, "Second.", after="failures")
    await _check_cut(play)


async def _check_cut(play: Play) -> None:
    lost = Cut(Turn(("Half an ", "answer ", "and no more.")), events=3)
    whole = Turn("Whole.")
    async with Toolcrib() as crib, play([lost, whole, lost, whole]) as stage, stage.adapter:
        heard: list[str] = []
        for on_text in (None, heard.append):
            session = crib.session()
            error = await _failing(stage, session, on_text)
            assert error.retryable, "an answer that was cut off is not reported as retryable"
            await _check_answer(stage, session, "Whole.", after="an answer that was cut off")


async def _check_leaving(play: Play) -> None:
    async with Toolcrib() as crib, play([Turn("First."), Turn("Second.")]) as stage:
        async with stage.adapter:
            await _check_answer(stage, crib.session(), "First.", after="nothing")
        try:
            await stage.adapter.__aexit__(None, None, None)
        except Exception as error:
            raise AssertionError(f"leaving the adapter a second time raises {type(error).__name__}: {error}") from error
        async with stage.adapter:
            await _check_answer(stage, crib.session(), "Second.", after="it was left twice and entered again")


async def _check_cancelled_request(play: Play) -> None:
    arrived = anyio.Event()

    def script() -> Iterator[Step]:
        arrived.set()
        yield Silence()
        yield Turn("Gone on.")

    async with Toolcrib() as crib, play(script()) as stage, stage.adapter:
        session = crib.session()
        await _cancelled(stage, session, _prompt(), arrived)
        await _check_answer(stage, session, "Gone on.", after="a request that was cancelled")


async def _check_cancelled_call(play: Play) -> None:
    work = _Work()
    script = [Turn(calls=(Call("wait"), _call("add", a=1, b=2))), Turn("Gone on.")]
    async with Toolcrib() as crib, play(script) as stage, stage.adapter:
        session = crib.session()
        await _cancelled(stage, session, _prompt(work.wait, work.add), work.began)
        _check_whole(session)
        await _check_answer(stage, session, "Gone on.", after="a call that was cancelled")


async def _cancelled(stage: Stage, session: Session, prompt: Prompt[str], when: anyio.Event) -> None:
    ended: list[str] = []

    async def ask() -> None:
        try:
            answer = await _NO_RETRIES.execute(prompt, session=session, adapter=stage.adapter)
            ended.append(f"answers {answer.text!r}")
        except Exception as error:  # noqa: BLE001  any error here breaks the promise
            ended.append(f"raises {type(error).__name__}: {error}")
        finally:
            when.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await when.wait()
        tasks.cancel_scope.cancel()
    assert not ended, f"a cancelled evaluation {ended[0]}"
