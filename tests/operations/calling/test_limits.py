"""How fast a principal may call: laws of the token bucket, what a refusal says, and that every way to call counts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool, view_of
from tests.servers.launching import write_config
from tests.waiting import until

from toolcrib.catalog.view import View
from toolcrib.core.errors import InvalidArguments, NotExpanded, RateLimited, ToolNotFound
from toolcrib.core.principal import CallContext, Principal
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.calling import CallLimits, Runner
from toolcrib.operations.calling import limits as module
from toolcrib.operations.calling.limits import DEFAULT_RATE, Rate, TokenBucket

READ = tool("files.read", "Read a file.", properties={"path": {"type": "string"}}, required=("path",))
ADA, GRACE = Principal("ada"), Principal("grace")
SECOND = 1_000_000_000


class Clock:
    """Nanoseconds, as a test says."""

    def __init__(self) -> None:
        self.now_ns = 7 * SECOND

    def __call__(self) -> int:
        return self.now_ns


def admits(limits: CallLimits, principal: Principal = ADA) -> bool:
    try:
        limits.admit(principal)
    except RateLimited:
        return False
    return True


# -- laws -------------------------------------------------------------------------------------------------------------

RATES = st.builds(Rate, st.integers(1, 100_000), st.integers(1, 50))
GAPS = st.lists(st.integers(0, 5 * SECOND) | st.just(0) | st.integers(0, 500 * SECOND), min_size=1, max_size=80)


@given(RATES, GAPS)
def test_in_no_stretch_of_time_are_more_calls_admitted_than_the_burst_and_what_the_time_brings(
    rate: Rate, gaps: list[int]
) -> None:
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    admitted: list[int] = []
    for gap in gaps:
        clock.now_ns += gap
        if admits(limits):
            admitted.append(clock.now_ns)
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            brought = (admitted[last] - admitted[first]) // rate.interval_ns
            assert last - first + 1 <= rate.burst_calls + brought


@given(RATES, GAPS)
def test_it_is_the_bucket_of_the_book(rate: Rate, gaps: list[int]) -> None:
    """Against tokens counted as fractions: full at first, one more every interval, one less for every call."""
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    tokens = Fraction(rate.burst_calls)
    for gap in gaps:
        clock.now_ns += gap
        tokens = min(Fraction(rate.burst_calls), tokens + Fraction(gap, rate.interval_ns))
        assert admits(limits) == (tokens >= 1)
        tokens -= 1 if tokens >= 1 else 0


@given(RATES, GAPS)
def test_who_waits_as_long_as_told_is_let_in_and_not_a_moment_before(rate: Rate, gaps: list[int]) -> None:
    bucket, now = TokenBucket(), 0
    for gap in gaps:
        now += gap
        wait = bucket.wait_ns(rate, now)
        if wait:
            assert bucket.wait_ns(rate, now + wait - 1) == 1
        now += wait
        assert bucket.wait_ns(rate, now) == 0
        bucket = bucket.taken(rate, now)


@given(RATES, GAPS)
def test_who_waits_for_what_the_refusal_says_is_let_in(rate: Rate, gaps: list[int]) -> None:
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    for gap in gaps:
        clock.now_ns += gap
        try:
            limits.admit(ADA)
        except RateLimited as refused:
            clock.now_ns += round(refused.retry_after_s * SECOND)
            assert admits(limits)


def test_a_call_that_comes_a_nanosecond_early_is_refused() -> None:
    clock = Clock()
    limits = CallLimits(Rate(60, 1), now_ns=clock)
    limits.admit(ADA)

    clock.now_ns += SECOND - 1
    with pytest.raises(RateLimited):
        limits.admit(ADA)
    clock.now_ns += 1
    limits.admit(ADA)


@given(RATES, st.lists(st.tuples(st.sampled_from([ADA, GRACE]), st.integers(0, 2 * SECOND)), max_size=60))
def test_what_one_principal_does_is_nothing_to_another(rate: Rate, calls: list[tuple[Principal, int]]) -> None:
    together, alone = Clock(), Clock()
    limits = CallLimits(rate, now_ns=together)
    only_ada = CallLimits(rate, now_ns=alone)
    for who, gap in calls:
        together.now_ns += gap
        alone.now_ns += gap
        admitted = admits(limits, who)
        if who is ADA:
            assert admitted == admits(only_ada)


@given(RATES, st.integers(1, 100))
def test_who_keeps_to_the_rate_is_never_refused(rate: Rate, calls: int) -> None:
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    for _ in range(calls):
        assert admits(limits)
        clock.now_ns += rate.interval_ns


@given(RATES, st.integers(0, 30))
def test_a_refused_call_takes_nothing(rate: Rate, refusals: int) -> None:
    assume(rate.calls_per_minute <= 600)
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    assert [admits(limits) for _ in range(rate.burst_calls + refusals)].count(True) == rate.burst_calls
    clock.now_ns += rate.interval_ns
    assert admits(limits)
    assert not admits(limits)


def test_without_a_rate_everything_is_admitted() -> None:
    limits = CallLimits()
    assert all(admits(limits) for _ in range(5_000))


def test_a_rate_that_is_set_later_holds_from_then_on() -> None:
    limits = CallLimits(now_ns=Clock())
    assert all(admits(limits) for _ in range(10))
    limits.rate = Rate(60, 2)
    assert [admits(limits) for _ in range(3)] == [True, True, False]
    limits.rate = None
    assert admits(limits)


def test_by_default_ten_calls_in_every_second_are_never_too_many_and_a_thousand_and_one_at_once_are() -> None:
    clock = Clock()
    limits = CallLimits(DEFAULT_RATE, now_ns=clock)
    for _ in range(600):
        assert all(admits(limits) for _ in range(10))
        clock.now_ns += SECOND
    clock.now_ns += 60 * SECOND
    assert [admits(limits) for _ in range(1_001)].count(False) == 1


# -- memory -----------------------------------------------------------------------------------------------------------


def test_however_many_principals_call_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 2), now_ns=Clock())
    for number in range(10_000):
        assert admits(limits, Principal(f"somebody {number}"))
        assert limits.known <= 100


def test_when_room_is_made_who_has_called_the_most_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 5), now_ns=Clock())
    assert [admits(limits) for _ in range(6)].count(True) == 5
    for number in range(10_000):
        limits.admit(Principal(f"somebody {number}"))
        assert not admits(limits)


def test_as_many_principals_are_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 1), now_ns=Clock())
    principals = [Principal(f"early {number}") for number in range(100)]
    assert all(admits(limits, each) for each in principals)
    assert limits.known == 100
    assert not any(admits(limits, each) for each in principals)


def test_when_there_is_no_room_the_half_that_waits_longest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 101), now_ns=Clock())
    calls_of = {Principal(f"calls {calls} times"): calls for calls in range(101, 0, -1)}
    for principal, calls in calls_of.items():
        for _ in range(calls):
            limits.admit(principal)

    assert limits.known == 50
    for principal in [*calls_of][:50]:
        assert [admits(limits, principal) for _ in range(101)].count(True) == 101 - calls_of[principal]


def test_a_bucket_makes_room_at_the_moment_when_it_is_full_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    clock = Clock()
    limits = CallLimits(Rate(60, 5), now_ns=clock)
    for number in range(100):
        limits.admit(Principal(f"early {number}"))
    clock.now_ns += SECOND
    limits.admit(ADA)
    assert limits.known == 1


def test_a_bucket_that_is_full_again_makes_room_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    clock = Clock()
    limits = CallLimits(Rate(60, 5), now_ns=clock)
    for number in range(100):
        limits.admit(Principal(f"early {number}"))
    clock.now_ns += 2 * SECOND
    limits.admit(ADA)
    assert limits.known == 1


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("errors.rate-limited")
@pytest.mark.anyio
async def test_a_call_too_many_runs_nothing_and_says_when_to_come_back() -> None:
    view, clock = view_of(READ), Clock()
    limits = CallLimits(Rate(60, 2), now_ns=clock)
    for _ in range(2):
        await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext())
    clock.now_ns += 250_000_000

    with pytest.raises(RateLimited, match=r"Retry in 0\.8 s") as refused:
        await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext())

    assert len(source_of(view, "files").calls) == 2
    error = refused.value.to_wire()["error"]
    assert (error["code"], error["retryable"], error["details"]) == ("RATE_LIMITED", True, {"retry_after_s": 0.8})
    assert "the rate limit of 60 calls per minute (burst of 2)" in error["message"]
    assert error["hints"] == ["The gateway's owner can raise the limit."]
    clock.now_ns += 800_000_000
    assert await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext())


@pytest.mark.anyio
async def test_what_would_not_reach_a_source_counts_for_nothing_and_is_told_for_what_it_is() -> None:
    view, limits = view_of(READ), CallLimits(Rate(1, 1), now_ns=Clock())
    wrong: list[tuple[str, object, type[Exception]]] = [
        ("files.none@1", {}, ToolNotFound),
        ("files.read", {"path": "."}, NotExpanded),
        (READ.handle, {"path": 5}, InvalidArguments),
    ]
    for _ in range(2):  # before the only call there is, and after it
        for reference, arguments, kind in wrong:
            with pytest.raises(kind):
                await Runner(limits).call_tool(view, reference, arguments, CallContext())
        if not source_of(view, "files").calls:
            await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext())
    with pytest.raises(RateLimited):
        await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext())


@pytest.mark.anyio
async def test_every_principal_has_its_own_limit() -> None:
    registry, limits = registry_of(READ), CallLimits(Rate(1, 1), now_ns=Clock())
    for who in (ADA, GRACE):
        view = View.of(registry.state, who)
        await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext(who))
        with pytest.raises(RateLimited, match=f"`{who.id}` exceeded the rate limit"):
            await Runner(limits).call_tool(view, READ.handle, {"path": "."}, CallContext(who))


@pytest.mark.anyio
async def test_a_limit_that_is_changed_in_the_file_holds_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.crib.following.POLL_S", 0.01)
    path = write_config(tmp_path / "mcp.json", toolcrib={"calls_per_minute": 1})
    crib = Toolcrib()
    handle = crib.tool_of(crib.add(lambda: "done", name="work")).handle
    config = crib.add_config(path)
    async with crib, anyio.create_task_group() as tasks:
        tasks.start_soon(crib.follow, config)
        await anyio.wait_all_tasks_blocked()
        await crib.call_tool(handle)
        with pytest.raises(RateLimited):
            await crib.call_tool(handle)
        write_config(path, toolcrib={"calls_per_minute": 0})
        await until(lambda: crib.dispatcher.runner.limits.rate is None, "the file is read again")
        await crib.call_tool(handle)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_calls_of_a_program_and_calls_of_a_model_count_against_the_same_limit() -> None:
    crib = Toolcrib()
    handle = crib.tool_of(crib.add(lambda: "done", name="work")).handle
    crib.dispatcher.runner.limits.rate = Rate(1, 4)
    called: dict[str, object] = {"tool_id": handle, "arguments": {}}
    for _ in range(2):
        await crib.call_tool(handle)
        await crib.perform("call_tool", called)
    with pytest.raises(RateLimited):
        await crib.call_tool(handle)
    with pytest.raises(RateLimited):
        await crib.perform("call_tool", called)
    assert crib.search_tools("work").results, "only calls are limited"
