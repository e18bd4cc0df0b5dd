"""Tests for the HTTP application in process: trace headers, header checks and internal errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp.server.auth.middleware.auth_context import auth_context_var

from toolcrib import Toolcrib
from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.config import Config
from toolcrib.config.access_settings import NO_AUTH
from toolcrib.core.events import OperationPerformed
from toolcrib.core.principal import Principal, trace_id_of
from toolcrib.operations.operation_table import ALL
from toolcrib.surfaces.auth import Authenticator, Stays
from toolcrib.surfaces.http.accepted_hosts import Address, Names
from toolcrib.surfaces.http.http_app import application
from toolcrib.surfaces.http.metrics import Metrics
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.surfaces.mcp_gateway.request_context import user_of
from toolcrib.surfaces.mcp_gateway.streamable_http import BundleEndpoints

pytestmark = pytest.mark.anyio

BASE = "http://127.0.0.1:8808"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@asynccontextmanager
async def asking(crib: Toolcrib) -> AsyncGenerator[httpx2.AsyncClient]:
    config = Config(Path("mcp.json"))
    gateway = Gateway(crib, config)
    app = application(
        crib,
        gateway,
        bundles := BundleEndpoints(crib, lambda bundle: Gateway(crib, config, bundle=bundle, startup=gateway.startup)),
        auth=NO_AUTH,
        stays=Stays(Authenticator(NO_AUTH)),
        names=Names(Address("127.0.0.1", 8808), NO_AUTH),
        base=BASE,
        metrics=Metrics(lambda: 0),
    )
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with crib, gateway, bundles, httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        yield client


async def test_an_operation_belongs_to_the_trace_that_its_request_names() -> None:
    seen = list[OperationPerformed]()
    async with asking(Toolcrib(record=seen.append)) as client:
        assert (await client.post("/v1/list", headers={"traceparent": TRACEPARENT})).status_code == 200
        assert (await client.post("/v1/list", headers={"traceparent": "nonsense"})).status_code == 200
    assert seen[0].trace_id == TRACE
    assert seen[1].trace_id not in {TRACE, ""}


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (TRACEPARENT, TRACE),
        (f" {TRACEPARENT} ", TRACE),
        (f"cc-{TRACE}-00f067aa0ba902b7-01-what-the-future-will-be-like", TRACE),
        (None, None),
        ("", None),
        (f"{TRACEPARENT}-more", None),
        (TRACEPARENT.upper(), None),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE[:-1]}-00f067aa0ba902b7-01", None),
    ],
)
def test_a_traceparent_header_is_parsed_as_the_w3c_recommendation_defines(
    header: str | None, found: str | None
) -> None:
    assert trace_id_of(header) == found


async def test_call_headers_are_checked_only_against_tools_visible_to_the_principal() -> None:
    crib = Toolcrib(policy=Rules((Rule(Access.HIDDEN, principals=("bob",)),), otherwise=Access.CALL))

    def lend(book: str) -> str:
        """Lend a book."""
        return book

    crib.add(lend)
    schema_of = Gateway(crib, Config(Path("mcp.json")), exposed=ALL).server.get_tool_input_schema
    assert schema_of is not None
    for name, is_shown in (("alice", True), ("bob", False)):
        token = auth_context_var.set(user_of(Principal(name)))
        assert (schema_of("functions__lend") is not None) is is_shown
        auth_context_var.reset(token)


async def test_an_internal_error_response_hides_the_exception_message(monkeypatch: pytest.MonkeyPatch) -> None:
    crib = Toolcrib()

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(crib, "perform", fail)
    async with asking(crib) as client:
        answer = await client.post("/v1/list")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "swordfish" not in answer.text
    assert answer.json()["code"] == "INTERNAL_SERVER_ERROR"
