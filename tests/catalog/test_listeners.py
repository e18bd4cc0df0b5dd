"""Async listeners: on their own loop, in order, after publication, and in nobody's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.catalogs import tool

from toolcrib.catalog.registry import ToolRegistry
from toolcrib.core.events import CatalogPublished, Event, ToolRegistered
from toolcrib.core.tools import Tool


def names(told: list[Event]) -> list[object]:
    return [event.version if isinstance(event, CatalogPublished) else type(event).__name__ for event in told]


class Listening:
    """Hears what it is told, and says when it has heard of a version."""

    def __init__(self, registry: ToolRegistry) -> None:
        self.registry = registry
        self.told: list[Event] = []
        self._changed = asyncio.Condition()

    async def __call__(self, event: Event) -> None:
        self.told.append(event)
        async with self._changed:
            self._changed.notify_all()

    async def until(self, version: int) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(lambda: CatalogPublished(version) in self.told)


def test_an_async_listener_hears_everything_in_order_and_after_it_is_published() -> None:
    async def listen() -> list[Event]:
        registry, told = ToolRegistry(), list[Event]()
        done = asyncio.Event()

        async def hear(event: Event) -> None:
            await asyncio.sleep(0)  # lets another in, if another were there
            told.append(event)
            if isinstance(event, ToolRegistered):
                assert event.tool.id in registry.state.tools
            if event == CatalogPublished(20):
                done.set()

        registry.subscribe(hear)
        for number in range(20):
            registry.register(tool(f"a.t{number}"))
            assert told == [], "nothing is told before the loop has its turn"
        await done.wait()
        return told

    assert asyncio.run(listen()) == [
        event for n in range(20) for event in (ToolRegistered(tool(f"a.t{n}")), CatalogPublished(n + 1))
    ]


def test_threads_that_publish_are_heard_on_the_loop_in_the_order_of_the_publications() -> None:
    async def listen() -> tuple[list[Event], set[int]]:
        registry, threads = ToolRegistry(), set[int]()
        listening = Listening(registry)

        async def hear(event: Event) -> None:
            threads.add(threading.get_ident())
            await listening(event)

        registry.subscribe(hear)
        writers = [threading.Thread(target=registry.register, args=(tool(f"a.t{n}"),)) for n in range(50)]
        for writer in writers:
            writer.start()
        await listening.until(50)
        for writer in writers:
            writer.join()
        return listening.told, threads

    told, threads = asyncio.run(listen())
    assert [event.version for event in told if isinstance(event, CatalogPublished)] == [*range(1, 51)]
    assert threads == {threading.get_ident()}


def test_an_async_listener_that_takes_its_time_delays_nobody() -> None:
    async def listen() -> None:
        registry, may_go_on = ToolRegistry(), asyncio.Event()
        slow, quick, plain = Listening(registry), Listening(registry), list[Event]()

        async def take_time(event: Event) -> None:
            await may_go_on.wait()
            await slow(event)

        registry.subscribe(take_time)
        registry.subscribe(quick)
        registry.subscribe(plain.append)
        registry.register(tool("a.first"))
        registry.register(tool("a.second"))
        await quick.until(2)

        assert (slow.told, len(plain), len(quick.told)) == ([], 4, 4)
        may_go_on.set()
        await slow.until(2)
        assert slow.told == plain

    asyncio.run(listen())


async def raise_error(_: Event) -> None:
    raise ValueError("broken")


def test_a_listener_that_ends_the_program_harms_neither_the_others_nor_whoever_registers() -> None:
    registry, heard = ToolRegistry(), list[Event]()

    def end(_: Event) -> None:
        raise SystemExit(1)

    registry.subscribe(end)
    registry.subscribe(heard.append)
    registry.register(tool("a.first"))
    assert names(heard) == ["ToolRegistered", 1]


async def wait_for_what_was_cancelled(_: Event) -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


async def end_the_program(_: Event) -> None:
    raise SystemExit(1)


@pytest.mark.parametrize("broken", [raise_error, wait_for_what_was_cancelled, end_the_program])
def test_an_async_listener_that_raises_is_logged_and_hears_the_rest_as_the_others_do(
    broken: Callable[[Event], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async def listen() -> tuple[list[Event], list[Event]]:
        registry = ToolRegistry()
        heard, other = Listening(registry), Listening(registry)

        async def raising(event: Event) -> None:
            await heard(event)
            await broken(event)

        registry.subscribe(raising)
        registry.subscribe(other)
        registry.register(tool("a.first"))
        registry.register(tool("a.second"))
        await heard.until(2)
        await other.until(2)
        return heard.told, other.told

    heard, other = asyncio.run(listen())
    assert heard == other
    assert names(heard) == ["ToolRegistered", 1, "ToolRegistered", 2]
    assert "a catalog listener failed on ToolRegistered" in caplog.text


def test_an_async_listener_that_is_unsubscribed_hears_nothing_of_what_still_waits() -> None:
    async def listen() -> tuple[list[Event], list[Event]]:
        registry = ToolRegistry()
        gone, stays = Listening(registry), Listening(registry)
        registry.subscribe(gone)
        registry.subscribe(stays)
        registry.register(tool("a.first"))

        registry.unsubscribe(gone)
        await stays.until(1)
        return gone.told, stays.told

    gone, stays = asyncio.run(listen())
    assert (gone, names(stays)) == ([], ["ToolRegistered", 1])


def test_an_async_listener_can_unsubscribe_itself() -> None:
    async def listen() -> list[Event]:
        registry, told = ToolRegistry(), list[Event]()
        other = Listening(registry)

        async def once(event: Event) -> None:
            told.append(event)
            registry.unsubscribe(once)

        registry.subscribe(once)
        registry.subscribe(other)
        registry.register(tool("a.first"))
        await other.until(1)
        return told

    assert names(asyncio.run(listen())) == ["ToolRegistered"]


def test_whoever_subscribes_again_hears_nothing_of_what_waited_for_its_earlier_self() -> None:
    registry, told = ToolRegistry(), list[Event]()

    def come_again(event: Event) -> None:
        if isinstance(event, ToolRegistered):
            registry.unsubscribe(told.append)
            registry.subscribe(told.append)

    registry.subscribe(come_again)
    registry.subscribe(told.append)
    registry.register(tool("a.first"))
    registry.unsubscribe(come_again)
    registry.register(tool("a.second"))

    assert names(told) == ["ToolRegistered", 2]


def test_a_loop_that_is_closed_harms_nobody() -> None:
    registry, told = ToolRegistry(), list[Event]()

    async def subscribe() -> Listening:
        listening = Listening(registry)
        registry.subscribe(listening)
        return listening

    listening = asyncio.run(subscribe())
    registry.subscribe(told.append)
    registry.register(tool("a.first"))
    registry.unsubscribe(listening)

    assert (listening.told, names(told)) == ([], ["ToolRegistered", 1])


@pytest.mark.parametrize("is_object", [True, False])
def test_an_async_listener_cannot_be_subscribed_where_no_loop_runs(is_object: bool) -> None:
    registry = ToolRegistry()

    class Hearing:
        async def __call__(self, event: Event) -> None: ...

    with pytest.raises(RuntimeError, match="an async listener runs on the event loop on which it is subscribed"):
        registry.subscribe(Hearing() if is_object else raise_error)
    registry.register(tool("a.first"))


def test_an_async_listener_may_change_the_catalog_it_hears_of() -> None:
    async def listen() -> list[Event]:
        registry = ToolRegistry()
        listening = Listening(registry)

        async def follow(event: Event) -> None:
            if isinstance(event, ToolRegistered) and event.tool.id == "a.first":
                registry.register(tool("a.second"))

        registry.subscribe(follow)
        registry.subscribe(listening)
        registry.register(tool("a.first"))
        await listening.until(2)
        return listening.told

    assert names(asyncio.run(listen())) == ["ToolRegistered", 1, "ToolRegistered", 2]


class Named:
    """Told by its methods."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_tool_registered(self, tool: Tool) -> None:
        self.told.append(f"registered {tool.id}: {tool.description}")

    def on_tool_unregistered(self, tool_id: str) -> None:
        self.told.append(f"unregistered {tool_id}")


