"""The document on the tool registry: each limitation that it names is resolved, and each decision is implemented."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.contract.document import DOCUMENT as NEIGHBOUR

from toolcrib import (
    BLOG_AGENT,
    CODE_AGENT,
    Optionality,
    Principal,
    Tool,
    ToolBundle,
    Toolcrib,
    ToolExample,
    ToolMetadata,
)
from toolcrib.catalog.categories import STANDARD
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.config import Config
from toolcrib.core.errors import InvalidArguments, InvalidTool, ToolNotFound
from toolcrib.core.events import Event, ToolRegistered, ToolUnregistered
from toolcrib.core.metadata import KEYS
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.operations.operation_table import ALL
from toolcrib.sources.functions import plain_tool
from toolcrib.surfaces.mcp_gateway.gateway_server import Gateway
from toolcrib.surfaces.mcp_gateway.listed_tools import METADATA_KEY

pytestmark = pytest.mark.anyio

DOCUMENT = NEIGHBOUR.with_name("tool-registry-adr.md")
FROM_THE_DOCUMENT = pytest.mark.skipif(
    not DOCUMENT.is_file(), reason="the document that the contract comes from is not part of this project"
)


def file(action: str, path: str, content: str | None = None) -> str:
    """Read, write and list files."""
    return f"{action} {path}"


FILE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["read", "write", "list"], "description": "The file operation to perform"},
        "path": {"type": "string", "description": "Absolute or relative file path"},
        "content": {"type": "string", "description": "Content to write (for write action)"},
    },
    "required": ["action", "path"],
}
FILE = ToolMetadata(
    category=("code",),
    optionality=Optionality.REQUIRED,
    usage_hint="Use for reading, writing, and listing files. Always read before modifying.",
    examples=(ToolExample("Read a Go source file", {"action": "read", "path": "main.go"}),),
)


def crib_with_file() -> Toolcrib:
    """A crib with the example tool of the document."""
    crib = Toolcrib()
    crib.add(file, metadata=FILE, input_schema=FILE_SCHEMA)
    return crib


def tool(tool_id: str, *, category: str = "", optionality: Optionality = Optionality.OPTIONAL) -> Tool:
    source, _, name = tool_id.partition(".")
    condition = "In a repository." if optionality is Optionality.CONDITIONAL else None
    metadata = ToolMetadata((category,) if category else (), optionality=optionality, condition=condition)
    return Tool(source, name, f"Does {name}.", metadata=metadata)


# -- "Context": limitations -------------------------------------------------------------------------------------------


async def test_1_schemas_are_shown_to_models_and_enforced() -> None:
    crib = crib_with_file()

    expansion = crib.expand_tool("functions.file")
    assert expansion.args_schema == FILE_SCHEMA
    assert crib.registry.schemas() == {"functions.file": FILE_SCHEMA}
    assert (await crib.call_tool(expansion.handle, {"action": "read", "path": "x"})).text == "read x"
    for wrong, told in (
        ({"action": "delete", "path": "x"}, "`/action` must be one of"),
        ({"action": "read"}, "the required key `path` is missing"),
        ({"action": "read", "path": 5}, "`/path` must be string"),
    ):
        with pytest.raises(InvalidArguments, match=told):
            await crib.call_tool(expansion.handle, wrong)


def test_2_tools_are_required_optional_or_conditional() -> None:
    registry = ToolRegistry()
    registry.merge(tool(f"t.{each.value}", optionality=each) for each in Optionality)

    for each in Optionality:
        assert [found.id for found in registry.list_by_optionality(each)] == [f"t.{each.value}"]


async def test_3_tools_can_be_added_changed_and_removed_at_run_time() -> None:
    crib = Toolcrib()
    async with crib:
        added = crib.tool_of(crib.add(plain_tool("late", "Winds the clock.", lambda _: "wound")))
        assert [pointer.tool_id for pointer in crib.search_tools("clock").results] == [added.id]

        crib.registry.replace(tool(added.id, category="utility"))
        assert crib.search_tools("winds").results == ()
        assert [found.id for found in crib.registry.list_by_category("utility")] == [added.id]

        crib.remove(added)
        assert crib.registry.list() == ()


def test_4_tools_are_organized_by_category() -> None:
    crib = crib_with_file()
    crib.add(plain_tool("git", "Version control.", lambda _: ""), metadata=ToolMetadata(category=("vcs",)))

    assert [found.id for found in crib.registry.list_by_category("code")] == ["functions.file"]
    assert [found.id for found in crib.registry.list_by_category("vcs")] == ["functions.git"]
    assert {node["path"][0] for node in crib.list().to_wire()["nodes"]} >= {"code", "vcs"}


async def test_5_a_tool_registered_once_is_available_to_all_agents_and_over_mcp() -> None:
    crib = crib_with_file()
    agents = [CallContext(Principal(name)) for name in ("builder", "reviewer")]

    for context in agents:
        handle = crib.expand_tool("functions.file", context=context).handle
        assert (await crib.call_tool(handle, {"action": "read", "path": "x"}, context=context)).text == "read x"
    async with crib, Gateway(crib, Config(Path("mcp.json")), principal=LOCAL, exposed=ALL) as gateway:
        async with Client(gateway.server) as client:
            assert [listed.name for listed in (await client.list_tools()).tools] == ["functions__file"]


# -- "Decision" -------------------------------------------------------------------------------------------------------


def struct(name: str) -> list[str]:
    """The JSON names of the fields of a struct of the document."""
    found = re.search(rf"type {name} struct \{{\n(.*?)\n\}}", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return re.findall(r'`json:"(\w+)', found[1])


@FROM_THE_DOCUMENT
def test_metadata_has_every_field_and_value_of_the_document() -> None:
    assert {*struct("ToolMetadata")} - {"schema"} <= KEYS.keys(), "the schema is the tool's own"
    assert struct("ToolExample") == [field.name for field in fields(ToolExample)]
    assert re.findall(r'ToolOptionality = "(\w+)"', DOCUMENT.read_text()) == [each.value for each in Optionality]


OPERATIONS: dict[str, Callable[..., object]] = {
    "Register": ToolRegistry.register,
    "Unregister": ToolRegistry.unregister,
    "Get": ToolRegistry.get,
    "List": ToolRegistry.list,
    "ListByCategory": ToolRegistry.list_by_category,
    "ListByOptionality": ToolRegistry.list_by_optionality,
    "GetToolDescriptions": ToolRegistry.descriptions,
    "GetToolSchemas": ToolRegistry.schemas,
    "Subscribe": ToolRegistry.subscribe,
    "Unsubscribe": ToolRegistry.unsubscribe,
}


@FROM_THE_DOCUMENT
def test_the_registry_has_every_operation_of_the_document() -> None:
    assert re.findall(r"func \(r \*ToolRegistry\) (\w+)\(", DOCUMENT.read_text()) == [*OPERATIONS]


def test_every_registry_operation_works_as_documented() -> None:
    registry, told = ToolRegistry(), list[Event]()
    commit = tool("git.commit", category="vcs", optionality=Optionality.REQUIRED)
    registry.subscribe(told.append)

    registry.register(commit)
    with pytest.raises(InvalidTool):
        registry.register(commit)
    registry.register(tool("fs.read", category="code"))
    assert (registry.get("git.commit"), registry.get("git.log")) == (commit, None)
    assert [each.id for each in registry.list()] == ["fs.read", "git.commit"]
    assert registry.list_by_category("vcs") == registry.list_by_optionality(Optionality.REQUIRED) == (commit,)
    assert [(each.tool_id, each.description) for each in registry.descriptions()] == [
        ("fs.read", "Does read."),
        ("git.commit", "Does commit."),
    ]
    assert registry.schemas()["git.commit"] == commit.input_schema

    registry.unregister("git.commit")
    with pytest.raises(ToolNotFound):
        registry.unregister("git.commit")
    registry.unsubscribe(told.append)
    registry.unregister("fs.read")
    changes = [event for event in told if isinstance(event, ToolRegistered | ToolUnregistered)]
    assert changes == [
        ToolRegistered(commit),
        ToolRegistered(tool("fs.read", category="code")),
        ToolUnregistered(commit),
    ]


@FROM_THE_DOCUMENT
def test_the_standard_categories_of_the_document_have_descriptions() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| .* \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == [*STANDARD]

    crib = crib_with_file()
    (node,) = [node for node in crib.list().to_wire()["nodes"] if node["path"] == ["code"]]
    assert node["summary"] == STANDARD["code"].summary


@FROM_THE_DOCUMENT
def test_the_bundles_of_the_document_exist_with_their_entries() -> None:
    written = re.findall(
        r'&ToolBundle\{\s*Name:\s*"(\w+)",.*?Required:\s*\[\]string\{(.*?)\},\s*Optional:\s*\[\]string\{(.*?)\}',
        DOCUMENT.read_text(),
        re.DOTALL,
    )
    documented = {name: [re.findall(r'"(\w+)"', part) for part in parts] for name, *parts in written}

    for bundle in (CODE_AGENT, BLOG_AGENT):
        assert bundle.description
        assert documented[bundle.name] == [[*bundle.required], [*bundle.optional]]
    assert len(documented) == 2


def test_a_session_with_a_bundle_has_exactly_its_tools() -> None:
    crib = crib_with_file()
    crib.add(plain_tool("git", "Version control.", lambda _: ""))
    crib.add(plain_tool("calendar", "Dates.", lambda _: ""))
    crib.add_bundle(ToolBundle("mine", "To try", required=("file",), optional=("git", "logit")))

    assert set(crib.session(bundle="mine").view().tools) == {"functions.file", "functions.git"}


async def test_the_mcp_server_lists_tools_with_schema_category_and_optionality() -> None:
    crib = crib_with_file()

    async with crib, Gateway(crib, Config(Path("mcp.json")), principal=LOCAL, exposed=ALL) as gateway:
        async with Client(gateway.server) as client:
            (listed,) = (await client.list_tools()).tools

    assert (listed.name, listed.description) == ("functions__file", "Read, write and list files.")
    assert listed.input_schema == FILE_SCHEMA
    said = (listed.meta or {})[METADATA_KEY]
    assert (said["category"], said["optionality"]) == (["code"], "required")
    assert said == FILE.to_wire()


# -- "Consequences" ---------------------------------------------------------------------------------------------------


def test_a_tool_without_metadata_is_accepted() -> None:
    crib = Toolcrib()
    legacy = crib.tool_of(crib.add(plain_tool("logit", "Guides what is generated.", lambda arguments: arguments)))

    assert legacy.metadata == ToolMetadata()
    assert crib.registry.get("functions.logit") is legacy


def test_a_schema_that_disagrees_with_its_function_is_refused() -> None:
    drifted = {**FILE_SCHEMA, "properties": {**FILE_SCHEMA["properties"], "mode": {"type": "string"}}}

    with pytest.raises(InvalidTool, match="the schema has `mode`, which the callable does not accept"):
        Toolcrib().add(file, input_schema=drifted)
