"""Tests for JSON request bodies: long bodies are read like short ones, without blocking other requests."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.requests import Request

from toolcrib.core.principal import Principal
from toolcrib.surfaces.http.bodies import MAX_BYTES, SHORT_BYTES, read_object
from toolcrib.surfaces.http.problems import RefusedRequest

pytestmark = pytest.mark.anyio

PAD = "x" * SHORT_BYTES


def request_with(body: bytes, principal: str = "ada") -> Request:
    async def receive() -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    state = {"principal": Principal(principal)}
    return Request({"type": "http", "method": "POST", "headers": headers, "state": state}, receive)


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
async def test_short_and_long_json_bodies_are_parsed(pad: str) -> None:
    value: dict[str, Any] = {"pad": pad, "path": ["a", "ä🧰"], "n": [1, 2.5, 2**70, None, True, {"": []}]}

    assert await read_object(request_with(json.dumps(value).encode())) == value
    assert await read_object(request_with(json.dumps(value, ensure_ascii=False).encode())) == value


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
@pytest.mark.parametrize(
    "text", ['{"n": NaN, "pad": "%s"}', '{"pad": "%s", "n": -Infinity}', '{"pad": "%s"} 1', '["%s"]', '{"pad": "%s"']
)
async def test_a_body_that_is_not_a_json_object_is_refused(text: str, pad: str) -> None:
    with pytest.raises(RefusedRequest, match="JSON"):
        await read_object(request_with((text % pad).encode()))


@pytest.mark.parametrize("pad", ["", PAD], ids=["short", "long"])
async def test_a_body_that_is_not_utf_8_is_refused(pad: str) -> None:
    with pytest.raises(RefusedRequest):
        await read_object(request_with(b'{"a": "\xff%s"}' % pad.encode()))


async def test_other_tasks_continue_while_a_long_body_is_parsed() -> None:
    body = json.dumps({"path": [1] * 1_300_000}).encode()
    assert len(body) <= MAX_BYTES
    turns = 0

    async def go_on() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            time.sleep(0.0001)  # noqa: ASYNC251  simulates the work of other requests
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on)
        assert len((await read_object(request_with(body)))["path"]) == 1_300_000
        tasks.cancel_scope.cancel()
    assert turns > 20


async def test_long_bodies_of_one_principal_do_not_block_other_principals(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def read(body: bytes, decoder: json.JSONDecoder) -> Any:
        if b"eve" in body:
            assert let_go.wait(30)
        return decoder.decode(body.decode())

    monkeypatch.setattr("toolcrib.surfaces.http.bodies.read_pieces", read)
    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(read_object, request_with(json.dumps({"eve": PAD}).encode(), "eve"))
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(10):
                assert await read_object(request_with(json.dumps({"ada": PAD}).encode(), "ada")) == {"ada": PAD}
            let_go.set()
    finally:
        let_go.set()
