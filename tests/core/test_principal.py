"""Deadlines that only ever come closer, and traces."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.principal import LOCAL, LOCAL_CONTEXT, CallContext, Principal, new_trace_id


def test_without_a_deadline_there_is_no_end() -> None:
    assert CallContext().remaining_s() is None


@given(st.lists(st.floats(-10, 1e6), min_size=1))
def test_a_deadline_only_ever_comes_closer(timeouts_s: list[float]) -> None:
    context, earlier = CallContext(), float("inf")
    for timeout_s in timeouts_s:
        context = context.within(timeout_s)
        assert context.deadline is not None
        assert context.deadline <= earlier
        earlier = context.deadline
        assert 0 <= (context.remaining_s() or 0) <= max(0, timeout_s)


def test_a_context_within_a_time_is_the_same_in_everything_else() -> None:
    context = CallContext(Principal("ada", frozenset({"read"})))

    assert context.within(5).within(1).trace_id == context.trace_id
    assert context.within(5).principal == context.principal
    assert context.deadline is None


def test_time_that_ran_out_is_zero_and_not_less() -> None:
    assert CallContext().within(-3).remaining_s() == 0.0


def test_every_trace_has_an_id_of_its_own_of_which_a_handle_carries_half() -> None:
    ids = {new_trace_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(re.fullmatch("0{16}[1-9a-f][0-9a-f]{15}", trace_id) for trace_id in ids)


def test_a_context_of_which_nothing_is_said_is_the_local_principals_and_in_no_trace_yet() -> None:
    assert CallContext() == LOCAL_CONTEXT
    assert CallContext().trace_id is None
    assert CallContext().principal == LOCAL == Principal("local")
