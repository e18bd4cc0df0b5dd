"""Tests for the health and metrics endpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import anyio
import pytest
from tests.servers.launching import faulty_entry
from tests.surfaces.http.asking import ALICE, TOKENS, WATCHER, served
from tests.until import DEADLINE_S

from toolcrib.core.events import OperationPerformed
from toolcrib.surfaces.auth import Reason
from toolcrib.surfaces.http.metrics import Metrics

pytestmark = pytest.mark.anyio


async def test_the_gateway_is_live_immediately_and_ready_after_listing_its_servers(tmp_path: Path) -> None:
    with served(tmp_path, auth={"tokens": TOKENS}, secretive=faulty_entry("slow-start=1")) as api:
        async with api.client() as client:
            assert (await client.get("/health/live")).status_code == 200
            first = await client.get("/health/ready")
            assert (first.status_code, first.json()) == (503, {"status": "starting"})
            with anyio.fail_after(DEADLINE_S):
                while (ready := await client.get("/health/ready")).status_code != 200:
                    assert "secretive" not in ready.text
                    await anyio.sleep(0.05)
            assert ready.json() == {"status": "ready"}


async def test_a_server_that_cannot_start_does_not_hold_up_readiness(tmp_path: Path) -> None:
    with served(tmp_path, broken=faulty_entry("exit-at-start")) as api:
        async with api.client() as client:
            await client.post("/v1/list")  # waits for servers that are starting
            assert (await client.get("/health/ready")).json() == {"status": "ready"}


async def test_metrics_count_operations_of_every_surface_without_names(tmp_path: Path) -> None:
    with served(tmp_path, auth={"tokens": TOKENS}, secretive=faulty_entry()) as api:
        assert (await api.run_tool("secretive.echo", ALICE, text="words")).status_code == 200
        assert (await api.run_tool("secretive.fail", ALICE)).status_code == 200
        assert (await api.ask("expand_tool", ALICE, tool_id="secretive.nothing")).status_code == 404
        async with api.mcp(ALICE) as client:
            await client.call_tool("search_tools", {"query": "echo"})
        for token in (None, "guess-1", "guess-2", f"{ALICE} {ALICE}"):
            assert (await api.ask("list", token)).status_code == 401
        async with api.client(WATCHER) as client:
            page = await client.get("/metrics")
            other = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert page.headers["content-type"].startswith("text/plain")
    assert other.headers["content-type"].startswith("application/openmetrics-text")
    counted = dict(
        re.findall(r"^toolcrib_operation_duration_seconds_count\{(.+)\} ([0-9.]+)$", page.text, re.MULTILINE)
    )
    assert counted == {
        'operation="expand_tool",outcome="ok"': "2.0",
        'operation="expand_tool",outcome="TOOL_NOT_FOUND"': "1.0",
        'operation="call_tool",outcome="ok"': "1.0",
        'operation="call_tool",outcome="TOOL_ERROR"': "1.0",
        'operation="search_tools",outcome="ok"': "1.0",
    }
    assert "toolcrib_operation_answer_bytes_sum" in page.text
    assert "toolcrib_audit_events_lost_total 0.0" in page.text
    refused = re.findall(r'^toolcrib_http_requests_refused_total\{reason="(\w+)"\} ([0-9.]+)$', page.text, re.MULTILINE)
    assert {reason: float(count) for reason, count in refused} == {
        **dict.fromkeys(get_args(Reason), 0),
        "missing": 1,
        "unknown": 3,
    }
    for name in ("secretive", "alice", "watcher", "echo", "guess"):
        assert name not in page.text


def test_metrics_read_the_number_of_lost_audit_events_on_request() -> None:
    lost = [0]
    metrics = Metrics(lambda: lost[0])
    lost[0] = 7
    metrics.record(
        OperationPerformed(
            at=0, trace_id="t", principal="p", operation="list", outcome="ok", duration_s=0.5, answer_bytes=300
        )
    )
    page = metrics.page("")[0].decode()
    assert "toolcrib_audit_events_lost_total 7.0" in page
    assert 'toolcrib_operation_duration_seconds_sum{operation="list",outcome="ok"} 0.5' in page
    assert 'toolcrib_operation_answer_bytes_sum{operation="list",outcome="ok"} 300.0' in page
