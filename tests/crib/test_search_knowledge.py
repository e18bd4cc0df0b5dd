"""Search beyond words in a crib: vectors that follow the tools and the configuration."""

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
from tests.until import until

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
"""A tool that is less similar to any query than the others."""
TOPICS = {"letter": 0, "mail": 0, "document": 1, "peruse": 1, "echo": 2, "parrot": 2}
"""The topic of each word. Words with the same topic share too few letters to match as words."""


EVERYTHING = DEFAULT_SEARCH.weights.refusing_nothing().without("meaning")


@dataclass
class Model:
    """An embedder based on `TOPICS`. It first calls `before` for documents, or `asking` for queries."""

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
    """A configuration that opens an embedder of the test."""

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
    """A crib with these tools. It searches only by words without `model`."""
    crib = Toolcrib(vectors=store)
    if model is not None:
        take_over(crib, config_of(model))
    for each in (*tools, WEIGH):
        crib.add_source(ScriptedSource(each.source, [each]))
    async with crib:
        assert await crib.ready(LONG_S)
        yield crib


async def found(crib: Toolcrib, query: str, principal: str = "local", **given: Any) -> list[str]:
    """The tool ids that a surface returns."""
    context = CallContext(Principal(principal))
    page = await crib.perform("search_tools", {"query": query, **given}, context=context)
    assert isinstance(page, SearchPage)
    return [*page.tool_ids]


# -- search by words before vectors are available ---------------------------------------------------------------------


async def test_search_uses_words_until_vectors_are_available() -> None:
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


async def test_search_does_not_wait_for_a_model_that_is_being_opened() -> None:
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


async def test_search_waits_only_briefly_for_a_local_model() -> None:
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


async def test_search_is_not_blocked_by_slow_functions() -> None:
    """Blocking functions occupy all threads of the default limiter."""
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


async def test_blank_queries_and_other_operations_send_nothing_to_a_remote_model() -> None:
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


async def test_an_unknown_tool_id_is_corrected_without_the_model() -> None:
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


async def test_closing_a_crib_does_not_block_the_event_loop() -> None:
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


async def test_a_closed_crib_is_searched_by_words() -> None:
    async with crib_of(SEND, model=Model()) as crib:
        assert await crib.knowledge.settled(LONG_S)
    crib.add(len, name="letters", description="Counts letters.")
    assert crib.search_tools("letter").tool_ids == ("functions.letters",)
    assert crib.search_tools("mail").tool_ids == ()


# -- changes of the configuration -------------------------------------------------------------------------------------


async def test_a_changed_model_replaces_the_previous_one_and_no_model_leaves_words() -> None:
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


async def test_an_unchanged_model_configuration_does_not_reopen_the_model() -> None:
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


async def test_a_failed_model_is_opened_again_with_the_next_configuration() -> None:
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


async def test_without_the_embedding_signal_vectors_have_no_effect_and_no_query_is_sent() -> None:
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


async def test_a_second_file_changes_search_settings_only_if_it_contains_some(tmp_path: Path) -> None:
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


async def test_only_changed_tools_are_embedded_again() -> None:
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


async def test_an_endpoint_receives_each_text_once_even_after_a_restart(tmp_path: Path) -> None:
    with serving() as server:
        config = write_config(
            tmp_path / "mcp.json", toolcrib={"search": {"embedder": {"endpoint": server.url, "model": "m"}}}
        )

        async def started(*tools: Any) -> list[float]:
            """The confidences of a search after all tools are embedded."""
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
        assert await started(SEND, stamp) == first, "stored vectors rank like fresh vectors"
        assert documents_of(server.asked) == asked
        await started(replace(SEND, description="Takes a letter away."), stamp)
        (new,) = documents_of(server.asked)[2:]
        assert "Takes a letter away." in new


def documents_of(asked: Sequence[Asked]) -> list[str]:
    return [text for each in asked for text in each.texts if text not in {"letter", "tool"}]


