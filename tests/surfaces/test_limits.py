"""Tests for limits on concurrent calls, call rate and server restarts, over a real pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.servers.launching import events, faulty_entry, received, write_config
from tests.surfaces.serving import Conversation, conversation

Json = dict[str, Any]


def sent(talk: Conversation, handle: str, **arguments: Any) -> int:
    return talk.send("tools/call", {"name": "call_tool", "arguments": {"tool_id": handle, "arguments": arguments}})


def handle_of(talk: Conversation, tool_id: str) -> str:
    return talk.call("expand_tool", {"tool_id": tool_id})["structuredContent"]["handle"]


def next_answers(talk: Conversation, count: int) -> dict[int, Json]:
    """Reads the next `count` results, in order of arrival, by request id."""
    answers: dict[int, Json] = {}
    assert talk.process.stdout is not None
    while len(answers) < count:
        message = json.loads(talk.process.stdout.readline())
        if "id" in message:
            answers[message["id"]] = message["result"]
    return answers


def error_of(result: Json) -> Json:
    assert result["isError"]
    return result["structuredContent"]["error"]


def test_calls_beyond_the_queue_limit_are_refused_and_others_run_in_order(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    limits: Json = {"max_queued_calls": 40, "sources": {"bench": {"max_concurrent_calls": 3}}}
    config = write_config(tmp_path / "mcp.json", toolcrib=limits, bench=faulty_entry("--log", str(log)))
    with conversation(config) as talk:
        talk.shake_hands()
        slow, add = handle_of(talk, "bench.slow"), handle_of(talk, "bench.add")
        holding = [sent(talk, slow, steps=0, hold=True) for _ in range(3)]
        flood = {sent(talk, add, a=number, b=1000): number for number in range(60)}

        refused = next_answers(talk, 20)
        assert sorted(flood[request] for request in refused) == [*range(40, 60)]
        for result in refused.values():
            error = error_of(result)
            assert (error["code"], error["retryable"]) == ("SOURCE_UNAVAILABLE", True)
            assert "`bench` is busy: 3 calls are running and 40 more wait" in error["message"]
        assert [call["params"]["name"] for call in received(log, "tools/call")] in (["slow"] * n for n in range(4))

        for request in holding:
            talk.send("notifications/cancelled", {"requestId": request}, note=True)
        waiting = [request for request, number in flood.items() if number < 40]
        served: dict[int, Json] = {}
        while not served.keys() >= set(waiting):  # the cancelled ones may be answered too, in between
            served |= next_answers(talk, 1)
        assert [served[request]["structuredContent"] for request in waiting] == [{"sum": n + 1000} for n in range(40)]
    calls = [call["params"] for call in received(log, "tools/call")]
    assert [call["arguments"]["a"] for call in calls if call["name"] == "add"] == [*range(40)]


def test_the_call_rate_limit_gives_a_retry_time_and_allows_searches(tmp_path: Path) -> None:
    log = tmp_path / "seen.jsonl"
    limits = {"calls_per_minute": 1, "burst_calls": 3}
    config = write_config(tmp_path / "mcp.json", toolcrib=limits, bench=faulty_entry("--log", str(log)))
    with conversation(config) as talk:
        talk.shake_hands()
        results = [talk.run_tool("bench.pid") for _ in range(5)]
        assert [result.get("isError", False) for result in results] == [False, False, False, True, True]
        for result in results[3:]:
            error = error_of(result)
            assert (error["code"], error["retryable"]) == ("RATE_LIMITED", True)
            assert 0 < error["details"]["retry_after_s"] <= 60
            assert f"Retry in {error['details']['retry_after_s']:g} s" in error["message"]
        assert not talk.call("search_tools", {"query": "pid"}).get("isError")
    assert len(received(log, "tools/call")) == 3


def test_a_server_that_crashes_repeatedly_is_restarted_with_a_delay(
    tmp_path: Path,
) -> None:
    log = tmp_path / "seen.jsonl"
    config = write_config(tmp_path / "mcp.json", bench=faulty_entry("die-in-call", "--log", str(log)))
    with conversation(config) as talk:
        talk.shake_hands()
        called: Json = {"tool_id": handle_of(talk, "bench.crash"), "arguments": {}}
        errors = [error_of(talk.call("call_tool", called)) for _ in range(10)]
    assert {error["code"] for error in errors} == {"SOURCE_UNAVAILABLE"}
    refused = [error for error in errors if error["retryable"]]
    assert refused
    for error in refused:
        assert "`bench` stopped" in error["message"]
        assert f"Toolcrib retries in {error['details']['retry_after_s']:g} s." in error["message"]
    assert len(received(log, "tools/call")) == 10 - len(refused), "what was refused was not sent"
    assert len(events(log, "start")) < 10
