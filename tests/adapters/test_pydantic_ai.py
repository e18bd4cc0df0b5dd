"""A session as a Pydantic AI toolset: agents, real model classes over HTTP, approvals, and message histories."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai import Tool as AgentTool
from pydantic_ai.capabilities import HandleDeferredToolCalls, ToolSearch
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from tests.adapters.asking import is_prefix
from tests.catalogs import tool
from tests.until import until

from toolcrib import Access, Rules, Tool, ToolAnnotations, Toolcrib, ToolResult
from toolcrib.adapters.pydantic_ai import CribToolset, create_pydantic_agent, create_toolset
from toolcrib.core.errors import NotAuthorized, ToolNotFound
from toolcrib.core.events import Consent, OperationPerformed
from toolcrib.core.principal import CallContext
from toolcrib.operations.calling import Approver
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.operations.operation_table import ALL
from toolcrib.testing.scripted_source import ScriptedSource
from toolcrib.testing.vendors.anthropic_requests import prefix
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Turn

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
Answer = str | Sequence[ToolCallPart]

OPERATIONS = ["list", "find_tools", "expand_tool", "call_tool"]


def loan_fee(days: int, rate: float = 1.5) -> float:
    """Compute what it costs to borrow a tool for some days."""
    return days * rate


def borrowers() -> list[str]:
    """List who has borrowed something."""
    return ["Ada", "Brendan"]


class ResponsesServer(OpenAIServer):
    """Adds a field that the framework reads, because it supports newer versions of `openai` than the installed one."""

    def _response(self, turn: Turn, body: Json, search: str | None) -> Json:
        return {**super()._response(turn, body, search), "prompt_cache_diagnostics": None}


class Played:
    """A model that gives one answer after the other, and records the tools of each request."""

    def __init__(self, *answers: Answer) -> None:
        self.offered: list[list[str]] = []
        self._answers = iter(answers)
        self.model = FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.offered.append([each.name for each in info.function_tools])
        answer = next(self._answers)
        return ModelResponse([TextPart(answer)] if isinstance(answer, str) else list(answer))


def call(name: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments)


def returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def told(part: ToolReturnPart) -> Json:
    return json.loads(str(part.content))


@asynccontextmanager
async def opened(*functions: Callable[..., Any]) -> AsyncGenerator[Toolcrib]:
    crib = Toolcrib()
    for function in functions or (loan_fee, borrowers):
        crib.add(function)
    async with crib:
        yield crib


async def offered(crib: Toolcrib, source: ScriptedSource, changed: Tool) -> None:
    """Make the source offer the changed tool, and wait until the catalog has it."""
    source.offer(changed)
    await until(lambda: crib.registry.state.tools[changed.id] == changed, "the catalog has what the source offers")


EXPAND_FEE = call("expand_tool", tool_id="functions.loan_fee")
CALL_FEE = call("functions__loan_fee", days=3)


# -- finding, expanding, calling --------------------------------------------------------------------------------------


async def test_a_model_finds_expands_and_calls_a_tool_by_name() -> None:
    played = Played([call("find_tools", query="what borrowing costs")], [EXPAND_FEE], [CALL_FEE], "4.5")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("What for three days?")

    found, expanded, called = returns(done.all_messages())
    assert told(found)["results"][0]["tool_id"] == "functions.loan_fee"
    assert told(expanded) == {"callable_by_now": ["functions__loan_fee"]}
    assert called.content == "4.5"
    assert played.offered == [OPERATIONS, OPERATIONS, *[[*OPERATIONS, "functions__loan_fee"]] * 2]
    assert done.output == "4.5"


async def test_tools_that_a_search_shows_in_full_become_callable() -> None:
    played = Played([call("find_tools", query="what borrowing costs", detail_level="full", limit=1)], [CALL_FEE], "4.5")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("What for three days?")

    found, called = returns(done.all_messages())
    assert told(found)["callable_by_now"] == ["functions__loan_fee"]
    assert [each["tool_id"] for each in told(found)["results"]] == ["functions.loan_fee"]
    assert "args_schema" not in str(found.content)
    assert called.content == "4.5"


async def test_a_tool_can_be_called_by_handle_and_the_call_is_recorded() -> None:
    recorded: list[OperationPerformed] = []
    async with opened() as crib:
        crib.dispatcher.recorders.append(recorded.append)
        session = crib.session()
        handle = session.expand_tool("functions.loan_fee").handle
        played = Played([call("call_tool", tool_id=handle, arguments={"days": 2})], "3")
        done = await create_pydantic_agent(played.model, create_toolset(session)).run("Go")

    assert returns(done.all_messages())[0].content == "3.0"
    assert [(each.operation, each.outcome) for each in recorded][-1] == ("call_tool", "ok")


async def test_the_test_model_can_call_every_offered_tool() -> None:
    async with opened() as crib:
        toolset = CribToolset[object](crib.session(), tools=["functions.loan_fee"])
        done = await create_pydantic_agent(TestModel(), toolset).run("Go")

    assert json.loads(str(done.output)).keys() == {*OPERATIONS, "functions__loan_fee"}


async def test_session_tools_are_offered_and_callable_only_in_their_session() -> None:
    def shelf(number: int) -> str:
        """What lies on a shelf."""
        return f"saws {number}"

    async with opened() as crib:
        session = crib.session()
        own = session.tool_of(session.add(shelf))
        played = Played([call("shelf", number=1)], "Done")
        done = await create_pydantic_agent(played.model, CribToolset[object](session, tools=[own])).run("Go")
        other = Played([call("find_tools", query="what lies on a shelf")], "Done")
        elsewhere = await create_pydantic_agent(other.model, create_toolset(crib.session())).run("Go")

    assert played.offered[0] == [*OPERATIONS, "shelf"]
    assert returns(done.all_messages())[0].content == "saws 1"
    assert own.id not in str(returns(elsewhere.all_messages())[0].content)


async def test_a_given_tool_that_is_removed_during_a_run_is_no_longer_offered() -> None:
    played = Played([CALL_FEE], "Oh.")
    async with opened() as crib:

        def leave(event: OperationPerformed) -> None:
            crib.remove("functions.loan_fee")

        crib.dispatcher.recorders.append(leave)
        toolset = CribToolset[object](crib.session(), tools=["functions.loan_fee"])
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    assert played.offered == [[*OPERATIONS, "functions__loan_fee"], OPERATIONS]
    assert done.output == "Oh."


async def test_expanding_a_tool_that_is_already_offered_does_not_move_it() -> None:
    played = Played([EXPAND_FEE], "Ready.", "Done.")
    async with opened() as crib:
        agent = create_pydantic_agent(played.model, CribToolset[object](crib.session(), tools=["functions.loan_fee"]))
        first = await agent.run("Go")
        await agent.run("Go on", message_history=first.all_messages())

    assert told(returns(first.all_messages())[0]) == {"callable_by_now": ["functions__loan_fee"]}
    revealed = [
        part
        for message in first.all_messages()
        for part in message.parts
        if part.part_kind == "tool-availability-delta"
    ]
    assert revealed == []


async def test_an_unknown_given_tool_is_refused_at_the_start() -> None:
    async with opened() as crib:
        agent = create_pydantic_agent(TestModel(), CribToolset[object](crib.session(), tools=["functions.hammer"]))
        with pytest.raises(ToolNotFound, match="hammer"):
            await agent.run("Go")


@pytest.mark.parametrize("operations", ["most", ["list", "guess"]])
async def test_an_unknown_operation_or_operation_set_is_refused(operations: str | list[str]) -> None:
    async with opened() as crib:
        with pytest.raises(ValueError, match=r"operations are: .*list|sets are: compact"):
            CribToolset[object](crib.session(), operations=operations)


async def test_an_agent_with_its_own_deferred_tools_keeps_the_search_of_the_framework() -> None:
    def saw() -> str:
        """Saw a board."""
        return "sawn"

    played = Played([call("search_tools", queries=["saw"])], [call("saw"), EXPAND_FEE], [CALL_FEE], "Done")
    async with opened() as crib:
        own = FunctionToolset[object]([AgentTool(saw, defer_loading=True)])
        done = await Agent(
            played.model, toolsets=[create_toolset(crib.session()), own], capabilities=[ToolSearch("keywords")]
        ).run("Go")

    assert {"search_tools", "find_tools"} <= {*played.offered[0]}
    assert [part.content for part in returns(done.all_messages())][1::2] == ["sawn", "4.5"]


async def test_a_tool_whose_name_is_taken_by_the_agent_is_called_by_handle() -> None:
    def note(text: str) -> str:
        """Note something."""
        return f"noted {text}"

    handles: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answers = returns(messages)
        if not answers:
            return ModelResponse([call("expand_tool", tool_id=own.id)])
        if len(answers) == 1:
            handles.append(told(answers[0])["handle"])
            return ModelResponse([call("call_tool", tool_id=handles[0], arguments={"text": "it"})])
        return ModelResponse([TextPart("Done")])

    async with opened() as crib:
        session = crib.session()
        own = session.tool_of(session.add(note))
        agent = Agent(FunctionModel(answer), tools=[borrowers], toolsets=[create_toolset(session)])
        agent.tool_plain(name="note")(lambda: "the agent's")
        done = await agent.run("Go")

    assert returns(done.all_messages())[1].content == "noted it"


async def test_a_prefixed_toolset_works_with_prefixed_names() -> None:
    played = Played(
        [call("crib_expand_tool", tool_id="functions.loan_fee")], [call("crib_functions__loan_fee", days=3)], "Done"
    )
    async with opened() as crib:
        toolset = CribToolset[object](crib.session()).prefixed("crib")
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    assert returns(done.all_messages())[1].content == "4.5"


def test_injected_tools_are_counted_once_and_each_call_is_a_span() -> None:
    words = [sys.executable, "-m", "tests.adapters.counted"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "open-sesame" not in done.stdout
    told = json.loads(done.stdout)
    about = {"section": "", "delivery": "framework", "provider": "pydantic-ai"}
    assert told["counts"] == {"toolcrib.disclosure.dynamic": [[about, 1]], "toolcrib.tools.injected": [[about, 2]]}
    names = ["find_tools", "expand_tool", "expand_tool", "functions__whisper"]
    assert [span["name"] for span in told["spans"]] == [f"execute_tool {name}" for name in names]


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_invalid_arguments_are_answered_so_that_the_model_can_fix_them() -> None:
    bad = call("functions__loan_fee", days="many")
    played = Played([EXPAND_FEE], [bad], [CALL_FEE], "4.5")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("Go")

    _, refused, called = returns(done.all_messages())
    assert (refused.outcome, told(refused)["error"]["code"]) == ("retried", "INVALID_ARGUMENTS")
    assert told(refused)["error"]["details"]["violations"][0]["place"] == "/days"
    assert called.content == "4.5"


async def test_a_proposed_repair_calls_the_tool_by_name() -> None:
    played = Played([EXPAND_FEE], [call("functions__loan_fee", day=3)], "Done")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("Go")

    step = told(returns(done.all_messages())[1])["error"]["next_action"]
    assert step == {"operation": "functions__loan_fee", "arguments": {"days": 3}}


async def test_a_model_that_never_fixes_its_call_does_not_end_the_run() -> None:
    bad = [call("functions__loan_fee", days="many")]
    played = Played([EXPAND_FEE], bad, bad, bad, bad, "I give up.")
    async with opened() as crib:
        toolset = CribToolset[object](crib.session(), max_retries=2)
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    assert [part.outcome for part in returns(done.all_messages())] == [
        "success",
        "retried",
        "retried",
        "failed",
        "failed",
    ]
    assert done.output == "I give up."


async def test_arguments_that_are_not_an_object_never_reach_a_tool() -> None:
    played = Played([EXPAND_FEE], [ToolCallPart("functions__loan_fee", "[3]")], [CALL_FEE], "4.5")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("Go")

    assert [part.outcome for part in returns(done.all_messages())] == ["success", "retried", "success"]


async def test_a_tool_error_is_a_failed_result() -> None:
    def broken() -> str:
        """Break."""
        raise RuntimeError("worn out")

    played = Played([call("functions__broken")], "So be it.")
    async with opened(broken) as crib:
        toolset = CribToolset[object](crib.session(), tools=["functions.broken"])
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    (failed,) = returns(done.all_messages())
    assert failed.outcome == "failed"
    assert "worn out" in str(failed.content)


async def test_errors_refer_only_to_available_operations_by_their_local_names() -> None:
    unknown = call("call_tool", tool_id="functions.hammer")
    several = call("expand_tool", tool_ids=["functions.hammer", "functions.loan_fee"])
    played = Played([unknown], [several], [call("find_tools", query="zzz qqq")], "Done")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("Go")
        alone = Played([call("functions__loan_fee", days="many")], "Done")
        toolset = CribToolset[object](crib.session(), operations=(), tools=["functions.loan_fee"])
        without = await create_pydantic_agent(alone.model, toolset).run("Go")

    refused, expanded, _ = returns(done.all_messages())
    assert told(refused)["error"]["next_action"]["operation"] == "find_tools"
    assert told(expanded)["callable_by_now"] == ["functions__loan_fee"]
    assert told(expanded)["errors"][0]["error"]["next_action"]["operation"] == "find_tools"
    assert "search_tools" not in "".join(str(part.content) for part in returns(done.all_messages()))
    assert "next_action" not in told(returns(without.all_messages())[0])["error"]


async def test_a_definition_that_changes_during_a_run_is_stale_and_shown_again() -> None:
    angle = {"angle": {"type": "integer"}}
    old = tool("shop.saw", "Saw.", properties={})
    new = tool("shop.saw", "Saw, in a new way.", properties=angle, required=("angle",))
    source = ScriptedSource("shop", [old])
    descriptions: list[str | None] = []
    saw = call("shop__saw")
    plan: Iterator[Answer] = iter(
        [[call("expand_tool", tool_id="shop.saw")], [saw], [call("shop__saw", angle=45)], "Done"]
    )

    async with Toolcrib() as crib:
        crib.add_source(source)
        assert await crib.ready(10)

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            descriptions.extend(each.description for each in info.function_tools if each.name == "shop__saw")
            if len(descriptions) == 1:
                await offered(crib, source, new)
            said = next(plan)
            return ModelResponse([TextPart(said)] if isinstance(said, str) else list(said))

        done = await create_pydantic_agent(FunctionModel(answer), create_toolset(crib.session())).run("Go")

    _, stale, called = returns(done.all_messages())
    assert told(stale)["error"]["code"] == "STALE_EXPANSION"
    assert called.outcome == "success"
    assert descriptions[:2] == ["Saw.", "Saw, in a new way."]


async def test_images_are_passed_to_the_model_as_images() -> None:
    picture = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}
    odd = {"type": "image", "data": "!", "mimeType": "image/png"}
    result = ToolResult({"content": [{"type": "text", "text": "Look:"}, picture, odd]})
    source = ScriptedSource("shop", [tool("shop.look", "Look.")], answers={"look": result})
    played = Played([call("shop__look")], "Seen")
    async with Toolcrib() as crib:
        crib.add_source(source)
        assert await crib.ready(10)
        toolset = CribToolset[object](crib.session(), tools=["shop.look"])
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    (part,) = returns(done.all_messages())
    assert [file.data for file in part.files if isinstance(file, BinaryContent)] == [b"png"]
    assert "Look:" in str(part.content)


# -- a person's approval ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def asking(*tools: Any) -> AsyncGenerator[tuple[Toolcrib, ScriptedSource]]:
    """A crib whose policy requires approval of every call."""
    source = ScriptedSource("git", tools or [PUSH])
    async with Toolcrib(policy=Rules((), Access.ASK)) as crib:
        crib.add_source(source)
        assert await crib.ready(10)
        yield crib, source


PUSH = tool("git.push", "Send commits away.", properties={"to": {"type": "string"}}, required=("to",))
PUSHING = call("git__push", to="home")


def deferred(output: object) -> DeferredToolRequests:
    assert isinstance(output, DeferredToolRequests)
    return output


async def test_a_call_that_needs_approval_is_deferred_and_runs_after_approval() -> None:
    recorded: list[OperationPerformed] = []
    async with asking() as (crib, source):
        crib.dispatcher.recorders.append(recorded.append)
        played = Played([PUSHING], "Pushed.")
        agent = create_pydantic_agent(played.model, CribToolset[object](crib.session(), tools=["git.push"]))
        first = await agent.run("Push")
        requests = deferred(first.output)
        (asked,) = requests.approvals
        assert source.calls == []
        results = requests.build_results(approve_all=True)
        done = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)

    question = requests.metadata[asked.tool_call_id]["toolcrib"]
    assert (asked.tool_name, question["tool_id"]) == ("git__push", "git.push")
    assert 'run "git.push"' in question["question"]
    assert 'to: "home"' in question["question"]
    assert source.calls == [("push", {"to": "home"})]
    assert done.output == "Pushed."
    assert [(each.outcome, each.approval) for each in recorded] == [("NOT_AUTHORIZED", "unanswered"), ("ok", "once")]


async def test_a_call_through_call_tool_asks_for_approval_of_the_called_tool() -> None:
    async with asking() as (crib, source):
        session = crib.session()
        handle = session.expand_tool("git.push").handle
        played = Played([call("call_tool", tool_id=handle, arguments={"to": "home"})], "Pushed.")
        agent = create_pydantic_agent(played.model, create_toolset(session))
        first = await agent.run("Push")
        requests = deferred(first.output)
        results = requests.build_results(approve_all=True)
        await agent.run(message_history=first.all_messages(), deferred_tool_results=results)

    assert [each["toolcrib"]["tool_id"] for each in requests.metadata.values()] == ["git.push"]
    assert source.calls == [("push", {"to": "home"})]


async def test_a_denied_call_does_not_run_and_the_model_is_informed() -> None:
    async with asking() as (crib, source):
        played = Played([PUSHING], "All right.")
        agent = create_pydantic_agent(played.model, CribToolset[object](crib.session(), tools=["git.push"]))
        first = await agent.run("Push")
        (asked,) = deferred(first.output).approvals
        results = DeferredToolResults(approvals={asked.tool_call_id: ToolDenied("Not today.")})
        done = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)

    assert source.calls == []
    assert [(part.outcome, part.content) for part in returns(done.all_messages())] == [("denied", "Not today.")]


async def test_approval_is_not_requested_for_invalid_arguments() -> None:
    async with asking() as (crib, source):
        played = Played([call("git__push", to=1)], [PUSHING])
        toolset = CribToolset[object](crib.session(), tools=["git.push"])
        first = await create_pydantic_agent(played.model, toolset).run("Push")

    (refused,) = returns(first.all_messages())
    assert told(refused)["error"]["code"] == "INVALID_ARGUMENTS"
    assert [asked.args for asked in deferred(first.output).approvals] == [{"to": "home"}]
    assert source.calls == []


async def test_arguments_replaced_by_the_approver_are_validated() -> None:
    async with asking() as (crib, source):
        played = Played([PUSHING], "Oh.", [PUSHING], "Pushed.")
        agent = create_pydantic_agent(played.model, CribToolset[object](crib.session(), tools=["git.push"]))
        for to in (5, "work"):
            first = await agent.run("Push")
            (asked,) = deferred(first.output).approvals
            approved = DeferredToolResults(approvals={asked.tool_call_id: ToolApproved(override_args={"to": to})})
            await agent.run(message_history=first.all_messages(), deferred_tool_results=approved)

    assert source.calls == [("push", {"to": "work"})]


async def test_a_definition_that_changed_after_the_request_needs_a_new_approval() -> None:
    async with asking() as (crib, source):
        played = Played([PUSHING], "Pushed.")
        agent = create_pydantic_agent(played.model, CribToolset[object](crib.session(), tools=["git.push"]))
        first = await agent.run("Push")
        changed = tool("git.push", "Send all away.", properties={"to": {"type": "string"}}, required=("to",))
        await offered(crib, source, changed)
        results = deferred(first.output).build_results(approve_all=True)
        second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
        (asked,) = deferred(second.output).approvals
        assert source.calls == []
        assert deferred(first.output).metadata != deferred(second.output).metadata
        again = DeferredToolResults(approvals={asked.tool_call_id: True})
        await agent.run(message_history=second.all_messages(), deferred_tool_results=again)


@pytest.mark.parametrize("gives_back", [True, False])
async def test_a_different_process_runs_an_approved_call_only_with_the_request_metadata(
    gives_back: bool,
) -> None:
    async with asking() as (crib, source):

        def agent(*answers: Answer) -> Agent[object, Any]:
            toolset = CribToolset[object](crib.session(), tools=["git.push"])
            return create_pydantic_agent(Played(*answers).model, toolset)

        first = await agent([PUSHING]).run("Push")
        requests = deferred(first.output)
        history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        results = requests.build_results(approve_all=True, metadata=requests.metadata if gives_back else None)
        done = await agent("Pushed.").run(message_history=history, deferred_tool_results=results)

    assert isinstance(done.output, DeferredToolRequests) is not gives_back
    assert len(source.calls) == gives_back


async def test_a_permanently_approved_tool_runs_without_a_request() -> None:
    async with asking() as (crib, source):
        session = crib.session()
        view = session.view()
        push = view.tools["git.push"]
        played = Played([PUSHING], "Pushed.")
        agent = create_pydantic_agent(played.model, CribToolset[object](session, tools=["git.push"]))
        asked = deferred((await agent.run("Push")).output)
        (about,) = asked.metadata.values()
        await crib.dispatcher.runner.approver.approvals.keep("local", push.id, about["toolcrib"]["definition"])
        again = create_pydantic_agent(
            Played([PUSHING], "Pushed.").model, CribToolset[object](session, tools=["git.push"])
        )
        assert (await again.run("Push")).output == "Pushed."

    assert source.calls == [("push", {"to": "home"})]


async def test_a_handler_can_approve_calls_within_the_run() -> None:
    def approve(ctx: object, requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    async with asking() as (crib, source):
        played = Played([PUSHING, call("git__push", to="work")], "Pushed.")
        toolset = CribToolset[object](crib.session(), tools=["git.push"])
        handler = HandleDeferredToolCalls[object](approve)
        done = await Agent(played.model, toolsets=[toolset], capabilities=[handler]).run("Push")

    assert done.output == "Pushed."
    assert source.calls == [("push", {"to": "home"}), ("push", {"to": "work"})]


class Person(Approver):
    """Gives the same answer to every request, and records the requests."""

    def __init__(self, answer: Consent) -> None:
        super().__init__()
        self.asked: list[tuple[str, Intent]] = []
        self._answer: Consent = answer

    def of(self, ctx: RunContext[object]) -> Approver:
        return Asking(self, ctx.tool_call_id or "")

    def say(self, call_id: str, intent: Intent) -> Consent:
        self.asked.append((call_id, intent))
        return self._answer


class Asking(Approver):
    """Asks the person about one call."""

    def __init__(self, person: Person, call_id: str) -> None:
        super().__init__(person.approvals)
        self._person = person
        self._call_id = call_id

    async def ask(self, intent: Intent, context: CallContext) -> Consent:
        consent = self._person.say(self._call_id, intent)
        context.note_approval(consent)
        if consent not in {"once", "always"}:
            raise NotAuthorized("The person said no.")
        return consent


@pytest.mark.parametrize("answer", ["once", "refused"])
async def test_an_approver_is_asked_during_the_run_with_the_id_of_the_call(answer: Consent) -> None:
    recorded: list[OperationPerformed] = []
    person = Person(answer)
    async with asking() as (crib, source):
        crib.dispatcher.recorders.append(recorded.append)
        session = crib.session()
        by_handle = call("call_tool", tool_id=session.expand_tool("git.push").handle, arguments={"to": "work"})
        recorded.clear()
        played = Played([PUSHING, by_handle], "Well.")
        toolset = CribToolset[object](session, tools=["git.push"], approver=person.of)
        done = await create_pydantic_agent(played.model, toolset).run("Push")

    calls = [PUSHING.tool_call_id, by_handle.tool_call_id]
    assert [(call_id, intent.subject) for call_id, intent in person.asked] == [(each, "git.push") for each in calls]
    assert [intent.arguments for _, intent in person.asked] == [{"to": "home"}, {"to": "work"}]
    was_run = answer == "once"
    assert len(source.calls) == 2 * was_run
    assert [part.outcome for part in returns(done.all_messages())] == ["success" if was_run else "failed"] * 2
    assert ("The person said no." in str(returns(done.all_messages())[0].content)) is not was_run
    assert [each.approval for each in recorded] == [answer, answer]
    assert done.output == "Well."


async def test_an_approver_is_not_asked_about_invalid_arguments() -> None:
    person = Person("once")
    async with asking() as (crib, source):
        played = Played([call("git__push", to=1)], [PUSHING], "Pushed.")
        toolset = CribToolset[object](crib.session(), tools=["git.push"], approver=person.of)
        await create_pydantic_agent(played.model, toolset).run("Push")

    assert [call_id for call_id, _ in person.asked] == [PUSHING.tool_call_id]
    assert source.calls == [("push", {"to": "home"})]


async def test_a_permanent_approval_is_stored_in_the_approvals_of_the_approver() -> None:
    person = Person("always")
    async with asking() as (crib, _):
        toolset = CribToolset[object](crib.session(), tools=["git.push"], approver=person.of)
        await create_pydantic_agent(Played([PUSHING], "Pushed.").model, toolset).run("Push")

    ((_, intent),) = person.asked
    assert await person.approvals.holds("local", "git.push", intent.definition)


async def test_with_only_read_other_tools_are_refused_without_asking_for_approval() -> None:
    modes = [True, False]
    person = Person("once")
    look = replace(tool("git.look", "Look."), annotations=ToolAnnotations(read_only=True))
    source = ScriptedSource("git", [PUSH, look])
    async with Toolcrib(policy=Rules((), Access.ASK)) as crib:
        crib.add_source(source, trusted=True)
        assert await crib.ready(10)
        played = Played([call("git__look"), PUSHING], [PUSHING], "Pushed.")
        toolset = CribToolset[object](
            crib.session(), tools=["git.look", "git.push"], approver=person.of, only_read=lambda: modes[0]
        )

        def rest(event: OperationPerformed) -> None:
            if event.outcome == "NOT_AUTHORIZED":
                modes.pop(0)

        crib.dispatcher.recorders.append(rest)
        done = await create_pydantic_agent(played.model, toolset).run("Push")

    looked, refused, pushed = returns(done.all_messages())
    assert [looked.outcome, refused.outcome, pushed.outcome] == ["success", "failed", "success"]
    error = told(refused)["error"]
    assert "may change something" in error["message"]
    assert error["next_action"]["operation"] == "list", "the same again would be refused again"
    assert [name for name, _ in source.calls] == ["look", "push"]
    assert [intent.subject for _, intent in person.asked] == ["git.look", "git.push"]


async def test_a_call_that_exceeds_its_timeout_fails() -> None:
    async def hang() -> str:
        """Hang."""
        await anyio.sleep_forever()
        raise AssertionError

    played = Played([call("functions__hang")], "Oh.")
    async with opened(hang) as crib:
        toolset = CribToolset[object](crib.session(), tools=["functions.hang"], call_timeout_s=0)
        done = await create_pydantic_agent(played.model, toolset).run("Go")

    (given_up,) = returns(done.all_messages())
    assert given_up.outcome == "failed"
    assert "did not finish within 0 seconds" in str(given_up.content)


# -- message histories ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [False, True])
async def test_a_run_that_continues_a_history_has_its_expanded_tools(written: bool) -> None:
    async with opened() as crib:
        first = await create_pydantic_agent(Played([EXPAND_FEE], "Ready.").model, create_toolset(crib.session())).run(
            "Get ready"
        )
        history = first.all_messages()
        if written:
            history = ModelMessagesTypeAdapter.validate_json(first.all_messages_json())
        played = Played([CALL_FEE], "4.5")
        second = await create_pydantic_agent(played.model, create_toolset(crib.session())).run(
            "Go", message_history=history
        )

    assert played.offered[0] == [*OPERATIONS, "functions__loan_fee"]
    assert returns(second.new_messages())[0].content == "4.5"


async def test_removed_tools_are_missing_in_a_run_that_continues_a_history() -> None:
    async with opened() as crib:
        agent = create_pydantic_agent(Played([EXPAND_FEE], "Ready.").model, create_toolset(crib.session()))
        first = await agent.run("Get ready")
        crib.remove("functions.loan_fee")
        played = Played("Oh.")
        await create_pydantic_agent(played.model, create_toolset(crib.session())).run(
            "Go", message_history=first.all_messages()
        )

    assert played.offered == [OPERATIONS]


async def test_concurrent_runs_of_one_agent_have_only_their_own_expanded_tools() -> None:
    opens = {"fee": "functions.loan_fee", "people": "functions.borrowers"}
    seen: dict[str, list[str]] = {}
    both = {"fee": anyio.Event(), "people": anyio.Event()}

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        who = str(messages[0].parts[0].content)  # type: ignore[union-attr]  # pyright: ignore
        if not returns(messages):
            return ModelResponse([call("expand_tool", tool_id=opens[who])])
        seen[who] = [each.name for each in info.function_tools if each.name not in OPERATIONS]
        both[who].set()
        for each in both.values():
            await each.wait()
        return ModelResponse([TextPart("Done")])

    async with opened() as crib:
        agent = create_pydantic_agent(FunctionModel(answer), create_toolset(crib.session()))
        async with anyio.create_task_group() as tasks:
            for who in opens:
                tasks.start_soon(agent.run, who)

    assert seen == {"fee": ["functions__loan_fee"], "people": ["functions__borrowers"]}


async def test_a_tool_cannot_be_called_in_the_same_answer_that_expands_it() -> None:
    played = Played([EXPAND_FEE, CALL_FEE], [CALL_FEE], "4.5")
    async with opened() as crib:
        done = await create_pydantic_agent(played.model, create_toolset(crib.session())).run("Go")

    assert [part.outcome for part in returns(done.all_messages())] == ["success", "retried", "success"]


# -- requests over HTTP -----------------------------------------------------------------------------------------------

SCRIPT = [
    Turn(calls=(Call("expand_tool", '{"tool_id": "functions.loan_fee"}'),)),
    Turn(calls=(Call("functions__loan_fee", '{"days": 3}'),)),
    Turn(calls=(Call("expand_tool", '{"tool_id": "functions.borrowers"}'),)),
    Turn(calls=(Call("functions__borrowers"), Call("functions__loan_fee", '{"days": 2}'))),
    Turn("Done."),
]
GOING_ON = [Turn(calls=(Call("functions__borrowers"),)), Turn("Done again.")]


@asynccontextmanager
async def responses(server: OpenAIServer) -> AsyncGenerator[Model]:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with AsyncOpenAI(base_url=server.base_url, api_key="any") as client:
        yield OpenAIResponsesModel("gpt-5.6", provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def chat(server: OpenAIServer) -> AsyncGenerator[Model]:
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with AsyncOpenAI(base_url=server.base_url, api_key="any") as client:
        yield OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))


@asynccontextmanager
async def claude(server: AnthropicServer, model: str) -> AsyncGenerator[Model]:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    async with AsyncAnthropic(base_url=server.url, api_key="any") as client:
        yield AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


async def wire(server: OpenAIServer | AnthropicServer, models: AbstractAsyncContextManager[Model]) -> list[Json]:
    """Return the requests of a run that expands two tools and calls both, and of a run that continues it."""
    async with opened() as crib, models as model:
        agent = create_pydantic_agent(model, create_toolset(crib.session()))
        first = await agent.run("Go")
        assert {"4.5", "3.0"} <= {str(part.content) for part in returns(first.all_messages())}
        assert first.output == "Done."
        again = create_pydantic_agent(model, create_toolset(crib.session()))
        assert (await again.run("Go on", message_history=first.all_messages())).output == "Done again."
    return [request.content for request in server.requests]


async def test_openai_requests_keep_the_same_prefix_when_tools_are_expanded() -> None:
    async with ResponsesServer([*SCRIPT, *GOING_ON]) as server:
        requests = await wire(server, responses(server))

    assert len(requests) == len(SCRIPT) + len(GOING_ON)
    for earlier, later in pairwise(requests):
        assert later["tools"] == earlier["tools"]
        assert later.get("instructions") == earlier.get("instructions")
        assert is_prefix(earlier["input"], later["input"])
    assert [tool["name"] for tool in requests[-1]["tools"]] == OPERATIONS
    brought = [item["tools"][0]["name"] for item in requests[-1]["input"] if item.get("type") == "additional_tools"]
    assert brought == ["functions__loan_fee", "functions__borrowers"]


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-haiku-4-5"])
async def test_claude_requests_keep_the_same_prefix_and_reveal_expanded_tools_after_it(model: str) -> None:
    async with AnthropicServer([*SCRIPT, *GOING_ON]) as server:
        requests = await wire(server, claude(server, model))

    for earlier, later in pairwise(requests):
        assert is_prefix(earlier["tools"], later["tools"]), "what is held back is not in the prompt until it is opened"
        assert all(tool.get("defer_loading") for tool in later["tools"][len(OPERATIONS) :])
        assert is_prefix(earlier["messages"], later["messages"])
        end = len(earlier["messages"])
        assert prefix(later, end) == prefix(earlier, end)
    assert [tool["name"] for tool in requests[-1]["tools"]] == [*OPERATIONS, *OPENED]


OPENED = ["functions__loan_fee", "functions__borrowers"]


async def test_without_deferred_tools_the_tool_list_grows_at_its_end() -> None:
    async with OpenAIServer([*SCRIPT, *GOING_ON]) as server:
        requests = await wire(server, chat(server))
    lists = [[tool["function"]["name"] for tool in request["tools"]] for request in requests]
    async with AnthropicServer([*SCRIPT, *GOING_ON]) as claudes:
        older = await wire(claudes, claude(claudes, "claude-opus-4-1"))

    assert [[tool["name"] for tool in request["tools"]] for request in older] == lists
    assert lists == [
        OPERATIONS,
        *[[*OPERATIONS, OPENED[0]]] * 2,
        *[[*OPERATIONS, *OPENED]] * 4,
    ]
    assert not any(tool.get("defer_loading") for request in older for tool in request["tools"])


async def test_schemas_are_sent_unchanged_and_refused_parts_are_in_the_description() -> None:
    either: Json = {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {}, "b": {}},
    }
    source = ScriptedSource("shop", [Tool("shop", "cut", "Cut.", either)])
    for kind in (ResponsesServer, AnthropicServer):
        async with kind([Turn("Done.")]) as server, Toolcrib() as crib:
            crib.add_source(source)
            assert await crib.ready(10)
            models = responses(server) if isinstance(server, OpenAIServer) else claude(server, "claude-opus-4-8")
            async with models as model:
                toolset = CribToolset[object](crib.session(), tools=["shop.cut"])
                await create_pydantic_agent(model, toolset).run("Go")
            sent = server.requests[0].content["tools"]
        by_name = {each["name"]: each for each in sent}
        schema = by_name["call_tool"].get("parameters") or by_name["call_tool"]["input_schema"]
        assert "additionalProperties" not in schema["properties"]["arguments"], "a handle's tool takes what it takes"
        assert '"anyOf"' in by_name["shop__cut"]["description"]


# -- the whole catalog as deferred tools ------------------------------------------------------------------------------


async def test_with_all_tools_the_search_of_the_framework_ranks_like_the_session() -> None:
    played = Played([call("search_tools", queries=["what borrowing costs", "who borrowed"])], [CALL_FEE], "4.5")
    async with opened() as crib:
        toolset = CribToolset[object](crib.session(), operations=ALL)
        agent = Agent(played.model, toolsets=[toolset], capabilities=[ToolSearch[object](strategy=toolset.search)])
        done = await agent.run("Go")

    found, called = returns(done.all_messages())
    assert played.offered[0] == ["search_tools"]
    assert {each["name"] for each in found.content["discovered_tools"]} == {*OPENED}  # type: ignore[index]  # pyright: ignore
    assert called.content == "4.5"


async def test_claude_gets_the_whole_catalog_deferred_and_a_search_keeps_the_prefix() -> None:
    script = [
        Turn(calls=(Call("search_tools", '{"queries": ["what borrowing costs"]}'),)),
        Turn(calls=(Call("functions__loan_fee", '{"days": 3}'),)),
        Turn("Done."),
    ]
    async with AnthropicServer(script) as server, opened() as crib, claude(server, "claude-opus-4-8") as model:
        toolset = CribToolset[object](crib.session(), operations=ALL)
        search = ToolSearch[object](strategy=toolset.search)
        agent = Agent(model, toolsets=[toolset], capabilities=[search])
        done = await agent.run("Go")

    first, *rest = [request.content for request in server.requests]
    assert len(rest) == 2
    assert {tool["name"] for tool in first["tools"] if tool.get("defer_loading")} == {*OPENED}
    assert all(request["tools"] == first["tools"] for request in rest)
    assert returns(done.all_messages())[-1].content == "4.5"


async def test_openai_searches_the_deferred_catalog_like_the_session() -> None:
    script = [
        Turn(calls=(Call("tool_search", '{"queries": ["what borrowing costs"]}'),)),
        Turn(calls=(Call("functions__loan_fee", '{"days": 3}'),)),
        Turn("Done."),
    ]
    async with ResponsesServer(script) as server, opened() as crib, responses(server) as model:
        toolset = CribToolset[object](crib.session(), operations=ALL)
        search = ToolSearch[object](strategy=toolset.search)
        done = await Agent(model, toolsets=[toolset], capabilities=[search]).run("Go")

    first, *rest = [request.content for request in server.requests]
    assert len(rest) == 2
    assert all(request["tools"] == first["tools"] for request in rest)
    assert returns(done.all_messages())[-1].content == "4.5"
