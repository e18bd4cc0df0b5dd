"""Rate limits of a principal: laws of the token bucket, messages of refusals, and that every kind of call counts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool, view_of
from tests.servers.launching import write_config
from tests.until import until

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
    """Nanoseconds that the test sets."""

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
def test_calls_in_any_period_never_exceed_the_burst_plus_the_refill(rate: Rate, gaps: list[int]) -> None:
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
def test_limits_equal_a_textbook_token_bucket(rate: Rate, gaps: list[int]) -> None:
    """Compare with tokens counted as fractions: full at first, one more per interval, one less per call."""
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    tokens = Fraction(rate.burst_calls)
    for gap in gaps:
        clock.now_ns += gap
        tokens = min(Fraction(rate.burst_calls), tokens + Fraction(gap, rate.interval_ns))
        assert admits(limits) == (tokens >= 1)
        tokens -= 1 if tokens >= 1 else 0


@given(RATES, GAPS)
def test_a_call_is_admitted_exactly_after_the_waiting_time(rate: Rate, gaps: list[int]) -> None:
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
def test_a_call_is_admitted_after_the_delay_of_the_refusal(rate: Rate, gaps: list[int]) -> None:
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    for gap in gaps:
        clock.now_ns += gap
        try:
            limits.admit(ADA)
        except RateLimited as refused:
            clock.now_ns += round(refused.retry_after_s * SECOND)
            assert admits(limits)


def test_a_call_one_nanosecond_early_is_refused() -> None:
    clock = Clock()
    limits = CallLimits(Rate(60, 1), now_ns=clock)
    limits.admit(ADA)

    clock.now_ns += SECOND - 1
    with pytest.raises(RateLimited):
        limits.admit(ADA)
    clock.now_ns += 1
    limits.admit(ADA)


@given(RATES, st.lists(st.tuples(st.sampled_from([ADA, GRACE]), st.integers(0, 2 * SECOND)), max_size=60))
def test_calls_of_one_principal_do_not_affect_a_different_principal(
    rate: Rate, calls: list[tuple[Principal, int]]
) -> None:
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
def test_a_principal_within_its_rate_is_never_refused(rate: Rate, calls: int) -> None:
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    for _ in range(calls):
        assert admits(limits)
        clock.now_ns += rate.interval_ns


@given(RATES, st.integers(0, 30))
def test_a_refused_call_uses_no_token(rate: Rate, refusals: int) -> None:
    assume(rate.calls_per_minute <= 600)
    clock = Clock()
    limits = CallLimits(rate, now_ns=clock)
    assert [admits(limits) for _ in range(rate.burst_calls + refusals)].count(True) == rate.burst_calls
    clock.now_ns += rate.interval_ns
    assert admits(limits)
    assert not admits(limits)


def test_every_call_is_admitted_without_a_rate() -> None:
    limits = CallLimits()
    assert all(admits(limits) for _ in range(5_000))


def test_a_changed_rate_applies_to_later_calls() -> None:
    limits = CallLimits(now_ns=Clock())
    assert all(admits(limits) for _ in range(10))
    limits.rate = Rate(60, 2)
    assert [admits(limits) for _ in range(3)] == [True, True, False]
    limits.rate = None
    assert admits(limits)


def test_the_default_rate_is_ten_calls_per_second_with_bursts_of_1000() -> None:
    clock = Clock()
    limits = CallLimits(DEFAULT_RATE, now_ns=clock)
    for _ in range(600):
        assert all(admits(limits) for _ in range(10))
        clock.now_ns += SECOND
    clock.now_ns += 60 * SECOND
    assert [admits(limits) for _ in range(1_001)].count(False) == 1


# -- memory -----------------------------------------------------------------------------------------------------------


def test_the_number_of_remembered_principals_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 2), now_ns=Clock())
    for number in range(10_000):
        assert admits(limits, Principal(f"somebody {number}"))
        assert limits.known <= 100


def test_the_most_active_principal_is_still_remembered_when_others_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 5), now_ns=Clock())
    assert [admits(limits) for _ in range(6)].count(True) == 5
    for number in range(10_000):
        limits.admit(Principal(f"somebody {number}"))
        assert not admits(limits)


def test_principals_are_remembered_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 1), now_ns=Clock())
    principals = [Principal(f"early {number}") for number in range(100)]
    assert all(admits(limits, each) for each in principals)
    assert limits.known == 100
    assert not any(admits(limits, each) for each in principals)


def test_the_half_with_the_longest_waiting_time_is_retained_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    limits = CallLimits(Rate(60, 101), now_ns=Clock())
    calls_of = {Principal(f"calls {calls} times"): calls for calls in range(101, 0, -1)}
    for principal, calls in calls_of.items():
        for _ in range(calls):
            limits.admit(principal)

    assert limits.known == 50
    for principal in [*calls_of][:50]:
        assert [admits(limits, principal) for _ in range(101)].count(True) == 101 - calls_of[principal]


def test_a_bucket_is_dropped_at_the_moment_it_is_full_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PRINCIPALS", 100)
    clock = Clock()
    limits = CallLimits(Rate(60, 5), now_ns=clock)
    for number in range(100):
        limits.admit(Principal(f"early {number}"))
    clock.now_ns += SECOND
    limits.admit(ADA)
    assert limits.known == 1


def test_full_buckets_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_a_call_over_the_limit_does_not_run_and_returns_the_delay() -> None:
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
async def test_calls_that_fail_before_reaching_a_source_do_not_count() -> None:
    view, limits = view_of(READ), CallLimits(Rate(1, 1), now_ns=Clock())
    wrong: list[tuple[str, object, type[Exception]]] = [
        ("files.none@1", {}, ToolNotFound),
        ("files.read", {"path": "."}, NotExpanded),
        (READ.handle, {"path": 5}, InvalidArguments),
    ]
    for _ in range(2):  # before and after the only allowed call
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
async def test_a_limit_changed_in_the_file_applies_immediately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
async def test_calls_of_a_program_and_of_a_model_share_one_limit() -> None:
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
