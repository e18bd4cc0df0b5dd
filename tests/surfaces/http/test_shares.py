"""What principals share is shared fairly: one that takes a lot costs the others nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.surfaces.http.asking import ALICE, BOB, TOKENS
from tests.surfaces.http.here import Here, envelope, headers_of, served_here
from tests.waiting import DEADLINE_S

from toolcrib import Toolcrib
from toolcrib.sources.base import Extras, Listing
from toolcrib.surfaces.mcp_gateway import subscriptions
from toolcrib.testing.scripted import ScriptedSource

pytestmark = pytest.mark.anyio


class Library(ScriptedSource):
    """Has any resource, and tells of changes."""

    def __init__(self) -> None:
        super().__init__("library")
        self.watched: list[str] = []

    async def list_tools(self) -> Listing:
        return Listing((), extras=Extras(templates=({"name": "page", "uriTemplate": "page://{number}"},)))

    async def watch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watched.append(uri)

    def unwatch(self, uri: str, updated: Callable[[], None]) -> None:
        self.watched.remove(uri)


@asynccontextmanager
async def told_of(here: Here, token: str, *numbers: int) -> AsyncGenerator[list[int]]:
    """A stream of changes for the block. Gives the numbers of the pages that it agreed to tell of."""
    uris = [f"toolcrib://library/page://{number}" for number in numbers]
    body = envelope("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    async with here.client(token) as client, client.stream("POST", "/mcp", json=body, headers=headers_of(body)) as got:
        async for line in got.aiter_lines():
            if line.startswith("data:"):
                agreed = json.loads(line.removeprefix("data:"))["params"]["notifications"]
                yield [int(uri.rpartition("/")[2]) for uri in agreed.get("resourceSubscriptions") or ()]
                return


async def test_one_who_watches_a_lot_makes_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_WATCHED", 10)
    crib, library = Toolcrib(), Library()
    crib.add_source(library)
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(served_here(tmp_path, crib, auth={"tokens": TOKENS}))
        with anyio.fail_after(DEADLINE_S):
            assert len(await stack.enter_async_context(told_of(here, BOB, *range(100)))) == 10
            assert await stack.enter_async_context(told_of(here, ALICE, 1, 2)) == [1, 2]
            assert len(library.watched) == 10, "two that bob watched have ended"
            assert await stack.enter_async_context(told_of(here, BOB, 200)) == []
            assert await stack.enter_async_context(told_of(here, ALICE, 3)) == [3]
