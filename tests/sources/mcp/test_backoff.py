"""Backoff after failures of a server, and the breaker that refuses calls meanwhile. Both use the clock of the test."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import SourceUnavailable
from toolcrib.sources.mcp.breaker import FIRST_WAIT_S, LAST_WAIT_S, Backoff, Breaker

EXITED = SourceUnavailable(
    "`bench` could not be started: it exited.", diagnosis="Its last words: no vice", retryable=True
)
DIED = SourceUnavailable("`bench` stopped before it answered.")


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# -- the value --------------------------------------------------------------------------------------------------------

GAP = st.floats(0, 1_000, allow_nan=False)
EVENT = st.sampled_from(["start fails", "dies", "works", "asks for a pause"])


def after(backoff: Backoff, event: str, now: float) -> Backoff:
    match event:
        case "start fails":
            return backoff.failed(now, died=False)
        case "dies":
            return backoff.failed(now, died=True)
        case "works":
            return backoff.worked()
        case _:
            return backoff.paused(now, 17.0)


def test_each_failure_in_a_row_doubles_the_wait_up_to_five_minutes() -> None:
    backoff, waits = Backoff(), list[float]()
    for _ in range(12):
        backoff = backoff.failed(0.0, died=False)
        waits.append(backoff.wait_s)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_first_death_costs_no_wait_and_later_deaths_cost_the_usual_wait() -> None:
    backoff, waits = Backoff(), list[float]()
    for _ in range(4):
        backoff = backoff.failed(0.0, died=True)
        waits.append(backoff.wait_s)
    assert waits == [0, 2, 4, 8]


@given(st.integers(1, 5_000), st.booleans())
def test_the_wait_is_at_most_five_minutes_after_any_number_of_failures(often: int, died: bool) -> None:
    backoff, wait_s = Backoff(), 0.0
    for _ in range(often):
        backoff = backoff.failed(0.0, died=died)
        assert wait_s <= backoff.wait_s <= LAST_WAIT_S
        wait_s = backoff.wait_s
    assert backoff.failures == often


@given(st.lists(st.tuples(GAP, EVENT), max_size=40))
def test_the_remaining_wait_only_decreases_with_time_or_follows_from_an_event(
    story: list[tuple[float, str]],
) -> None:
    backoff, now = Backoff(), 0.0
    for gap, event in story:
        before = backoff.left_s(now)
        now += gap
        assert backoff.left_s(now) == pytest.approx(max(0.0, before - gap), abs=1e-6)
        backoff = after(backoff, event, now)
        assert backoff.left_s(now) <= LAST_WAIT_S + 1e-6
        assert backoff.in_doubt == (backoff.wait_s > 0)


@given(st.lists(st.tuples(GAP, EVENT), max_size=40))
def test_success_resets_all_failures_but_not_a_requested_pause(
    story: list[tuple[float, str]],
) -> None:
    backoff, now, paused_until = Backoff(), 0.0, 0.0
    for gap, event in story:
        now += gap
        backoff = after(backoff, event, now)
        paused_until = now + 17.0 if event == "asks for a pause" else paused_until
    backoff = backoff.worked()
    assert (backoff.failures, backoff.in_doubt) == (0, False)
    assert backoff.left_s(now) == pytest.approx(max(0.0, paused_until - now), abs=1e-6)
    assert backoff.failed(now, died=True).left_s(now) == backoff.left_s(now), "one death is forgiven again"


@given(st.floats(1, 100_000), st.booleans())
def test_a_broken_server_is_tried_about_once_in_five_minutes(for_s: float, died: bool) -> None:
    backoff, now, tries = Backoff(), 0.0, 0
    while now <= for_s:
        tries += 1
        backoff = backoff.failed(now, died=died)
        now += backoff.left_s(now)
    assert tries <= 11 + for_s / LAST_WAIT_S


def test_a_shorter_pause_does_not_replace_a_longer_one() -> None:
    backoff = Backoff().paused(0.0, 60.0).paused(10.0, 1.0)
    assert backoff.left_s(10.0) == 50.0


# -- the breaker ------------------------------------------------------------------------------------------------------


def fail(breaker: Breaker, failure: SourceUnavailable = EXITED, *, died: bool = False) -> SourceUnavailable:
    return breaker.failed(failure, breaker.mark, died=died)


def refusal(ask: Callable[[], object]) -> SourceUnavailable:
    with pytest.raises(SourceUnavailable) as caught:
        ask()
    return caught.value


def test_a_refusal_states_the_cause_the_number_of_failures_and_the_next_retry() -> None:
    clock = Clock()
    breaker = Breaker("bench", now=clock)
    breaker.check()
    assert fail(breaker).retry_after_s == FIRST_WAIT_S
    error = refusal(breaker.check)
    assert error.message == ("`bench` could not be started: it exited. It failed once. Toolcrib retries in 1 s.")
    assert (error.retryable, error.retry_after_s, error.diagnosis) == (True, 1.0, "Its last words: no vice")
    clock.now += 1.0
    breaker.check()
    fail(breaker)
    clock.now += 0.75
    error = refusal(breaker.check)
    assert "It failed 2 times in a row. Toolcrib retries in 1.3 s." in error.message
    assert error.to_wire()["error"]["details"] == {"retry_after_s": 1.3}


@given(st.floats(0, 1e6), st.integers(1, 12))
def test_a_call_is_allowed_after_the_wait_that_the_refusal_states(now: float, often: int) -> None:
    clock = Clock()
    clock.now = now
    breaker = Breaker("bench", now=clock)
    for _ in range(often):
        fail(breaker)
    told_s = breaker.retry_after_s
    assert told_s is not None
    assert told_s == min(2.0 ** (often - 1), LAST_WAIT_S)
    clock.now += told_s
    breaker.check()


def test_a_refusal_for_a_stored_message_does_not_mention_the_time() -> None:
    breaker = Breaker("bench", now=Clock())
    fail(breaker)
    error = refusal(lambda: breaker.check(in_words=False))
    assert (error.message, error.retry_after_s) == (EXITED.message, 1.0)


def test_a_lasting_error_is_not_retryable_until_the_server_has_worked() -> None:
    clock = Clock()
    breaker = Breaker("far", now=clock)
    fail(breaker, SourceUnavailable("`far` answered HTTP 401 Unauthorized."))
    assert not refusal(breaker.check).retryable
    breaker.worked()
    for _ in range(2):
        fail(breaker, DIED, died=True)
    assert refusal(breaker.check).retryable, "the calls that it took along had been sent; this one was not"


def test_calls_that_fail_together_count_as_one_failure() -> None:
    breaker = Breaker("bench", now=Clock())
    marks = [breaker.mark for _ in range(100)]
    told = [breaker.failed(DIED, mark, died=True) for mark in marks]
    assert breaker.failures == 1
    assert {error.retry_after_s for error in told} == {None}
    assert breaker.failed(DIED, breaker.mark, died=True).retry_after_s == 2.0
    assert breaker.failures == 2


def test_a_requested_pause_holds_calls_back_even_after_a_success() -> None:
    clock = Clock()
    breaker = Breaker("far", now=clock)
    breaker.pause(None)
    breaker.check()
    breaker.pause(12.0)
    breaker.worked()
    error = refusal(breaker.check)
    assert error.message == "`far` asked clients to wait before the next request. Toolcrib retries in 12 s."
    assert (error.retryable, error.retry_after_s) == (True, 12.0)
    assert not breaker.forget()
    clock.now += 12.0
    breaker.check()


def test_forgetting_the_failures_allows_the_next_call() -> None:
    breaker = Breaker("bench", now=Clock())
    assert not breaker.forget()
    for _ in range(5):
        fail(breaker)
    assert breaker.forget()
    breaker.check()
    assert breaker.failures == 0


@pytest.mark.anyio
@pytest.mark.parametrize("ending", ["works", "fails", "leaves"])
async def test_after_a_failure_one_caller_tries_and_the_others_wait_for_the_outcome(ending: str) -> None:
    clock = Clock()
    breaker = Breaker("bench", now=clock)
    fail(breaker)
    clock.now += 1.0
    inside, most, served, refused = 0, 0, list[int](), list[int]()
    gates = [anyio.Event() for _ in range(5)]
    scopes = [anyio.CancelScope() for _ in range(5)]

    async def call(number: int) -> None:
        nonlocal inside, most
        with scopes[number]:
            try:
                async with breaker.admitting():
                    inside += 1
                    most = max(most, inside)
                    try:
                        await gates[number].wait()
                    finally:
                        inside -= 1
                    if ending == "fails":
                        fail(breaker, DIED, died=True)
                    else:
                        breaker.worked()
                    served.append(number)
            except SourceUnavailable:
                refused.append(number)

    async with anyio.create_task_group() as calls:
        for number in range(5):
            calls.start_soon(call, number)
        await anyio.wait_all_tasks_blocked()
        assert inside == 1
        if ending == "leaves":
            scopes[0].cancel()
            await anyio.wait_all_tasks_blocked()
            assert inside == 1, "the next one tries"
            gates[1].set()
        else:
            gates[0].set()
        await anyio.wait_all_tasks_blocked()
        assert inside == {"works": 4, "fails": 0, "leaves": 3}[ending]
        assert refused == ([1, 2, 3, 4] if ending == "fails" else [])
        for gate in gates:
            gate.set()
    assert breaker.failures == (2 if ending == "fails" else 0)


@pytest.mark.anyio
async def test_waiting_callers_continue_as_soon_as_the_server_is_known_to_work() -> None:
    clock = Clock()
    breaker = Breaker("bench", now=clock)
    fail(breaker)
    clock.now += 1.0
    inside: list[int] = []

    async def call(number: int) -> None:
        async with breaker.admitting():
            inside.append(number)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as calls:
        for number in range(3):
            calls.start_soon(call, number)
        await anyio.wait_all_tasks_blocked()
        assert inside == [0]
        breaker.worked()  # its connection lived for a while, though the first call has no answer yet
        await anyio.wait_all_tasks_blocked()
        assert inside == [0, 1, 2]
        calls.cancel_scope.cancel()


@pytest.mark.anyio
async def test_after_a_single_death_callers_do_not_wait_for_each_other() -> None:
    breaker = Breaker("bench", now=Clock())
    fail(breaker, DIED, died=True)
    async with breaker.admitting(), breaker.admitting():
        assert breaker.failures == 1
