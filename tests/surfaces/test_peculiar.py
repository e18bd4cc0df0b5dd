"""Tests that unusual but legal behavior of servers does not break clients."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from tests.servers.launching import ROOT, write_config
from tests.surfaces.serving import Json, Mode, ask, run_tool, text_of
from tests.surfaces.test_http import serving
from tests.surfaces.test_pass_through import Person, client_of

pytestmark = pytest.mark.anyio

CLIENTS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def peculiar(*words: str) -> Json:
    return {"command": sys.executable, "args": ["-m", "tests.servers.peculiar", *words], "cwd": str(ROOT)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    config = write_config(tmp_path_factory.mktemp("shared") / "mcp.json", odd=peculiar("odd-schemas"))
    with serving(config) as gateway:
        yield gateway.url


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    config = write_config(tmp_path_factory.mktemp("listing") / "mcp.json", odd=peculiar("odd-schemas"))
    with serving(config, "127.0.0.1:0", "--operations", "all") as gateway:
        yield gateway.url


@CLIENTS
async def test_a_result_with_an_integer_beyond_64_bits_is_returned(mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        result = await run_tool(client, "odd.beyond_64_bits")
        assert (text_of(result), result.structured_content) == ("ran", {"n": 2**70})


@CLIENTS
async def test_a_result_in_the_format_of_2024_is_understood(mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        result = await run_tool(client, "odd.first_version")
        assert (text_of(result), result.is_error) == ("as it was in 2024", True)


@CLIENTS
async def test_tools_with_unusual_schemas_are_listed_with_the_others(mode: Mode, shared: str, listing: str) -> None:
    async with client_of(shared, mode) as client:
        found = {tool["tool_id"] for tool in (await ask(client, "list", path=["odd"], limit=50))["tools"]}
        assert {"odd.list_output", "odd.object_or_null", "odd.ask_two"} <= found
    async with client_of(listing, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"odd__list_output", "odd__object_or_null", "odd__ask_two"} <= tools.keys()
        assert tools["odd__object_or_null"].input_schema["type"] == "object"


@CLIENTS
async def test_a_client_gets_no_elicitation_mode_that_it_does_not_support(mode: Mode, shared: str) -> None:
    person = Person()
    only_forms: dict[str, Any] = {"elicitation_callback": person.elicit}

    class OnlyForms(Client):
        async def _build_session(self, exit_stack: Any) -> Any:
            session = await super()._build_session(exit_stack)
            declared = mcp_types.ClientCapabilities.model_validate({"elicitation": {"form": {}}})
            session._build_capabilities = lambda version: declared  # pyright: ignore[reportPrivateUsage]
            return session

    async with OnlyForms(shared, mode=mode, **only_forms) as client:
        refused = json.loads(text_of(await run_tool(client, "odd.ask_for_address")))
        assert refused["code"] == mcp_types.INVALID_REQUEST
        assert "mode `url`" in refused["message"]
    assert person.asked == []


@CLIENTS
async def test_an_input_request_of_a_cancelled_call_reaches_no_other_client(mode: Mode, tmp_path: Path) -> None:
    said: list[str] = []
    both_run = (anyio.Event(), anyio.Event())

    async def call(client: Client, tool: str, runs: anyio.Event) -> None:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            runs.set()

        handle = (await ask(client, "expand_tool", tool_id=f"odd.{tool}"))["handle"]
        given: Json = {"tool_id": handle, "arguments": {}}
        said.append(text_of(await client.call_tool("call_tool", given, progress_callback=hear)))

    with serving(write_config(tmp_path / "mcp.json", odd=peculiar())) as gateway:
        async with (
            client_of(gateway.url, mode, person=(gone := Person())) as asker,
            client_of(gateway.url, mode, person=(other := Person())) as client,
            anyio.create_task_group() as waiting,
        ):
            waiting.start_soon(call, client, "said_late", both_run[0])
            async with anyio.create_task_group() as asking:
                asking.start_soon(call, asker, "ask_late", both_run[1])
                for runs in both_run:
                    await runs.wait()
                asking.cancel_scope.cancel()
    assert [json.loads(each)["code"] for each in said] == [mcp_types.INVALID_REQUEST]
    assert (gone.asked, other.asked) == ([], [])


@CLIENTS
async def test_progress_continues_after_an_input_request(mode: Mode, shared: str) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async with client_of(shared, mode, person=Person()) as client:
        handle = (await ask(client, "expand_tool", tool_id="odd.ask_then_report"))["handle"]
        call: Json = {"tool_id": handle, "arguments": {}}
        result = await client.call_tool("call_tool", call, progress_callback=hear)
        assert text_of(result) == "done"
    assert heard == [0, 1, 2]


@CLIENTS
async def test_two_concurrent_input_requests_are_both_answered(mode: Mode, shared: str) -> None:
    async with client_of(shared, mode, person=(person := Person())) as client:
        said = json.loads(text_of(await run_tool(client, "odd.ask_two")))
        assert {name: each["action"] for name, each in said.items()} == {"left": "decline", "right": "decline"}
        assert sorted(person.asked) == ["left", "right"]


async def test_two_input_requests_can_be_answered_one_at_a_time(shared: str) -> None:
    async with client_of(shared, "auto", person=Person()) as client:
        handle = (await ask(client, "expand_tool", tool_id="odd.ask_two"))["handle"]
        call: Json = {"tool_id": handle, "arguments": {}}
        result = await client.session.call_tool("call_tool", call, allow_input_required=True)
        answered: list[str] = []
        while isinstance(result, mcp_types.InputRequiredResult):
            key = next(iter(result.input_requests or {}))
            answered.append(key)
            result = await client.session.call_tool(
                "call_tool",
                call,
                input_responses={key: mcp_types.ElicitResult(action="cancel")},
                request_state=result.request_state,
                allow_input_required=True,
            )
        assert len(answered) == len({*answered}) == 2
        assert {each["action"] for each in json.loads(text_of(result)).values()} == {"cancel"}


@CLIENTS
async def test_a_completion_can_request_input_only_from_older_clients(mode: Mode, shared: str) -> None:
    async with client_of(shared, mode, person=(person := Person())) as client:
        prompt = mcp_types.PromptReference(type="ref/prompt", name="odd__plan")
        if mode == "auto":
            given = await client.complete(prompt, {"name": "day", "value": ""})
            assert json.loads(given.completion.values[0])["code"] == mcp_types.INVALID_REQUEST
            assert person.asked == []
        else:  # version 2025-11-25 allows an input request during any other request
            await client.complete(prompt, {"name": "day", "value": ""})
            assert person.asked == ["Go on?"]


async def test_a_hanging_prompt_list_does_not_delay_tools(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", toolcrib={"list_timeout_s": 86_400}, odd=peculiar("hanging-prompts"))
    async with client_of(config, "auto") as client:
        assert text_of(await run_tool(client, "odd.beyond_64_bits")) == "ran"
        assert (await client.list_prompts()).prompts == []


async def test_a_client_that_leaves_during_an_input_request_releases_the_server(shared: str) -> None:
    class Absent(Person):
        def __init__(self) -> None:
            super().__init__()
            self.was_asked = anyio.Event()

        async def elicit(
            self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
        ) -> mcp_types.ElicitResult:
            self.was_asked.set()
            await anyio.sleep_forever()
            raise AssertionError

    absent = Absent()
    async with client_of(shared, "auto", person=absent) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(run_tool, client, "odd.ask_then_report")
        await absent.was_asked.wait()
        tasks.cancel_scope.cancel()
    async with client_of(shared, "auto") as client:  # other clients are still served
        assert text_of(await run_tool(client, "odd.beyond_64_bits")) == "ran"
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool("call_tool", {"tool_id": "x"}, request_state="suspended:made up")
