"""Tests for the hints in HTTP error responses."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.catalogs import tool
from tests.servers.launching import Json
from tests.surfaces.http.asking import ALICE, BOB, TOKENS, problem
from tests.surfaces.http.here import served_here

from toolcrib import Toolcrib
from toolcrib.testing.scripted_source import ScriptedSource

pytestmark = pytest.mark.anyio

SETTINGS = {
    "policy": {"rules": [{"then": "hide", "sources": ["payroll"], "principals": ["bob"]}], "otherwise": "allow"},
    "bundles": {"salaries": {"required": ["payroll.*"]}, "holidays": {"required": ["calendar.*"]}},
}


@pytest.mark.parametrize("name", ["salarie", "holiday", "something else"])
async def test_hints_for_an_unknown_bundle_name_only_visible_bundles(name: str, tmp_path: Path) -> None:
    crib = Toolcrib()
    for source in ("payroll", "calendar"):
        crib.add_source(ScriptedSource(source, [tool(f"{source}.read", "Read it.")]))
    async with served_here(tmp_path, crib, auth={"tokens": TOKENS}, settings=SETTINGS) as here:
        await crib.ready()
        said: dict[str, str] = {}
        for token in (ALICE, BOB):
            by_body = await here.ask("list", token, bundle=name)
            async with here.client(token) as client:
                by_path = await client.post(f"/mcp/b/{name}", json={})
            assert (by_body.status_code, by_path.status_code) == (404, 404)
            assert problem(by_body)["hints"] == problem(by_path)["hints"]
            said[token] = " ".join(problem(by_body)["hints"])
    assert "salaries" not in said[BOB]
    if name != "holiday":
        assert "salaries" in said[ALICE]
    if name != "salarie":
        assert "holidays" in said[BOB]


async def test_a_wrong_host_is_refused_with_setting_names_but_not_values(
    tmp_path: Path,
) -> None:
    auth = {"tokens": TOKENS, "public_url": "https://tools.example", "allowed_hosts": ["inner.example"]}
    async with served_here(tmp_path, auth=auth) as here, here.client(ALICE) as client:
        told = await client.post("/v1/list", headers={"Host": "other.example"})
        assert told.status_code == 421
        (hint,) = problem(told)["hints"]
        assert "`public_url`" in hint
        assert "`allowed_hosts`" in hint
        assert "`toolcrib.auth`" in hint
        for name in ("tools.example", "inner.example"):
            assert name not in told.text
            assert (await client.post("/v1/list", headers={"Host": name})).status_code == 200


@pytest.mark.parametrize("auth", [None, {"tokens": TOKENS}])
async def test_the_root_path_explains_the_gateway_to_a_browser(auth: Json | None, tmp_path: Path) -> None:
    async with served_here(tmp_path, auth=auth) as here, here.client() as client:
        told = await client.get("/", headers={"Accept": "text/html"})
        assert told.status_code == 404
        assert "Toolcrib gateway" in problem(told)["message"]
        assert "/mcp" in (hints := " ".join(problem(told)["hints"]))
        assert "/openapi.json" in hints
        assert (await client.post("/")).status_code == 405
