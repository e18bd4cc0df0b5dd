"""What a crib knows of requests besides their words: vectors that keep in step with its tools and its configuration."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from anyio import to_thread
from tests.catalogs import registry_of, tool
from tests.search.embedders.serving import Asked, serving
from tests.servers.launching import Json, faulty_entry, write_config
from tests.waiting import until

from toolcrib.config import Config
from toolcrib.config.search_settings import DEFAULT_SEARCH, EmbedderConfig
from toolcrib.core.errors import ToolNotFound
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.tools import Tool
from toolcrib.crib.crib import Toolcrib
from toolcrib.operations.protocol_messages import SearchPage
from toolcrib.search.embedders import EmbeddingFailed
from toolcrib.search.index.meaning import Rows
from toolcrib.search.vector_store import Vectors, VectorStore
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

LONG_S = 30.0

SEND = tool("post.deliver", "Takes a letter to somebody.")
READ = tool("files.open", "Shows what is in a document.")
WEIGH = tool("shop.weigh", "Weighs sugar.")
"""For others to be nearer than."""
TOPICS = {"letter": 0, "mail": 0, "document": 1, "peruse": 1, "echo": 2, "parrot": 2}
"""Words that mean one of these things, by its number; no two of one thing share letters enough to match."""


EVERYTHING = DEFAULT_SEARCH.weights.refusing_nothing().without("meaning")


@dataclass
class Model:
    """Knows what `TOPICS` says; does first what `before` says, or `asking` of queries."""

    model_id: str = "model"
    before: Callable[[Sequence[str]], object] = len
    asking: Callable[[Sequence[str]], object] = len
    is_local: bool = True
    dim: int = 4
    documents: list[str] = field(default_factory=list[str])
    queries: list[str] = field(default_factory=list[str])

    def embed_documents(self, texts: Sequence[str]) -> Rows:
        self.before(texts)
        self.documents += texts
        return self._rows(texts)

    def embed_queries(self, texts: Sequence[str]) -> Rows:
        self.asking(texts)
        self.queries += texts
        return self._rows(texts)

    def embed_query(self, text: str) -> Rows:
        return self.embed_queries([text])[0]

    def _rows(self, texts: Sequence[str]) -> Rows:
        rows = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word, topic in TOPICS.items():
                row[topic] += word in text.lower()
            row[3] += not row.any()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@dataclass(frozen=True)
class Opened(EmbedderConfig):
    """A configuration that comes to a model of a test."""

    opening: Callable[[], Model] = Model

    def open(self) -> Model:
        return self.opening()


def config_of(model: Model | Callable[[], Model] | None, *without: str) -> Config:
    search = replace(DEFAULT_SEARCH, weights=EVERYTHING.without(*without))
    if model is not None:
        search = replace(search, embedder=Opened(opening=model if callable(model) else lambda: model))
    return Config(Path("mcp.json"), search=search, audit=None)


def take_over(crib: Toolcrib, config: Config) -> None:
    crib.registry.set_weights(config.search.weights)
    crib.knowledge.apply(config)


@asynccontextmanager
async def crib_of(*tools: Tool, model: Model | None = None, store: Vectors | None = None) -> AsyncGenerator[Toolcrib]:
    """A crib of these tools, with no more than words where there is no `model`."""
    crib = Toolcrib(vectors=store)
    if model is not None:
        take_over(crib, config_of(model))
    for each in (*tools, WEIGH):
        crib.add_source(ScriptedSource(each.source, [each]))
    async with crib:
        assert await crib.ready(LONG_S)
        yield crib


async def found(crib: Toolcrib, query: str, principal: str = "local", **given: Any) -> list[str]:
    """What a surface would answer."""
    context = CallContext(Principal(principal))
    page = await crib.perform("search_tools", {"query": query, **given}, context=context)
    assert isinstance(page, SearchPage)
    return [*page.tool_ids]


# -- by words until there is more -------------------------------------------------------------------------------------


async def test_while_vectors_are_made_search_answers_at_once_by_words_and_then_by_meaning_too() -> None:
    may_go_on = threading.Event()
    model = Model(before=lambda _: may_go_on.wait(LONG_S))
    async with crib_of(SEND, READ, model=model) as crib:
        assert await found(crib, "letter") == [SEND.id]
        assert await found(crib, "mail") == []
        assert not await crib.knowledge.settled(0)
        may_go_on.set()
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == [SEND.id]
        assert await found(crib, "peruse") == [READ.id]


async def test_search_waits_for_no_model_that_is_still_being_opened() -> None:
    may_open = threading.Event()

    def opening() -> Model:
        may_open.wait(LONG_S)
        return Model()

    async with crib_of(SEND) as crib:
        take_over(crib, config_of(opening))
        assert await found(crib, "letter") == [SEND.id]
        may_open.set()
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == [SEND.id]


async def test_search_waits_half_a_second_for_a_model_on_this_machine_and_then_for_none() -> None:
    may_go_on = threading.Event()
    model = Model(asking=lambda _: may_go_on.wait(2 * LONG_S))
    async with crib_of(SEND, READ, model=model) as crib:
        assert await crib.knowledge.settled(LONG_S)
        embedding = crib.knowledge.embedding
        assert embedding is not None
        try:
            with anyio.fail_after(LONG_S):
                assert await found(crib, "mail") == []
                assert await found(crib, "letter") == [SEND.id]
        finally:
            may_go_on.set()
        await until(lambda: embedding.queries(["mail"]) is not None, "it has answered")
        assert await found(crib, "mail") == [SEND.id]


async def test_a_search_is_held_up_by_no_functions_that_take_long() -> None:
    """Functions that block take all the threads that a program usually has."""
    may_end = threading.Event()
    async with crib_of(SEND, model=Model()) as crib, anyio.create_task_group() as tasks:
        assert await crib.knowledge.settled(LONG_S)
        begun = 0

        def wait() -> None:
            nonlocal begun
            begun += 1
            may_end.wait(LONG_S)

        threads = int(to_thread.current_default_thread_limiter().total_tokens)
        for _ in range(threads):
            tasks.start_soon(to_thread.run_sync, wait)
        await until(lambda: begun == threads, "all threads are taken")
        with anyio.fail_after(LONG_S / 2):
            assert await found(crib, "mail") == [SEND.id]
        may_end.set()


async def test_what_is_no_search_and_a_blank_query_ask_a_model_elsewhere_nothing() -> None:
    model = Model(is_local=False)
    async with crib_of(SEND, READ, model=model) as crib:
        assert await crib.knowledge.settled(LONG_S)
        for query in ("", "  ", "\n"):
            assert await found(crib, query) == [READ.id, SEND.id, WEIGH.id]
        await crib.perform("search_nodes", {"query": " "})
        await crib.perform("list", {})
        with pytest.raises(Exception, match="query"):
            await crib.perform("call_tool", {"tool_id": SEND.id, "query": "mail"})
        assert model.queries == []
        assert await found(crib, "mail") == [SEND.id]
        assert model.queries == ["mail"]


async def test_what_is_near_an_id_that_does_not_exist_is_said_without_a_model() -> None:
    model = Model()
    async with crib_of(SEND, READ, model=model) as crib:
        assert await crib.knowledge.settled(LONG_S)
        with pytest.raises(ToolNotFound) as raised:
            await crib.perform("expand_tool", {"tool_id": "post.letter_sender"})
        assert model.queries == []
        assert raised.value.next_action is not None
        operation, arguments = raised.value.next_action.operation, raised.value.next_action.arguments
        assert operation == "search_tools"
        assert SEND.id in await found(crib, arguments["query"])


async def test_closing_a_crib_keeps_nothing_else_waiting() -> None:
    is_asked, may_go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def wait(texts: Sequence[str]) -> None:
        is_asked.set()
        may_go_on.wait(LONG_S)

    model = Model(before=wait)

    async def go_on() -> None:
        await until(lambda: crib.knowledge.embedding is None, "the crib is being closed")
        order.append("something else")
        may_go_on.set()

    async with anyio.create_task_group() as tasks:
        async with crib_of(SEND, model=model) as crib:
            await until(is_asked.is_set, "the model is at work")
            tasks.start_soon(go_on)
        order.append("closed")
    assert order == ["something else", "closed"]


async def test_after_its_end_a_crib_is_searched_by_words() -> None:
    async with crib_of(SEND, model=Model()) as crib:
        assert await crib.knowledge.settled(LONG_S)
    crib.add(len, name="letters", description="Counts letters.")
    assert crib.search_tools("letter").tool_ids == ("functions.letters",)
    assert crib.search_tools("mail").tool_ids == ()


# -- another configuration --------------------------------------------------------------------------------------------


async def test_another_model_takes_the_place_of_the_one_before_and_none_leaves_words() -> None:
    one, other = Model("one"), Model("other", dim=6)
    async with crib_of(SEND, READ, model=one) as crib:
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == [SEND.id]
        take_over(crib, config_of(other))
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == [SEND.id]
        assert sorted(one.documents) == sorted(other.documents)
        assert other.queries == ["mail"]
        take_over(crib, config_of(None))
        assert crib.knowledge.embedding is None
        assert await found(crib, "mail") == []
        assert await found(crib, "letter") == [SEND.id]


async def test_a_configuration_that_says_the_same_of_the_model_leaves_it_as_it_is() -> None:
    model = Model()
    config = config_of(model)
    async with crib_of(SEND) as crib:
        take_over(crib, config)
        assert await crib.knowledge.settled(LONG_S)
        embedding = crib.knowledge.embedding
        take_over(
            crib, replace(config, search=replace(config.search, weights=config.search.weights.without("clauses")))
        )
        assert crib.knowledge.embedding is embedding
        assert len(model.documents) == 2


async def test_a_model_that_could_not_be_used_is_tried_again_with_the_next_configuration() -> None:
    models: list[Model] = []

    def opening() -> Model:
        if not models:
            raise EmbeddingFailed("the folder does not exist", is_final=True)
        return models[0]

    config = config_of(opening)
    async with crib_of(SEND) as crib:
        take_over(crib, config)
        assert await crib.knowledge.settled(LONG_S)
        assert crib.knowledge.embedding is not None
        assert crib.knowledge.embedding.condition.problem == "the folder does not exist"
        assert await found(crib, "mail") == []
        models.append(Model())
        take_over(crib, config)
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == [SEND.id]


async def test_without_the_signal_vectors_change_nothing_and_no_query_is_sent_away() -> None:
    model = Model(is_local=False)
    config = config_of(model, "embedding")
    async with crib_of(SEND) as crib:
        take_over(crib, config)
        assert await crib.knowledge.settled(LONG_S)
        assert await found(crib, "mail") == []
        assert model.queries == []
        take_over(crib, replace(config, search=replace(config.search, weights=EVERYTHING)))
        assert await found(crib, "mail") == [SEND.id]
        assert len(model.documents) == 2


async def test_a_second_file_says_how_is_searched_only_where_it_says_something_of_it(tmp_path: Path) -> None:
    def file(name: str, search: Json) -> Path:
        return write_config(tmp_path / name, toolcrib={"search": search})

    crib = Toolcrib()
    first = crib.add_config(file("one.json", {"without": ["embedding"], "embedder": {"folder": "there"}}))
    assert crib.add_config(file("two.json", {})).search == first.search
    assert crib.registry.state.index.weights.embedding == 0
    third = crib.add_config(file("three.json", {"without": ["brevity"]}))
    assert (third.search.weights.brevity, third.search.embedder) == (0, None)
    assert crib.registry.state.index.weights == third.search.weights


# -- what is embedded, and how often ----------------------------------------------------------------------------------


async def test_a_changed_tool_is_embedded_anew_and_one_that_is_not_never_again() -> None:
    model = Model()
    crib = Toolcrib()
    take_over(crib, config_of(model))
    source = ScriptedSource("post", [SEND, tool("post.stamp", "Stamps it.")])
    crib.add_source(source)
    crib.add_source(ScriptedSource("shop", [WEIGH]))
    async with crib:
        assert await crib.ready(LONG_S)
        assert await crib.knowledge.settled(LONG_S)
        assert len(model.documents) == 3
        changed = replace(SEND, description="Takes a document to somebody.")
        source.offer(changed, tool("post.stamp", "Stamps it."))
        await until(lambda: crib.view().tools[SEND.id].description == changed.description, "it is listed again")
        assert await crib.knowledge.settled(LONG_S)
        (new,) = model.documents[3:]
        assert changed.description in new
        assert await found(crib, "peruse") == [SEND.id]
        assert await found(crib, "mail") == []
        source.offer(SEND, tool("post.stamp", "Stamps it."))
        await until(lambda: crib.view().tools[SEND.id].description == SEND.description, "as it was")
        assert await crib.knowledge.settled(LONG_S)
        assert len(model.documents) == 4


async def test_an_endpoint_is_asked_once_for_a_text_over_restarts_too(tmp_path: Path) -> None:
    with serving() as server:
        config = write_config(
            tmp_path / "mcp.json", toolcrib={"search": {"embedder": {"endpoint": server.url, "model": "m"}}}
        )

        async def started(*tools: Any) -> list[float]:
            """The confidences of a search, once all is embedded."""
            with VectorStore(tmp_path / "vectors.sqlite") as store:
                crib = Toolcrib(vectors=store)
                crib.add_config(config)
                crib.add_source(ScriptedSource("post", tools))
                async with crib:
                    assert await crib.ready(LONG_S)
                    assert await crib.knowledge.settled(LONG_S)
                    page = await crib.perform("search_tools", {"query": "letter"})
                    assert isinstance(page, SearchPage)
                    return [pointer.confidence or 0.0 for pointer in page.results]

        stamp = tool("post.stamp", "Stamps a letter.")
        first = await started(SEND, stamp)
        asked = documents_of(server.asked)
        assert len(asked) == len({*asked}) == 2
        assert await started(SEND, stamp) == first, "kept vectors rank as fresh ones do"
        assert documents_of(server.asked) == asked
        await started(replace(SEND, description="Takes a letter away."), stamp)
        (new,) = documents_of(server.asked)[2:]
        assert "Takes a letter away." in new


def documents_of(asked: Sequence[Asked]) -> list[str]:
    return [text for each in asked for text in each.texts if text not in {"letter", "tool"}]


async def test_a_store_that_fails_costs_nothing_but_its_vectors() -> None:
    class Failing:
        def get_many(self, model_id: str, digests: Sequence[bytes], dim: int) -> Any:
            raise OSError("no room")

        def put_many(self, model_id: str, digests: Sequence[bytes], vectors: Any) -> None:
            raise OSError("no room")

    async with crib_of(SEND, model=Model(), store=Failing()) as crib:
        assert await found(crib, "letter") == [SEND.id]
        assert crib.knowledge.embedding is not None
        embedding = crib.knowledge.embedding
        await until(lambda: embedding.condition.problem, "it is told")
        assert await found(crib, "letter") == [SEND.id]


async def test_vectors_of_tools_that_left_are_forgotten() -> None:
    many = [tool(f"crowd.t{number}", f"Does thing {number}.") for number in range(3_000)]
    crib = Toolcrib()
    take_over(crib, config_of(Model()))
    source = ScriptedSource("crowd", many)
    crib.add_source(source)
    async with crib:
        assert await crib.ready(LONG_S)
        assert await crib.knowledge.settled(LONG_S)
        embedding = crib.knowledge.embedding
        assert embedding is not None
        assert embedding.vectors is not None
        assert len(embedding.vectors) == 3_000
        source.offer(*many[:10])
        await until(lambda: len(crib.view().tools) == 10, "most have left")
        await until(lambda: embedding.condition.wanted == 10, "that is noticed")
        assert len(embedding.vectors) == 10
        assert await found(crib, "crowd thing 7")


async def test_tools_that_come_and_go_from_many_threads_all_have_their_vectors_in_the_end() -> None:
    async with crib_of(model=Model()) as crib:

        def come_and_go(number: int) -> None:
            for step in range(20):
                name = f"f{number}_{step}"
                crib.add(len, name=name, description=f"Does {name}.")
                if step % 2:
                    crib.remove(f"functions.{name}")

        crib.add(len, name="first")  # the source, before there are threads
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(to_thread.run_sync, come_and_go, number)
        assert await crib.knowledge.settled(LONG_S)
        embedding = crib.knowledge.embedding
        assert embedding is not None
        condition = embedding.condition
        assert (condition.embedded, condition.wanted) == (len(crib.view().tools),) * 2 == (82, 82)


# -- what is one principal's own --------------------------------------------------------------------------------------

CATEGORIES: Json = {"Birds": {"tools": ["desk.*"]}}


def isolated(**more: Any) -> Json:
    own = {each: {"env": {"TOKEN": each}} for each in ("ada", "bob")}
    return {"sources": {"desk": {"isolation": "principal", "principals": own}}, **more}


@pytest.mark.parametrize("categories", [{}, CATEGORIES], ids=["plain", "in a category"])
async def test_tools_of_a_principals_own_have_vectors_and_leave_no_trace_for_others(
    categories: Json, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib=isolated(categories=categories), desk=faulty_entry())
    ada, bob, eve = (Principal(name) for name in ("ada", "bob", "eve"))
    crib = Toolcrib()
    crib.add_config(config)
    for each in (SEND, WEIGH):
        crib.add_source(ScriptedSource(each.source, [each]))
    async with crib:
        take_over(crib, config_of(Model("one")))
        assert await crib.ready(LONG_S, principal=eve)
        assert await crib.knowledge.settled(LONG_S)
        before = [crib.view(eve).mark("parrot"), await found(crib, "parrot", "eve"), await found(crib, "mail", "eve")]
        assert before[1:] == [[], [SEND.id]]
        assert await crib.ready(LONG_S, principal=ada)
        assert await crib.knowledge.settled(LONG_S)
        assert "desk.echo" in await found(crib, "parrot", "ada")
        assert before == [
            crib.view(eve).mark("parrot"),
            await found(crib, "parrot", "eve"),
            await found(crib, "mail", "eve"),
        ]
        # Those that are there already have vectors of the next model, too.
        take_over(crib, config_of(Model("other")))
        assert await crib.knowledge.settled(LONG_S)
        assert "desk.echo" in await found(crib, "parrot", "ada")
        assert await crib.ready(LONG_S, principal=bob)
        assert await crib.knowledge.settled(LONG_S)
        assert "desk.echo" in await found(crib, "parrot", "bob")
        # And when the last of them has gone, nobody wants their vectors.
        embedding = crib.knowledge.embedding
        assert embedding is not None
        assert embedding.condition.wanted > 2
        crib.isolated_sources.close()
        await until(lambda: embedding.condition.wanted == 2, "their tools are wanted no more")


# -- the past ---------------------------------------------------------------------------------------------------------


async def test_where_the_audit_is_off_it_is_said_that_nothing_is_learned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"audit": False, "search": {"history": True}})
    crib = Toolcrib()
    with caplog.at_level(logging.WARNING):
        crib.add_config(config)
    assert "nothing is learned from past calls" in caplog.text
    assert crib.knowledge.history_for(Principal("local")) is None


async def test_a_program_hands_over_a_model_of_its_own_which_stands_before_that_of_a_configuration(
    tmp_path: Path,
) -> None:
    mine, theirs = Model("mine"), Model("theirs")
    crib = Toolcrib(embedder=mine)
    crib.registry.merge(registry_of(SEND, READ, WEIGH))
    take_over(crib, config_of(theirs))
    for _ in range(2):  # a crib that has ended can be entered once more
        async with crib:
            assert await crib.knowledge.settled(LONG_S)
            assert crib.search_tools("mail").results[0].tool_id == SEND.id
    assert (len(mine.documents) >= 3, theirs.documents) == (True, [])


def test_what_is_no_model_is_refused_where_it_is_handed_over() -> None:
    with pytest.raises(TypeError, match="is not an embedder"):
        Toolcrib(embedder=object())  # pyright: ignore[reportArgumentType]
