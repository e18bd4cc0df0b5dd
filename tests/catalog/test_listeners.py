"""Async listeners: they run on their own loop, in order, after publication, and never block the catalog."""

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
    """Records events, and can wait for the event of a version."""

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


def test_an_async_listener_receives_events_in_order_after_publication() -> None:
    async def listen() -> list[Event]:
        registry, told = ToolRegistry(), list[Event]()
        done = asyncio.Event()

        async def hear(event: Event) -> None:
            await asyncio.sleep(0)  # gives a concurrent call the chance to run
            told.append(event)
            if isinstance(event, ToolRegistered):
                assert event.tool.id in registry.state.tools
            if event == CatalogPublished(20):
                done.set()

        registry.subscribe(hear)
        for number in range(20):
            registry.register(tool(f"a.t{number}"))
            assert told == [], "no event is delivered before the loop runs"
        await done.wait()
        return told

    assert asyncio.run(listen()) == [
        event for n in range(20) for event in (ToolRegistered(tool(f"a.t{n}")), CatalogPublished(n + 1))
    ]


def test_events_published_by_threads_reach_the_loop_in_publication_order() -> None:
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


def test_a_slow_async_listener_delays_no_other_listener() -> None:
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


def test_a_listener_that_raises_system_exit_does_not_affect_other_listeners() -> None:
    registry, heard = ToolRegistry(), list[Event]()

    def end(_: Event) -> None:
        raise SystemExit(1)

    registry.subscribe(end)
    registry.subscribe(heard.append)
    registry.register(tool("a.first"))
    assert names(heard) == ["ToolRegistered", 1]


async def wait_for_a_cancelled_future(_: Event) -> None:
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


async def end_the_program(_: Event) -> None:
    raise SystemExit(1)


@pytest.mark.parametrize("broken", [raise_error, wait_for_a_cancelled_future, end_the_program])
def test_an_async_listener_that_raises_is_logged_and_receives_later_events(
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


def test_an_unsubscribed_async_listener_receives_no_pending_events() -> None:
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


def test_a_listener_that_subscribes_again_does_not_receive_earlier_pending_events() -> None:
    registry, told = ToolRegistry(), list[Event]()

    def subscribe_again(event: Event) -> None:
        if isinstance(event, ToolRegistered):
            registry.unsubscribe(told.append)
            registry.subscribe(told.append)

    registry.subscribe(subscribe_again)
    registry.subscribe(told.append)
    registry.register(tool("a.first"))
    registry.unsubscribe(subscribe_again)
    registry.register(tool("a.second"))

    assert names(told) == ["ToolRegistered", 2]


def test_a_closed_loop_does_not_affect_the_registry() -> None:
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
def test_an_async_listener_cannot_be_subscribed_without_a_running_loop(is_object: bool) -> None:
    registry = ToolRegistry()

    class Hearing:
        async def __call__(self, event: Event) -> None: ...

    with pytest.raises(RuntimeError, match="an async listener runs on the event loop on which it is subscribed"):
        registry.subscribe(Hearing() if is_object else raise_error)
    registry.register(tool("a.first"))


def test_an_async_listener_may_change_the_catalog() -> None:
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
    """Notified through its methods."""

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


def test_an_object_is_notified_through_its_catalog_listener_methods() -> None:
    registry, listener = ToolRegistry(), Named()
    registry.subscribe(listener)
    change(registry)
    assert listener.told == TOLD
    registry.unsubscribe(listener)
    registry.register(tool("a.second"))
    assert listener.told == TOLD


def test_methods_of_a_catalog_listener_may_be_async() -> None:
    async def listen() -> list[str]:
        registry, listener = ToolRegistry(), NamedLater()
        registry.subscribe(listener)
        change(registry)
        await listener.is_gone.wait()
        return listener.told

    assert asyncio.run(listen()) == TOLD


@pytest.mark.parametrize("listener", [object(), "listener", type("Half", (), {"on_tool_registered": print})()])
def test_an_object_without_listener_methods_is_refused_on_subscription(listener: Any) -> None:
    with pytest.raises(TypeError, match="on_tool_registered and on_tool_unregistered"):
        ToolRegistry().subscribe(listener)
