"""Tests that concurrent HTTP requests get the right responses and are all recorded in the audit trail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import httpx2
import pytest
from tests.servers.launching import faulty_entry
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, Api, served

from toolcrib.audit.audit_reader import AuditReader, TraceFilter

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

AT_ONCE = 2_000
POLICY = {
    "rules": [{"then": "hide", "tools": ["bench.add"], "principals": ["bob"]}],
    "otherwise": "allow",
}


async def test_two_thousand_concurrent_operations_are_answered_correctly_and_audited(tmp_path: Path) -> None:
    audit = tmp_path / "audit.sqlite"
    settings = {"calls_per_minute": 0, "policy": POLICY, "audit": {"path": str(audit)}, "max_queued_calls": AT_ONCE}
    with served(tmp_path, auth={"tokens": TOKENS}, settings=settings, audited=True, bench=faulty_entry()) as api:
        handle = (await api.ask("expand_tool", ALICE, tool_id="bench.add")).json()["handle"]
        assert await _answered_wrongly(api, handle) == []
    with AuditReader(audit) as reader:
        written = Counter((entry.principal, entry.operation, entry.outcome) for entry in reader.entries(TraceFilter()))
    assert written == {
        ("alice", "expand_tool", "ok"): 1,
        ("alice", "call_tool", "ok"): AT_ONCE // 4,
        ("bob", "call_tool", "TOOL_NOT_FOUND"): AT_ONCE // 4,
        ("alice", "search_tools", "ok"): AT_ONCE // 4,
        ("bob", "search_tools", "ok"): AT_ONCE // 4,
    }


async def _answered_wrongly(api: Api, handle: str) -> list[int]:
    """Returns the numbers of the requests with a wrong response. Only one of the two principals may see the tool."""
    wrong: list[int] = []
    limits = httpx2.Limits(max_connections=200)
    async with httpx2.AsyncClient(base_url=api.base, timeout=120, limits=limits) as client:

        async def send(number: int) -> None:
            is_alice, is_call = number % 2 == 0, number % 4 < 2
            headers = {"Authorization": f"Bearer {ALICE if is_alice else BOB}"}
            if is_call:
                body = {"tool_id": handle, "arguments": {"a": number, "b": 1}}
                answer = (await client.post("/v1/call_tool", json=body, headers=headers)).json()
                right = (
                    answer.get("structuredContent") == {"sum": number + 1}
                    if is_alice
                    else answer.get("code") == "TOOL_NOT_FOUND"
                )
            else:
                body = {"query": "add two integers"}
                answer = (await client.post("/v1/search_tools", json=body, headers=headers)).json()
                right = ("bench.add" in [each["tool_id"] for each in answer["results"]]) == is_alice
            if not right:
                wrong.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(AT_ONCE):
                tasks.start_soon(send, number)
    return wrong
