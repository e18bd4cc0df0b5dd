"""Tests that prompts, resources, completions and input requests pass through the gateway."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.session import MessageHandlerFnT
from mcp.client.stdio import stdio_client
from pydantic import FileUrl
from tests.servers.launching import ROOT, write_config
from tests.surfaces.serving import TOOLCRIB, Json, Mode, ask, run_tool, text_of
from tests.surfaces.test_http import serving
from tests.until import until

pytestmark = pytest.mark.anyio

FIXTURE = {"command": sys.executable, "args": ["-m", "tests.interop.fixture_server"], "cwd": str(ROOT)}
HANDSHAKE_FIXTURE = {**FIXTURE, "args": [*FIXTURE["args"], "--era", "legacy"]}

SERVERS = {"newer": FIXTURE, "handshake": HANDSHAKE_FIXTURE}

CLIENTS = pytest.mark.parametrize("mode", ["legacy", "auto"])
ERAS = pytest.mark.parametrize("source", [*SERVERS])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a gateway over servers of both versions, for tests that do not change it."""
    config = write_config(tmp_path_factory.mktemp("shared") / "mcp.json", **SERVERS)
    with serving(config) as gateway:
        yield gateway.url


@pytest.fixture(scope="module")
def listing(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a gateway that lists all tools. The newer server has plain names."""
    toolcrib = {"sources": {"newer": {"plain_names": True}}}
    config = write_config(tmp_path_factory.mktemp("listing") / "mcp.json", toolcrib=toolcrib, **SERVERS)
    with serving(config, "127.0.0.1:0", "--operations", "all") as gateway:
        yield gateway.url


class Person:
    """Answers the requests to a client and records them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        self.asked.append(params.message)
        if "name" in params.message:
            return mcp_types.ElicitResult(action="accept", content={"name": "Ada"})
        if "color" in params.message:
            return mcp_types.ElicitResult(action="accept", content={"color": "blue"})
        return mcp_types.ElicitResult(action="decline")

    async def list_roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult:
        self.asked.append("roots")
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri=FileUrl("file:///home/ada"), name="home")])

    async def sample(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> mcp_types.CreateMessageResult:
        self.asked.append("sample")
        content = mcp_types.TextContent(type="text", text="Paris")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="a model")


@asynccontextmanager
async def client_of(
    gateway: Path | str,
    mode: Mode,
    *words: str,
    person: Person | None = None,
    heard: MessageHandlerFnT | None = None,
) -> AsyncGenerator[Client]:
    """Yields a client whose input requests `person` answers. `gateway` is an address, or the configuration of a
    stdio gateway."""
    able: dict[str, Any] = {}
    if person is not None:
        able = {
            "elicitation_callback": person.elicit,
            "list_roots_callback": person.list_roots,
            "sampling_callback": person.sample,
        }
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123, ASYNC230  a device, not a file
        command = StdioServerParameters(
            command=TOOLCRIB, args=["serve", str(gateway), "--no-cache", "--no-audit", *words]
        )
        server = gateway if isinstance(gateway, str) else stdio_client(command, errlog=nowhere)
        async with Client(server, mode=mode, message_handler=heard, **able) as client:
            yield client


