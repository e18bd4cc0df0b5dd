"""CPU-bound work next to the event loop: other tasks keep running, and cancelled work stops."""

from __future__ import annotations

import threading
import time

import anyio
import anyio.lowlevel
import pytest

from toolcrib.sources import aside as module
from toolcrib.sources.aside import aside, breathe

pytestmark = pytest.mark.anyio


async def test_aside_returns_the_result_of_the_work_and_raises_its_error() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    assert await aside(lambda: threading.current_thread() is threading.main_thread()) is False
    with pytest.raises(ZeroDivisionError):
        await aside(fail)


async def test_other_tasks_run_while_the_work_runs() -> None:
    turns, ended = 0, threading.Event()

    def work() -> None:
        while turns < 100:
            breathe()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(aside, work)
        while not ended.is_set():
            await anyio.lowlevel.checkpoint()
            turns += 1


async def test_the_work_stops_when_its_task_is_cancelled() -> None:
    begun, ended = anyio.Event(), False
    loop = anyio.lowlevel.current_token()

    def work() -> None:
        nonlocal ended
        anyio.from_thread.run_sync(begun.set, token=loop)
        try:
            while True:
                breathe()
        finally:
            ended = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(aside, work)
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert ended


async def test_only_a_limited_number_of_pieces_of_work_run_at_once() -> None:
    at_once, most = 0, 0
    counting = threading.Lock()

    def work() -> None:
        nonlocal at_once, most
        with counting:
            at_once += 1
            most = max(most, at_once)
        until = time.monotonic() + 3 * module.TURN_S
        while time.monotonic() < until:
            breathe()
        with counting:
            at_once -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(aside, work)
    assert most <= module.PLACES


def test_breathe_does_nothing_outside_of_aside() -> None:
    breathe()
