"""Tests for the setting `toolcrib.capabilities` and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib import (
    AddressAccepts,
    Capability,
    Checker,
    PackageImportable,
    PathExists,
    ProgramOnPath,
    VariableSet,
)
from toolcrib.config import parse_config
from toolcrib.core.errors import InvalidConfig

FILE = Path("mcp.json")


def read(capabilities: object) -> tuple[Capability, ...]:
    document = {"mcpServers": {}, "toolcrib": {"capabilities": capabilities}}
    return parse_config(json.dumps(document), FILE, {}).capabilities


def test_there_are_no_capabilities_by_default() -> None:
    assert parse_config("{}", FILE, {}).capabilities == read({}) == ()


@pytest.mark.parametrize(
    ("written", "check"),
    [
        ({"program": "docker"}, ProgramOnPath("docker")),
        ({"env": "TOKEN"}, VariableSet("TOKEN")),
        ({"path": "~/models"}, PathExists("~/models")),
        ({"package": "rope.refactor"}, PackageImportable("rope.refactor")),
        ({"address": "localhost:5432"}, AddressAccepts("localhost", 5432)),
        ({"address": "[::1]:80"}, AddressAccepts("::1", 80)),
    ],
)
def test_each_kind_of_capability_check_is_read(written: dict[str, Any], check: Checker) -> None:
    assert read({"it": written}) == (Capability("it", check),)


def test_remedies_and_times_are_read_in_file_order() -> None:
    times = {"lifetime_s": 600, "missing_lifetime_s": 1, "timeout_s": 0.5}
    found = read({"b": {"program": "b", "remedy": "Install b.", **times}, "a": {"env": "A"}})
    assert found == (Capability("b", ProgramOnPath("b"), "Install b.", 600, 1, 0.5), Capability("a", VariableSet("A")))


EXACTLY = "toolcrib.capabilities.it: needs exactly one of program, env, path, package, address"
HOST = 'toolcrib.capabilities.it.address: must be a host and a port, for example "localhost:5432"'

WRONG: list[tuple[Any, str]] = [
    ([], "toolcrib.capabilities: must be an object"),
    ({"it": "docker"}, "toolcrib.capabilities.it: must be an object"),
    ({"it": {}}, EXACTLY),
    ({"it": {"program": " "}}, EXACTLY),
    ({"it": {"program": "docker", "env": "DOCKER"}}, EXACTLY),
    ({"it": {"programme": "x"}}, "toolcrib.capabilities.it: unknown key `programme` (did you mean `program`?)"),
    ({"it": {"program": 5}}, "toolcrib.capabilities.it.program: must be a string"),
    ({"it": {"program": "x", "remedy": []}}, "toolcrib.capabilities.it.remedy: must be a string"),
    ({"it": {"program": "x", "lifetime_s": 0}}, "toolcrib.capabilities.it.lifetime_s: must be a number of seconds"),
    ({"it": {"address": "localhost"}}, HOST),
    ({"it": {"address": ":80"}}, HOST),
    ({"it": {"address": "localhost:x"}}, HOST),
    ({"it": {"address": "localhost:0"}}, HOST),
    ({"it": {"address": "localhost:65536"}}, HOST),
]


@pytest.mark.parametrize(("written", "complaint"), WRONG, ids=[json.dumps(written) for written, _ in WRONG])
def test_an_invalid_capability_is_reported_with_its_path(written: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        read(written)

    assert wrong.value.message.startswith(f"mcp.json: {complaint}")


def test_a_duplicate_capability_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"toolcrib\.capabilities\.a: duplicate key"):
        parse_config('{"toolcrib": {"capabilities": {"a": {"env": "A"}, "a": {"env": "B"}}}}', FILE, {})
