"""Tools are embedded in the background; a query is embedded on demand, or the search does not wait."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import anyio
import numpy as np
import pytest
from tests.search.embedders.models import static_folder, unit, vector
from tests.search.embedders.serving import DIM as SERVED_DIM
from tests.search.embedders.serving import Answer, Asked, embeddings, found, serving

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelEndpoint, ModelFolder, open_embedder
from toolcrib.search.embedding import BATCH, FLIGHTS, LOOKED_UP, PUBLISHED_S, QUERIES, Embedding, TextsToEmbed
from toolcrib.search.index.meaning import Rows, Vectors
from toolcrib.search.index.query import Query
from toolcrib.search.vector_store import VectorStore

DIM = 4
LONG_S = 30


class Model:
    """An embedder that records its texts and calls `before` first."""

    def __init__(
        self, before: Callable[[Sequence[str]], object] = len, *, is_local: bool = True, dim: int = DIM
    ) -> None:
        self.model_id = "model"
        self.dim = dim
        self.is_local = is_local
        self.before = before
        self.documents: list[str] = []
        self.queries: list[str] = []

    def embed_documents(self, texts: Sequence[str]) -> Rows:
        self.before(texts)
        self.documents += texts
        return np.stack([vector_of(text) for text in texts])

    def embed_queries(self, texts: Sequence[str]) -> Rows:
        self.before(texts)
        self.queries += texts
        return np.stack([vector_of(text) for text in texts])

    def embed_query(self, text: str) -> Rows:
        return self.embed_queries([text])[0]


def key_of(text: str) -> int:
    """Return a different key above 0 for each text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def vector_of(text: str) -> Rows:
    """(DIM,), unit."""
    made: Rows = np.random.default_rng(key_of(text)).standard_normal(DIM).astype(np.float32)
    return (made / np.linalg.norm(made)).astype(np.float32)


def wanted(texts: Iterable[str]) -> TextsToEmbed:
    return TextsToEmbed.of((key_of(text), text) for text in texts)


@contextmanager
def embedding(
    opening: Callable[[], Embedder] | Embedder,
    *,
    store: VectorStore | None = None,
    backoff_s: tuple[float, float] = (0.001, 0.001),
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Embedding]:
    made = Embedding(
        opening if callable(opening) else lambda: opening,
        store=store,
        backoff_s=backoff_s,
        clock=clock,
    )
    try:
        yield made
    finally:
        made.close()


def texts_with_vectors(service: Embedding, texts: Iterable[str]) -> set[str]:
    """Return those of `texts` that have a vector, after checking the vectors."""
    texts = list(texts)
    table = service.vectors
    assert table is not None
    there = table.rows(np.array([key_of(text) for text in texts], np.uint64))
    for text, row in zip(texts, there.tolist(), strict=True):
        if row >= 0:
            np.testing.assert_allclose(table.matrix[row], vector_of(text), atol=1e-3)
    return {text for text, row in zip(texts, there.tolist(), strict=True) if row >= 0}


# -- documents --------------------------------------------------------------------------------------------------------


def test_all_wanted_texts_eventually_have_vectors() -> None:
    texts = [f"tool {each}" for each in range(3 * LOOKED_UP)]
    with embedding(Model()) as service:
        assert service.vectors is None
        service.want("catalog", wanted(texts))
        assert service.settle(LONG_S)
        assert texts_with_vectors(service, [*texts, "another"]) == {*texts}
        told = service.condition
        assert (told.model, told.dim, told.embedded, told.wanted) == ("model", DIM, len(texts), len(texts))
        assert (told.problem, told.is_final, told.refused) == (None, False, 0)


