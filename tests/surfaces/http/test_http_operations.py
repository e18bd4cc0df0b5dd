"""Tests for the responses and error statuses of the operations over HTTP."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from tests.cli.running import TOOLCRIB
from tests.servers.launching import ROOT, Json, events, faulty_entry, received
from tests.surfaces.http.asking import Api, problem, served
from tests.surfaces.serving import ask, run_tool
from tests.until import until

from toolcrib.core.errors import ErrorCode
from toolcrib.operations.operation_table import OPERATIONS
from toolcrib.surfaces.http.bodies import MAX_BYTES
from toolcrib.surfaces.http.problems import STATUSES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "seen.jsonl"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Generator[Api]:
    """A gateway without authentication, with a working, a crashing and a missing server."""
    servers: dict[str, Json] = {
        "bench": faulty_entry("error", "--log", str(log)),
        "dying": faulty_entry("die-in-call"),
        "missing": {"command": "no-such-program-anywhere"},
    }
    folder = tmp_path_factory.mktemp("api")
    with served(folder, where="127.0.0.1:0", settings={"calls_per_minute": 0}, audited=False, **servers) as api:
        yield api


async def test_a_tool_is_found_expanded_and_called(api: Api) -> None:
    top = (await api.ask("list")).json()
    assert "bench" in [node["name"] for node in top["nodes"]]
    found = (await api.ask("search_tools", query="add two integers")).json()
    assert "bench.add" in [each["tool_id"] for each in found["results"][:2]]
    answer = await api.run_tool("bench.add", a=2, b=3)
    assert answer.status_code == 200
    assert answer.json()["structuredContent"] == {"sum": 5}


@pytest.mark.holds("operations.every-way")
async def test_http_and_mcp_give_the_same_answers(api: Api) -> None:
    async with Client(api.gateway.url) as client:
        asked: list[tuple[str, Json]] = [
            ("list", {}),
            ("search_tools", {"query": "add"}),
            ("list", {"path": ["bench"]}),
        ]
        for operation, arguments in asked:
            assert (await api.ask(operation, **arguments)).json() == await ask(client, operation, **arguments)


async def test_every_operation_has_an_http_endpoint(api: Api) -> None:
    async with api.client() as client:
        answers = {name: (await client.post(f"/v1/{name}", json={"no": 1})).status_code for name in OPERATIONS}
    assert answers == dict.fromkeys(OPERATIONS, 422)


async def test_a_request_without_a_body_counts_as_no_arguments(api: Api) -> None:
    async with api.client() as client:
        answer = await client.post("/v1/list")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


async def test_a_tool_error_is_returned_with_status_200(api: Api) -> None:
    answer = await api.run_tool("bench.fail")
    assert answer.status_code == 200
    assert answer.json()["isError"] is True


async def test_a_tool_result_is_returned_with_all_its_fields(api: Api) -> None:
    answer = (await api.run_tool("bench.image")).json()
    assert {block["type"] for block in answer["content"]} >= {"text", "image", "resource_link"}
    async with Client(api.gateway.url) as client:
        same = await run_tool(client, "bench.image")
    shown = [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in same.content]
    for block, wire in zip(shown, answer["content"], strict=True):
        assert block.items() <= wire.items()
    assert answer["futureField"] == ["kept"]


@pytest.mark.parametrize(
    ("operation", "arguments", "code"),
    [
        ("list", {"path": ["nowhere"]}, ErrorCode.UNKNOWN_PATH),
        ("expand_tool", {"tool_id": "bench.nothing"}, ErrorCode.TOOL_NOT_FOUND),
        ("call_tool", {"tool_id": "bench.add"}, ErrorCode.NOT_EXPANDED),
        ("call_tool", {"tool_id": "bench.add@000000000000"}, ErrorCode.STALE_EXPANSION),
        ("search_nodes", {}, ErrorCode.INVALID_ARGUMENTS),
        ("list", {"cursor": "made-up"}, ErrorCode.INVALID_CURSOR),
        ("search_tool_by_category", {"query": "xyzzy", "category_path": ["bench"]}, ErrorCode.NO_MATCH_IN_CATEGORY),
    ],
)
async def test_an_error_response_has_the_status_and_fields_of_its_code(
    operation: str, arguments: dict[str, Any], code: ErrorCode, api: Api
) -> None:
    answer = await api.ask(operation, **arguments)
    told = problem(answer)
    assert (answer.status_code, told["code"]) == (STATUSES[code], code)
    assert told["type"] == f"urn:toolcrib:error:{code}"
    async with Client(api.gateway.url) as client:
        if operation in {tool.name for tool in (await client.list_tools()).tools}:
            same = (await ask(client, operation, **arguments))["error"]
            assert {key: told[key] for key in same} == same


async def test_a_protocol_error_of_the_server_becomes_a_502(api: Api) -> None:
    answer = await api.run_tool("bench.refuse")
    assert answer.status_code == 502
    assert problem(answer)["details"]["upstream"]["code"] == -32011


async def test_a_tool_that_requires_input_fails_without_leaking_its_state(tmp_path: Path) -> None:
    asking = {"command": sys.executable, "args": ["-m", "tests.interop.fixture_server"], "cwd": str(ROOT)}
    with served(tmp_path, newer=asking) as api:
        answer = await api.run_tool("newer.test_input_required_result_request_state")
    assert answer.status_code == 502
    assert "asks for input, but your client cannot be asked for it" in problem(answer)["detail"]
    assert "requestState" not in answer.text


async def test_a_crashed_server_answers_503_with_a_retry_time(api: Api) -> None:
    first = await api.run_tool("dying.crash")
    assert (first.status_code, problem(first)["code"]) == (503, "SOURCE_UNAVAILABLE")
    answers = [await api.run_tool("dying.crash") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {503}
    told = problem(answers[-1])
    assert int(answers[-1].headers["retry-after"]) >= told["details"]["retry_after_s"] > 0


async def test_a_rate_limited_call_gets_429_with_a_retry_time(tmp_path: Path) -> None:
    settings = {"calls_per_minute": 1}
    with served(tmp_path, settings=settings, bench=faulty_entry()) as api:
        assert (await api.run_tool("bench.pid")).status_code == 200
        answer = await api.run_tool("bench.pid")
        assert (answer.status_code, problem(answer)["code"]) == (429, "RATE_LIMITED")
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert problem(answer)["retryable"] is True


async def test_a_call_to_a_visible_but_refused_tool_gets_403(tmp_path: Path) -> None:
    policy = {"rules": [{"then": "refuse", "tools": ["bench.pid"]}], "otherwise": "allow"}
    with served(tmp_path, settings={"policy": policy}, bench=faulty_entry()) as api:
        answer = await api.run_tool("bench.pid")
        assert (answer.status_code, problem(answer)["code"]) == (403, "NOT_AUTHORIZED")


async def test_a_call_that_needs_approval_waits_and_runs_after_it_was_granted(tmp_path: Path) -> None:
    with served(tmp_path, settings={"policy": {"otherwise": "ask"}}, bench=faulty_entry()) as api:
        answer = await api.run_tool("bench.pid")
        assert (answer.status_code, problem(answer)["code"]) == (403, "APPROVAL_PENDING")
        assert problem(answer)["retryable"] is True
        command = [TOOLCRIB, "approvals", "grant", problem(answer)["details"]["waiting_id"]]
        await anyio.run_process(command)
        assert (await api.run_tool("bench.pid")).status_code == 200
        assert (await api.run_tool("bench.pid")).status_code == 403


NESTED = b'{"query": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"limit": NaN}', {}, 400),
        (b'{"limit": ' + b"9" * 10_000 + b"}", {}, 400),
        ("{}".encode("utf-16"), {}, 400),
        (b"\xff", {}, 400),
        (NESTED, {}, 400),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"path=git", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        # A fixed time, because `gzip` writes the time into its header and parallel workers must agree on test ids.
        (gzip.compress(b"{}", mtime=0), {"Content-Encoding": "gzip"}, 415),
        (b"{}", {"Content-Type": "application/json; charset=utf-8"}, 200),
        (b'"' + b"x" * MAX_BYTES + b'"', {}, 413),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_body_that_is_not_a_json_object_is_refused(
    body: bytes, headers: dict[str, str], status: int, api: Api
) -> None:
    async with api.client() as client:
        answer = await client.post("/v1/list", content=body, headers={"Content-Type": "application/json", **headers})
    assert answer.status_code == status
    if status != 200:
        assert problem(answer)["type"] == "about:blank"


async def test_the_size_limit_applies_to_a_body_without_content_length(api: Api) -> None:
    async def parts() -> AsyncGenerator[bytes]:
        for _ in range(2 * MAX_BYTES // 65_536):
            yield b" " * 65_536

    async with api.client() as client:
        answer = await client.post("/v1/list", content=parts(), headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        assert (await client.post("/v1/list")).status_code == 200


@pytest.mark.parametrize("body", [r'{"query": "\ud800"}', r'{"query": "\u0000"}', '{"query": "𓀀"}'])
async def test_any_string_that_json_can_encode_is_accepted(body: str, api: Api) -> None:
    async with api.client() as client:
        answer = await client.post("/v1/search_tools", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        path = json.dumps({"path": [json.loads(body)["query"]]})
        unknown = await client.post("/v1/list", content=path, headers={"Content-Type": "application/json"})
    assert problem(unknown)["code"] == "UNKNOWN_PATH"


async def test_a_wrong_method_or_path_gets_hints(api: Api) -> None:
    async with api.client() as client:
        wrong_method = await client.get("/v1/list")
        assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")
        assert problem(wrong_method)["code"] == "METHOD_NOT_ALLOWED"
        for path in ("/v1", "/v1/", "/v1/list/", "/v1/lists", "/v2/list", "/v1/list/../list/x", "//v1/list"):
            wrong_path = await client.post(path, json={})
            assert wrong_path.status_code == 404, path
            assert "/v1/search_tools" in problem(wrong_path)["hints"][0]


async def test_a_disconnected_client_cancels_its_upstream_call(api: Api, log: Path) -> None:
    calls, cancelled = len(received(log, "tools/call")), len(events(log, "cancelled"))
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            await api.run_tool("bench.slow", steps=1, hold=True)

        tasks.start_soon(call)
        await until(lambda: len(received(log, "tools/call")) > calls, "the call reached the server")
        tasks.cancel_scope.cancel()
    await until(lambda: len(events(log, "cancelled")) > cancelled, "the server receives the cancellation")


def test_every_error_code_has_a_status() -> None:
    assert set(STATUSES) == set(ErrorCode)