@CLIENTS
@ERAS
async def test_prompts_are_listed_with_source_prefixes_and_can_be_fetched(source: str, mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert {"newer__test_simple_prompt", "handshake__test_simple_prompt"} <= prompts.keys()
        arguments = prompts[f"{source}__test_prompt_with_arguments"].arguments or []
        assert [argument.name for argument in arguments] == ["arg1", "arg2"]
        got = await client.get_prompt(f"{source}__test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert text_of(got.messages[0]) == "Prompt with arguments: arg1='a', arg2='b'"
        with pytest.raises(MCPError, match="Prompt `test_simple_prompt` not found") as refused:
            await client.get_prompt("test_simple_prompt")
        assert refused.value.code == mcp_types.INVALID_PARAMS


@CLIENTS
@ERAS
async def test_resources_are_listed_with_source_uris_and_can_be_read(source: str, mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        uris = {resource.uri for resource in (await client.list_resources()).resources}
        assert {"toolcrib://newer/test://static-text", "toolcrib://handshake/test://static-text"} <= uris
        (held,) = (await client.read_resource(f"toolcrib://{source}/test://static-text")).contents
        assert isinstance(held, mcp_types.TextResourceContents)
        assert held.uri == f"toolcrib://{source}/test://static-text"
        assert held.text == "This is the content of the static text resource."
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert f"toolcrib://{source}/test://template/{{id}}/data" in templates
        (made,) = (await client.read_resource(f"toolcrib://{source}/test://template/7/data")).contents
        assert '"id": "7"' in getattr(made, "text", "")
        for unknown in ("toolcrib://nobody/test://static-text", "test://static-text", f"toolcrib://{source}/test://no"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(unknown)
            assert refused.value.code == mcp_types.INVALID_PARAMS


@CLIENTS
@ERAS
async def test_a_resource_embedded_in_a_prompt_can_be_read_by_its_uri(source: str, mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        asked = {"resourceUri": "test://static-text"}
        got = await client.get_prompt(f"{source}__test_prompt_with_embedded_resource", asked)
        embedded = got.messages[0].content
        assert isinstance(embedded, mcp_types.EmbeddedResource)
        (held,) = (await client.read_resource(embedded.resource.uri)).contents
        assert getattr(held, "text", "") == "This is the content of the static text resource."


@CLIENTS
@ERAS
async def test_completions_of_prompts_and_templates_come_from_their_source(
    source: str, mode: Mode, shared: str
) -> None:
    async with client_of(shared, mode) as client:
        prompt = mcp_types.PromptReference(type="ref/prompt", name=f"{source}__test_prompt_with_arguments")
        given = await client.complete(prompt, {"name": "arg1", "value": "par"})
        assert given.completion.values == ["paris", "park", "party"]
        uri = f"toolcrib://{source}/test://template/{{id}}/data"
        template = mcp_types.ResourceTemplateReference(type="ref/resource", uri=uri)
        assert (await client.complete(template, {"name": "id", "value": "t"})).completion.values == ["testing"]


@CLIENTS
async def test_a_prompt_change_notifies_the_client(mode: Mode, tmp_path: Path) -> None:
    heard: list[str] = []

    async def hear(message: object) -> None:
        heard.append(getattr(message, "method", ""))

    async with client_of(write_config(tmp_path / "mcp.json", **SERVERS), mode, heard=hear) as client:
        before = {prompt.name for prompt in (await client.list_prompts()).prompts}
        for source in SERVERS:
            assert f"{source}__test_comes_and_goes" not in before
            if mode == "auto":
                async with client.listen(prompts_list_changed=True) as changes:
                    await run_tool(client, f"{source}.test_trigger_prompt_change")
                    await anext(changes)
            else:
                heard.clear()
                await run_tool(client, f"{source}.test_trigger_prompt_change")
                await until(lambda: "notifications/prompts/list_changed" in heard, "the change of prompts")
        after = {prompt.name for prompt in (await client.list_prompts(cache_mode="bypass")).prompts}
        assert after - before == {f"{source}__test_comes_and_goes" for source in SERVERS}


@CLIENTS
@ERAS
async def test_a_tool_can_request_input_during_a_call(source: str, mode: Mode, shared: str) -> None:
    person = Person()
    async with client_of(shared, mode, person=person) as client:
        greeting = await run_tool(client, f"{source}.test_input_required_result_elicitation")
        assert (text_of(greeting), greeting.is_error) == ("Hello, Ada!", False)
        assert person.asked == ["What is your name?"]
        liked = await run_tool(client, f"{source}.test_input_required_result_multi_round")
        assert text_of(liked) == "Ada likes blue"
        state = await run_tool(client, f"{source}.test_input_required_result_request_state")
        assert text_of(state) == "state-ok"
        roots = await run_tool(client, f"{source}.test_input_required_result_list_roots")
        assert text_of(roots) == "file:///home/ada"


@CLIENTS
async def test_prompts_resources_and_input_requests_work_over_stdio(mode: Mode, tmp_path: Path) -> None:
    person = Person()
    async with client_of(write_config(tmp_path / "mcp.json", **SERVERS), mode, person=person) as client:
        for source in SERVERS:
            got = await client.get_prompt(f"{source}__test_simple_prompt")
            assert text_of(got.messages[0]) == "This is a simple prompt for testing."
            (held,) = (await client.read_resource(f"toolcrib://{source}/test://static-text")).contents
            assert getattr(held, "text", "") == "This is the content of the static text resource."
            person.asked.clear()
            greeted = await run_tool(client, f"{source}.test_input_required_result_multiple_inputs")
            assert text_of(greeted) == "Paris Ada: 1 roots"
            assert sorted(person.asked) == ["What is your name?", "roots", "sample"]


@CLIENTS
@ERAS
async def test_a_prompt_can_request_input(source: str, mode: Mode, shared: str) -> None:
    person = Person()
    async with client_of(shared, mode, person=person) as client:
        got = await client.get_prompt(f"{source}__test_input_required_result_prompt")
        assert text_of(got.messages[0]).startswith("Use this context")
        assert person.asked == ["What context should the prompt use?"]


@CLIENTS
@ERAS
async def test_an_input_request_to_a_client_without_elicitation_fails(source: str, mode: Mode, shared: str) -> None:
    async with client_of(shared, mode) as client:
        refused = await run_tool(client, f"{source}.test_elicitation", message="Who are you?")
        assert refused.is_error
        assert "elicitation/create, which this client does not support" in text_of(refused)
        # The server still works.
        assert "simple text" in text_of(await run_tool(client, f"{source}.test_simple_text"))


@ERAS
async def test_a_modified_or_reused_request_state_is_refused(source: str, shared: str) -> None:
    async with client_of(shared, "auto", person=Person()) as client:
        handle = (await ask(client, "expand_tool", tool_id=f"{source}.test_input_required_result_request_state"))[
            "handle"
        ]
        call: Json = {"tool_id": handle, "arguments": {}}
        first = await client.session.call_tool("call_tool", call, allow_input_required=True)
        assert isinstance(first, mcp_types.InputRequiredResult)
        (key,) = first.input_requests or {}
        answers: dict[str, Any] = {key: mcp_types.ElicitResult(action="accept", content={"ok": True})}
        state = first.request_state
        assert state is not None
        tampered: tuple[tuple[Json, str], ...] = (
            (call, state[:-2] + "xx"),
            ({**call, "arguments": {"other": 1}}, state),
        )
        for tried, told in tampered:
            with pytest.raises(MCPError, match="requestState"):
                await client.session.call_tool("call_tool", tried, input_responses=answers, request_state=told)
        done = await client.session.call_tool("call_tool", call, input_responses=answers, request_state=state)
        assert text_of(done) == "state-ok"
        if source == "handshake":  # the waiting call has finished, and repeating it would run it twice
            with pytest.raises(MCPError, match="already answered"):
                await client.session.call_tool("call_tool", call, input_responses=answers, request_state=state)


@CLIENTS
async def test_with_all_operations_tools_are_listed_and_called_by_name(mode: Mode, listing: str) -> None:
    async with client_of(listing, mode, person=Person()) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"test_simple_text", "handshake__test_simple_text"} <= names
        assert "search_tools" not in names
        assert "simple text" in text_of(await client.call_tool("handshake__test_simple_text"))
        for greeting in ("test_input_required_result_elicitation", "handshake__test_input_required_result_elicitation"):
            assert text_of(await client.call_tool(greeting)) == "Hello, Ada!"
        wrong = await client.call_tool("handshake__test_elicitation", {"mesage": "Who?"})
        assert wrong.structured_content is not None
        error = wrong.structured_content["error"]
        assert error["code"] == "INVALID_ARGUMENTS"
        assert error["next_action"] == {"operation": "handshake__test_elicitation", "arguments": {"message": "Who?"}}
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("handshake.test_simple_text")


@CLIENTS
async def test_a_source_with_plain_names_has_no_prefixes(mode: Mode, listing: str) -> None:
    async with client_of(listing, mode) as client:
        assert "simple text" in text_of(await client.call_tool("test_simple_text"))
        assert {"test_simple_prompt", "handshake__test_simple_prompt"} <= {
            prompt.name for prompt in (await client.list_prompts()).prompts
        }
        for uri in ("test://static-text", "test://template/7/data"):
            (held,) = (await client.read_resource(uri)).contents
            assert held.uri == uri


async def test_hundreds_of_tools_are_listed_in_pages_without_duplicates(tmp_path: Path) -> None:
    tools = "".join(
        f"@server.tool(name='tool_{number:04}')\ndef _() -> str:\n    'Tool {number}.'\n    return '{number}'\n"
        for number in range(250)
    )
    many = tmp_path / "many.py"
    many.write_text(f"from mcp.server.mcpserver import MCPServer\nserver = MCPServer('many')\n{tools}\nserver.run()\n")
    config = write_config(tmp_path / "mcp.json", many={"command": sys.executable, "args": [str(many)]})
    async with client_of(config, "auto", "--operations", "all") as client:
        names: list[str] = []
        page = await client.list_tools()
        while True:
            names += [tool.name for tool in page.tools]
            if page.next_cursor is None:
                break
            page = await client.list_tools(cursor=page.next_cursor)
        assert names == [f"many__tool_{number:04}" for number in range(250)]
        with pytest.raises(MCPError, match="cursor"):
            await client.list_tools(cursor="no cursor")


LARGE = """
import base64
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent

server = MCPServer("large")

@server.tool(structured_output=False)
def lines(count: int) -> str:
    "Lines with umlauts."
    return "".join(f"Zeile {number}: Grüße\\n" for number in range(count))

@server.tool(structured_output=False)
def image(size: int) -> CallToolResult:
    "A picture of that many bytes."
    data = base64.b64encode(bytes(size)).decode()
    return CallToolResult(
        content=[TextContent(type="text", text="here"), ImageContent(type="image", data=data, mime_type="image/png")]
    )

server.run()
"""


async def test_large_text_is_paged_and_large_binary_is_omitted(tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    script.write_text(LARGE)
    config = write_config(
        tmp_path / "mcp.json",
        toolcrib={"max_text_bytes": 5_000, "max_binary_bytes": 5_000},
        large={"command": sys.executable, "args": [str(script)]},
    )
    async with client_of(config, "auto") as client:
        whole = "".join(f"Zeile {number}: Grüße\n" for number in range(1_000))
        result = await run_tool(client, "large.lines", count=1_000)
        head, note, *links = result.content
        assert isinstance(head, mcp_types.TextContent)
        assert len(head.text.encode()) <= 5_000
        assert "too large for one answer" in getattr(note, "text", "")
        assert all(isinstance(link, mcp_types.ResourceLink) for link in links)
        pages = [await client.read_resource(str(getattr(link, "uri", ""))) for link in links]
        assert head.text + "".join(getattr(page.contents[0], "text", "") for page in pages) == whole
        fits = await run_tool(client, "large.image", size=4_000)
        assert [block.type for block in fits.content] == ["text", "image"]
        beyond = await run_tool(client, "large.image", size=6_000)
        assert [block.type for block in beyond.content] == ["text", "text"]
        assert "image/png of about 6000 bytes is left out" in text_of(beyond)
        with pytest.raises(MCPError, match="has expired"):
            await client.read_resource("toolcrib-result://nothing/1")


async def test_a_server_sees_only_the_capabilities_of_the_stdio_client(tmp_path: Path) -> None:
    config = write_config(tmp_path / "mcp.json", one=HANDSHAKE_FIXTURE)
    async with client_of(config, "legacy") as client:
        result = await run_tool(client, "one.test_missing_capability")
        assert result.is_error
    async with client_of(config, "legacy", person=Person()) as client:
        assert text_of(await run_tool(client, "one.test_missing_capability")) == "The client can sample."


class Thoughtful(Person):
    """A person who answers only after an event."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = anyio.Event()
        self.may_answer = anyio.Event()

    async def elicit(
        self, context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult:
        self.was_asked.set()
        await self.may_answer.wait()
        return await super().elicit(context, params)


@pytest.mark.parametrize("other_person", [None, Person()], ids=["without input support", "with input support"])
@CLIENTS
async def test_an_input_request_never_reaches_a_different_client(
    mode: Mode, other_person: Person | None, tmp_path: Path
) -> None:
    config, first = write_config(tmp_path / "mcp.json", one=HANDSHAKE_FIXTURE), Thoughtful()
    greetings: list[str] = []
    with serving(config) as gateway:
        async with (
            client_of(gateway.url, mode, person=first) as asked,
            client_of(gateway.url, mode, person=other_person) as other,
            anyio.create_task_group() as tasks,
        ):

            async def greet() -> None:
                greetings.append(text_of(await run_tool(asked, "one.test_input_required_result_elicitation")))

            tasks.start_soon(greet)
            await first.was_asked.wait()
            refused = await run_tool(other, "one.test_elicitation", message="Who are you?")
            assert refused.is_error
            assert "Toolcrib cannot tell which one to ask" in text_of(refused)
            first.may_answer.set()
        assert greetings == ["Hello, Ada!"]
        assert first.asked == ["What is your name?"]
        assert other_person is None or other_person.asked == []


async def test_a_call_waiting_for_a_disconnected_client_is_cancelled(tmp_path: Path) -> None:
    config, person = write_config(tmp_path / "mcp.json", one=HANDSHAKE_FIXTURE), Thoughtful()
    with serving(config) as gateway:
        async with client_of(gateway.url, "legacy", person=person) as client, anyio.create_task_group() as tasks:
            tasks.start_soon(run_tool, client, "one.test_input_required_result_elicitation")
            await person.was_asked.wait()
            tasks.cancel_scope.cancel()
        async with client_of(gateway.url, "legacy", person=(other := Person())) as client:
            assert "simple text" in text_of(await run_tool(client, "one.test_simple_text"))
            # The server may still run the cancelled call, so an input request could belong to either call.
            refused = await run_tool(client, "one.test_input_required_result_elicitation")
            assert "Toolcrib cannot tell which one to ask" in text_of(refused)
        assert other.asked == []
