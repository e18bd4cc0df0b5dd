"""Tests for calls that wait for a client to return with input, without a real server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from mcp import MCPError
from mcp_types import ClientCapabilities

from toolcrib.core.errors import ToolFailed
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.sources.base import ProgressListener
from toolcrib.surfaces.mcp_gateway import suspended_calls
from toolcrib.surfaces.mcp_gateway.gateway_clients import Clients
from toolcrib.surfaces.mcp_gateway.request_context import MAX_ROUNDS, Ctx, check_askable, state_of
from toolcrib.surfaces.mcp_gateway.suspended_calls import SuspendableCall, SuspendedCalls

pytestmark = pytest.mark.anyio

ACCEPTED = {"action": "accept"}


def request(method: str = "tools/call", whose: Principal | None = None, **params: Any) -> Ctx:
    """Returns a request of a 2026-07-28 client with elicitation. With `whose`, the request came over HTTP."""
    able = ClientCapabilities.model_validate({"elicitation": {}})
    session = SimpleNamespace(client_capabilities=able)
    made = SimpleNamespace(
        protocol_version="2026-07-28",
        method=method,
        params=params,
        session=session,
        meta=None,
        request_id=1,
        lifespan_context=state_of(LOCAL),
        request=SimpleNamespace(state=SimpleNamespace(principal=whose)) if whose is not None else None,
    )
    return cast("Ctx", made)


@asynccontextmanager
async def carrying() -> AsyncGenerator[Clients]:
    carrier = Clients(sole=False)
    async with anyio.create_task_group() as tasks:
        carrier.run_in(tasks)
        yield carrier
        tasks.cancel_scope.cancel()


async def asking(context: CallContext, _: ProgressListener | None) -> Mapping[str, Any]:
    assert context.client is not None
    return {"content": [], "said": await context.client.ask("elicitation/create", {"message": "Go on?"})}


async def test_a_client_returns_once_with_the_requested_input() -> None:
    async with carrying() as carrier:
        away = await carrier.carry(request(), asking)
        (key,) = away["inputRequests"]
        back = request(requestState=away["requestState"], inputResponses={key: ACCEPTED})
        assert (await carrier.carry(back, asking))["said"] == ACCEPTED
        with pytest.raises(MCPError, match="already answered"):
            await carrier.carry(back, asking)


async def test_a_different_principal_cannot_continue_a_suspended_call() -> None:
    alice, bob = Principal("alice"), Principal("bob")
    async with carrying() as carrier:
        away = await carrier.carry(request(whose=alice), asking)
        (key,) = away["inputRequests"]
        for whose in (bob, None):
            stolen = request(whose=whose, requestState=away["requestState"], inputResponses={key: ACCEPTED})
            with pytest.raises(MCPError, match="has ended"):
                await carrier.carry(stolen, asking)
        renewed = Principal("alice", frozenset({"more"}))
        back = request(whose=renewed, requestState=away["requestState"], inputResponses={key: ACCEPTED})
        assert (await carrier.carry(back, asking))["said"] == ACCEPTED


async def test_a_continued_call_uses_the_scopes_of_the_returning_client() -> None:
    alice, less = Principal("alice", frozenset({"all"})), Principal("alice")
    seen: list[Principal] = []

    async def looking(context: CallContext, progress: ProgressListener | None) -> Mapping[str, Any]:
        seen.append(context.principal_now)
        said = await asking(context, progress)
        seen.append(context.principal_now)
        return said

    async with carrying() as carrier:
        away = await carrier.carry(request(whose=alice), looking)
        (key,) = away["inputRequests"]
        back = request(whose=less, requestState=away["requestState"], inputResponses={key: ACCEPTED})
        await carrier.carry(back, looking)
    assert seen == [alice, less]


async def test_a_suspended_call_ends_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspended_calls, "ANSWER_S", 0.01)
    ended = anyio.Event()

    async def waiting(context: CallContext, progress: ProgressListener | None) -> Mapping[str, Any]:
        try:
            return await asking(context, progress)
        finally:
            ended.set()

    async with carrying() as carrier:
        away = await carrier.carry(request(), waiting)
        await ended.wait()
        back = request(requestState=away["requestState"], inputResponses={})
        with pytest.raises(MCPError, match="has ended"):
            await carrier.carry(back, waiting)


async def test_the_oldest_suspended_call_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspended_calls, "MAX_WAITING", 1)
    async with carrying() as carrier:
        first, second = [await carrier.carry(request(), asking) for _ in range(2)]
        with pytest.raises(MCPError, match="has ended"):
            await carrier.carry(request(requestState=first["requestState"]), asking)
        (key,) = second["inputRequests"]
        back = request(requestState=second["requestState"], inputResponses={key: ACCEPTED})
        assert (await carrier.carry(back, asking))["said"] == ACCEPTED


async def test_suspended_calls_of_one_principal_do_not_evict_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suspended_calls, "MAX_WAITING", 10)
    ada, eve = Principal("ada"), Principal("eve")
    async with carrying() as carrier:
        mine = await carrier.carry(request(whose=ada), asking)
        hers = [await carrier.carry(request(whose=eve), asking) for _ in range(100)]
        await anyio.wait_all_tasks_blocked()
        assert len(anyio.get_running_tasks()) < 40  # two for each open input request, and none for ended ones
        for whose, away in ((ada, mine), (eve, hers[-1])):
            (key,) = away["inputRequests"]
            back = request(whose=whose, requestState=away["requestState"], inputResponses={key: ACCEPTED})
            assert (await carrier.carry(back, asking))["said"] == ACCEPTED
        with pytest.raises(MCPError, match="has ended"):
            await carrier.carry(request(whose=eve, requestState=hers[0]["requestState"]), asking)


async def test_a_cancelled_call_with_a_waiting_client_fails() -> None:
    visit = SuspendableCall(None, {"elicitation": {}}, request(), None)

    async def stubborn() -> Mapping[str, Any]:
        await visit.ask("elicitation/create", {"message": "Go on?"})
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as tasks:
        held = SuspendedCalls(tasks)
        away = await held.begin(visit, stubborn)
        (key,) = away["inputRequests"]
        tasks.start_soon(_cancel_when, visit.returned, visit.scope)
        with pytest.raises(ToolFailed, match="was cancelled"):
            await held.come_back(away["requestState"], request(), {key: ACCEPTED})


async def _cancel_when(happened: anyio.Event, scope: anyio.CancelScope) -> None:
    await happened.wait()
    scope.cancel()


async def test_a_client_that_leaves_cancels_its_running_call() -> None:
    running, cancelled = anyio.Event(), anyio.Event()

    async def long(context: CallContext, _: ProgressListener | None) -> Mapping[str, Any]:
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        raise AssertionError

    async with carrying() as carrier:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(carrier.carry, request(), long)
            await running.wait()
            tasks.cancel_scope.cancel()
        await cancelled.wait()


async def test_the_number_of_input_requests_per_call_is_limited() -> None:
    async def insatiable(context: CallContext, _: ProgressListener | None) -> Mapping[str, Any]:
        assert context.client is not None
        while True:
            await context.client.ask("elicitation/create", {"message": "And now?"})

    async with carrying() as carrier:
        answer = await carrier.carry(request(), insatiable)
        for _ in range(MAX_ROUNDS - 1):
            answer = await carrier.carry(_answering(answer), insatiable)
        with pytest.raises(ToolFailed, match="more than"):
            await carrier.carry(_answering(answer), insatiable)


def _answering(asked: Mapping[str, Any]) -> Ctx:
    """Returns the request in which the client answers every input request."""
    answers = dict.fromkeys(asked["inputRequests"], ACCEPTED)
    return request(requestState=asked["requestState"], inputResponses=answers)


async def test_a_completion_request_cannot_request_input_or_resume() -> None:
    seen: list[CallContext] = []

    async def completing(context: CallContext, _: ProgressListener | None) -> Mapping[str, Any]:
        seen.append(context)
        return {"completion": {"values": []}}

    async with carrying() as carrier:
        await carrier.carry(request("completion/complete", requestState="source:forged"), completing)
    assert seen[0].resumed is None
    assert seen[0].client is not None
    assert seen[0].client.capabilities == {}


async def test_an_input_request_of_the_source_is_forwarded_with_its_state() -> None:
    own: dict[str, Any] = {"message": "Go on?", "requestedSchema": {"type": "object", "properties": {}}}
    asked: dict[str, Any] = {"x": {"method": "elicitation/create", "params": own}}
    seen: list[CallContext] = []

    async def newer(context: CallContext, _: ProgressListener | None) -> Mapping[str, Any]:
        seen.append(context)
        if context.resumed is not None:
            return {"content": []}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "own", "_meta": {"who": 1}}

    async with carrying() as carrier:
        away = await carrier.carry(request(), newer)
        assert away == {"resultType": "input_required", "inputRequests": asked, "requestState": "source:own"}
        back = request(requestState="source:own", inputResponses={"x": ACCEPTED})
        assert await carrier.carry(back, newer) == {"content": []}
    assert seen[1].resumed is not None
    assert (seen[1].resumed.state, seen[1].resumed.responses) == ("own", {"x": ACCEPTED})


Question = tuple[str, dict[str, Any], dict[str, Any]]

DECLARED: list[Question] = [
    ("elicitation/create", {}, {"elicitation": {}}),
    ("elicitation/create", {"mode": "form"}, {"elicitation": {"form": {}}}),
    ("elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}),
    ("roots/list", {}, {"roots": {}}),
    ("sampling/createMessage", {"tools": [{}]}, {"sampling": {"tools": {}}}),
]
UNDECLARED: list[Question] = [
    ("elicitation/create", {}, {}),
    ("elicitation/create", {"mode": "url"}, {"elicitation": {}}),
    ("elicitation/create", {"mode": "url"}, {"elicitation": {"form": {}}}),
    ("elicitation/create", {}, {"elicitation": {"url": {}}}),
    ("sampling/createMessage", {"tools": [{}]}, {"sampling": {}}),
    ("tools/call", {}, {"tools": {}}),
]


@pytest.mark.parametrize("question", DECLARED)
def test_a_client_can_be_asked_what_its_capabilities_declare(question: Question) -> None:
    check_askable(*question)


@pytest.mark.parametrize("question", UNDECLARED)
def test_a_request_beyond_the_declared_capabilities_is_refused(question: Question) -> None:
    with pytest.raises(ToolFailed):
        check_askable(*question)
