"""Pydantic AI toolsets that are made from the tools of an editor, without an agent of Toolcrib."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from tests.sources.acp.editing import ALL, SESSION, Editor

from toolcrib.adapters.pydantic_ai import (
    CribToolset,
    create_pydantic_agent,
    create_toolset_from_capabilities,
    create_toolset_from_catalog,
    create_toolset_from_editor,
    scripted_model,
)
from toolcrib.core.errors import NotAuthorized, SourceUnavailable
from toolcrib.core.events import Consent
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling import Approver
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.sources.acp.descriptors import ToolCatalog, ToolDescriptor
from toolcrib.sources.acp.port import ClientOffer, ClientRefused
from toolcrib.sources.acp.protocol_tools import PROTOCOL_TOOLS, catalog_of

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

FILES = ClientOffer(read_text_file=True, write_text_file=True)

RENAME = ToolDescriptor(
    "refactor_rename",
    "edit",
    "Rename a symbol everywhere.",
    {
        "type": "object",
        "properties": {"symbol": {"type": "string"}, "to": {"type": "string"}},
        "required": ["symbol", "to"],
    },
    categories=("refactoring",),
)
FIND_USES = ToolDescriptor(
    "find_uses",
    "search",
    "Find where a symbol is used.",
    {"type": "object", "properties": {"symbol": {"type": "string"}}, "required": ["symbol"]},
)
READ, WRITE = PROTOCOL_TOOLS["read_file"], PROTOCOL_TOOLS["write_file"]


def editor_with(offer: ClientOffer = ALL, **files: str) -> Editor:
    """An editor with files below `/project`, tools that return at once, and commands that run until they are killed."""
    return Editor(
        offer,
        files={f"/project/{name}.txt": text for name, text in files.items()},
        answer=lambda name, arguments: {"content": [{"type": "text", "text": f"{name} done"}]},
        exit=None,
    )


class FixedApprover(Approver):
    """Approves everything, and records the calls it was asked about."""

    def __init__(self, *, says: bool = True) -> None:
        super().__init__()
        self.asked: list[tuple[str | None, str, Mapping[str, Any] | None]] = []
        self._says = says
        self._call_id: str | None = None

    def of(self, ctx: RunContext[Any]) -> Approver:
        self._call_id = ctx.tool_call_id
        return self

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        self.asked.append((self._call_id, intent.subject, intent.arguments))
        if not self._says:
            raise NotAuthorized("The person said no.")
        return "once"


def toolset_of(editor: Editor, *tools: ToolDescriptor, **given: Any) -> CribToolset[Any]:
    return create_toolset_from_catalog(ToolCatalog(tools), editor, SESSION, cwd="/project", **given)


def calling(name: str, **arguments: Any) -> Json:
    return {"calls": [{"name": name, "arguments": arguments}]}


DONE: Json = {"text": "Done."}


async def listed(toolset: CribToolset[Any]) -> dict[str, Json]:
    """Return the schemas that a model gets, by name."""
    model = TestModel(call_tools=[])
    await create_pydantic_agent(model, toolset).run("Go")
    parameters = model.last_model_request_parameters
    assert parameters is not None
    return {each.name: each.parameters_json_schema for each in parameters.function_tools}


def returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return [part for part in parts if isinstance(part, ToolReturnPart)]


# -- from a catalog ---------------------------------------------------------------------------------------------------


async def test_a_toolset_from_a_catalog_has_exactly_its_tools_with_complete_schemas() -> None:
    shown = await listed(toolset_of(editor_with(), READ, RENAME))

    assert [*shown] == ["read_file", "refactor_rename"]
    assert shown["refactor_rename"] == RENAME.parameters
    assert shown["read_file"] == READ.parameters


async def test_a_known_tool_runs_through_its_protocol_method() -> None:
    editor = editor_with(a="Hello")
    model = scripted_model([calling("read_file", path="/project/a.txt"), DONE])
    done = await create_pydantic_agent(model, toolset_of(editor, READ, RENAME)).run("Go")

    assert returns(done.all_messages())[0].content == "Hello"
    assert editor.asked == [("read_text_file", ("/project/a.txt", None, None))]
    assert done.output == "Done."


async def test_an_unknown_tool_is_called_by_name_in_the_editor() -> None:
    editor = editor_with()
    model = scripted_model([calling("find_uses", symbol="fee"), DONE])
    done = await create_pydantic_agent(model, toolset_of(editor, FIND_USES)).run("Go")

    assert returns(done.all_messages())[0].content == "find_uses done"
    assert editor.asked == [("call_tool", ("find_uses", {"symbol": "fee"}))]


async def test_tools_that_the_capabilities_deny_are_omitted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        toolset = toolset_of(editor_with(ClientOffer(read_text_file=True)), READ, WRITE, FIND_USES)

    assert [*await listed(toolset)] == ["read_file", "find_uses"]
    assert ["write_file" in record.message for record in caplog.records] == [True]


async def test_the_test_model_can_call_a_read_only_tool() -> None:
    editor = editor_with()
    toolset = toolset_of(editor, FIND_USES)
    done = await create_pydantic_agent(TestModel(), toolset).run("Go")

    assert json.loads(str(done.output)) == {"find_uses": "find_uses done"}


async def test_arguments_are_validated_before_approval_and_before_the_editor_is_called() -> None:
    editor, person = editor_with(), FixedApprover()
    bad = calling("refactor_rename", symbol="fee", to=5)
    model = scripted_model([bad, calling("refactor_rename", symbol="fee", to="price"), DONE])
    done = await create_pydantic_agent(model, toolset_of(editor, RENAME, approver=person.of)).run("Go")

    refused, renamed = returns(done.all_messages())
    assert (refused.outcome, json.loads(str(refused.content))["error"]["code"]) == ("retried", "INVALID_ARGUMENTS")
    assert renamed.content == "refactor_rename done"
    assert len(person.asked) == len(editor.asked) == 1


# -- from capabilities ------------------------------------------------------------------------------------------------


async def test_without_terminals_a_toolset_from_capabilities_has_only_file_tools() -> None:
    toolset = create_toolset_from_capabilities(FILES, editor_with(FILES), SESSION, cwd="/project")
    assert [*await listed(toolset)] == ["read_file", "write_file"]


async def test_with_all_capabilities_a_toolset_has_all_protocol_tools() -> None:
    toolset = create_toolset_from_capabilities(ALL, editor_with(), SESSION, cwd="/project")
    assert [*await listed(toolset)] == [*PROTOCOL_TOOLS]


async def test_a_toolset_never_has_tools_that_the_editor_does_not_offer() -> None:
    toolset = create_toolset_from_capabilities(ALL, editor_with(FILES), SESSION, cwd="/project")
    assert [*await listed(toolset)] == [each.name for each in catalog_of(FILES).tools]


# -- approval ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_edits_is_deferred_and_runs_after_approval() -> None:
    editor = editor_with()
    model = scripted_model([calling("refactor_rename", symbol="fee", to="price"), DONE])
    agent = create_pydantic_agent(model, toolset_of(editor, RENAME))
    first = await agent.run("Go")
    assert isinstance(first.output, DeferredToolRequests)
    assert editor.asked == []
    (about,) = first.output.metadata.values()
    results = first.output.build_results(approve_all=True)
    done = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)

    assert about["toolcrib"]["tool_id"] == "editor.refactor_rename"
    assert editor.asked == [("call_tool", ("refactor_rename", {"symbol": "fee", "to": "price"}))]
    assert done.output == "Done."


async def test_a_denied_call_never_reaches_the_editor() -> None:
    editor = editor_with(a="Hello")
    model = scripted_model([calling("write_file", path="/project/a.txt", content="Bye"), DONE])
    agent = create_pydantic_agent(model, toolset_of(editor, WRITE))
    first = await agent.run("Go")
    assert isinstance(first.output, DeferredToolRequests)
    (asked,) = first.output.approvals
    refused = DeferredToolResults(approvals={asked.tool_call_id: ToolDenied("Not today.")})
    done = await agent.run(message_history=first.all_messages(), deferred_tool_results=refused)

    assert [part.content for part in returns(done.all_messages())] == ["Not today."]
    assert editor.files == {"/project/a.txt": "Hello"}
    assert editor.asked == []


@pytest.mark.parametrize("says", [True, False])
async def test_an_approver_is_asked_about_the_exact_call_during_the_run(says: bool) -> None:
    editor, person = editor_with(a="Hello"), FixedApprover(says=says)
    model = scripted_model([calling("write_file", path="/project/a.txt", content="Bye"), DONE])
    done = await create_pydantic_agent(model, toolset_of(editor, WRITE, approver=person.of)).run("Go")

    (part,) = returns(done.all_messages())
    assert person.asked == [(part.tool_call_id, "editor.write_file", {"path": "/project/a.txt", "content": "Bye"})]
    assert part.outcome == ("success" if says else "failed")
    assert editor.files["/project/a.txt"] == ("Bye" if says else "Hello")
    assert done.output == "Done."


# -- terminals --------------------------------------------------------------------------------------------------------


async def test_open_terminals_of_a_run_end_with_it_but_not_with_others() -> None:
    editor = editor_with()
    serving = calling("run_command", command="serve", background=True)
    toolset = toolset_of(editor, *catalog_of(ALL).tools, approver=FixedApprover().of)
    waits = calling("wait_for_terminal_exit", terminal_id="t1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create_pydantic_agent(scripted_model([serving, waits]), toolset).run, "Serve")
        await editor.until("wait_for_terminal_exit")
        done = await create_pydantic_agent(scripted_model([serving, DONE]), toolset).run("Go")
        assert done.output == "Done."
        assert [*editor.terminals] == ["t1"]
        assert editor.methods.count("create_terminal") == 2
        assert editor.terminals["t1"].cwd == "/project"
        tasks.cancel_scope.cancel()

    assert editor.terminals == {}


# -- from an editor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offer", "catalog", "names"),
    [
        (ClientOffer(discovery=True), [RENAME], ["refactor_rename"]),
        (ClientOffer(discovery=True, read_text_file=True), [RENAME], ["refactor_rename"]),
        (ClientOffer(discovery=True, read_text_file=True), [], ["read_file"]),
        (ClientOffer(read_text_file=True), [RENAME], ["read_file"]),
        (ClientOffer(), [RENAME], []),
    ],
    ids=["it lists", "it lists and can more", "it lists nothing", "it does not list", "it offers nothing"],
)
async def test_a_toolset_from_an_editor_has_its_listed_or_protocol_tools(
    offer: ClientOffer, catalog: list[ToolDescriptor], names: list[str]
) -> None:
    editor = editor_with(offer)
    editor.catalog = {"tools": [each.to_wire() for each in catalog]}
    toolset = await create_toolset_from_editor(editor, SESSION, cwd="/project")
    assert [*await listed(toolset)] == names
    assert editor.methods.count("discover_tools") <= 1


async def test_an_editor_that_fails_to_list_its_tools_raises_an_error() -> None:
    editor = editor_with(ClientOffer(discovery=True, read_text_file=True))
    editor.failing["discover_tools"] = ClientRefused(-32603, "Internal error")
    with pytest.raises(SourceUnavailable, match="refused to"):
        await create_toolset_from_editor(editor, SESSION, cwd="/project")


async def test_the_editor_gets_the_id_of_the_call() -> None:
    editor = editor_with()
    model = scripted_model([calling("find_uses", symbol="fee"), DONE])
    done = await create_pydantic_agent(model, toolset_of(editor, FIND_USES)).run("Go")
    (part,) = returns(done.all_messages())
    assert editor.call_ids == [part.tool_call_id]
