"""Call contexts: deadlines that can only become earlier, and trace ids."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.principal import LOCAL, LOCAL_CONTEXT, CallContext, Principal, new_trace_id


def test_a_context_without_a_deadline_has_no_time_limit() -> None:
    assert CallContext().remaining_s() is None


@given(st.lists(st.floats(-10, 1e6), min_size=1))
def test_a_deadline_can_only_become_earlier(timeouts_s: list[float]) -> None:
    context, earlier = CallContext(), float("inf")
    for timeout_s in timeouts_s:
        context = context.within(timeout_s)
        assert context.deadline is not None
        assert context.deadline <= earlier
        earlier = context.deadline
        assert 0 <= (context.remaining_s() or 0) <= max(0, timeout_s)


def test_a_context_with_a_deadline_is_otherwise_unchanged() -> None:
    context = CallContext(Principal("ada", frozenset({"read"})))

    assert context.within(5).within(1).trace_id == context.trace_id
    assert context.within(5).principal == context.principal
    assert context.deadline is None


def test_the_remaining_time_is_never_negative() -> None:
    assert CallContext().within(-3).remaining_s() == 0.0


def test_every_trace_id_is_unique_and_half_of_it_is_zero() -> None:
    ids = {new_trace_id() for _ in range(100)}

    assert len(ids) == 100
    assert all(re.fullmatch("0{16}[1-9a-f][0-9a-f]{15}", trace_id) for trace_id in ids)


def test_a_default_context_belongs_to_the_local_principal_without_a_trace() -> None:
    assert CallContext() == LOCAL_CONTEXT
    assert CallContext().trace_id is None
    assert CallContext().principal == LOCAL == Principal("local")
