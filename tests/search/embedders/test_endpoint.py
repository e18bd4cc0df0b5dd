"""An endpoint with the OpenAI embeddings API, whose answers are validated."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from tests.search.embedders.models import unit
from tests.search.embedders.serving import DIM, Answer, Asked, Server, embeddings, found, serving, vector_of

from toolcrib.search.embedders import Embedder, EmbeddingFailed, ModelEndpoint, endpoint, open_embedder

KEY = "sk-very-secret-4711"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def opened(server: Server, api_key: str = KEY, dimensions: int | None = DIM) -> Embedder:
    return open_embedder(ModelEndpoint(server.url, "tiny", api_key, dimensions))


def failure(server: Server, answer: Answer | None, *texts: str) -> EmbeddingFailed:
    """Return the error for the vectors of `texts` when the server gives this answer."""
    server.answer = lambda asked: answer
    with pytest.raises(EmbeddingFailed) as failed:
        opened(server).embed_documents(texts or ("read", "write"))
    assert str(failed.value).startswith(f"http://127.0.0.1:{server.port}: ")
    assert KEY not in repr(failed.value)
    assert not failed.value.is_final
    return failed.value


def test_vectors_are_normalized_and_in_the_order_of_the_texts(server: Server) -> None:
    embedder = opened(server)
    assert (embedder.dim, embedder.is_local) == (DIM, False)
    rows = embedder.embed_documents(["read a file", "mail"])
    assert rows.dtype == np.float32
    expected = [unit(np.array(vector_of(text))) for text in ("read a file", "mail")]
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    np.testing.assert_allclose(embedder.embed_query("mail"), expected[1], atol=1e-6)
    (asked, _) = server.asked
    assert asked.path == "/v1/embeddings"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {"model": "tiny", "input": ["read a file", "mail"], "dimensions": DIM}


def test_missing_dimensions_are_requested_from_the_endpoint(server: Server) -> None:
    embedder = opened(server, dimensions=None, api_key="")
    assert embedder.dim == DIM
    assert "authorization" not in server.asked[0].headers
    assert "dimensions" not in server.asked[0].body


def test_the_model_id_depends_on_model_url_and_dimensions_but_not_on_secrets(server: Server) -> None:
    ids = [
        open_embedder(ModelEndpoint(url, model, key, dim)).model_id
        for url, model, key, dim in [
            (server.url, "tiny", KEY, 4),
            (f"{server.url}/", "tiny", "another key", 4),
            (f"{server.url}?key={KEY}", "tiny", KEY, 4),
            (f"{server.url}/other", "tiny", KEY, 4),
            (server.url, "other", KEY, 4),
            (server.url, "tiny", KEY, 5),
        ]
    ]
    assert ids[0] == ids[1] == ids[2]
    assert len({*ids}) == 4
    assert KEY not in "".join(ids)
    assert KEY not in repr(ModelEndpoint(server.url, "tiny", KEY))


def test_the_query_string_of_a_url_is_preserved(server: Server) -> None:
    open_embedder(ModelEndpoint(f"{server.url}/?api-version=2", "tiny")).embed_query("mail")
    assert server.asked[0].path == "/v1/embeddings?api-version=2"


def test_many_texts_are_split_into_requests_of_limited_size(server: Server) -> None:
    texts = [f"text {each}" for each in range(150)] + ["long " * 10_000] * 20
    rows = opened(server).embed_documents(texts)
    assert rows.shape == (170, DIM)
    np.testing.assert_allclose(rows[149], unit(np.array(vector_of("text 149"))), atol=1e-6)
    assert max(len(asked.texts) for asked in server.asked) <= endpoint.MAX_TEXTS
    assert max(sum(map(len, asked.texts)) for asked in server.asked) <= endpoint.MAX_CHARS
    assert max(len(text) for asked in server.asked for text in asked.texts) <= endpoint.MAX_TEXT_CHARS


def test_empty_texts_and_lone_surrogates_are_replaced(server: Server) -> None:
    opened(server).embed_documents(["", "  ", "half \ud800"])
    assert server.asked[0].texts == ["-", "-", "half ?"]


def data(*rows: Any) -> Answer:
    return found({"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]})


GOOD = [1.0, 2.0, 3.0, 4.0]

WRONG: dict[str, tuple[Answer | None, str]] = {
    "no JSON": (found(b"<html>"), "not a list of embeddings"),
    "no data": (found({"error": "x"}), "not a list of embeddings"),
    "null": (found(None), "not a list of embeddings"),
    "data of a wrong type": (found({"data": "abcd"}), "not a list of embeddings"),
    "nothing": (found(b""), "not a list of embeddings"),
    "too few": (data(GOOD), "1 embeddings for 2 texts"),
    "too many": (data(GOOD, GOOD, GOOD), "3 embeddings for 2 texts"),
    "duplicate": (found({"data": [{"index": 1, "embedding": GOOD}] * 2}), "2 embeddings for 2 texts"),
    "wrong index": (found({"data": [{"index": n, "embedding": GOOD} for n in (1, 2)]}), "2 embeddings for 2"),
    "wrong dimension": (data(GOOD[:3], GOOD[:3]), "3 dimensions instead of 4"),
    "uneven": (data(GOOD, GOOD[:3]), "not lists of numbers with the same length"),
    "no vectors": (data([], []), "not lists of numbers with the same length"),
    "a number": (data(1.0, 2.0), "not lists of numbers with the same length"),
    "strings": (data(["a"] * 4, GOOD), "not lists of numbers with the same length"),
    "nested": (data([GOOD], [GOOD]), "not lists of numbers with the same length"),
    "null in it": (data([1.0, None, 1.0, 1.0], GOOD), "not finite numbers"),
    "NaN": (found(b'{"data":[{"embedding":[NaN,1,1,1]},{"embedding":[1,1,1,1]}]}'), "not a list of embeddings"),
    "infinite": (data([1e39, 1.0, 1.0, 1.0], GOOD), "not finite numbers"),
    "zeros": (data([0.0] * 4, GOOD), "has only zeros"),
    "closed": (None, "the connection ended before"),
    "cut off": ((200, {"Content-Length": "1000", "Connection": "close"}, b"{"), "the connection ended before"),
    "not compressed": ((200, {"Content-Encoding": "gzip"}, b"no gzip"), "the connection ended before"),
    "redirect": ((302, {"Location": "http://127.0.0.1:1/v2"}, b""), "redirects to a different address"),
    "key": (found({"error": {"message": f"bad key {KEY}", "code": "invalid_api_key"}}, 401), "API key was rejected"),
    "model": (found({"error": {"message": KEY, "type": KEY}}, 404), "address or the model does not exist"),
    "broken": (found(KEY.encode(), 500), r"the request was refused \(HTTP 500\)"),
    "no content": ((204, {}, b""), r"the request was refused \(HTTP 204\)"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_an_invalid_answer_is_reported_without_secrets(name: str, server: Server) -> None:
    answer, told = WRONG[name]
    failed = failure(server, answer)
    assert re.search(told, str(failed)), str(failed)
    assert not failed.is_refused


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_status_that_blames_the_texts_is_reported_as_refused(status: int, server: Server) -> None:
    failed = failure(server, found({"error": {"type": "invalid_request_error", "param": "input"}}, status))
    assert failed.is_refused
    assert "(invalid_request_error, input)" in str(failed)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", 0), ("1e9", endpoint.MAX_RETRY_AFTER_S), ("soon", None), ("nan", None)],
)
def test_the_retry_after_header_is_used_with_a_maximum(header: str, seconds: float | None, server: Server) -> None:
    failed = failure(server, found({}, 429, **{"Retry-After": header}))
    assert failed.retry_after_s == seconds
    assert "too many requests" in str(failed)


def test_a_date_in_the_retry_after_header_is_used(server: Server) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    failed = failure(server, found({}, 503, **{"Retry-After": until}))
    assert failed.retry_after_s is not None
    assert 500 < failed.retry_after_s <= 600


def test_reading_stops_at_the_maximum_response_size(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "MAX_BODY_BYTES", 10_000)
    assert "more than 10000 bytes" in str(failure(server, found(b" " * 100_000)))


def test_a_slow_response_is_stopped_at_the_time_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.0)
    assert "took more than" in str(failure(server, found(b" " * 100_000)))


def test_a_silent_server_is_stopped_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        model = ModelEndpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", "tiny", KEY)
        with pytest.raises(EmbeddingFailed, match="no response in time"):
            open_embedder(model)


def test_an_unreachable_server_is_reported_without_secrets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(EmbeddingFailed, match=f"^http://127.0.0.1:{port}: could not connect") as failed:
        open_embedder(ModelEndpoint(f"http://127.0.0.1:{port}/{KEY}/?key={KEY}", "tiny", KEY))
    assert KEY not in str(failed.value)


def test_an_api_key_that_is_not_a_valid_header_is_a_final_error(server: Server) -> None:
    with pytest.raises(EmbeddingFailed, match="malformed") as failed:
        opened(server, api_key=f"{KEY}\nX: y").embed_query("mail")
    assert failed.value.is_final
    assert KEY not in str(failed.value)
    assert failed.value.__cause__ is None


def test_a_server_that_recovers_is_used_again(server: Server) -> None:
    def once(asked: Asked) -> Answer | None:
        server.answer = embeddings
        return None

    server.answer = once
    embedder = opened(server)
    with pytest.raises(EmbeddingFailed):
        embedder.embed_query("mail")
    assert embedder.embed_query("mail").shape == (DIM,)