class NamedLater(Named):
    def __init__(self) -> None:
        super().__init__()
        self.is_gone = asyncio.Event()

    async def on_tool_unregistered(self, tool_id: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(0)
        super().on_tool_unregistered(tool_id)
        self.is_gone.set()


TOLD = ["registered a.first: One.", "registered a.first: Another.", "unregistered a.first"]


def change(registry: ToolRegistry) -> None:
    registry.register(tool("a.first", "One."))
    registry.replace(tool("a.first", "Another."))
    registry.unregister("a.first")


def test_an_object_is_told_by_the_methods_of_a_catalog_listener() -> None:
    registry, listener = ToolRegistry(), Named()
    registry.subscribe(listener)
    change(registry)
    assert listener.told == TOLD
    registry.unsubscribe(listener)
    registry.register(tool("a.second"))
    assert listener.told == TOLD


def test_its_methods_may_be_async() -> None:
    async def listen() -> list[str]:
        registry, listener = ToolRegistry(), NamedLater()
        registry.subscribe(listener)
        change(registry)
        await listener.is_gone.wait()
        return listener.told

    assert asyncio.run(listen()) == TOLD


@pytest.mark.parametrize("listener", [object(), "listener", type("Half", (), {"on_tool_registered": print})()])
def test_what_cannot_be_told_is_refused_at_once(listener: Any) -> None:
    with pytest.raises(TypeError, match="on_tool_registered and on_tool_unregistered"):
        ToolRegistry().subscribe(listener)