def test_published_snapshots_grow_and_never_change() -> None:
    published: list[tuple[Vectors, bytes]] = []
    now = 0.0

    def before(texts: Sequence[str]) -> None:
        nonlocal now
        assert service.vectors is not None
        published.append((service.vectors, service.vectors.matrix.tobytes()))
        now += PUBLISHED_S

    texts = [f"tool {each}" for each in range(10 * BATCH)]
    with embedding(Model(before), clock=lambda: now) as service:
        service.want("catalog", wanted(texts))
        assert service.settle(LONG_S)
        assert texts_with_vectors(service, texts) == {*texts}
    assert [len(each) for each, _ in published] == [*range(0, len(texts), BATCH)]
    for each, was in published:
        assert each.matrix.tobytes() == was
        assert len(each.keys) == len(each.matrix)
        with pytest.raises(ValueError, match="read-only"):
            each.matrix[:] = 0


def test_snapshots_are_published_at_intervals_and_the_last_one_at_once() -> None:
    seen: list[int] = []
    now = 0.0

    def before(texts: Sequence[str]) -> None:
        nonlocal now
        seen.append(len(service.vectors or ()))
        now += 0.4 * PUBLISHED_S

    texts = [f"tool {each}" for each in range(10 * BATCH)]
    with embedding(Model(before), clock=lambda: now) as service:
        service.want("catalog", wanted(texts))
        assert service.settle(LONG_S)
        assert texts_with_vectors(service, texts) == {*texts}
    assert seen == [BATCH * (batch // 3 * 3) for batch in range(10)]


def test_existing_vectors_can_be_used_while_the_model_is_slow_or_fails(tmp_path: Path) -> None:
    texts = [f"tool {each}" for each in range(BATCH)]
    seen: list[int] = []

    def before(asked: Sequence[str]) -> None:
        seen.append(len(service.vectors or ()))
        if len(seen) > 1:
            raise EmbeddingFailed("away")

    with VectorStore(tmp_path / "v") as store:
        with embedding(Model(), store=store) as service:
            service.want("catalog", wanted(texts))
            assert service.settle(LONG_S)
        more = [f"new {each}" for each in range(2 * BATCH)]
        with embedding(Model(before), store=store, backoff_s=(600.0, 600.0), clock=lambda: 0.0) as service:
            service.want("catalog", wanted([*texts, *more]))
            wait_for_problem(service)
            assert texts_with_vectors(service, [*texts, *more]) == {*texts, *more[:BATCH]}
    assert seen == [BATCH, BATCH]


def test_a_text_wanted_several_times_is_embedded_once() -> None:
    model = Model()
    with embedding(model) as service:
        service.want("catalog", wanted(["a", "b", "a"]))
        assert service.settle(LONG_S)
        service.want("catalog", wanted(["a", "b", "c"]))
        service.want("overlay", wanted(["c", "b"]))
        assert service.settle(LONG_S)
        assert sorted(model.documents) == ["a", "b", "c"]
        assert service.condition.wanted == 3


def test_texts_without_a_key_are_not_embedded() -> None:
    model = Model()
    with embedding(model) as service:
        service.want("catalog", TextsToEmbed(np.array([0, 7, 0], np.uint64), lambda position: f"tool {position}"))
        assert service.settle(LONG_S)
        assert (model.documents, service.condition.wanted) == (["tool 1"], 1)


def test_stored_vectors_are_not_computed_again(tmp_path: Path) -> None:
    first, second = Model(), Model()
    texts = [f"tool {each}" for each in range(LOOKED_UP + 10)]
    for model, these in ((first, texts), (second, [*texts, "new"])):
        with VectorStore(tmp_path / "v") as store, embedding(model, store=store) as service:
            service.want("catalog", wanted(these))
            assert service.settle(LONG_S)
            assert texts_with_vectors(service, these) == {*these}
    assert sorted(first.documents) == sorted(texts)
    assert second.documents == ["new"]


def test_stored_vectors_of_a_different_model_are_not_used(tmp_path: Path) -> None:
    with VectorStore(tmp_path / "v") as store:
        for name in ("one", "two"):
            model = Model()
            model.model_id = name
            with embedding(model, store=store) as service:
                service.want("catalog", wanted(["a"]))
                assert service.settle(LONG_S)
            assert model.documents == ["a"]


def test_texts_wanted_last_are_embedded_first() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def before(texts: Sequence[str]) -> None:
        if not busy.is_set():
            busy.set()
            assert go_on.wait(LONG_S)

    model = Model(before)
    with embedding(model) as service:
        service.want("overlay", wanted(["first"]))
        service.want("catalog", wanted([f"old {each}" for each in range(4 * BATCH)]))
        assert busy.wait(LONG_S)
        service.want("overlay", wanted(["first", "new"]))
        go_on.set()
        assert service.settle(LONG_S)
    assert model.documents[BATCH : BATCH + 2] == ["first", "new"]
    assert len(model.documents) == 4 * BATCH + 2


def test_vectors_of_unwanted_texts_are_dropped_and_memory_stays_bounded() -> None:
    sizes: list[int] = []
    with embedding(Model()) as service:
        service.want("stays", wanted(["stays"]))
        for turn in range(20):
            service.want("comes", wanted(f"{turn} {each}" for each in range(1_500)))
            assert service.settle(LONG_S)
            assert service.vectors is not None
            sizes.append(len(service.vectors.matrix.base) if service.vectors.matrix.base is not None else 0)
            assert texts_with_vectors(service, ["stays", f"{turn} 7"]) == {"stays", f"{turn} 7"}
        service.want("comes", None)
        assert service.settle(LONG_S)
        assert service.condition.wanted == 1
        assert service.vectors is not None
        assert len(service.vectors) == 1
    assert max(sizes) <= 4 * 1_500


def test_dropped_vectors_are_loaded_from_the_store_when_wanted_again(tmp_path: Path) -> None:
    model = Model()
    texts = [f"tool {each}" for each in range(1_500)]
    with VectorStore(tmp_path / "v") as store, embedding(model, store=store) as service:
        for these in (texts, ["one"], texts):
            service.want("catalog", wanted(these))
            assert service.settle(LONG_S)
            assert texts_with_vectors(service, these) == {*these}
    assert len(model.documents) == len(texts) + 1


def test_the_source_of_texts_is_released_after_embedding() -> None:
    class State:
        def text_at(self, position: int) -> str:
            return "a"

    state = State()
    kept = weakref.ref(state)
    with embedding(Model()) as service:
        service.want("catalog", TextsToEmbed(np.array([key_of("a")], np.uint64), state.text_at))
        assert service.settle(LONG_S)
        del state
        service.want("overlay", wanted(["b"]))  # so that the thread holds no reference to the first
        assert service.settle(LONG_S)
        gc.collect()
        assert kept() is None


# -- failures ---------------------------------------------------------------------------------------------------------


def failing(times: int, error: Callable[[], Exception]) -> Callable[[Sequence[str]], None]:
    left = [times]

    def before(texts: Sequence[str]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise error()

    return before


def wait_for_problem(service: Embedding) -> None:
    for _ in range(3_000):
        if service.condition.problem is not None:
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not fail")


def test_each_pause_is_twice_as_long_as_the_previous_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolcrib.search.embedding")
    with embedding(Model(failing(5, lambda: EmbeddingFailed("away"))), backoff_s=(0.001, 0.004)) as service:
        service.want("catalog", wanted(["a"]))
        assert service.settle(LONG_S)
    waits = [str(record.args[0]) for record in caplog.records if isinstance(record.args, tuple)]
    assert waits == ["0.001", "0.002", "0.004", "0.004", "0.004"]


@pytest.mark.parametrize("error", [lambda: EmbeddingFailed("away"), lambda: ZeroDivisionError("oops")])
def test_a_failing_model_is_retried_until_it_works(error: Callable[[], Exception]) -> None:
    texts = [f"tool {each}" for each in range(3 * BATCH)]
    with embedding(Model(failing(5, error))) as service:
        service.want("catalog", wanted(texts))
        assert service.settle(LONG_S)
        assert texts_with_vectors(service, texts) == {*texts}
        assert service.condition.problem is None


def test_the_reason_and_the_next_retry_can_be_read_while_the_model_fails() -> None:
    now = [0.0]
    stuck = EmbeddingFailed("http://there: too much was asked", retry_after_s=120)
    with embedding(Model(failing(99, lambda: stuck)), backoff_s=(1.0, 600.0), clock=lambda: now[0]) as service:
        service.want("catalog", wanted(["a", "b"]))
        assert not service.settle(0.0)
        wait_for_problem(service)
        told = service.condition
        assert (told.problem, told.wanted, told.embedded) == ("http://there: too much was asked", 2, 0)
        assert told.retry_after_s == 120
        now[0] += 50
        assert service.condition.retry_after_s == 70
    assert service.settle(0.0), "closing waits for nothing"


def test_opened_waits_until_the_model_is_known_to_be_usable_or_not(tmp_path: Path) -> None:
    def away(texts: Sequence[str]) -> None:
        raise EmbeddingFailed("away")

    for opening in (Model(away), lambda: open_embedder(ModelFolder(tmp_path / "none"))):
        with embedding(opening, backoff_s=(600.0, 600.0)) as service:
            assert service.opened(0.0), "nothing is wanted, and nothing to wait for"
            service.want("catalog", wanted(["a"]))
            assert service.opened(LONG_S)
            assert service.condition.model == "model" or service.condition.is_final


def test_an_unusable_model_is_not_retried(tmp_path: Path) -> None:
    tried: list[int] = []

    def opening() -> Embedder:
        tried.append(1)
        return open_embedder(ModelFolder(tmp_path / "none"))

    with embedding(opening) as service:
        service.want("catalog", wanted(["a"]))
        assert service.settle(LONG_S)
        service.want("overlay", wanted(["b"]))
        assert service.settle(LONG_S)
        told = service.condition
        assert told.is_final
        assert told.problem == f"{tmp_path / 'none'}: the folder does not exist"
        assert (told.model, told.embedded, told.wanted) == (None, 0, 1)
        assert service.vectors is None
        assert service.queries(["a"]) is None
    assert len(tried) == 1


@pytest.mark.parametrize("dim", [DIM - 1, DIM + 1])
def test_a_model_with_wrong_dimensions_adds_no_vectors(dim: int) -> None:
    with embedding(Model(dim=dim)) as service:
        service.want("catalog", wanted(["a"]))
        wait_for_problem(service)
        assert service.condition.problem == f"the model did not return 1 vectors of {dim} numbers"
        assert service.vectors is not None
        assert len(service.vectors) == 0
        assert service.queries(["a"]) is None


def test_refused_texts_do_not_block_other_texts() -> None:
    poisoned: list[Sequence[str]] = []

    def before(texts: Sequence[str]) -> None:
        if any("poison" in text for text in texts):
            poisoned.append(texts)
            raise EmbeddingFailed("it refused (HTTP 400)", is_refused=True)

    texts = [f"tool {each}" for each in range(2 * BATCH)]
    with embedding(Model(before)) as service:
        service.want("catalog", wanted(["poison one", *texts, "poison two"]))
        assert service.settle(LONG_S)
        assert texts_with_vectors(service, ["poison one", *texts, "poison two"]) == {*texts}
        assert service.condition.refused == 2
        poisoned.clear()
        service.want("catalog", wanted([*texts, "poison two", "new"]))
        assert service.settle(LONG_S)
        assert (service.condition.refused, service.condition.embedded) == (1, len(texts) + 1)
        assert poisoned == []


def test_an_endpoint_that_refuses_every_text_is_not_asked_again_soon() -> None:
    asked: list[int] = []

    def before(texts: Sequence[str]) -> None:
        asked.append(len(texts))
        raise EmbeddingFailed("it refused (HTTP 400)", is_refused=True)

    with embedding(Model(before), backoff_s=(60.0, 60.0)) as service:
        service.want("catalog", wanted(f"tool {each}" for each in range(BATCH)))
        wait_for_problem(service)
        assert service.condition.problem == "it refused (HTTP 400)"
        assert asked == [BATCH, 1]


def test_closing_stops_the_thread_and_ignores_new_texts() -> None:
    with embedding(Model(failing(99, lambda: EmbeddingFailed("away"))), backoff_s=(600.0, 600.0)) as service:
        service.want("catalog", wanted(["a"]))
        service.close()
        assert "embedding" not in {thread.name for thread in threading.enumerate()}
        service.want("catalog", wanted(["b"]))
        assert "embedding" not in {thread.name for thread in threading.enumerate()}


UNCLOSED = """
import threading
import numpy as np
from toolcrib.search.embedding import Embedding, TextsToEmbed
busy = threading.Event()

def opening():
    busy.set()
    threading.Event().wait()

service = Embedding(opening)
service.want("catalog", TextsToEmbed.of([(1, "a")]))
busy.wait()
print("done")
"""


def test_a_program_that_does_not_close_the_service_still_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", UNCLOSED], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


# -- queries ----------------------------------------------------------------------------------------------------------


def blocking(go_on: threading.Event) -> Callable[[Sequence[str]], object]:
    """Block the model until the event is set."""

    def before(texts: Sequence[str]) -> bool:
        return go_on.wait(LONG_S)

    return before


def ready(service: Embedding) -> None:
    """Wait until the model is open."""
    service.want("catalog", wanted(["ready"]))
    assert service.settle(LONG_S)


def test_a_local_model_embeds_queries_at_once(tmp_path: Path) -> None:
    folder = static_folder(tmp_path / "tiny")
    with embedding(lambda: open_embedder(ModelFolder(folder))) as service:
        assert service.queries(["mail"]) is None, "the call does not wait"
        ready(service)
        found = service.queries(["mail", "read", "mail"])
        assert found is not None
        np.testing.assert_allclose(found, [unit(vector(word)) for word in ("mail", "read", "mail")], atol=1e-6)


def test_earlier_queries_are_not_embedded_again() -> None:
    model = Model()
    with embedding(model) as service:
        ready(service)
        for texts in (["mail", "file"], ["file", "read", "file"], ["mail"]):
            found = service.queries(texts)
            assert found is not None
            np.testing.assert_array_equal(found, [vector_of(text) for text in texts])
            found[:] = 0  # the caller may change the result
        assert model.queries == ["mail", "file", "read"]
        assert service.queries([]) is None


def test_a_query_and_its_clauses_are_returned_with_the_vectors() -> None:
    query = Query.parse("read the mail, then write a file")
    assert len(query.texts) == 3
    with embedding(Model()) as service:
        assert service.understood(query) is None
        ready(service)
        understood = service.understood(query)
        assert understood is not None
        assert understood.vectors is service.vectors
        np.testing.assert_array_equal(understood.texts, [vector_of(text) for text in query.texts])


def test_the_query_cache_is_limited_and_drops_the_least_recently_used() -> None:
    model = Model()
    with embedding(model) as service:
        ready(service)
        for each in range(QUERIES + 1):
            service.queries([f"query {each}"])
            service.queries(["often"])
        assert model.queries.count("often") == 1
        service.queries(["query 0"])
        assert model.queries.count("query 0") == 2


def test_after_a_failed_query_the_model_is_paused() -> None:
    now = [0.0]
    model = Model()
    with embedding(model, clock=lambda: now[0]) as service:
        ready(service)
        model.before = failing(1, lambda: EmbeddingFailed("oops"))
        assert service.queries(["mail"]) is None
        assert service.queries(["mail"]) is None
        assert model.queries == []
        now[0] += 60
        assert service.queries(["mail"]) is not None


@pytest.mark.anyio
async def test_a_remote_model_is_called_before_a_search_and_not_during_it() -> None:
    with serving() as server:
        model = ModelEndpoint(server.url, "tiny", dimensions=SERVED_DIM)
        with embedding(lambda: open_embedder(model)) as service:
            await service.prepare(["mail"])
            assert service.queries(["mail"]) is None
            ready(service)
            assert service.queries(["mail"]) is None
            await service.prepare(["mail"], LONG_S)
            assert service.queries(["mail"]) is not None
            asked = len(server.asked)
            await service.prepare(["mail"], LONG_S)
            assert len(server.asked) == asked
            await service.prepare(["read the mail", "mail", "read"], LONG_S)
            assert [each.texts for each in server.asked[asked:]] == [["read the mail", "read"]]
            assert service.queries(["read the mail", "mail", "read"]) is not None


@pytest.mark.anyio
async def test_concurrent_identical_queries_share_one_request() -> None:
    model = Model(is_local=False)
    with embedding(model) as service:
        ready(service)
        go_on = threading.Event()
        model.before = blocking(go_on)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(service.prepare, ["mail"], LONG_S)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert model.queries == ["mail"]
        assert service.queries(["mail"]) is not None


@pytest.mark.anyio
async def test_overlapping_queries_share_requests_and_wait_for_all_texts() -> None:
    model = Model(is_local=False)
    with embedding(model) as service:
        ready(service)
        go_on = threading.Event()
        model.before = blocking(go_on)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.prepare, ["mail"], LONG_S)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(service.prepare, ["mail", "file"], LONG_S)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert sorted(model.queries) == ["file", "mail"]
        assert service.queries(["mail", "file"]) is not None


@pytest.mark.anyio
async def test_a_slow_query_vector_is_not_waited_for_and_available_later() -> None:
    now = [0.0]
    model = Model(is_local=False)
    with embedding(model, clock=lambda: now[0]) as service:
        ready(service)
        go_on = threading.Event()
        model.before = blocking(go_on)
        await service.prepare(["slow"], 0.01)
        assert service.queries(["slow"]) is None
        await service.prepare(["another"], LONG_S)  # does not wait, otherwise the test would hang
        assert model.queries == []
        go_on.set()
        await service.prepare(["slow"], LONG_S)  # still running, or finished
        assert service.queries(["slow"]) is not None
        now[0] += 60
        await service.prepare(["another"], LONG_S)
        assert service.queries(["another"]) is not None


@pytest.mark.anyio
async def test_a_failing_endpoint_raises_no_error_and_is_paused() -> None:
    now = [0.0]

    def broken(asked: Asked) -> Answer:
        return found({}, 500)

    with serving() as server:
        model = ModelEndpoint(server.url, "tiny", dimensions=SERVED_DIM)
        with embedding(lambda: open_embedder(model), clock=lambda: now[0]) as service:
            ready(service)
            server.answer = broken
            await service.prepare(["mail"], LONG_S)
            asked = len(server.asked)
            await service.prepare(["mail"], LONG_S)
            await service.prepare(["file"], LONG_S)
            assert len(server.asked) == asked
            assert service.queries(["mail"]) is None
            server.answer = embeddings
            now[0] += 60
            await service.prepare(["mail"], LONG_S)
            assert service.queries(["mail"]) is not None


@pytest.mark.anyio
async def test_the_number_of_concurrent_query_requests_is_limited() -> None:
    model = Model(is_local=False)
    with embedding(model) as service:
        ready(service)
        go_on = threading.Event()
        model.before = blocking(go_on)
        async with anyio.create_task_group() as tasks:
            for each in range(3 * FLIGHTS):
                tasks.start_soon(service.prepare, [f"query {each}"], LONG_S)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
        assert len(model.queries) == FLIGHTS


@pytest.mark.anyio
async def test_a_cancelled_waiter_does_not_cancel_the_shared_request() -> None:
    model = Model(is_local=False)
    with embedding(model) as service:
        ready(service)
        go_on = threading.Event()
        model.before = blocking(go_on)
        async with anyio.create_task_group() as others:
            with anyio.CancelScope() as mine:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(service.prepare, ["mail"], LONG_S)
                    await anyio.wait_all_tasks_blocked()
                    others.start_soon(service.prepare, ["mail"], LONG_S)
                    mine.cancel()
            go_on.set()
        assert service.queries(["mail"]) is not None