async def test_a_failing_vector_store_does_not_affect_search() -> None:
    class Failing:
        def get_many(self, model_id: str, digests: Sequence[bytes], dim: int) -> Any:
            raise OSError("no room")

        def put_many(self, model_id: str, digests: Sequence[bytes], vectors: Any) -> None:
            raise OSError("no room")

    async with crib_of(SEND, model=Model(), store=Failing()) as crib:
        assert await found(crib, "letter") == [SEND.id]
        assert crib.knowledge.embedding is not None
        embedding = crib.knowledge.embedding
        await until(lambda: embedding.condition.problem, "the problem is reported")
        assert await found(crib, "letter") == [SEND.id]


async def test_vectors_of_removed_tools_are_discarded() -> None:
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
        await until(lambda: len(crib.view().tools) == 10, "most tools were removed")
        await until(lambda: embedding.condition.wanted == 10, "the removal was noticed")
        assert len(embedding.vectors) == 10
        assert await found(crib, "crowd thing 7")


async def test_tools_changed_from_many_threads_all_have_vectors_in_the_end() -> None:
    async with crib_of(model=Model()) as crib:

        def come_and_go(number: int) -> None:
            for step in range(20):
                name = f"f{number}_{step}"
                crib.add(len, name=name, description=f"Does {name}.")
                if step % 2:
                    crib.remove(f"functions.{name}")

        crib.add(len, name="first")  # creates the source before the threads start
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(to_thread.run_sync, come_and_go, number)
        assert await crib.knowledge.settled(LONG_S)
        embedding = crib.knowledge.embedding
        assert embedding is not None
        condition = embedding.condition
        assert (condition.embedded, condition.wanted) == (len(crib.view().tools),) * 2 == (82, 82)


# -- tools of one principal -------------------------------------------------------------------------------------------

CATEGORIES: Json = {"Birds": {"tools": ["desk.*"]}}


def isolated(**more: Any) -> Json:
    own = {each: {"env": {"TOKEN": each}} for each in ("ada", "bob")}
    return {"sources": {"desk": {"isolation": "principal", "principals": own}}, **more}


@pytest.mark.parametrize("categories", [{}, CATEGORIES], ids=["plain", "in a category"])
async def test_tools_of_one_principal_have_vectors_and_leave_no_trace_for_others(
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
        # Tools that are already listed get vectors of the next model as well.
        take_over(crib, config_of(Model("other")))
        assert await crib.knowledge.settled(LONG_S)
        assert "desk.echo" in await found(crib, "parrot", "ada")
        assert await crib.ready(LONG_S, principal=bob)
        assert await crib.knowledge.settled(LONG_S)
        assert "desk.echo" in await found(crib, "parrot", "bob")
        # After the last of these tools was removed, their vectors are no longer wanted.
        embedding = crib.knowledge.embedding
        assert embedding is not None
        assert embedding.condition.wanted > 2
        crib.isolated_sources.close()
        await until(lambda: embedding.condition.wanted == 2, "the vectors are no longer wanted")


# -- history ----------------------------------------------------------------------------------------------------------


async def test_a_disabled_audit_log_with_history_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"audit": False, "search": {"history": True}})
    crib = Toolcrib()
    with caplog.at_level(logging.WARNING):
        crib.add_config(config)
    assert "nothing is learned from past calls" in caplog.text
    assert crib.knowledge.history_for(Principal("local")) is None


async def test_a_model_of_the_program_takes_precedence_over_the_configuration(
    tmp_path: Path,
) -> None:
    mine, theirs = Model("mine"), Model("theirs")
    crib = Toolcrib(embedder=mine)
    crib.registry.merge(registry_of(SEND, READ, WEIGH))
    take_over(crib, config_of(theirs))
    for _ in range(2):  # a closed crib can be entered again
        async with crib:
            assert await crib.knowledge.settled(LONG_S)
            assert crib.search_tools("mail").results[0].tool_id == SEND.id
    assert (len(mine.documents) >= 3, theirs.documents) == (True, [])


def test_an_invalid_embedder_is_refused_on_creation() -> None:
    with pytest.raises(TypeError, match="is not an embedder"):
        Toolcrib(embedder=object())  # pyright: ignore[reportArgumentType]
